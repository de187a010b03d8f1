"""Slices and copies of lists, dicts and sets that existed before are the program's own.

What is within them is not: a write to that is refused.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch

ROW = [1, 2, 3]
BOARD = [[1, 2], [3, 4]]
NEST = [[[1], [2]], [[3], [4]]]
TABLE = {"a": [1, 2], "b": [3, 4]}
NEAR = {"a": {"b", "c"}, "b": {"a"}, "c": {"a"}}
BYTES, CODES = bytearray(b"abc"), array("i", [1, 2, 3])
OPTIONS: list[dict[str, Any]] = [
    {},
    {"plain": "never"},
    {"plain": "never", "trace_after": 0},
    {"plain": "never", "executor": "vmap"},
    {"engine": "program_counter", "plain": "never"},
    {"engine": "sequential"},
]


def appended(i):
    row = ROW[:]
    row.append(i)
    row.sort(reverse=True)
    row += [i]
    del row[0]
    return sum(row)


def bounded(i):
    row = ROW[:i]
    row.append(7)
    return len(row)


def by_rows(i):
    board = [row[:] for row in BOARD]
    board[i][0] = 9
    return sum(map(sum, board))


def of_one(i):
    row = BOARD[i][::-1]
    row[0] = 9
    return sum(row)


def of_a_slice(i):
    row = ROW[1:][:]
    row.insert(0, i)
    return sum(row)


def of_outer(i):
    rows = NEST[0][:]
    rows[0] = [i]
    return len(rows) + rows[0][0]


def of_bytes(i):
    text = BYTES[1:]
    text[0] = 65
    return text[0] + i


def of_an_array(i):
    codes = CODES[1:]
    codes[0] = 65
    return codes[0] + i


def of_a_dict(i):
    table = TABLE.copy()
    table["c"] = [i]
    return len(table)


def of_sets(i):
    names = NEAR["a"].union(NEAR["b"])
    names.add("d")
    others = NEAR["a"].difference(names)
    others.add("e")
    return len(names) + len(others) + i


COPIES = [appended, bounded, by_rows, of_one, of_a_slice, of_outer, of_bytes, of_an_array]
COPIES += [of_a_dict, of_sets]


def existing() -> list[Any]:
    return [ROW, BOARD, NEST, TABLE, NEAR, BYTES, CODES]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("own", COPIES, ids=lambda own: own.__name__)
def test_a_copy_may_be_written(own: Callable[[Any], int], options: dict[str, Any]) -> None:
    before = copy.deepcopy(existing())
    for numbers in (torch.tensor([0, 1, 1]), autobatch.objects([0, 1, 1])):
        batched = autobatch.vmap(own, **options)
        for _ in range(4):
            assert batched(numbers).tolist() == [own(i) for i in (0, 1, 1)]
    assert existing() == before


def within_a_slice(i):
    NEST[0][:][0].append(i)


def within_a_row(i):
    NEST[i][1:][0].append(1)


def within_a_copy(i):
    TABLE.copy()["a"].append(i)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("within", [within_a_slice, within_a_row, within_a_copy])
def test_what_is_within_may_not(within: Callable[[Any], None], options: dict[str, Any]) -> None:
    before = copy.deepcopy(existing())
    with pytest.raises(autobatch.SharedWriteError, match="a list that existed before"):
        autobatch.vmap(within, **options)(autobatch.objects([0, 1, 1]))
    assert existing() == before


def settled(word):
    """A value for each letter, some of which rule out others: of Norvig's Sudoku solver."""
    values = dict.fromkeys("abc", "123")
    for at, letter in enumerate(word):
        if not ruled_out(values, "abc"[at % 3], letter):
            return "none"
    return search(values)


def ruled_out(values, name, letter):
    values[name] = values[name].replace(letter, "")
    if len(values[name]) == 1:
        others = [other for other in NEAR[name] if values[name] in values[other]]
        return all(ruled_out(values, other, values[name]) for other in others)
    return values[name] != ""


def search(values):
    open_ones = [name for name in "abc" if len(values[name]) > 1]
    if not open_ones:
        return "".join(values.values())
    for letter in values[open_ones[0]]:
        tried = values.copy()
        if ruled_out(tried, open_ones[0], letter):
            return search(tried)
    return "none"


def test_a_search_on_copies_is_plain_python() -> None:
    words = ["1", "12", "3131", ""]
    batched = autobatch.vmap(settled)
    for _ in range(4):
        with autobatch.counts() as counts:
            assert batched(autobatch.objects(words)) == list(map(settled, words))
        assert counts.plain == len(words)
