"""Lists of numbers and tensors as results: ``ragged_out`` says how they come back."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from autobatch import StackingError
from tests.expected import check
from tests.oracle import CONFIGURATIONS

WAYS: tuple[dict[str, Any], ...] = (*map(dict, CONFIGURATIONS), {"executor": "compiled"})
COUNTS = torch.tensor([3, 1, 0, 7, 4])
PYTHON = {"scalars": "python"}


def collatz(n):
    """A number that stacks, and what the example has gone through."""
    path = []
    while n > 1:
        path.append(n)
        n = n // 2 if n % 2 == 0 else 3 * n + 1
    return len(path), path


def steps(n):
    """Tuples of unlike types; one list that is named twice; and some that hold lists."""
    i, path, kinds = n, [], [n]
    while i > 0:
        path.append((i, n > 3, i * 0.5))
        kinds.append(0.5)
        i -= 1
    return path, path, {"kinds": kinds, "nested": [path, [n]]}


def rows(n):
    xs = [torch.full((i, 2), 1.5) for i in range(n)]
    return torch.ones(2) * n, xs, None if n < 2 else [n]


def loop(function, counts=COUNTS):
    return [function(n) for n in counts.tolist()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_under_list_each_example_has_its_own_list(way):
    for chunk_size in (None, 2) if "executor" in way else (None,):
        options = {**way, **PYTHON, "chunk_size": chunk_size}
        wanted = loop(collatz)
        lengths, paths = autobatch.vmap(collatz, ragged_out=(None, "list"), **options)(COUNTS)
        check(lengths, torch.tensor([length for length, _ in wanted]))
        check(paths, [path for _, path in wanted])
        check(autobatch.vmap(collatz, ragged_out="list", **options)(COUNTS), (lengths, paths))
        wanted = loop(steps)
        one, other, named = autobatch.vmap(steps, ragged_out="list", **options)(COUNTS)
        check(one, [path for path, _, _ in wanted])
        check(named["kinds"], [made["kinds"] for _, _, made in wanted])
        check(named["nested"], [made["nested"] for _, _, made in wanted])
        assert all(map(lambda a, b, c: a is b is c[0], one, other, named["nested"]))
        wanted = loop(rows)
        found = autobatch.vmap(rows, ragged_out=(None, "list", "list"), **options)(COUNTS)
        check(found[0], torch.stack([row for row, _, _ in wanted]))
        check(found[1], [xs for _, xs, _ in wanted])
        check(found[2], [last for _, _, last in wanted])


def test_lists_of_one_length_are_each_examples_own_too():
    """What comes back does not depend on the lengths that a batch happens to have."""

    def alike(n):
        return [n, [n + 1, 0.5]]

    threes = torch.tensor([3, 3])
    for way in WAYS:
        mapped = autobatch.vmap(alike, ragged_out="list", **way, **PYTHON)
        check(mapped(threes), loop(alike, threes))
    wanted = [torch.tensor([3, 3]), [torch.tensor([4, 4]), torch.tensor([0.5, 0.5]).double()]]
    check(autobatch.vmap(alike, **PYTHON)(threes), wanted)
    by_part = autobatch.vmap(alike, ragged_out=[None, "list"], **PYTHON)(threes)
    check(by_part, [torch.tensor([3, 3]), [[4, 0.5], [4, 0.5]]])
    assert autobatch.vmap(alike, ragged_out="list", **PYTHON)(threes[:0]) == []


@dataclass(frozen=True)
class Warped:
    cost: torch.Tensor
    path: list[tuple[int, int]]


def warped(x, y):
    """Dynamic time warping: its cost, and the way through the table."""
    n, m = len(x), len(y)
    table = torch.full((n + 1, m + 1), torch.inf)
    table[0, 0] = 0.0
    for i in range(n):
        for j in range(m):
            best = torch.min(torch.min(table[i, j + 1], table[i + 1, j]), table[i, j])
            table[i + 1, j + 1] = (x[i] - y[j]).abs() + best
    i, j, path = n, m, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        ways = [(table[i - 1, j - 1].item(), 0), (table[i - 1, j].item(), 1)]
        _, way = min([*ways, (table[i, j - 1].item(), 2)])
        i, j = i - (way != 2), j - (way != 1)
    return Warped(table[n, m], path[::-1])


@pytest.mark.parametrize("way", [{}, {"executor": "vmap"}, {"executor": "compiled"}], ids=str)
def test_a_path_beside_its_cost(way):
    xs, ys = torch.arange(12.0).view(4, 3) % 5, torch.tensor([0.0, 3.0, 4.0]).repeat(4, 1)
    wanted = [warped(x, y) for x, y in zip(xs, ys, strict=True)]
    assert len({len(each.path) for each in wanted}) > 1
    option = {"cost": None, "path": "list"}
    found = autobatch.vmap(warped, ragged_out=option, **way)(xs, ys)
    check(found, Warped(torch.stack([w.cost for w in wanted]), [w.path for w in wanted]))
    padded, lengths = autobatch.vmap(warped, ragged_out="pad", **way)(xs, ys).path
    assert lengths.tolist() == [len(each.path) for each in wanted]
    for row, each in zip(padded, wanted, strict=True):
        check(row[: len(each.path)], torch.tensor(each.path))
        assert not row[len(each.path) :].any()
    with pytest.raises(StackingError, match=r'pass ragged_out={"cost": None, "path": "list"}, un'):
        autobatch.vmap(warped, **way)(xs, ys)


@pytest.mark.parametrize("way", [{}, {"executor": "vmap"}, {"executor": "compiled"}], ids=str)
def test_lists_of_numbers_are_tensors_under_pad_and_nested(way):
    def counted(n):
        return [i * 2 for i in range(n)], [i * 0.5 for i in range(n)], [n > 1, n > 2]

    options = {**way, **PYTHON}
    ints, floats, truths = autobatch.vmap(counted, ragged_out="pad", **options)(COUNTS)
    assert [part[0].dtype for part in (ints, floats, truths)] == [
        *(torch.int64, torch.float64, torch.bool)
    ]
    assert ints[1].tolist() == floats[1].tolist() == COUNTS.tolist()
    check(truths, (torch.stack([COUNTS > 1, COUNTS > 2], 1), torch.full((5,), 2)))
    for row, n in zip(ints[0], COUNTS.tolist(), strict=True):
        check(row, torch.arange(7) * 2 * (torch.arange(7) < n))
    nested = autobatch.vmap(counted, ragged_out="nested", **options)(COUNTS)
    for part, wanted in zip(nested, zip(*loop(counted), strict=True), strict=True):
        check([row.tolist() for row in part.unbind()], list(wanted))
    none = autobatch.vmap(lambda n: [], ragged_out="pad", **options)(COUNTS)
    check(none, (torch.zeros(5, 0), torch.zeros(5, dtype=torch.int64)))


def test_lists_that_are_no_tensors_are_told():
    def uneven(n):
        return n, [[n], list(range(n))]

    told = r'(?s)as ragged_out="pad" wants.*at result\[1\].*several lengths.*\("pad", "list"\)'
    for way in ({}, {"engine": "sequential"}, {"plain": "never"}):
        with pytest.raises(StackingError, match=told):
            autobatch.vmap(uneven, ragged_out="pad", **way, **PYTHON)(COUNTS)
    with pytest.raises(StackingError, match="an int is too large for a tensor"):
        autobatch.vmap(lambda n: [n, 2**70], ragged_out="nested", **PYTHON)(COUNTS)
    with pytest.raises(StackingError, match="return the same structure on every path"):
        autobatch.vmap(lambda n: [n] if n > 2 else n, ragged_out="list", **PYTHON)(COUNTS)


def test_lists_share_no_memory_with_what_was_mapped():
    xs = torch.ones(2, 3)
    for way in WAYS:
        (one, *_), other = autobatch.vmap(lambda x: [x, x[:1]], ragged_out="list", **way)(xs)
        one.mul_(2)
        other[1].mul_(2)
        assert xs.eq(1).all()
    items = [[torch.ones(2)], [torch.ones(2)]]
    for way in WAYS:
        made = autobatch.vmap(lambda part: (part, part), ragged_out="list", **way)
        one, other = made(autobatch.objects(items))
        assert all(map(lambda a, b: a is b, one, other))
        one[0][0].mul_(2)
        assert items[0][0].eq(1).all()


def test_gradients_flow_through_lists():
    def powers(x):
        found = []
        while x < 9:
            x = x * x
            found.append(x)
        return found

    xs = torch.tensor([2.0, 1.5, 4.0], requires_grad=True)
    for way in WAYS:
        lists = autobatch.vmap(powers, ragged_out="list", **way)(xs)
        (found,) = torch.autograd.grad(sum(sum(each) for each in lists), xs)
        (wanted,) = torch.autograd.grad(sum(sum(powers(x)) for x in xs), xs)
        check(found, wanted)


def test_batch_and_stream_give_lists_too():
    @autobatch.function(ragged_out=(None, "list"), **PYTHON)
    def decorated(n):
        return collatz(n)

    wanted = loop(collatz)
    lengths, paths = decorated.batch(COUNTS)
    assert lengths.tolist() == [length for length, _ in wanted]
    assert paths == [path for _, path in wanted]
    streamed = dict(autobatch.stream(collatz, COUNTS.tolist(), width=2))
    assert [streamed[at] for at in range(5)] == wanted


ITEMS = ("i", "i * 0.5", "i > 1", "(i, x)", "[i]", "x * i", "'word'", "None", "{'i': i}")


def made_of(items, others):
    """A program of two lists, the second of which may hold the first."""
    text = "def made_of(n, x):\n    made, more = [n], []\n    for i in range(n):\n"
    for item in items:
        text += f"        more.append({item})\n"
    for item in others:
        text += f"        if i % 2:\n            made.append({item})\n"
    text += "    return x + n, made, (more, [made])\n"
    file = f"<lists {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    return space["made_of"]


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from([*ITEMS, "made"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(ITEMS), max_size=2),
    st.sampled_from(WAYS),
    st.sampled_from([None, 3]),
)
def test_generated_lists_are_those_of_the_loop(items, others, way, chunk_size):
    function, xs = made_of(items, others), torch.arange(10.0).view(5, 2)
    wanted = [function(n, x) for n, x in zip(COUNTS.tolist(), xs, strict=True)]
    options = {**way, **PYTHON, "chunk_size": chunk_size, "ragged_out": (None, "list", "list")}
    added, made, (more, nested) = autobatch.vmap(function, **options)(COUNTS, xs)
    check(added, torch.stack([each[0] for each in wanted]))
    check(made, [each[1] for each in wanted])
    check(more, [each[2][0] for each in wanted])
    check(nested, [each[2][1] for each in wanted])
    assert all(own is inner for own, (inner,) in zip(made, nested, strict=True))
