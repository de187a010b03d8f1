"""Programs of Python objects alone run as plain Python, and nobody can tell."""

import heapq
import random
import signal
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import autobatch
from autobatch.alone import running
from autobatch.alone.proof import proved
from benchmarks.host_programs import PROGRAMS, evaluate, examples

WORDS = ["b", "a", "", "ccc", "a b", "7"]
TABLE = ["t"]
NESTED = [["n"]]
WEIGHTS = {"a": 1, "b": 2}
LINES = iter(["x", "y"])
SIGNS = (("+", lambda x, y: x + y), ("-", lambda x, y: x - y))


def outcome(function, items, **options):
    """The result or the exception, and how many threads ran as plain Python."""
    with autobatch.counts() as counts:
        try:
            found = autobatch.vmap(function, **options)(autobatch.objects(items))
        except Exception as error:
            found = (type(error), str(error), getattr(error, "__notes__", []))
    return as_plain(found), counts.plain


def as_plain(found):
    if isinstance(found, torch.Tensor):
        return found.tolist(), found.dtype
    if isinstance(found, tuple | list):
        return [as_plain(part) for part in found]
    return found


def same(function, items, **options):
    """The result, which is that of threads which run together; it came of plain Python."""
    found, alone = outcome(function, items, **options)
    together, none = outcome(function, items, plain="never", **options)
    assert found == together and none == 0
    assert alone == len(items)
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("size", [1, 7])
def test_a_program_of_objects_runs_as_plain_python(name, size):
    function, items = PROGRAMS[name][0], examples(name, size)
    expected = [function(item) for item in examples(name, size)]
    found, alone = outcome(function, items)
    assert alone == size
    assert (found[0] if isinstance(found[-1], torch.dtype) else found) == expected
    assert items == examples(name, size)


# What its classes and functions do.


@dataclass
class Node:
    word: str
    kids: list = field(default_factory=list)

    def size(self):
        return 1 + sum(kid.size() for kid in self.kids)

    @property
    def longest(self):
        return max([len(self.word), *(kid.longest for kid in self.kids)])


class Pair(NamedTuple):
    left: str
    right: str


class Kind(Enum):
    SHORT = "s"
    LONG = "l"


class Base:
    step = 2

    def __init__(self, text):
        self.text = text
        self.at = 0

    def done(self):
        return self.at >= len(self.text)


class Skipping(Base):
    def __init__(self, text):
        super().__init__(text)
        self.seen = []

    def move(self):
        self.seen.append(self.text[self.at])
        self.at += self.step


def tree_of(text):
    root = Node(text)
    for letter in text:
        root.kids.append(Node(letter * 2))
    return root.size() * 100 + root.longest


def skipped(text):
    reader = Skipping(text)
    while not reader.done():
        reader.move()
    return "".join(reader.seen)


def kind_of(text):
    kind = Kind.SHORT if len(text) < 2 else Kind.LONG
    return Pair(kind.value, text[:1])


def replaced(text):
    return replace(Node(text), word=text.upper()).word


def by_table(text):
    found = 0
    for sign, function in SIGNS:
        found = function(found, len(text)) * 3 + len(sign)
    return found


def closure(text):
    bound = len(text)

    def longer(word):
        return len(word) > bound

    return sum(map(longer, WORDS))


def tried(text):
    try:
        return int(text)
    except ValueError as error:
        return len(str(error)) - len(text)
    finally:
        text = ""


def matched(text):
    match text.split():
        case [one]:
            return len(one)
        case [first, *_]:
            return -len(first)
    return 0


def big(text):
    return 2 ** (20 * len(text))


def huge(text):
    return 3 ** (60 * len(text))


USES = [tree_of, skipped, kind_of, replaced, by_table, closure, tried, matched, big, huge]


@pytest.mark.parametrize("function", USES, ids=lambda function: function.__name__)
def test_classes_and_functions_mean_what_they_mean(function):
    same(function, WORDS)


@given(
    st.recursive(
        st.integers(0, 99).map(str),
        lambda inner: st.builds("({}{}{})".format, inner, st.sampled_from("+-*"), inner),
        max_leaves=12,
    )
)
def test_a_parser_gives_what_python_does(text):
    assert outcome(evaluate, [text, "1"])[0][0] == [eval(text), 1]


