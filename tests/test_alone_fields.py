"""What a program puts into attributes of its own objects, and what must not pass for that."""

import copy
import dataclasses
import itertools
import operator
import random
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import pytest
import torch

import autobatch
from autobatch.alone import objecting, running
from autobatch.explaining import explain

WORDS = ["the ther", "and ing", "", "st st"]
RANKS = {("t", "h"): 0, ("s", "t"): 1}
ROWS = {"a": ["x"], "b": ["y"]}
SHARED = []
FUNCTIONS = {"abs": abs, "len": len, "neg": operator.neg, "twice": lambda x: 2 * x}


class Coder:
    """Words of pairs: a table that all share, and a cache of its own."""

    def __init__(self, ranks, cache):
        self.ranks = ranks
        self.cache = cache

    def coded(self, word):
        if word in self.cache:
            return self.cache[word]
        pairs = sorted(itertools.pairwise(word), key=lambda p: self.ranks.get(p, 9))
        try:
            best = word.index("".join(pairs[0]))
        except (ValueError, IndexError):
            best = -1
        self.cache[word] = best
        return best


class Reader:
    """A parser with a table of functions beside its place."""

    OPS = FUNCTIONS
    __slots__ = ("at", "text")

    def __init__(self, text):
        self.text = text
        self.at = 0

    def next(self):
        self.at += 1
        return self.text[self.at - 1]

    def all(self):
        found = 0
        while self.at < len(self.text):
            found += self.OPS["twice"](self.OPS["len"](self.next()))
        return found


CODER = Coder(RANKS, {})
READER = Reader("ab")


def codes(text):
    coder = Coder(RANKS, {})
    return [coder.coded(word) for word in text.split()][:1] == [0]


def reads(text):
    return Reader(text).all()


class Steps:
    """An iterator with a table in sight."""

    def __init__(self, rows):
        self.rows = rows
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == 3:
            raise StopIteration
        self.at += 1
        return len(self.rows["a"])


def iterates(text):
    return sum(Steps(ROWS)) + len(text)


@pytest.mark.parametrize("function", [codes, reads, iterates])
def test_objects_of_the_program_itself_are_written(function):
    loop = [function(word) for word in WORDS]
    with autobatch.counts() as counts:
        batch = autobatch.vmap(function)(autobatch.objects(WORDS))
    assert counts.plain == len(WORDS) and batch.tolist() == loop


# The same shapes, where what is written existed before.


def caches_outside(text):
    return CODER.coded(text)


def caches_in_what_is_shared(text):
    return Coder(RANKS, SHARED_CACHE).coded(text)


SHARED_CACHE = {}


def either(text):
    coder = CODER if text == "st st" else Coder(RANKS, {})
    return coder.coded(text)


def moves_outside(text):
    return READER.next()


def default_cache(text, cache={}):  # noqa: B006
    return Coder(RANKS, cache).coded(text)


class Linked:
    cache = {}  # noqa: RUF012

    def __init__(self, text):
        self.text = text

    def note(self):
        self.cache[self.text] = 1
        return len(self.text)


def writes_the_class(text):
    return Linked(text).note()


class Holder:
    def __init__(self, item):
        self.item = item


def writes_held(text):
    Holder(SHARED).item.append(text)
    return 0


def writes_through_two(text):
    Holder(Holder(SHARED)).item.item.append(text)
    return 0


def writes_found_in_a_list(text):
    [Holder(SHARED)][0].item.append(text)
    return 0


def writes_by_getter(text):
    for row in map(attrgetter("item"), [Holder(SHARED)]):
        row.append(text)
    return 0


def writes_by_name(text):
    getattr(Holder(SHARED), "it" + "em").append(text)
    return 0


def writes_by_prefix(text):
    getattr(Holder(SHARED), "it" + text[:0] + "em").append(text)
    return 0


def writes_set_by_name(text):
    made = Holder(1)
    setattr(made, "rows", SHARED)  # noqa: B010
    made.rows.append(text)
    return 0


def writes_matched(text):
    match Holder(SHARED):
        case Holder(item=rows):
            rows.append(text)
    return 0


