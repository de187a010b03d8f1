"""Lists that a program builds, of different lengths by thread: the loop's values, and few copies.

The loop over the rows, in plain Python, is what every program here is held to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import autobatch
from benchmarks import lists
from tests.oracle import assert_matches_loop

WAYS: tuple[dict[str, Any], ...] = (
    {"executor": "vmap"},
    {"trace_after": 0},
    {"engine": "program_counter"},
)


class Result:
    """What a thread returns, whatever it is."""

    def __init__(self, value: Any) -> None:
        self.value = value


def outcome(program: Callable[..., Any], *row: Any) -> Any:
    try:
        return program(*row)
    except Exception as error:
        return type(error), str(error)


def same(got: Any, want: Any) -> bool:
    if type(got) is not type(want):
        return False
    if isinstance(want, Tensor):
        return got.dtype == want.dtype and got.shape == want.shape and torch.allclose(got, want)
    if isinstance(want, list | tuple):
        return len(got) == len(want) and all(map(same, got, want))
    return bool(got == want)


def check(program: Callable[..., Any], *columns: Tensor) -> None:
    """Each thread's result, in a box of its own, or its exception, is the loop's."""

    def boxed(*row: Any) -> Result:
        return Result(program(*row))

    rows = [
        tuple(c.item() if c.dim() == 0 else c.clone() for c in row)
        for row in zip(*columns, strict=True)
    ]
    wanted = [outcome(program, *row) for row in rows]
    for options in WAYS:
        batched = autobatch.vmap(boxed, scalars="python", on_error="isolate", **options)
        for _ in range(2):
            for want, got in zip(wanted, batched(*columns), strict=True):
                if got.exception is None:
                    assert same(got.value.value, want), (options, got.value.value, want)
                else:
                    assert (type(got.exception), str(got.exception)) == want


COUNTS = torch.tensor([3, 0, 5, 1, 2, 5, 4, 9, 7, 6, 8, 10])
ROWS = torch.arange(72, dtype=torch.float64).reshape(12, 6) / 7 - 3


def built(n: Any) -> Any:
    out = []
    for i in range(n):
        out.append(i * i)
    return out, len(out), bool(out), out[-2:], out[1:], out[:3], out + [n], [n] + out  # noqa: RUF005


def read_back(n: Any, x: Any) -> Any:
    out = []
    for i in range(n):
        out.append(x[i % 6] * i)
    total = x[0] * 0
    for h in out:
        total = total + h
    if out:
        total = total + out[-1] * out[n // 2]
    return total, len(out), torch.stack([x[1], *out])


def stacked(n: Any, x: Any) -> Any:
    out = [x]
    for i in range(n):
        out.append(torch.sin(out[-1]) + i)
    whole = torch.stack(out)
    out.append(x)
    return whole, whole.sum(0), len(out)


def written(n: Any) -> Any:
    out = [0] * (n + 1)
    for i in range(n):
        out[i] = n - i
    for i in range(n):
        j = (i * 7 + n) % (n + 1)
        out[j] = out[i] + 1
    return out


def counted(n: Any) -> Any:
    out = list(range(n))
    more = list(range(-n, 4))
    out.append(len(more))
    return out, more, list(out), [n, 1] * (n - 2), [0.5] * n


def stack_machine(seed: Any, n: Any) -> Any:
    stack, total = [1], 0
    while n > 0:
        seed = (seed * 7 + 3) % 23
        if seed % 3 > 0:
            stack.append(seed)
        elif stack:
            total = total * 2 + stack.pop()
        n -= 1
    return total, stack


def two_names(n: Any) -> Any:
    first = []
    second = first if n % 2 else []
    for i in range(n):
        first.append(i)
    if n > 4:
        second.append(100)
    third = second
    if n % 3:
        third.append(200)
    return first, second, len(third), first is second


def filled(out: Any, n: Any) -> Any:
    while n > 0:
        out.append(n)
        n = n // 2
    return out


def by_callee(n: Any) -> Any:
    mine = []
    theirs = filled(mine, n)
    if n > 3:
        theirs.append(-1)
    return mine, theirs, theirs is mine


def kinds_meet(n: Any) -> Any:
    out = []
    for i in range(n):
        out.append(i)
    if n % 3 == 1:
        out.append(0.5)
    if n % 3 == 2:
        out.append("x")
    total = 0
    for item in out:
        total = total + len(str(item))
    return out, total, sorted(map(str, out))


def out_of_range(n: Any) -> Any:
    out = []
    for i in range(n):
        out.append(i)
    if n < 8:
        out.pop()
    out[4] = 7
    return out[3] + out[-6]


def wide_ints(n: Any) -> Any:
    out = [1]
    for _ in range(n):
        out.append(out[-1] * 4096)
    return out, out[n // 2]


def builtins(n: Any) -> Any:
    out = []
    for i in range(n):
        out.append((i * 5) % 7)
    held = out
    least = min(out) if out else None
    result = sum(out), least, sorted(out), list(reversed(out)), 3 in out, out == [0, 5, 3], str(out)
    out.append(50)
    held.extend([51, 52])
    return (
        result,
        out,
        list(enumerate(held)),
        list(zip(out, held, strict=True)),
        tuple(out),
        isinstance(out, list),
    )


def other_methods(n: Any) -> Any:
    out = []
    for i in range(n):
        out.append(i % 4)
    kept = out.copy()
    out.insert(0, 9)
    out.reverse()
    if n > 2:
        out.remove(1)
        del out[0]
        kept.clear()
    first = out.pop(0) if out else None
    return out, kept, first, out.count(9)


def rows_of_rows(n: Any, x: Any) -> Any:
    table = []
    for i in range(n):
        row = []
        for j in range(i):
            row.append(i * j)
        table.append(row)
    previous = []
    for row in table:
        previous = row
    return table, previous, len(table)


def backwards(n: Any) -> Any:
    out = [n]
    for i in range(n):
        out.append(i * 3 % 5)
    it = reversed(out)
    first, total = next(it), 0
    if n > 3:
        out.pop()
    rest = list(it)
    for j, item in enumerate(reversed(out)):
        total = total * 3 + item
        if j == 1:
            out.append(4)
        if j == 2 and len(out) > 3:
            out.pop()
            out.pop()
    turned = out[::-1]
    turned.append(8)
    out.reverse()
    return first, rest, total, out, turned, next(it, -7)


def tensors_of_numbers(n: Any) -> Any:
    ints, floats, empty = [n], [0.5], []
    for i in range(n):
        ints.append(i)
        floats.append(i / 2)
        empty.append(i)
    made = torch.tensor(ints)
    ints[0] = 7
    wide = torch.tensor(ints, dtype=torch.float64)
    return made, torch.tensor(floats), wide, torch.tensor(empty), torch.tensor([ints])


def ended_together(n: Any) -> Any:
    out = []
    for i in range(n):
        out.append(i)
    while len(out) > 1:
        out.pop()
    it, down = iter(out), reversed(out)
    ends = next(it, -1), next(it, -1), next(down, -1), next(down, -1)
    out.extend([7, 8, 9])
    return ends, next(it, -1), next(down, -1)


def nested_in_records(n: Any) -> Any:
    box = {"items": [], "count": 0}
    for i in range(n):
        box["items"].append(i + n)
        box["count"] += 1
    while len(box["items"]) > 3:
        box["count"] -= box["items"].pop()
    return box


def changed_while_read(n: Any) -> Any:
    out = [n]
    total = 0
    for item in out:
        total += item
        if item > 0:
            out.append(item - 1)
    return total, out


def caught(n: Any) -> Any:
    out = []
    log = 0
    for i in range(n):
        out.append(i)
    for _ in range(4):
        try:
            log = log * 10 + out.pop()
            out[2] = 5
        except IndexError as error:
            log = -log - len(str(error))
    return log, out


def captured(n: Any) -> Any:
    out = []

    def note(item: Any) -> None:
        out.append(item)

    for i in range(n):
        note(i)
    return out


PROGRAMS = [
    *(built, written, counted, two_names, by_callee, kinds_meet, out_of_range, wide_ints, builtins),
    *(other_methods, nested_in_records, changed_while_read, caught, captured),
    *(backwards, tensors_of_numbers, ended_together),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_lists_of_numbers(program: Callable[..., Any]) -> None:
    check(program, COUNTS)


@pytest.mark.parametrize("program", [read_back, stacked, rows_of_rows])
def test_lists_of_tensors(program: Callable[..., Any]) -> None:
    check(program, COUNTS, ROWS)


def turned(n: Any, x: Any) -> Any:
    out, state = [x], x
    for i in range(n):
        out.append(x * i)
    for item in reversed(out):
        state = torch.tanh(state) + item
    out.reverse()
    out[0] = out[0] * state
    again = list(reversed(out))
    return torch.cumsum(torch.stack(out[::-1]), 0)[-1] + again[0]


@pytest.mark.parametrize("way", WAYS)
def test_lists_are_gone_through_backwards_together(way: dict[str, Any]) -> None:
    """And their elements' gradients are the loop's."""

    def path(n: Any, x: Any) -> Any:
        places = [n]
        for i in range(n):
            places.append(i % 3)
        places.reverse()
        return turned(n, x)[torch.tensor(places)].sum()

    assert_matches_loop(turned, (COUNTS, ROWS), scalars="python", **way)
    x, alone = ROWS.clone().requires_grad_(), ROWS.clone().requires_grad_()
    with autobatch.counts() as counts:
        autobatch.vmap(path, scalars="python", fallback="error", **way)(
            COUNTS % 3, x
        ).sum().backward()
    assert counts.by_thread == 0
    for n, row in zip((COUNTS % 3).tolist(), alone, strict=True):
        path(n, row).backward()
    assert torch.allclose(x.grad, alone.grad)  # type: ignore[arg-type]


def test_a_stack_machine() -> None:
    check(stack_machine, torch.arange(12) * 5, COUNTS)


@pytest.mark.parametrize("program", [read_back, stacked])
def test_gradients_flow_through_lists(program: Callable[..., Any]) -> None:
    def loss(n: Any, x: Any) -> Any:
        return program(n, x)[0].sum() ** 2

    def placed(n: Any, x: Any) -> Any:
        out = [x * 0] * 4
        for i in range(n):
            out[i % 4] = out[(i * 3 + n) % 4] * 0.5 + x * i
        return torch.stack(out).pow(2).sum()

    for function in (loss, placed):
        x = ROWS.clone().requires_grad_()
        alone = ROWS.clone().requires_grad_()
        batch = autobatch.vmap(function, scalars="python")(COUNTS, x)
        rows = [function(n, row) for n, row in zip(COUNTS.tolist(), alone, strict=True)]
        batch.sum().backward()
        torch.stack(rows).sum().backward()
        assert torch.allclose(batch, torch.stack(rows))
        assert torch.allclose(x.grad, alone.grad)  # type: ignore[arg-type]


def shorten(words: Any) -> None:
    words.pop()
    if len(words) > 2:
        words.pop()


def test_calls_that_write_objects_are_not_put_off() -> None:
    """Lists of strings of eleven lengths are objects; who writes them runs where it is called."""

    def program(n: Any) -> Any:
        words = []
        for i in range(n):
            words.append(str(i * n))
        while len(words) > 1:
            shorten(words)
        return len(words)

    got = autobatch.vmap(program, scalars="python", max_steps=2000)(COUNTS)
    assert got.tolist() == [program(n) for n in COUNTS.tolist()]


def test_threads_that_return_lists_of_different_lengths_are_told() -> None:
    def made(n: Any) -> Any:
        out = []
        for i in range(n):
            out.append(i)
        return out

    with pytest.raises(Exception, match="different structures"):
        autobatch.vmap(made, scalars="python")(COUNTS)


def test_lists_that_have_become_as_long_as_each_other_stack() -> None:
    def made(n: Any) -> Any:
        out = []
        for i in range(n):
            out.append(i)
        while len(out) > 2:
            out.pop()
        while len(out) < 2:
            out.append(-1)
        return out

    first, second = autobatch.vmap(made, scalars="python")(COUNTS)
    wanted = [made(n) for n in COUNTS.tolist()]
    assert first.tolist() == [row[0] for row in wanted]
    assert second.tolist() == [row[1] for row in wanted]


WRITE_NOTHING = ("_reshape_alias", "_unsafe_view", "empty", "new_empty", "reshape")
"""Operators that write nothing here, and are no views by their own account."""


class Written(TorchDispatchMode):
    """Counts the elements of what operations give or write, by operator."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if isinstance(out, Tensor) and not func.is_view and name not in WRITE_NOTHING:
            written = args[2] if name == "index_copy_" else out
            written = args[3] if name == "index_copy_" else written
            self.elements[name] = self.elements.get(name, 0) + written.numel()
        return out

    @property
    def total(self) -> int:
        return sum(self.elements.values())


