"""What the proof of plain Python must not overlook: code and writes that no name leads to."""

import copy
import functools
import itertools
import re
from collections import Counter, namedtuple
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

import pytest

import autobatch

SEEN = []


class Color(Enum):
    RED = "r"
    BLUE = "b"

    @classmethod
    def _missing_(cls, value):
        SEEN.append(value)
        return cls.RED


class Counted:
    count = 0


CLASSES = (Counted,)


class Loud:
    def __call__(self, *args):
        SEEN.append(len(args))
        return True


class Equal:
    __eq__ = Loud()
    __hash__ = None


class Properties:
    called = property(Loud())

    def __init__(self):
        self.value = 1

    @property
    def gone(self):
        return 1

    @gone.deleter
    def gone(self):
        SEEN.append("gone")

    @property
    def loud(self):
        SEEN.append("loud")
        return "a"

    def format(self, word):
        return word


class Disguised:
    @property
    def __class__(self):
        SEEN.append("class")
        return str


@dataclass
class Wrapped:
    x: int


made = Wrapped.__init__


@functools.wraps(made)
def loud_init(self, *args):
    SEEN.append("init")
    made(self, *args)


Wrapped.__init__ = loud_init


def writes_members(word):
    for color in Color:
        color.seen = word


def writes_member_by_value(word):
    Color("r").seen = word


def writes_class_in_tuple(word):
    for kind in CLASSES:
        kind.count = len(word)


def writes_copied_class(word):
    copy.copy(Counted).count = len(word)


def finds_missing(word):
    return Color(word).value


def compares(word):
    return Equal() == word


def asks_called(word):
    return Properties().called


def deletes(word):
    item = Properties()
    del item.gone


def formats(word):
    return f"{Properties().loud}" + Properties().format(word)


def disguised(word):
    return isinstance(Disguised(), int)


def builds_wrapped(word):
    return Wrapped(len(word)).x


HIDDEN = [
    *(writes_members, writes_member_by_value, writes_class_in_tuple, writes_copied_class),
    *(finds_missing, compares, asks_called, deletes, formats, disguised, builds_wrapped),
]


def alone(function, *items, **options):
    """How many threads ran as plain Python."""
    with autobatch.counts() as counts, suppress(autobatch.AutobatchError, AttributeError):
        autobatch.vmap(function, **options)(*map(autobatch.objects, items))
    return counts.plain


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
@pytest.mark.parametrize("function", HIDDEN, ids=lambda function: function.__name__)
def test_code_and_writes_that_no_name_leads_to(function):
    assert alone(function, ["a", "bb"]) == 0


Plain = namedtuple("Plain", "word items")


class Open(Plain):
    """A named tuple whose instances have attributes."""


def appends(pair):
    pair.items.append(pair.word)


def appends_within(row):
    row[0].items.append("x")


def marks(pair):
    pair.seen = pair.word


@pytest.mark.parametrize("kind", [Plain, Open])
def test_lists_in_a_callers_named_tuple_are_not_written(kind):
    pair = kind("a", ["b"])
    assert alone(appends, [pair]) == alone(appends_within, [[pair]]) == 0
    assert pair.items == ["b"]


def test_attributes_of_a_callers_named_tuple_are_not_written():
    pair = Open("a", ())
    assert alone(marks, [pair]) == 0 and not hasattr(pair, "seen")


def test_a_named_tuple_that_is_only_read_is_plain_python():
    assert alone(lambda pair: pair.word + pair.items[0], [Plain("a", ["b"])]) == 1


def counts_more(counter):
    counter.update("z")
    return len(counter)


def test_a_callers_counter_is_not_written():
    counter = Counter("ab")
    assert alone(counts_more, [counter]) == 0 and counter == Counter("ab")
    assert alone(lambda found: found.most_common(1)[0][0], [counter]) == 1


class First:
    def step(self):
        return 1


class Second:
    def step(self):
        SEEN.append("second")
        return 1


def stepped(item):
    return item.step()


def test_bases_that_are_replaced():
    class Root(First):
        """With other bases later."""

    assert alone(stepped, [Root()]) == 1
    Root.__bases__ = (Second,)
    assert alone(stepped, [Root()]) == 0


class Same:
    """Equal to all others."""

    def __eq__(self, other):
        return True

    __hash__ = None