def writes_copied(text):
    copy.copy(Holder(SHARED)).item.append(text)
    return 0


@dataclass
class Record:
    rows: list
    other: object = None


def writes_record(text):
    Record(SHARED).rows.append(text)
    return 0


def writes_replaced(text):
    dataclasses.replace(Record([]), other=SHARED).other.append(text)
    return 0


class Point(NamedTuple):
    rows: list


def writes_tuple(text):
    Point(SHARED).rows.append(text)
    return 0


def writes_tuple_replaced(text):
    Point([])._replace(rows=SHARED).rows.append(text)
    return 0


def writes_exception(text):
    try:
        raise ValueError(SHARED)
    except ValueError as error:
        error.args[0].append(text)
    return 0


class Failed(Exception):
    def __init__(self, rows):
        super().__init__("")
        self.rows = rows


def writes_own_exception(text):
    try:
        raise Failed(SHARED)
    except Failed as error:
        error.rows.append(text)
    return 0


class Key:
    seen = 0


KEY = Key()


def writes_the_key_of_an_error(text):
    try:
        return {}[KEY]
    except KeyError as error:
        found = error
        found.args[0].seen = text
    return 0


KINDS = {"h": Holder, "r": Record}
MAKES = {"list": list, "value": ValueError, "replace": dataclasses.replace}


def writes_of_a_kind(text):
    KINDS["r"](SHARED).rows.append(text)
    return 0


def writes_made(text):
    MAKES["list"]([SHARED])[0].append(text)
    return 0


def writes_made_error(text):
    MAKES["value"](SHARED).args[0].append(text)
    return 0


def writes_made_anew(text):
    MAKES["replace"](Record([]), rows=SHARED).rows.append(text)
    return 0


def gives(rows):
    return rows


class Gives:
    rows = property(lambda self: SHARED)
    given = staticmethod(gives)

    @classmethod
    def of(cls, rows):
        return rows

    def itself(self):
        return self


GIVES = {"gives": gives, "rows": lambda rows: SHARED}


def writes_a_property(text):
    Gives().rows.append(text)
    return 0


def writes_what_a_static_method_gives(text):
    Gives().given(SHARED).append(text)
    return 0


def writes_what_a_class_method_gives(text):
    Gives.of(SHARED).append(text)
    return 0


def writes_what_a_function_gives(text):
    GIVES["gives"](SHARED).append(text)
    return 0


def writes_what_another_gives(text):
    GIVES["rows"](0).append(text)
    return 0


def writes_what_it_has_as_function(text):
    made = Holder(lambda: SHARED)
    made.item().append(text)
    return 0


def writes_what_is_asked_of_the_class(text):
    type(READER).next(READER)
    return 0


READER_NEXT = READER.next


class Hooked:
    hook = READER.next


def writes_by_a_bound_method(text):
    return READER_NEXT()


def writes_by_a_bound_member(text):
    return Hooked().hook()


def writes_by_a_bound_field(text):
    return Holder(READER.next).item()


class Loud:
    def __setattr__(self, name, value):
        SHARED.append(name)


class Quiet(Loud):
    def __init__(self, text):
        self.text = text


class Asked(Holder):
    def __getattr__(self, name):
        SHARED.append(name)
        return 0


class Kept(Holder):
    @property
    def place(self):
        return 0

    @place.setter
    def place(self, value):
        SHARED.append(value)


def writes_by_setattr(text):
    return len(Quiet(text).__class__.__name__)


def writes_by_getattr(text):
    return Asked(text).missing


def writes_by_a_setter(text):
    made = Kept(0)
    made.place = text
    return 0


class Walk(Steps):
    def __next__(self):
        SHARED.append(1)
        return super().__next__()


def writes_in_next(text):
    return sum(Walk(ROWS))


WALK = Steps(ROWS)


def advances_outside(text):
    return next(WALK)


@dataclass
class Outer:
    first: object


def holder_of(made):
    found = Outer(0)
    found.first = (GIVES, made.rows)
    return found