def elements(program: Callable[..., Any], *columns: Tensor) -> Written:
    """What a run writes, operation by operation."""
    batched = autobatch.vmap(program, scalars="python", executor="vmap")
    batched(*columns)
    with Written() as written:
        batched(*columns)
    return written


def test_appending_costs_what_it_appends() -> None:
    """Each element is written once, and moved to a larger table less than four times over all."""
    k, often = len(COUNTS), 300

    def appended(n: Any, m: Any) -> Any:
        out = []
        for i in range(n):
            out.append(i)
        for i in range(m):
            out.append(i)
        return len(out)

    none, many = (elements(appended, COUNTS, torch.full((k,), m)) for m in (0, often))
    written = many.elements["index_copy_"] - none.elements.get("index_copy_", 0)
    moved = many.elements["constant_pad_nd"] - none.elements["constant_pad_nd"]
    assert written == k * often
    assert moved < 4 * k * (often + int(COUNTS.max()))


def test_writing_one_element_does_not_copy_the_list() -> None:
    k = len(COUNTS)

    def written(n: Any, size: Any, m: Any) -> Any:
        out = []
        for i in range(size + n):
            out.append(i)
        for i in range(m):
            out[(i * 5 + n) % size] = i
        return out[n]

    def cost(size: int) -> int:
        sizes = torch.full((k,), size)
        none, many = (elements(written, COUNTS, sizes, torch.full((k,), m)) for m in (0, 20))
        return many.total - none.total

    assert cost(20) == cost(200)


