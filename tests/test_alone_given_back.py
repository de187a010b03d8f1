"""Objects that programs give back and that hold what they were given: nothing of the caller's."""

from collections import namedtuple
from dataclasses import dataclass

import pytest

import autobatch

ROWS = [[1], [2, 3], [4], []]


class Box:
    def __init__(self, held):
        self.held = held


class Env(dict):
    pass


@dataclass
class Pair:
    one: list
    other: object


Named = namedtuple("Named", ["held", "number"])


def items_of(row):
    yield row
    yield len(row)


def boxed(row):
    return Box(row)


def nested(row):
    return {"all": [(1, Box([row]))], "row": row}


def in_dict(row):
    return Env(row=row)


def paired(row):
    return Pair(row, Box(row))


def named(row):
    return Named(Box(row), 1)


def yielded(row):
    return items_of(row)


def iterated(row):
    return iter([row])


def alone(row):
    return row


def holds(found):
    """All lists of the caller's that are within something."""
    waiting, seen = [found], []
    while waiting:
        each = waiting.pop()
        if any(each is row for row in ROWS):
            seen.append(each)
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
        elif hasattr(each, "__next__"):
            waiting += [*each]
        elif hasattr(each, "__dict__"):
            waiting += vars(each).values()
    return seen


@pytest.mark.parametrize("plain", ["auto", "never"])
@pytest.mark.parametrize(
    "function", [boxed, nested, in_dict, paired, named, yielded, iterated, alone]
)
def test_what_comes_back_is_the_callers_own(function, plain):
    for _ in range(4):
        found = autobatch.vmap(function, plain=plain, ragged_out="list")(autobatch.objects(ROWS))
        assert not holds(found)


def test_one_list_stays_one():
    found = autobatch.vmap(lambda row: [Box(row), Box(row)])(autobatch.objects(ROWS))
    assert all(one.held is other.held for one, other in found)
    assert [one.held for one, _ in found] == ROWS