def test_a_method_of_an_object_that_all_share():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def of(self, word):
            return len(word) * self.factor

    same(Scale(3).of, WORDS)


def test_numbers_among_the_arguments():
    def repeated(word, count):
        return word * count

    mapped = autobatch.vmap(repeated, scalars="python")
    with autobatch.counts() as counts:
        found = mapped(autobatch.objects(["a", "b"]), torch.tensor([2, 3]))
    assert list(found) == ["aa", "bbb"] and counts.plain == 2
    with autobatch.counts() as counts:
        mapped = autobatch.vmap(repeated, in_dims=(0, None))
        assert list(mapped(autobatch.objects(["a", "b"]), 2)) == ["aa", "bb"]
    assert counts.plain == 2


# What belongs to the caller.


def ordered(words):
    words.sort()
    words.append("end")
    return words


def given_back(words):
    return {"words": words}["words"]


@pytest.mark.parametrize("function", [ordered, given_back])
def test_arguments_are_private(function):
    items = [["b", "a"], ["d", "c"]]
    with autobatch.counts() as counts:
        found = autobatch.vmap(function)(autobatch.objects(items))
    assert counts.plain == 2
    found[0][0] = "changed"
    assert items == [["b", "a"], ["d", "c"]]


def writes_table(word):
    TABLE.append(word)


def writes_other_name(word):
    table = TABLE
    table += [word]


def writes_through_dict(word):
    holder = {"table": TABLE}
    holder["table"].append(word)


def writes_within(word):
    for row in NESTED:
        row.append(word)


def given_table():
    return min(TABLE, ["zz"])


def writes_result(word):
    given_table().append(word)


def writes_item(word):
    WEIGHTS[word] = 1


def pushes(word):
    heapq.heappush(TABLE, word)


class Holder:
    def __init__(self, table):
        self.table = table

    def write(self, word):
        self.table.append(word)


def writes_by_method(word):
    Holder(TABLE).write(word)


def writes_default(word, seen=[]):  # noqa: B006
    seen.append(word)
    return len(seen)


def writes_class(word):
    Base.step = 3


def advances(word):
    return next(LINES)


def writes_instance(node):
    node.word += "!"
    return node.word


def writes_kids(node):
    node.kids.append("x")
    return 1


def writes_own_class(word):
    node = Node(word)
    kind = type(node)
    kind.word = word


def writes_class_of(word):
    Node(word).__class__.word = word


def writes_function(word):
    found = [factor]
    found[0].word = word


WRITES = [
    *(writes_own_class, writes_class_of, writes_function),
    *(writes_table, writes_other_name, writes_through_dict, writes_within, writes_result),
    *(writes_item, pushes, writes_by_method, writes_default, writes_class),
]


@pytest.mark.parametrize("function", WRITES, ids=lambda function: function.__name__)
def test_a_write_to_what_existed_before_is_left_to_the_general_way(function):
    before = (list(TABLE), [list(row) for row in NESTED], dict(WEIGHTS), Base.step)
    found, alone = outcome(function, ["a", "b"])
    assert alone == 0 and issubclass(found[0], autobatch.AutobatchError)
    assert (TABLE, NESTED, WEIGHTS, Base.step) == before
    assert not writes_default.__defaults__[0]


@pytest.mark.parametrize("function", [writes_instance, writes_kids])
def test_an_instance_of_the_callers_is_not_written(function):
    nodes = [Node("a"), Node("b")]
    found, alone = outcome(function, nodes)
    assert alone == 0 and issubclass(found[0], autobatch.AutobatchError)
    assert nodes == [Node("a"), Node("b")]


# What is left to the general way.


def prints(word):
    print(word)


def draws(word):
    return random.random() < 2


def reads_clock(word):
    return time.time() > 0


def makes_tensor(word):
    return torch.zeros(len(word)).sum()


def asks_id(word):
    return id(word) == id(word)


def opens(word):
    with memoryview(b"") as view:
        return len(view)


@autobatch.per_thread
def marked(word):
    return len(word)