@pytest.mark.parametrize("differentiated", [False, True])
def test_torch_stack_copies_at_most_once(differentiated: bool) -> None:
    wide = torch.randn(len(COUNTS), 64, requires_grad=differentiated)

    def made(n: Any, x: Any, stacks: Any) -> Any:
        out = [x]
        for i in range(n):
            out.append(x + i)
        whole = torch.stack(out) if stacks else out
        return len(whole) + len(out)

    none, one = (
        elements(made, COUNTS, wide, torch.full((len(COUNTS),), flag)) for flag in (False, True)
    )
    assert one.total - none.total <= (int(COUNTS.max()) + 1) * wide.numel()
    assert "stack" not in one.elements or one.elements["stack"] == none.elements["stack"]


def test_threads_whose_lists_differ_in_length_run_together() -> None:
    def hits(n: Any) -> Any:
        out = []
        for i in range(12):
            if (i * 7 + n) % 3 == 0:
                out.append(i)
            if n > i:
                out.append(-i)
        return len(out)

    with autobatch.counts() as counts:
        autobatch.vmap(hits, scalars="python")(COUNTS)
    assert max(counts.by_block.values()) <= 13
    assert counts.by_thread == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(lists.problems(2)))
def test_the_benchmark_gives_what_the_loop_gives(name: str) -> None:
    function, args, dims = lists.problems(24)[name]
    got = autobatch.vmap(function, in_dims=dims, scalars="python")(*args)
    wanted = [function(*lists.row_of(args, dims, index)) for index in range(24)]
    for own, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(own, torch.as_tensor(want))