def writes_function_of_a_record(text):
    dataclasses.astuple(holder_of(Record([])))[0][0]["gives"].mark = text
    return 0


WRITES = [found for name, found in list(globals().items()) if name.startswith("writes_")]
WRITES += [caches_outside, caches_in_what_is_shared, either, moves_outside, default_cache]
WRITES += [advances_outside]


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
@pytest.mark.parametrize("function", WRITES, ids=lambda function: function.__name__)
def test_what_existed_before_is_not_written(function):
    with autobatch.counts() as counts, suppress(Exception):
        autobatch.vmap(function)(autobatch.objects(WORDS))
    assert counts.plain == 0
    SHARED.clear()


def proved(function, computes, *args):
    """Whether plain Python is proved for a call."""
    try:
        running.new_proof(asked_of(function, *args), computes)
    except running.NotAlone:
        return False
    return True


def gives_up_texts(function, *args):
    """Whether it is, for threads that make no text of a tensor."""
    return running.new_proof(asked_of(function, *args), True).shows is not None


def asked_of(function, *args):
    options = autobatch.options.Options()
    batch = explain.batch_of(function, args, {}, options)
    return running.asked(explain.started(function), batch, options, explain.LIBRARY)


WEIGHT = torch.eye(3)
TORCHS = {"exp": torch.exp, "abs": torch.abs, "same": torch.flatten}


def fills(x):
    rows = torch.zeros(2, 3)
    rows[0] = x * WEIGHT[0]
    rows[0] /= 2 * WEIGHT.sum()
    rows[1] -= WEIGHT[1]
    return rows.sum()


def calculates(text, x):
    made = Holder(x)
    made.name = text
    return TORCHS["exp"](made.item) if f"{made.name}" == "x" else made.item


def fills_the_weight(x):
    rows = [WEIGHT]
    rows[0] /= 2
    return x.sum()


def fills_a_part(x):
    part = TORCHS["same"](WEIGHT)
    part *= 2
    return x.sum()


def fills_a_row_of_it(x):
    rows = []
    rows += WEIGHT
    rows[0].mul_(2)
    return x.sum()


def fills_what_is_held(x):
    made = Holder(WEIGHT)
    made.item.mul_(2)
    return x.sum()


def fills_what_another_has(x):
    made = Holder(1)
    made.left = WEIGHT
    made.left += 1
    return x.sum()


def test_tensors_of_the_program_itself_are_written():
    assert proved(fills, True, torch.ones(4, 3))
    assert proved(calculates, True, autobatch.objects(["x", "y"]), torch.ones(2))


FILLS = [fills_the_weight, fills_a_part, fills_a_row_of_it, fills_what_is_held]


@pytest.mark.parametrize("function", [*FILLS, fills_what_another_has])
def test_tensors_that_existed_before_are_not_written(function):
    assert not proved(function, True, torch.ones(4, 3))


def test_what_takes_the_place_of_a_table_is_seen():
    class Table:
        ops = {"a": len}  # noqa: RUF012

        def __init__(self, text):
            self.text = text

        def run(self):
            return self.ops["a"](self.text)

    def runs(text):
        return Table(text).run()

    def noted(text):
        SHARED.append(text)
        return 7

    with autobatch.counts() as counts:
        assert autobatch.vmap(runs)(autobatch.objects(WORDS)).tolist() == list(map(len, WORDS))
    assert counts.plain == len(WORDS)
    Table.ops = {"a": noted}
    with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
        autobatch.vmap(runs)(autobatch.objects(WORDS))
    assert counts.plain == 0
    Table.ops = {"a": str.upper}
    assert autobatch.vmap(runs)(autobatch.objects(WORDS)) == list(map(str.upper, WORDS))
    SHARED.clear()


def test_errors_are_those_of_the_loop():
    def fails(text):
        return Reader(text).next()

    with pytest.raises(IndexError):
        autobatch.vmap(fails)(autobatch.objects(WORDS))


def shows(text, x):
    made = Holder(x)
    seen = [f"{made.item}", str(x * 2), f"{x.sum():.2f}", repr(x), "{}".format(x[0])]  # noqa: UP032
    return " ".join([text, *seen])


