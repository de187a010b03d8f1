"""Parts of programs with tensors run as plain Python, and nobody can tell."""

import heapq
from dataclasses import dataclass

import pytest
import torch

import autobatch
from autobatch.alone.parts import Finder
from benchmarks.mixed_programs import PROGRAMS, examples

ENGINES = ("stackless", "program_counter")
EXECUTORS = ("traced", "auto")
WORDS = ["b", "a", "", "ccc", "a b", "7", "b b a"]
TABLE = {"a": [1]}
SEEN = []


def stacked(rows):
    """The arguments of a batch."""
    return [
        torch.stack(column) if isinstance(column[0], torch.Tensor) else autobatch.objects(column)
        for column in zip(*rows, strict=True)
    ]


def outcome(function, *args, **options):
    """The result or the exception, and how many threads, or parts of them, ran as plain Python."""
    with autobatch.counts() as counts:
        try:
            found = autobatch.vmap(function, **options)(*args)
        except Exception as error:
            found = (type(error), str(error))
    return found, counts.plain_parts + counts.plain


def as_plain(found):
    if isinstance(found, torch.Tensor):
        return found.tolist()
    if isinstance(found, autobatch.Result):
        return as_plain(found.value), type(found.exception), str(found.exception)
    if isinstance(found, tuple | list):
        return [as_plain(part) for part in found]
    return found


def same(function, *args, **options):
    """The result, which is that of threads which are kept together; parts ran as plain Python."""
    results = []
    for engine in ENGINES:
        for executor in EXECUTORS:
            own = {"engine": engine, "executor": executor, **options}
            for _ in range(2):
                found, parts = outcome(function, *args, **own)
                assert parts > 0
                results.append(as_plain(found))
    together, none = outcome(function, *args, plain="never", **options)
    assert none == 0
    assert all(each == as_plain(together) for each in results)
    return together


@pytest.mark.sampled(48)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("executor", [*EXECUTORS, "vmap"])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_program_is_the_loop(name, engine, executor, size):
    function, rows = PROGRAMS[name][0], examples(name, size)
    with torch.no_grad():
        expected = [function(*row) for row in rows]
        batched = autobatch.vmap(function, engine=engine, executor=executor)
        with autobatch.counts() as counts:
            found = batched(*stacked(rows))
    assert (counts.plain_parts + counts.plain > 0) == (executor != "vmap")
    if isinstance(expected[0], float):
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    else:
        assert as_plain(found) == expected


