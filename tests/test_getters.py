"""What ``attrgetter`` and its like give of an instance of the program's: its class has more."""

from __future__ import annotations

from operator import attrgetter, itemgetter, methodcaller

import pytest
import torch

import autobatch

FAR = [0.0]
X = torch.tensor([1.0, 2.0])


class Table:
    rows = [0.0]  # noqa: RUF012

    def __init__(self):
        self.own = [0.0]

    def __getattr__(self, name):
        if name == "hidden":
            return self.rows
        raise AttributeError(name)

    def __getitem__(self, place):
        return self.rows

    def far(self):
        return given()

    @property
    def farther(self):
        return self.far()


def given():
    return FAR


ENGINES = [{"plain": "never"}, {"engine": "program_counter"}, {"engine": "sequential"}]
GETTERS = [
    *map(attrgetter, ["rows", "hidden", "farther", "__class__.rows"]),
    *(itemgetter(0), methodcaller("far"), methodcaller("__getitem__", 0)),
]


@pytest.mark.parametrize("options", ENGINES, ids=str)
@pytest.mark.parametrize("getter", GETTERS, ids=str)
def test_a_list_that_existed_before_stays_as_it_was(getter, options):
    def program(x):
        rows = getter(Table())
        rows.append(x)
        return len(rows)

    Table.rows, FAR[:] = [0.0], [0.0]
    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap(program, **options)(X)
    assert (Table.rows, FAR) == ([0.0], [0.0])


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_a_list_of_the_instance_itself_may_be_written(options):
    def program(x):
        table = Table()
        attrgetter("own")(table).append(x)
        return sum(table.own)

    assert autobatch.vmap(program, **options)(X).tolist() == [1.0, 2.0]
