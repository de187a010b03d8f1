"""Classes that are values (``KINDS[x](y)``, ``map(Node, xs)``), where programs may run plainly."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError
from tests.test_alone_fields import proved

TEXTS = ["ab", "c", "", "dda", "bacab"]
ROWS = [[[1], [2]], [[], [4]], [[3, 4]], [[]]]


class Arm:
    def __init__(self, mean):
        self.mean, self.pulls, self.total = mean, 0, 0.0

    def pull(self, noise):
        self.pulls += 1
        self.total += self.mean + noise
        return self.total

    def index(self, time):
        raise NotImplementedError


class Ucb(Arm):
    def index(self, time):
        if not self.pulls:
            return math.inf
        return self.total / self.pulls + math.sqrt(2 * math.log(time) / self.pulls)


class Greedy(Arm):
    def index(self, time):
        return self.total / max(self.pulls, 1)


KINDS = {"u": Ucb, "g": Greedy}


def plays(text):
    kinds = {"a": Ucb, "b": Greedy}
    arms = [kinds.get(letter, Ucb)(at) for at, letter in enumerate(text, 1)]
    arms += map(KINDS["g"], range(2))
    for time in range(1, 9):
        max(arms, key=lambda arm: arm.index(time)).pull(time % 3)
    return [arm.pulls for arm in arms[-2:]], sum(arm.total for arm in arms)


def plays_numbers(x):
    arms = [KINDS["u"](mean) for mean in x.tolist()]
    for time in range(1, 9):
        max(arms, key=lambda arm: arm.index(time)).pull(time % 3)
    return sum(arm.total for arm in arms)


def fractions_of(text):
    total = Fraction(len(text), 3)
    for at, letter in enumerate(text, 1):
        total += Fraction(ord(letter), at)
    return str(total), total.limit_denominator(10).denominator, float(total)


def sums_fractions(numbers):
    return str(sum(numbers, Fraction(0)))


class Colour(Enum):
    RED = 1
    BLUE = 2


def members(text):
    found = list(map(Colour, [1 + len(text) % 2, 1]))
    return found[0] is Colour.RED, "".join(colour.name for colour in found)


@dataclass
class Holder:
    rows: list
    name: str = ""


class Grown:
    def __init__(self, row):
        row.append(8)
        self.row = row


@dataclass
class Posted:
    row: list

    def __post_init__(self):
        self.row.append(8)


class Kept:
    def __init__(self, row, more=0):
        self.row = row

    def grow(self, by=1):
        self.row.append(by)
        return len(self.row)


SHARED = [[1], [2, 3]]


def writes_by_map(rows):
    return sum(len(each.row) for each in map(Grown, rows))


def writes_by_table(rows):
    return sum(len([Grown, Kept][0](row).row) for row in rows)


def writes_what_it_made(rows):
    kept = list(itertools.starmap(Kept, zip(rows, range(9), strict=False)))
    return sum(each.grow() for each in kept)


def writes_by_its_class(rows):
    kept = [Kept(row) for row in rows]
    return sum(type(each).grow(each, 2) + Kept.grow(each) for each in kept)


def writes_replaced(rows):
    holder = dataclasses.replace(Holder(rows), name="b")
    holder.rows[0].append(3)
    return len(holder.rows[0])


OWN = [each for name, each in list(globals().items()) if name.startswith("writes_")]


def grows_what_existed(text):
    return len(list(map(Grown, SHARED))) + len(text)


def grows_by_a_table(text):
    return len([Kept, Grown][1](SHARED[0]).row) + len(text)


def grows_after_its_init(text):
    return len(list(map(Posted, SHARED))) + len(text)


def grows_after_any_init(text):
    return len([Posted, Kept][0](SHARED[0]).row) + len(text)


def grows_by_a_field(text):
    kept = [Kept(row) for row in SHARED]
    return kept[0].grow() + len(text)


def grows_what_is_replaced(text):
    dataclasses.replace(Holder(SHARED), name=text).rows[0].append(1)
    return len(text)


def grows_unbound(text):
    grow = [Kept.grow][0]
    return grow(Kept(SHARED[0])) + len(text)


HALF = Fraction(1, 2)


def grows_a_fraction(text):
    found = [HALF, Fraction(3)][0]
    found._numerator = len(text)
    return found._denominator


EXISTING = [each for name, each in list(globals().items()) if name.startswith("grows_")]


def of_rows(found):
    parts = [part if isinstance(part, list) else part.tolist() for part in found]
    return list(zip(*parts, strict=True))


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_the_result_is_the_loops(plain):
    for _ in range(4):
        pulls, totals = autobatch.vmap(plays, plain=plain)(autobatch.objects(TEXTS))
        wanted = [plays(text) for text in TEXTS]
        assert torch.stack(pulls, 1).tolist() == [each[0] for each in wanted]
        assert totals.tolist() == [each[1] for each in wanted]
        for function in (fractions_of, members):
            found = autobatch.vmap(function, plain=plain)(autobatch.objects(TEXTS))
            assert of_rows(found) == list(map(function, TEXTS))
        numbers = [[Fraction(1, 2), Fraction(1, 3)], [], [Fraction(2)]]
        found = autobatch.vmap(sums_fractions, plain=plain)(autobatch.objects(numbers))
        assert found == list(map(sums_fractions, numbers))


def test_such_programs_are_plain():
    for function in (plays, fractions_of, members):
        assert proved(function, False, autobatch.objects(TEXTS))
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    assert proved(plays_numbers, False, x)
    assert autobatch.vmap(plays_numbers)(x).tolist() == [plays_numbers(row) for row in x]


@pytest.mark.parametrize("function", OWN)
@pytest.mark.parametrize("plain", ["auto", "never"])
def test_what_is_the_examples_own_is_written_to_copies(function, plain):
    wanted = [function([*map(list, rows)]) for rows in ROWS]
    for _ in range(2):
        found = autobatch.vmap(function, plain=plain)(autobatch.objects(ROWS))
        assert found.tolist() == wanted
        assert ROWS == [[[1], [2]], [[], [4]], [[3, 4]], [[]]]


@pytest.mark.parametrize("function", EXISTING)
def test_what_existed_is_not_written(function):
    assert not proved(function, False, autobatch.objects(TEXTS))
    with pytest.raises(AutobatchError):
        autobatch.vmap(function)(autobatch.objects(TEXTS))
    assert SHARED == [[1], [2, 3]] and HALF.numerator == 1