def test_a_member_that_is_replaced_by_an_equal_one():
    class Holder:
        found = Same()

        def __init__(self, word):
            self.word = word

    def finds(word):
        Holder(word).found.mark = word

    class Other(Same):
        def __setattr__(self, name, value):
            SEEN.append(name)

    def reads(word):
        return Holder(word).found == word

    assert alone(finds, ["a"]) == 0
    assert alone(reads, ["a"]) == 1
    Holder.found = Other()
    assert alone(reads, ["a"]) == 0


SOURCE = """
class Typed:
    def __eq__(self, other):
        SEEN.append("typed")
        return True
    __hash__ = None
"""
exec(compile(SOURCE, "<stdin>", "exec"))


def compares_typed(word):
    return Typed() == word  # noqa: F821


def test_what_has_no_file_is_not_taken_as_generated():
    assert alone(compares_typed, ["a"]) == 0


@dataclass(frozen=True, slots=True)
class Fixed:
    word: str


def test_what_dataclasses_adds_by_hand_is_known():
    assert alone(lambda word: Fixed(word) == Fixed("a"), ["a", "b"]) == 2


class Stop(BaseException):
    pass


def stops(word):
    if word == "b":
        raise Stop(word)
    return 1


def told(**options):
    """The exceptions of the threads, or the one of the batch, with their notes."""
    try:
        found = autobatch.vmap(stops, **options)(autobatch.objects(["a", "b", "c"]))
    except Stop as error:
        return [(str(error), error.__notes__)]
    return [(each.value, str(each.exception), type(each.exception)) for each in found]


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_what_is_no_exception_is_told_as_ever(on_error):
    assert told(on_error=on_error) == told(on_error=on_error, plain="never")


def chained(depth):
    found = None
    for _ in range(depth):
        found = [found]
    return found


def depth_of(chain):
    return 0 if chain is None else 1 + depth_of(chain[0])


def written_depth(chain):
    found = 0
    while chain is not None:
        chain.append(found)
        chain, found = chain[0], found + 1
    return found


@pytest.mark.parametrize("function", [depth_of, written_depth])
def test_data_that_is_deeper_than_pythons_limit(function):
    deep = chained(1500)
    found = autobatch.vmap(function)(autobatch.objects([deep, None, [None]]))
    assert found.tolist() == [1500, 0, 1] and len(deep) == 1


def same_in_both(pair):
    first, second = pair
    first.append(0)
    return first is second, pair[0] is first, len(second)


def within_itself(pair):
    return pair[0][0] is pair


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_copies_of_data_are_shared_as_the_data(plain):
    one, within = [0], ([],)
    within[0].append(within)
    for data in [(one, one), ([], []), (one, [])]:
        found = autobatch.vmap(same_in_both, plain=plain)(autobatch.objects([data, data]))
        wanted = [same_in_both(copy.deepcopy(data)) for _ in range(2)]
        assert list(zip(*[each.tolist() for each in found], strict=True)) == wanted
    assert len(one) == 1
    assert autobatch.vmap(within_itself)(autobatch.objects([within])).tolist() == [True]


TABLE = ["t"]


@dataclass
class Row:
    items: list


def by_keyword(word):
    return dict(a=TABLE)["a"]  # noqa: C408


def repeated(word):
    [found] = itertools.repeat(TABLE, 1)
    return found


def filled(word):
    [found] = itertools.zip_longest([], [1], fillvalue=TABLE)
    return found[0]


def accumulated(word):
    [found] = itertools.accumulate([], initial=TABLE)
    return found


def put_in_place(word):
    return replace(Row([]), items=TABLE).items


def missed(word):
    return re.match("(x)?", word).groups(TABLE)[0]


def from_keys(word):
    return dict.fromkeys(word, TABLE)[word[0]]


class Giving:
    def __abs__(self):
        return TABLE


def given_by_abs(word):
    return abs(Giving())


def sliced(word):
    return slice(TABLE, 1).start


LENT = [
    *(by_keyword, repeated, filled, accumulated, put_in_place, missed, from_keys),
    *(given_by_abs, sliced),
]


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
@pytest.mark.parametrize("lent", LENT, ids=lambda function: function.__name__)
def test_what_a_function_of_pythons_holds_is_not_written(lent):
    def writes(word):
        lent(word).append(word)

    assert alone(writes, ["a", "bb"]) == 0
