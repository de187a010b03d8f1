"""What a container of the user's class gives, as it is gone through, may have existed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch

import autobatch

XS = torch.tensor([1.0, -2.0])
KEPT: list[float] = [1.0]


class Table(Mapping):
    def __getitem__(self, key):
        if key != "a":
            raise KeyError(key)
        return KEPT

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


class Writes(Table):
    def __getitem__(self, key):
        KEPT.append(2.0)
        return 1.0


class Row(Sequence):
    def __getitem__(self, place):
        if place:
            raise IndexError
        return KEPT

    def __len__(self):
        return 1


class Counts(Row):
    def __len__(self):
        KEPT.append(3.0)
        return 1


class Items:
    def __getitem__(self, place):
        if place:
            raise IndexError
        return KEPT


class Iterates:
    def __iter__(self):
        return iter([KEPT])

    def __reversed__(self):
        return iter([KEPT])


class Takes:
    def __init__(self):
        self.left = 1

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return KEPT


def first(*args):
    return args[0]


def named(**kwargs):
    return kwargs["a"]


def mapping(x):
    match Table():
        case {"a": found}:
            found.append(x)


def mapping_writes(x):
    match Writes():
        case {"a": found}:
            return x + found


def sequence(x):
    match Row():
        case [found]:
            found.append(x)


def sequence_counts(x):
    match Counts():
        case [_]:
            return x


def unpacked(x):
    (found,) = Row()
    found.append(x)


def unpacked_items(x):
    (found,) = Items()
    found.append(x)


def looped(x):
    for found in Row():
        found.append(x)


def looped_items(x):
    for found in Items():
        found.append(x)


def looped_backwards(x):
    for found in reversed(Row()):
        found.append(x)


def looped_backwards_by_method(x):
    for found in reversed(Iterates()):
        found.append(x)


def of_items(x):
    for _, found in Table().items():
        found.append(x)


def of_values(x):
    for found in Table().values():
        found.append(x)


def starred(x):
    first(*Iterates()).append(x)


def double_starred(x):
    named(**Table()).append(x)


def gathered(x):
    [found for found in Row()][0].append(x)  # noqa: C416, RUF015


def taken(x):
    for found in Takes():
        found.append(x)


def taken_side_by_side(x):
    for found, _ in zip(Takes(), x.view(1), strict=False):
        found.append(x)


def taken_and_counted(x):
    for _, found in enumerate(Takes()):
        found.append(x)


def filtered(x):
    for found in filter(None, Takes()):
        found.append(x)


def in_a_list_of_pairs(x):
    pairs = list(zip(Takes(), strict=True))
    pairs[0][0].append(x)


def in_a_list_of_counted_ones(x):
    pairs = list(enumerate(Takes()))
    pairs[0][1].append(x)


def laid_out(x):
    found = [*Takes()]
    found[0].append(x)


class Held:
    kept = property(lambda self: KEPT)

    def __getattr__(self, name):
        if name == "other":
            return KEPT
        raise AttributeError(name)


def by_a_property(x):
    Held().kept.append(x)


def by_any_name(x):
    Held().other.append(x)


PROGRAMS = [
    *(in_a_list_of_pairs, in_a_list_of_counted_ones, laid_out, by_a_property, by_any_name),
    *(taken, taken_side_by_side, taken_and_counted, filtered),
    *(mapping, mapping_writes, sequence, sequence_counts, unpacked, unpacked_items, looped),
    *(looped_items, looped_backwards, looped_backwards_by_method, of_items, of_values, starred),
    *(double_starred, gathered),
]
OPTIONS = [
    *({}, {"plain": "never"}, {"engine": "program_counter"}),
    {"engine": "sequential"},
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_list_that_existed_before_stays_as_it_was(program, options):
    try:
        with pytest.raises(autobatch.AutobatchError):
            autobatch.vmap(program, **options)(XS)
        assert KEPT == [1.0]
    finally:
        KEPT[:] = [1.0]


class Own:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)

    def __getitem__(self, place):
        return self.items[place]


def own(x):
    rows = Own([[x], [x + 1]])
    for row in rows:
        row.append(x * 2)
    (one, other) = rows
    return one[1] + other[0] + rows[1][1]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_list_of_its_own_is_the_program_s(options):
    expected = torch.stack([own(x) for x in XS])
    torch.testing.assert_close(autobatch.vmap(own, **options)(XS), expected)


class Doubled(list):
    """Its method asks the one of the base, of the same name."""

    def append(self, item):
        super().append(item * 2)

    def pop(self, place=-1):
        return super().pop(place) + 1


class Counted(dict):
    def update(self, other):
        super().update(other)
        super().setdefault("updates", len(self))


def through_super(x):
    items, table = Doubled([x]), Counted()
    items.append(x)
    if x > 0:
        items.append(3)
        table.update({"a": x})
    table.update({"b": 1})
    return str((items.pop(), items, table))


@pytest.mark.parametrize("options", [*OPTIONS, {"engine": "sequential"}], ids=str)
def test_super_gives_the_methods_of_the_base(options):
    batched = autobatch.vmap(through_super, max_depth=50, **options)
    assert batched(XS) == [through_super(x) for x in XS]
    rows = autobatch.objects([2, -1])
    assert batched(rows) == [through_super(n) for n in (2, -1)]
