"""What the proof of plain Python knows of Python's own ways: each beside what must not pass."""

import abc
import contextlib
import functools
import json
import operator
import re
import types
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import pytest
import torch
from torch import nn

import autobatch
from autobatch.alone import running
from tests.test_alone import outcome, same

WORDS = ["b", "aBc", "", "ccc", "a b", "7"]
SEEN = []
TABLE = {"a": 1, "b": 2}
ROWS = {"a": ["x"], "b": ["y"]}
add_two = functools.partial(operator.add, 2)


class Pair(NamedTuple):
    left: str
    right: int


class Timer:
    def __init__(self):
        self.count = 0

    def __enter__(self):
        self.count += 1
        return self

    def __exit__(self, kind, error, trace):
        self.count += 10
        return kind is not None and issubclass(kind, ValueError)


class Depth(Timer):
    """It takes what its body has raised as it comes."""

    def __exit__(self, *failure):
        self.count -= 1
        return failure[0] is not None


class Shape:
    sides = 0

    def __init__(self, word):
        self.word = word

    @classmethod
    def of(cls, word):
        made = cls(word)
        made.size = len(word) * cls.sides
        return made

    @staticmethod
    def doubled(word):
        return word * 2

    def area(self):
        raise NotImplementedError

    def grown(self):
        return type(self)(self.word + "!")


class Square(Shape):
    sides = 4

    def area(self):
        return self.size**2


class Kind(Enum):
    SHORT = 1
    LONG = 2


@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.cache
def row(word):
    return [word]


@functools.cache
def itself(item):
    return item


def of_strings(word):
    upper = "".join(map(str.upper, word.translate(str.maketrans("ab", "ba"))))
    return upper + "".join(sorted(word, key=str.lower)) + str(len(list(filter(str.isalpha, word))))


def of_sets(word):
    return len(set.union(*map(set, [word, "ab"])))


def by_bound_method(word):
    return sum(map(TABLE.get, [each for each in word if each in TABLE]))


def formatted(word):
    pair = Pair(word, len(word))
    return "{0.left:>4}|{0[1]:{width}}|{name}".format(pair, width=3, name=Kind.LONG.name)


def named(word):
    return type(word).__name__ + Square(word).__class__.__qualname__


def asked(word):
    shape = Shape(word)
    setattr(shape, "color", "r")  # noqa: B010
    return getattr(word, "upper")() + shape.color + getattr(shape, "none", "n")  # noqa: B009


def has(word):
    return hasattr(Shape(word), "word") + 2 * hasattr(word, "none")


def classes(word):
    return Square.of(word).area() + len(Square(word).grown().word) + len(Shape.doubled(word))


def replaced(word):
    pair = Pair(word, 1)._replace(right=len(word))
    return Pair._make(pair)._asdict()["right"]


def managed(word):
    timer = Timer()
    with timer as entered, contextlib.suppress(ValueError):
        entered.count += len(word)
        int(word)
    with timer:
        int(word)
    return timer.count


def managed_by_stars(word):
    depth, found = Depth(), []
    for letter in word:
        with depth, depth:
            found.append(depth.count)
            int(letter)
    return sum(found) * 10 + depth.count


def managed_by_another_name(word):
    timer = Timer()
    same = timer
    with timer, same:
        int(word)
    return timer.count


def with_kind(word):
    timer, event = Timer(), (Kind.SHORT, len(word))
    timer.count = event[1]
    return timer.count + (event[0] is Kind.SHORT)


def partial_made(word):
    return functools.partial(operator.add, 3)(add_two(len(word)))


def kept_by_module(word):
    rows, total = [[0]], 0
    for each in range(len(word)):
        total += fibonacci(each)
        rows[0].append(total)
    return sum(rows[0]) + len(row(word)[0])


def kept_within(word):
    @functools.lru_cache(None)
    def count(n):
        return 1 if n < 2 else count(n - 1) + count(n - 2)

    return count(len(word))


class Tree(abc.ABC):
    @abc.abstractmethod
    def size(self):
        raise NotImplementedError

    @functools.cached_property
    def shown(self):
        return f"{type(self).__name__}{self.size()}"


class Leaf(Tree):
    def __init__(self, word):
        self.word = word

    def size(self):
        return len(self.word)


class Visitor:
    def visit(self, item):
        return getattr(self, "visit_" + type(item).__name__)(item)

    def visit_Leaf(self, leaf):
        return leaf.shown


def abstract(word):
    leaf = Leaf(word)
    return Visitor().visit(leaf) + leaf.shown


@functools.total_ordering
class Ranked:
    def __init__(self, word):
        self.rank = len(word)

    def __eq__(self, other):
        return self.rank == other.rank

    def __lt__(self, other):
        return self.rank < other.rank


def ordered(word):
    one, other = Ranked(word), Ranked("ab")
    return max(one, other).rank * 10 + (one >= other) + 2 * (one <= other)


