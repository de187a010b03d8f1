"""What classes hold is theirs, and what a program makes is its own, whoever's method writes it."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar

import pytest

import autobatch

GRIDS: list[Any] = [
    [[1, 1, 0], [0, 1, 0], [1, 0, 1]],
    [[0, 0, 1], [0, 0, 0], [1, 0, 0]],
    [[1, 0, 1], [0, 1, 0], [1, 0, 1]],
]


class Solution:
    across: ClassVar = [1, 0, -1, 0]
    down: ClassVar = [0, 1, 0, -1]

    def islands(self, grid):
        m, n = len(grid), len(grid[0])
        marked = [[False for _ in range(n)] for _ in range(m)]
        count = 0
        for i in range(m):
            for j in range(n):
                if not marked[i][j] and grid[i][j] == 1:
                    count += 1
                    self.search(grid, marked, i, j)
        return count

    def search(self, grid, marked, i, j):
        marked[i][j] = True
        for k in range(4):
            ni, nj = i + self.across[k], j + self.down[k]
            inside = 0 <= ni < len(grid) and 0 <= nj < len(grid[0])
            if inside and not marked[ni][nj] and grid[ni][nj] == 1:
                self.search(grid, marked, ni, nj)


class Table:
    """What may be written by mistake."""

    __match_args__ = ("rows",)
    rows: ClassVar = [0, 0]
    deep: ClassVar = [[0], [0]]

    def __init__(self):
        self.count = 0
        self.own = [0]

    def itself(self):
        return self

    @property
    def shown(self):
        return self.rows


TABLE = Table()
COUNTER = Solution()


def writing(rows):
    rows.append(1)
    return len(rows)


def writes_the_class(grid):
    return writing(TABLE.rows)


def of_the_inside(grid):
    return writing(TABLE.deep[0])


def of_an_instance(grid):
    return writing(TABLE.own)


def by_a_new_instance(grid):
    return writing(Table().rows)


def from_a_list(grid):
    made = [TABLE.rows, [0]]
    made[0].append(1)
    return len(made[0])


def from_a_list_of_instances(grid):
    made = [TABLE]
    made[0].count += 1
    return made[0].count


def of_an_instance_without_lists(grid):
    made = {"a": COUNTER}
    made["a"].seen = 1
    return made["a"].seen


def by_a_name(grid):
    return writing(getattr(TABLE.itself(), "rows"))  # noqa: B009


def by_a_property(grid):
    return writing(Table().shown)


def by_a_pattern(grid):
    match Table():
        case Table(rows):
            rows.append(1)
            return len(rows)
    return 0


def by_its_class(grid):
    return writing(type(TABLE).rows)


def by_a_prefix(grid):
    kind = "ows" if len(grid) else "x"
    return writing(getattr(TABLE.itself(), "r" + kind))


def in_a_sum(grid):
    made = TABLE.deep + [[]]  # noqa: RUF005
    made[0].append(1)
    return len(made)


def handed_down(grid, rows=None, n=2):
    if rows is None:
        rows = Table().rows
    if n == 0:
        rows[0] = 5
        return rows[0]
    return handed_down(grid, rows, n - 1)


def by_a_getter(grid):
    return writing(attrgetter("rows")(Table()))


WRITERS = [
    by_a_getter,
    *(writes_the_class, of_the_inside, of_an_instance, by_a_new_instance, from_a_list),
    *(from_a_list_of_instances, of_an_instance_without_lists, by_a_name),
    *(by_a_property, by_a_pattern, by_its_class, by_a_prefix, in_a_sum, handed_down),
]


def test_a_method_that_writes_what_it_is_handed_runs_as_plain_python():
    solution = Solution()
    with autobatch.counts() as counts:
        found = autobatch.vmap(solution.islands)(autobatch.objects(GRIDS))
    assert found.tolist() == [solution.islands(grid) for grid in GRIDS]
    assert counts.plain == len(GRIDS)


@pytest.mark.parametrize("function", WRITERS)
def test_what_existed_before_stays_as_it_was(function):
    Table.rows, Table.deep, TABLE.own, TABLE.count = [0, 0], [[0], [0]], [0], 0
    with autobatch.counts() as counts, pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(function)(autobatch.objects(GRIDS))
    assert counts.plain == 0
    assert (Table.rows, Table.deep, TABLE.own, TABLE.count) == ([0, 0], [[0], [0]], [0], 0)
    assert vars(COUNTER) == {}