def calls_marked(word):
    return marked(word)


class Loud:
    def __init__(self, word):
        self.word = word

    def __lt__(self, other):
        time.perf_counter()
        return self.word < other.word


def compares_loudly(word):
    return sorted([Loud(word), Loud("a")])[0].word


class Magic:
    def __getattr__(self, name):
        return name


def asks_magic(word):
    return Magic().anything


class Printing:
    def __init__(self, word):
        self.kept = word

    @property
    def word(self):
        time.perf_counter()
        return self.kept

    @word.setter
    def word(self, word):
        time.perf_counter()
        self.kept = word


def sets_property(word):
    made = Printing(word)
    made.word = word * 2
    return made.kept


def formats_property(word):
    return f"{Printing(word).word}"


@dataclass
class Told:
    word: str

    def __post_init__(self):
        time.perf_counter()
        print("made")


class Quiet:
    def __init__(self, word):
        time.perf_counter()


def builds_unseen(word):
    kinds = {"quiet": Quiet}
    return 1 if kinds["quiet"](word) else 0


def counts_by_default(word):
    return SEEN[word]


SEEN = defaultdict(int)


OTHERS = [prints, draws, reads_clock, makes_tensor, asks_id, opens, calls_marked, compares_loudly]
OTHERS += [sets_property, formats_property, builds_unseen, counts_by_default]


@pytest.mark.parametrize("function", [*OTHERS, asks_magic], ids=lambda f: f.__name__)
def test_what_others_may_see_is_left_to_the_general_way(function, capsys):
    found, alone = outcome(function, ["a", "b"], randomness="different")
    assert alone == 0
    assert found == outcome(function, ["a", "b"], randomness="different", plain="never")[0]