def squeezed(x):
    """Rows of different lengths, filled up to one length, and a tensor of them."""
    rows = []
    for row in x:
        kept = [int(value) for value in row if value != 0]
        rows.append(kept + [0] * (len(row) - len(kept)))
    return torch.tensor(rows), torch.tensor(rows[0]), torch.as_tensor(rows[1], dtype=torch.float64)


def test_a_tensor_of_lists_that_have_come_to_one_length():
    xs = torch.randint(0, 3, (7, 3, 4), generator=torch.Generator().manual_seed(0))
    assert_matches_loop(squeezed, [xs])
    with autobatch.counts() as counts:
        autobatch.vmap(squeezed)(xs)
    assert counts.fallbacks == 0


def test_a_tensor_of_lists_of_different_lengths_is_each_threads_own():
    def total(x):
        kept = [float(value) for value in x if value > 0]
        return torch.tensor([kept, kept]).sum(), torch.tensor(kept).sum(), len(kept)

    xs = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    xs[2], xs[3] = -1.0, 1.0
    assert_matches_loop(total, [xs])


def sums_of_lists(x, n):
    small, large, first = [0], [x.sum()], []
    for value in x:
        if value < n:
            small.append(int(value))
        else:
            large.append(value * 2)
            first = first + [value]  # noqa: RUF005 what is tested
    both = small + small
    both.append(7)
    return sum(both), len(both), small[-1], (large + first)[-1], len(first + large), len(first)