@functools.total_ordering
class RankedOnce(Ranked):
    def __lt__(self, other):
        SEEN.append(other)
        return super().__lt__(other)


def ordered_once(word):
    return int(RankedOnce(word) >= RankedOnce("ab"))


def test_a_comparison_that_writes_is_looked_at():
    assert outcome(ordered_once, WORDS)[1] == 0
    SEEN.clear()


def by_getter(word):
    leaves = sorted(map(Leaf, [word, "b"]), key=operator.attrgetter("word"))
    return leaves[0].word + "".join(map(operator.methodcaller("upper"), word))


def as_json(word):
    return json.dumps(json.loads(json.dumps({"word": [word, len(word)]})))


class Wrong(Exception):
    def __init__(self):
        self.code = 3


def raised(word):
    leaf = Leaf(word)
    try:
        if len(word) > 1:
            raise Wrong
        leaf.found = int(word)
    except (Wrong, KeyError) as error:
        leaf.found = error.code
    except ValueError:
        leaf.found = -1
    return leaf.found


USES = [
    raised,
    *(abstract, by_getter, as_json, ordered),
    *(of_strings, of_sets, by_bound_method, formatted, named, asked, has, classes, replaced),
    *(
        managed,
        managed_by_stars,
        managed_by_another_name,
        with_kind,
        partial_made,
        kept_by_module,
        kept_within,
    ),
]


@pytest.mark.parametrize("function", USES, ids=lambda function: function.__name__)
def test_it_runs_as_plain_python(function):
    found = same(function, WORDS)
    expected = list(map(function, WORDS))
    assert (found if isinstance(found, list) else found[0]) == expected


class Loud:
    def __init__(self, word):
        self.word, self.times = word, 0

    def __enter__(self):
        SEEN.append(self.word)

    def __exit__(self, *failure):
        return False

    def __format__(self, spec):
        SEEN.append(spec)
        return self.word

    def __eq__(self, other):
        other.times += 1
        return self.word == other.word

    def __hash__(self):
        return 1

    @property
    def loud(self):
        SEEN.append("loud")
        return self.word


class Counting:
    tally = []  # noqa: RUF012
    kinds = 0

    @classmethod
    def counted(cls):
        cls.kinds += 1

    @classmethod
    def noted(cls, word):
        cls.tally.append(word)

    @staticmethod
    def put(rows, word):
        rows.append(word)


class Titled:
    __name__ = ["t"]  # noqa: RUF012


class Making(Pair):
    @classmethod
    def _make(cls, parts):
        SEEN.append("made")
        return Pair(*parts)


class Marked(Enum):
    ONE = 1

    def __init__(self, value):
        self.seen = 0


class Peeking:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        trace.tb_frame.f_globals["SEEN"].append(kind)
        return True


@dataclass(unsafe_hash=True)
class Equal:
    word: str


def enters(word):
    with Loud(word):
        return 1


def peeks(word):
    with Peeking():
        int("x")


DEPTH = Depth()


def leaves_shared(word):
    with contextlib.suppress(ValueError), Depth():
        Depth.__exit__(DEPTH)


def enters_shared(word):
    with DEPTH:
        return 1


def formats(word):
    return "{}".format(Loud(word))  # noqa: UP032


def formats_property(word):
    return "{.loud}".format(Loud(word))  # noqa: UP032


def formats_unknown(word):
    return word.format(word)


def gets_property(word):
    return getattr(Loud(word), "loud")  # noqa: B009


def has_property(word):
    return hasattr(Loud(word), "loud")


def gets_any(word):
    return getattr(word, word, "")


def sets(word):
    setattr(Counting, "kinds", 3)  # noqa: B010


def writes_title(word):
    Titled().__name__.append(word)


def writes_class_by_its_method(word):
    Counting.counted()


def writes_class_by_an_instance(word):
    Counting().counted()


def appends_to_class(word):
    Counting().noted(word)


def writes_by_static_method(word):
    Counting().put(SEEN, word)


def makes(word):
    return Making(word, 1)._replace(right=2).left


def marks(word):
    Marked.ONE.seen = 1


def appends_unbound(word):
    list(map(list.append, [SEEN], [word]))


def appends_lent(word):
    dict.get(ROWS, "a").append(word)


def appends_partial(word):
    functools.partial(SEEN.append, word)()


def appends_held(word):
    functools.partial(operator.getitem, ROWS)("a").append(word)


def writes_kept(word):
    row(word).append(word)


def writes_kept_by_map(word):
    for each in map(row, [word]):
        each.append(word)


LEAF = Leaf("shared")


def keeps_in_shared(word):
    return LEAF.shown


def keeps_in_shared_by_getter(word):
    return operator.attrgetter("shown")(LEAF)


def calls_later(word):
    operator.methodcaller("append", word)(SEEN)


def gets_later(word):
    return operator.attrgetter("loud")(Loud(word))


class Writing(Exception):
    def __init__(self):
        LEAF.word = "x"