MOST_STEPS = {
    "beam_search": 120, "decode": 64, "parse": 220, "viterbi": 12, "chart": 12, "dijkstra": 12,
    "a_star": 12, "suppressed": 20, "nearest": 12, "pieces": 12,
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_of_objects_takes_no_block_executions(name):
    function, rows = PROGRAMS[name][0], examples(name, 64)
    with torch.no_grad(), autobatch.counts() as counts:
        found = autobatch.vmap(function)(*stacked(rows))
        expected = [function(*row) for row in rows]
    if not isinstance(expected[0], float):
        assert as_plain(found) == expected
    assert counts.block_executions <= MOST_STEPS[name]


def test_none_is_taken_apart_where_threads_are_to_stay_together():
    rows = examples("chart", 4)
    for options in ({"plain": "never"}, {"executor": "vmap"}, {"max_steps": 10_000}):
        _, parts = outcome(PROGRAMS["chart"][0], *stacked(rows), **options)
        assert parts == 0
    with autobatch.counts() as counts:  # all of it may run so, since it draws nothing
        autobatch.vmap(PROGRAMS["chart"][0], seed=1)(*stacked(rows))
    assert counts.plain_parts == 0


def counted(x, text):
    found = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    return x * len(found), " ".join(found)


def test_tensors_go_by_what_plain_python_leaves_alone():
    x = torch.arange(7.0)
    product, words = same(counted, x, autobatch.objects(WORDS))
    assert product.tolist() == [x * len(set(w.split())) for x, w in enumerate(WORDS)]
    assert words[-1] == "b a"


def stepped(x, n):
    squares = {(i, i % 2): i * i for i in range(n)}
    for key in list(squares):
        if (key[0] + 1, 1) in squares or key in {(0, 0): 1}:
            x = x * 2 + squares[key]
    return x


def test_what_is_the_same_for_all_threads_is_done_once():
    x = torch.arange(200.0)
    found, parts = outcome(stepped, x, 4, in_dims=(0, None), fallback="error")
    assert parts == 0
    assert found.tolist() == [stepped(v, 4).item() for v in x]
    found, parts = outcome(stepped, x, 4, in_dims=(0, None))
    assert parts == 0 and found.tolist() == [stepped(v, 4).item() for v in x]


class Above:
    def __init__(self):
        self.found = {}


class Counting(Above):
    def most(self, text):
        super().__init__()
        for letter in text:
            self.found[letter] = self.found.get(letter, 0) + 1
        return max(self.found.values())


def of_a_subclass(x, text):
    return x * Counting().most(text), x.tanh()


def test_what_is_found_of_a_method_that_calls_super_is_kept(monkeypatch):
    proved, original = [], Finder.proved
    monkeypatch.setattr(Finder, "proved", lambda *args: proved.append(1) or original(*args))
    mapped = autobatch.vmap(of_a_subclass)
    given = torch.arange(7.0), autobatch.objects(["aab", "b", "ccc", "dd", "e", "fff", "gg"])
    for expected in (1, 0, 0):
        with autobatch.counts() as counts:
            assert mapped(*given)[0].tolist() == [0, 1, 6, 6, 4, 15, 12]
        assert counts.plain_parts == 7 and len(proved) == expected
        proved.clear()


def test_gradients_go_past_a_part():
    x = torch.arange(7.0, requires_grad=True)
    product, _ = autobatch.vmap(counted)(x, autobatch.objects(WORDS))
    product.sum().backward()
    assert x.grad.tolist() == [len(set(w.split())) for w in WORDS]


def failing(x, text):
    total = 0
    for letter in text:
        total += {"a": 1, "b": 2, " ": 0}[letter]
    return x + total


def test_the_first_thread_that_fails_is_the_one_that_is_told_of():
    found = same(failing, torch.zeros(7), autobatch.objects(WORDS))
    assert found == (KeyError, "'c'")
    with pytest.raises(KeyError) as caught:
        autobatch.vmap(failing)(torch.zeros(7), autobatch.objects(WORDS))
    (note,) = caught.value.__notes__
    assert "Example index: 3" in note
    assert '{"a": 1, "b": 2, " ": 0}[letter]' in note


def looked_up(table, key):
    return table[key]


def summed(table, key):
    total = 0
    for i in range(3):
        total += looked_up(table, key + i)
    return total


class Table:
    def __init__(self, table):
        self.table = table

    def get(self, key):
        return summed(self.table, key)


def by_helpers(x, text):
    table = Table({0: 1, 1: 2, 2: 3, 3: 4})
    y = torch.sin(x) * 2
    return y + table.get(len(text))


def by_own_functions(x, text):
    def outer(key):
        return ["ä", summed({0: 1, 1: 2, 2: 3, 3: 4}, key)][1]

    def inner(key):
        return outer(key) + 1

    y = torch.sin(x)
    total = 0
    for _ in text:
        total += inner(len(text))
    return y + total


def by_a_recursion(x, text):
    def down(n):
        if n == 0:
            return {}["no"]
        return down(n - 1)

    return torch.sin(x) + down(len(text) * 30)


@pytest.mark.parametrize("function", [by_helpers, by_own_functions, by_a_recursion])
def test_the_calls_on_the_way_are_told_of(function):
    said = []
    for plain in ("auto", "never"):
        for _ in range(2):
            with pytest.raises(KeyError) as caught:
                autobatch.vmap(function, plain=plain)(
                    torch.zeros(2), autobatch.objects(["a", "b" * 4])
                )
            (note,) = caught.value.__notes__
            said.append([line for line in note.splitlines() if "Operands" not in line])
    assert said.count(said[0]) == len(said)
    assert sum("called here" in line for line in said[0]) >= 2


def test_isolated_threads_fail_by_themselves():
    found = same(failing, torch.zeros(7), autobatch.objects(WORDS), on_error="isolate")
    assert [type(each.exception) for each in found].count(KeyError) == 2
    assert found[6].value.item() == 5


def before_and_after(x, text):
    y = x.sqrt()
    if x < 0:
        raise ValueError("negative")
    for letter in text:
        if letter == "c":
            raise RuntimeError(letter)
    if y < 0.5:
        raise ArithmeticError("small")
    return y


def test_failures_before_within_and_after_a_part_come_in_order():
    words = autobatch.objects(WORDS)
    for values in (
        [1.0] * 7,
        [1, 1, 1, 1, -1, 1, 1],
        [1, 0, 1, 1, 1, 1, 1],
        [1, 1, -1, 1, 1, 1, 1],
    ):
        found = same(before_and_after, torch.tensor(values), words)
        try:
            for x, text in zip(values, WORDS, strict=True):
                before_and_after(torch.tensor(float(x)), text)
        except Exception as error:
            assert found == (type(error), str(error))


def caught(x, text):
    total = 0
    try:
        for letter in text:
            total += int(letter)
    except ValueError as error:
        return x - total, str(error)
    return x + total, ""


def test_what_a_handler_catches_goes_the_general_way():
    (values, said), parts = outcome(caught, torch.zeros(7), autobatch.objects(WORDS))
    assert parts == 0
    expected = [caught(0, word) for word in WORDS]
    assert list(zip(values.tolist(), said, strict=True)) == expected


def aliased(x, words):
    one = other = []
    inner = [one]
    for word in words:
        one.append(word)
        if len(word) > 1:
            one = [word]
            inner.append(one)
    one.append("end")
    return x, " ".join(other), " ".join(" ".join(part) for part in inner), one is other


def test_names_for_one_list_stay_names_for_one():
    rows = [["a", "bb", "c"], ["a"], ["cc", "d"], []]
    _, other, whole, is_one = same(aliased, torch.zeros(4), autobatch.objects(rows))
    expected = [aliased(0, row) for row in rows]
    assert list(zip(other, whole, is_one.tolist(), strict=True)) == [row[1:] for row in expected]


def mutates(x, words):
    for word in list(words):
        words.append(word)
    return x + len(words)


def test_what_a_thread_is_given_is_its_own():
    rows = [["a"], ["b", "c"]]
    found = same(mutates, torch.zeros(2), autobatch.objects(rows))
    assert found.tolist() == [2, 4]
    assert rows == [["a"], ["b", "c"]]


def hands_out(x, words):
    mine = []
    for word in words:
        mine.append(TABLE.get(word, []))
    if x > 0:
        mine[0].append(2)
    return x + len(mine[0])


def test_what_existed_before_is_not_written_after_a_part_has_handed_it_out():
    found, _ = outcome(hands_out, torch.tensor([1.0, 1.0]), autobatch.objects([["a"], ["b"]]))
    assert found[0] is not None
    assert issubclass(found[0], autobatch.AutobatchError)
    assert TABLE == {"a": [1]}


def writes_shared(x, words):
    for word in words:
        TABLE["a"].append(word)
    return x


def test_what_existed_before_is_not_written_in_a_part():
    found, parts = outcome(writes_shared, torch.zeros(2), autobatch.objects([["a"], ["b"]]))
    assert issubclass(found[0], autobatch.AutobatchError)
    assert parts == 0
    assert TABLE == {"a": [1]}


def tells(word):
    SEEN.append(word)
    return word


def effects(x, words):
    found = []
    for word in words:
        found.append(autobatch.per_thread(tells)(word))
    return x, len(found)


def test_effects_happen_as_ever():
    SEEN.clear()
    outcome(effects, torch.zeros(2), autobatch.objects([["a", "b"], ["c"]]))
    assert sorted(SEEN) == ["a", "b", "c"]


@dataclass
class Item:
    name: str
    price: float


def instances(x, words):
    items = []
    for at, word in enumerate(words):
        items.append(Item(word, 1.0 + at))
    for item in items:
        item.price = item.price * 2
    items.sort(key=lambda item: (-item.price, item.name))
    best = items[0] if items else Item("none", 0.0)
    return x + best.price, best.name


def test_instances_of_a_class():
    rows = [["a", "bb", "c"], ["a"], ["cc", "d"], []]
    price, name = same(instances, torch.zeros(4), autobatch.objects(rows))
    assert name == [instances(0, row)[1] for row in rows]
    assert price.tolist() == [instances(0, row)[0] for row in rows]


def kept_function(x, words):
    found = []
    for word in words:
        found.append(lambda more, own=word: own + more)
    text = "".join(each("!") for each in found)
    y = x.exp()
    last = found[-1] if found else str
    return y, text + last("?")


def test_a_function_that_is_made_in_a_part_can_be_called_after_it():
    rows = [["a", "bb", "c"], ["a"], ["cc", "d"], []]
    _, text = same(kept_function, torch.zeros(4), autobatch.objects(rows))
    assert text == [kept_function(torch.tensor(0.0), row)[1] for row in rows]


def merging(x, words):
    heap = []
    for at, word in enumerate(words):
        heapq.heappush(heap, (len(word), at, word))
    total = x * 0
    while heap:
        size, at, word = heapq.heappop(heap)
        if not size % 2:
            total = total - size
            continue
        total = total + torch.sin(x + at)
    return total


def deleting(x, words):
    def told(word):
        count = 0
        for _ in word:
            count = count + 1
            if count > 2:
                del count
                break
        return str(count)

    text = ""
    for word in words:
        text = text + told(word)
    return x * 2, text


def test_a_function_that_is_made_in_a_part_deletes_a_name():
    rows = [["a", "bb", "c"], ["a"], ["cc", "d"], []]
    _, text = same(deleting, torch.zeros(4), autobatch.objects(rows))
    assert text == ["121", "1", "21", ""]
    kind, told = same(deleting, torch.zeros(2), autobatch.objects([["a"], ["b", "ccc"]]))
    assert kind is UnboundLocalError and "'count'" in told


def test_threads_meet_where_tensors_are():
    rows = [["a", "bb", "c"], ["a"], ["cc", "d"], [], ["dd", "ee", "f", "g"]]
    x = torch.linspace(0, 1, 5)
    found = same(merging, x, autobatch.objects(rows))
    expected = torch.stack([merging(value, row) for value, row in zip(x, rows, strict=True)])
    torch.testing.assert_close(found, expected)


def unbound(x, words):
    for word in words:
        last = word
    return x, last


def test_a_variable_without_a_value_is_pythons_error():
    found = same(unbound, torch.zeros(3), autobatch.objects([["a"], [], ["b"]]))
    assert found[0] is UnboundLocalError
    assert "'last'" in found[1]


def ends(x, words):
    for at, word in enumerate(words):
        if word == "stop":
            return at, "stopped"
        if word == "go on":
            continue
        if len(word) > 3:
            break
    else:
        return -1, "all"
    return 100, word


def test_loops_are_left_in_every_way():
    rows = [["a", "stop"], ["a"], ["go on", "longer", "stop"], []]
    numbers, said = same(ends, torch.zeros(4), autobatch.objects(rows))
    assert list(zip(numbers.tolist(), said, strict=True)) == [ends(0, row) for row in rows]


def caught_within(x, text):
    def number(word):
        try:
            return int(word)
        except ValueError:
            return 100

    total = 0
    for word in text.split():
        total += number(word)
    return x + total


def test_a_function_within_catches_what_it_catches():
    texts = autobatch.objects(["1 2", "3 a"])
    found, _ = outcome(caught_within, torch.ones(2), texts)
    assert as_plain(found) == [4.0, 104.0]


def numbers(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def test_numbers_alone_are_kept_together():
    _, parts = outcome(numbers, torch.arange(1, 9), scalars="python")
    assert parts == 0


LIMITS = {"low": -1.0, "high": 1.0}


class Checked:
    """Of tensors, by a table that all threads share."""

    def __init__(self, low, high):
        self.low, self.high = low, high
        for name, limit in LIMITS.items():
            if limit > 5.0:
                continue
            if name not in self.__dict__:
                raise ValueError(name)


def checks_by_a_table(x):
    for _ in range(3):
        checked = Checked(x - 1, x + 1)
        x = checked.low * checked.high if x > 0 else checked.high
    return x


def scores(x):
    return torch.distributions.Normal(x, x.exp()).log_prob(x + 1)


@pytest.mark.parametrize("function", [checks_by_a_table, scores])
def test_what_all_threads_share_is_gone_through_once_beside_objects_of_tensors(function):
    x = torch.linspace(-1, 1, 7)
    with autobatch.counts() as counts:
        found = autobatch.vmap(function)(x)
    assert counts.plain_parts == 0 and counts.by_thread == 0
    torch.testing.assert_close(found, torch.stack([*map(function, x)]))
