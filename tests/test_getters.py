"""What ``attrgetter`` and its like give of an instance of the program's: its class has more."""

from __future__ import annotations

from operator import attrgetter, itemgetter, methodcaller

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

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


ROW = torch.tensor([1.0, 2.0])


def test_a_method_of_a_shared_tensor_that_only_reads():
    def program(x):
        first = methodcaller("__getitem__", 0)
        return first(ROW) + x, methodcaller("__len__")(ROW)

    assert_matches_loop(program, (torch.tensor([1.0, -2.0, 3.0]),))


@pytest.mark.parametrize(
    "name, args", [("add_", (1,)), ("__iadd__", (1,)), ("__setitem__", (0, 1))]
)
def test_one_that_writes_is_refused(name, args):
    def program(x):
        methodcaller(name, *args)(ROW)
        return x

    with pytest.raises(autobatch.AutobatchError, match="a tensor"):
        autobatch.vmap(program, plain="never")(torch.zeros(3))
    assert ROW.tolist() == [1.0, 2.0]