def raises_what_writes(word):
    raise Writing


class Alias:
    get = SEEN.append


SPACE = types.ModuleType("space")
SPACE.pop = ["a", "b"].pop


def appends_by_alias(word):
    Alias.get(word)


def pops_by_module(word):
    return SPACE.pop()


def forgets(word):
    fibonacci.cache_clear()


def kept_equals_another(word):
    return itself(Loud(word)).times


def kept_of_another(word):
    itself(Equal(word[:1])).word += "x"


HIDDEN = [
    *(
        leaves_shared,
        enters_shared,
        enters,
        peeks,
        formats,
        formats_property,
        formats_unknown,
        gets_property,
    ),
    *(has_property, gets_any, sets, writes_title, writes_class_by_its_method, appends_to_class),
    *(writes_class_by_an_instance, writes_by_static_method, makes, marks, appends_unbound),
    *(appends_lent, appends_partial, appends_held, writes_kept, writes_kept_by_map, forgets),
    *(keeps_in_shared, keeps_in_shared_by_getter, calls_later, gets_later),
    *(raises_what_writes, appends_by_alias, pops_by_module),
    *(kept_equals_another, kept_of_another),
]


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
@pytest.mark.parametrize("function", HIDDEN, ids=lambda function: function.__name__)
def test_what_somebody_may_see_does_not(function):
    for cached in (row, itself):
        cached.cache_clear()
    with contextlib.suppress(autobatch.AutobatchError):
        assert outcome(function, ["a", "bb"])[1] == 0


def test_a_partial_that_is_changed():
    scaled = functools.partial(lambda word, times: word * times, times=2)

    def repeated(word):
        return scaled(word)

    assert same(repeated, ["a", "b"]) == ["aa", "bb"]
    scaled.keywords["times"] = 3
    assert same(repeated, ["a", "b"]) == ["aaa", "bbb"]


def names_each(word):
    total = 0
    for letter in word * 8:
        total += ord(letter)
    return total + len({id(letter): word for letter in word})


class Answering:
    def __getattr__(self, name):
        return name


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


def of_a_module(word):
    return Scaled(2)(word)


def asks_all(word):
    return len(Answering().word)


@pytest.mark.parametrize(
    ("function", "caret", "why"),
    [
        (names_each, "id", "id is not known"),
        (asks_all, "Answering()", "Answering has __getattr__"),
        (of_a_module, "Scaled(2)", "it makes a module of a class of your own"),
    ],
)
def test_what_keeps_a_program_from_it_is_told(function, caret, why, capsys):
    autobatch.explain(function, autobatch.objects(["a", "bb"]))
    lines = capsys.readouterr().out.splitlines()
    name = function.__name__
    at = lines.index(
        f"What keeps {name} from running as plain Python, where it would take less time:"
    )
    assert f'File "{__file__}", line ' in lines[at + 1]
    carets = "^" * len(caret)
    assert caret in lines[at + 2] and lines[at + 3].endswith(f" {carets} {why}")


def ways(steps, most):
    """Climbing stairs, and how much of it the cache has spared."""
    steps = steps.tolist()

    @functools.cache
    def count(left):
        return 1 if left == 0 else sum(count(left - step) for step in steps if step <= left)

    return count(most.item()), count.cache_info().hits


def test_it_is_told_where_much_runs_thread_by_thread_beside_tensors(capsys):
    autobatch.explain(ways, torch.tensor([[1, 2], [2, 3]]).repeat(8, 1), torch.arange(16))
    assert "^^^^ the method cache_info is not known" in capsys.readouterr().out


def test_the_warning_tells_it_too():
    words = autobatch.objects(["ab" * 9, "b" * 20])
    with pytest.warns(autobatch.FallbackWarning, match="from running as plain Python") as warned:
        autobatch.vmap(names_each, fallback="warn")(words)
    assert any("^^ id is not known" in str(w.message) for w in warned)


def test_nothing_is_told_of_a_program_that_is_plain(capsys):
    autobatch.explain(formatted, autobatch.objects(["a", "bb"]))
    autobatch.explain(lambda x: x + 1, autobatch.objects([1, 2]))
    assert "What keeps" not in capsys.readouterr().out


DIGITS = re.compile(r"\d+")


def found_by_iterator(text):
    return sum(int(found.group()) for found in DIGITS.finditer(text))


def found_at_once(text):
    return DIGITS.match(text) is not None


@pytest.mark.parametrize("function", [found_by_iterator, found_at_once])
def test_a_bound_method_of_what_all_share_proves_once(function, monkeypatch):
    made = []

    def counted(*args):
        made.append(args)
        return proof_for(*args)

    proof_for = running.proof_for
    monkeypatch.setattr(running, "proof_for", counted)
    texts = autobatch.objects(["1 and 22", "x"])
    for _ in range(3):
        autobatch.vmap(function)(texts)
    assert len(made) == 1