def test_texts_of_tensors_that_need_no_gradient_are_the_loops():
    words, rows = list("abcdefghij"), torch.arange(20.0).reshape(10, 2) / 3
    assert not gives_up_texts(shows, autobatch.objects(words), rows)
    with torch.no_grad():
        assert gives_up_texts(shows, autobatch.objects(words), rows)
    assert not gives_up_texts(shows, autobatch.objects(words[:4]), rows[:4])
    assert gives_up_texts(shows, autobatch.objects(words[:4]), rows[:4].clone().requires_grad_())


class Node:
    """Of a search that draws."""

    def __init__(self, place):
        self.place, self.left, self.wins = place, [1, 2, 3], 0


def searches(text):
    rng = random.Random(7)
    root = Node(text)
    for _ in range(4):
        root.wins += root.left[rng.randrange(len(root.left))] + rng.choice([0, 5])
    rng.shuffle(root.left)
    return root.wins, root.left


OWN = random.Random(1)


def draws_for_all(text):
    return len(text) + OWN.randrange(3)


def draws_by_a_method(text, draw=OWN.random):
    return len(text) + draw()


def draws_what_is_held(text):
    return Holder(OWN).item.random() + len(text)


def draws_of_the_module(text):
    return random.choice([1, 2]) + len(text)


def test_a_generator_of_the_program_itself_draws_what_the_loops_does():
    with autobatch.counts() as counts:
        wins, left = autobatch.vmap(searches)(autobatch.objects(WORDS))
    assert counts.plain == len(WORDS)
    loop = [searches(text) for text in WORDS]
    assert wins.tolist() == [each for each, _ in loop]
    assert [part.tolist() for part in left] == torch.tensor([each for _, each in loop]).T.tolist()


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
@pytest.mark.parametrize(
    "function", [draws_for_all, draws_by_a_method, draws_what_is_held, draws_of_the_module]
)
def test_generators_that_existed_before_are_no_programs_own(function):
    with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
        autobatch.vmap(function)(autobatch.objects(WORDS))
    assert counts.plain == 0
    assert not proved(function, False, autobatch.objects(WORDS))


TABLE_OF_TORCH = {"abs": torch.abs, "neg": torch.neg}


def uses_table(text):
    found = 0
    for letter in text * 4:
        found += ord(letter)
    return TABLE_OF_TORCH["abs"](torch.as_tensor(found)) if text == "!" else found


def test_all_that_keeps_a_program_from_it_is_told_at_once():
    def bad(text):
        if len(text) > 99:
            Holder(SHARED).item.append(id(text))
        return OWN.random() + len(text)

    told = str(autobatch.explain(bad, autobatch.objects(["a", "bb"])))
    for why in ("is not known", "it may write what existed before", "others see"):
        assert why in told
    assert "random.Random(number)" in told and "per_thread" in told


class Token:
    def __init__(self, kind, value):
        self.type, self.value = kind, value


def reads_types(x):
    rows = list(x)
    tokens = [Token("number", each) for each in rows]
    return len([token for token in tokens if token.type == "number"])


def test_a_reason_says_no_more_than_is_known():
    """``type`` may be a tensor's: nobody has found out that it is one."""
    told = objecting.objection(asked_of(reads_types, torch.ones(3, 2)), "reads_types")
    assert "type is asked of what may be a tensor" in told
    assert "(`kind`, not `type`)." in told


class Leaf:
    def __init__(self, data):
        self.data, self.name = data, "leaf"

    def __add__(self, other):
        return Leaf(self.data + other.data)


def adds_leaves(x):
    rows = [Leaf(each) for each in list(x)]
    return (rows[0] + rows[1]).data, len(rows[0].name)


def test_data_and_name_may_be_asked_of_tensors():
    assert proved(adds_leaves, True, torch.ones(3, 2))


def test_a_table_of_torchs_functions_is_no_reason():
    assert proved(uses_table, True, autobatch.objects(WORDS))
    assert "What keeps" not in str(autobatch.explain(uses_table, autobatch.objects(WORDS)))