def test_lists_of_different_lengths_add_up():
    xs = torch.randn(7, 6, generator=torch.Generator().manual_seed(0)) * 4
    limits = torch.tensor([0.0, -9.0, 9.0, 1.0, -1.0, 0.5, 2.0])
    assert_matches_loop(sums_of_lists, [xs, limits])
    assert_matches_loop(lambda x, n: ([1] * int(n) + [2, 3] * int(x))[-1], [limits[2:6] + 2] * 2)


def kept_views(x: Tensor) -> Tensor:
    kept = []
    for part in x.unbind():
        if part > 0:
            kept.append(part)
    return torch.stack(kept).prod() if len(kept) > 2 else x[0]


def test_views_in_a_list_are_elsewhere_too() -> None:
    """The loop's tuple has the views that only some threads have in their lists as well."""
    rows = torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) * 1.3
    assert_matches_loop(kept_views, [rows], batch_sizes=(1, 2, 7, 64))


TABLES = {
    "ints": [3, -1, 2**62, 5],
    "floats": [0.5, -0.0, float("inf"), 2.0],
    "bools": [True, False, False, True],
    "large": [1, 2**70, 3, -(2**80)],
    "mixed": [1, 2.0, True, 4],
    "texts": ["a", "bb", "", "d"],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_look_into_what_all_share(name, kind):
    table = kind(TABLES[name])

    def looked(i):
        found = table[i]
        return found + found if isinstance(found, (int, float)) else len(found)

    def failing(i):
        return table[i * 2 - 3]

    places = torch.tensor([0, 3, -1, 2, -4, 1])
    assert_matches_loop(looked, [places], scalars="python", plain="never")
    assert_matches_loop(failing, [places], scalars="python", plain="never")