def test_tensors_among_the_objects_are_left_to_the_general_way():
    items = [{"x": torch.ones(())}, {"x": torch.zeros(())}]
    assert outcome(len, items)[1] == 0
    assert outcome(lambda item: item["x"] + 1, items) == (([2.0, 1.0], torch.float32), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 1000},
        {"max_depth": 1000},
        {"listeners": (lambda step: None,)},
        {"fallback": "error"},
        {"executor": "vmap"},
        {"engine": "sequential"},
        {"passes": ["simplify"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_look_at_steps_keep_threads_together(options):
    assert outcome(tree_of, ["a", "bc"], **options) == (([202, 302], torch.int64), 0)


def remade(told):
    return replace(told, word=told.word * 2).word


def test_what_is_made_anew_runs_its_own_code(capsys):
    items = [Told("a"), Told("b")]
    capsys.readouterr()
    assert outcome(remade, items)[1] == 0
    assert capsys.readouterr().out == "made\nmade\n"


# Failures.


def fails(text):
    return 10 // (int(text) - 5)


@pytest.mark.parametrize("items", [["1", "5", "x", "5"], ["x"], ["3", "4", "5"]])
def test_a_failure_is_told_as_ever(items):
    found, alone = outcome(fails, items)
    assert found == outcome(fails, items, plain="never")[0]
    assert isinstance(found[0], type) and "Example index" in found[2][0] and alone == len(items) - 1


def told(exception):
    """The lines of its notes but that of the operands, which are those of a group."""
    notes = "\n".join(getattr(exception, "__notes__", []))
    return [line for line in notes.split("\n") if "Operands" not in line]


def test_isolated_failures():
    items = ["1", "5", "x", "6"]
    found = autobatch.vmap(fails, on_error="isolate")(autobatch.objects(items))
    together = autobatch.vmap(fails, on_error="isolate", plain="never")(autobatch.objects(items))
    assert [result.value for result in found] == [-3, None, None, 10]
    for one, other in zip(found, together, strict=True):
        assert repr(one) == repr(other)
        assert told(one.exception) == told(other.exception)


def nested(text):
    tree = None
    for letter in text:
        tree = (letter, tree)
    return deep(tree)


def deep(tree):
    return 0 if tree is None else 1 + deep(tree[1])


def test_calls_deeper_than_pythons_limit_go_the_general_way():
    found, alone = outcome(nested, ["a" * 1100, "bb", "c" * 10])
    assert found == ([1100, 2, 10], torch.int64) and alone == 2


def test_structures_that_differ_are_told_as_ever():
    def mixed(word):
        if word:
            return [word]
        return {"word": word}

    found, _ = outcome(mixed, WORDS)
    assert found == outcome(mixed, WORDS, plain="never")[0]
    assert found[0] is autobatch.StackingError


# What it rests on.


def test_names_that_come_to_mean_something_else(monkeypatch):
    def weighed(word):
        return sum(WEIGHTS.get(letter, 0) * factor(letter) for letter in word)

    items = ["ab", "b"]
    assert same(weighed, items) == ([3, 2], torch.int64)
    monkeypatch.setitem(WEIGHTS, "b", 5)
    assert same(weighed, items) == ([6, 5], torch.int64)
    monkeypatch.setitem(globals(), "factor", lambda letter: 10)
    assert same(weighed, items) == ([60, 50], torch.int64)
    monkeypatch.setitem(WEIGHTS, "b", torch.tensor(2.0))
    assert outcome(weighed, items) == (([30.0, 20.0], torch.float32), 0)
    monkeypatch.setitem(WEIGHTS, "b", 1)
    monkeypatch.setitem(globals(), "factor", writes_table)
    assert outcome(weighed, items)[1] == 0 and TABLE == ["t"]


def factor(letter):
    return 1


def test_a_method_that_is_replaced(monkeypatch):
    assert same(skipped, ["abc"]) == ["ac"]
    monkeypatch.setattr(Base, "step", 1)
    assert same(skipped, ["abc"]) == ["abc"]
    monkeypatch.setattr(
        Skipping, "move", lambda self: time.perf_counter() and setattr(self, "at", 9)
    )
    assert outcome(skipped, ["abc"])[1] == 0


def test_closures_of_one_function():
    def made(suffix):
        return lambda word: word + suffix

    seen = [made(suffix) for suffix in ("x", "y")]
    assert [same(function, ["a"]) for function in seen] == [["ax"], ["ay"]]


def test_what_has_been_proved_is_kept(monkeypatch):
    trials = []

    def counted(*args):
        trials.append(args)
        return proved(*args)

    monkeypatch.setattr(running, "proved", counted)

    def weighed(word):
        return evaluate(str(len(word))) + max(WEIGHTS.get(letter, 0) for letter in word)

    assert [outcome(weighed, ["a", "b"])[1] for _ in range(3)] == [2, 2, 2]
    assert len(trials) == 1
    assert [outcome(prints, ["a", "b"])[1] for _ in range(3)] == [0, 0, 0]
    assert len(trials) <= 3  # what is refused is looked at again after a while


def test_what_is_refused_is_looked_through_ever_more_rarely(monkeypatch):
    """Arguments are large where programs are none of objects alone: trees for a model."""
    looks = []

    def counted(*args):
        looks.append(args)
        return prove(*args)

    prove = running.proof_of
    monkeypatch.setattr(running, "proof_of", counted)
    batched = autobatch.vmap(lambda pair: len(pair))
    with_tensors, plain = [(torch.ones(2), 1), (torch.ones(2), 2)], [("a", 1), ("b", 2)]
    for _ in range(20):
        with autobatch.counts() as counts:
            assert batched(autobatch.objects(with_tensors)).tolist() == [2, 2]
        assert not counts.plain
    assert len(looks) == 4  # at the calls 1, 3, 7 and 15
    found = []
    for _ in range(20):
        with autobatch.counts() as counts:
            assert batched(autobatch.objects(plain)).tolist() == [2, 2]
        found.append(counts.plain)
    assert found == [0] * 10 + [2] * 10


class TimeIsUp(Exception):
    pass


def counts_long(word):
    found = {}
    for i in range(2_000):
        found[i % 7] = found.get(i % 7, 0) + i
    return found[0] + len(word)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_what_a_signals_handler_raises_is_no_failure_of_an_example(on_error):
    """It came to an end when it ran again, and the exception was lost."""

    def ring(*_):
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(TimeIsUp):
            autobatch.vmap(counts_long, on_error=on_error)(autobatch.objects(WORDS * 1_000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
