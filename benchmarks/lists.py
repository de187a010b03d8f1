"""``python -m benchmarks.lists [--batch N …] [--repeats N]``: programs that build lists.

For each program and batch size: block executions of a run, operations that ran thread by thread,
and the time of the plain loop over that of the batch, the least of some runs of each, which take
turns. Lists differ in length by thread, and are read and written at each thread's own places.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import autobatch

Program = Callable[..., Any]
BATCHES = (64, 512)
HEAD = ("program", "batch", "block executions", "by thread", "loop / batch")
SHIFTS = 12


def polish(tokens: Tensor, count: int) -> Tensor:
    """Reverse Polish notation: numbers 0 to 9; -1 and -2 add and subtract the last two."""
    stack = []
    for i in range(count):
        token = tokens[i]
        if token >= 0:
            stack.append(token * 0.5)
        else:
            last = stack.pop()
            before = stack.pop()
            stack.append(before + last if token == -1 else before - last)
    return stack[-1]


def distance(left: Tensor, right: Tensor, rows: int, columns: int) -> int:
    """Edit distance of two texts by two rows of the table."""
    previous = list(range(columns + 1))
    for i in range(rows):
        current = [i + 1]
        for j in range(columns):
            differ = 0 if left[i] == right[j] else 1
            current.append(min(previous[j + 1] + 1, current[j] + 1, previous[j] + differ))
        previous = current
    return previous[columns]


def breadth_first(edges: Tensor) -> int:
    """The sum of the steps to each node ``[n, n]`` that the first one leads to."""
    n = len(edges)
    steps = [-1] * n
    steps[0] = 0
    queue = [0]
    head = 0
    while head < len(queue):
        node = queue[head]
        head += 1
        for other in range(n):
            if edges[node, other] > 0 and steps[other] < 0:
                steps[other] = steps[node] + 1
                queue.append(other)
    return sum(steps)


def positive(x: Tensor) -> int:
    """The sum of the places at which ``x`` ``[n]`` is positive."""
    found = []
    for i in range(len(x)):
        if x[i] > 0:
            found.append(i)
    total = 0
    for i in found:
        total += i
    return total


def collected(x: Tensor, weight: Tensor, count: int) -> Tensor:
    """The states ``[hidden]`` of a recurrence, stacked."""
    states = []
    state = x
    for _ in range(count):
        state = torch.tanh(weight @ state + x)
        states.append(state)
    return torch.stack(states).sum(0)


def placed(x: Tensor, places: Tensor) -> Tensor:
    """A bucket for each of eight places, written at a place of each thread's own."""
    out = [x * 0] * 8
    for t in range(len(places)):
        out[places[t]] = out[places[t]] * 0.5 + x
    return torch.stack(out)


def notation(batch: int) -> tuple[Tensor, Tensor]:
    """Valid inputs of ``polish``: numbers, and one operator less."""
    counts = torch.randint(2, SHIFTS, (batch,))
    tokens = torch.zeros(batch, 2 * SHIFTS, dtype=torch.int64)
    for row, count in zip(tokens, counts.tolist(), strict=True):
        early = int(torch.randint(1, count + 1, ()))  # numbers before the first operator
        signs = -torch.randint(1, 3, (count - 1,))
        rest = [part for i in range(early, count) for part in (i % 10, int(signs[i - 1]))]
        line = [*(i % 10 for i in range(early)), *rest]
        line += signs[: 2 * count - 1 - len(line)].tolist()
        row[: len(line)] = torch.tensor(line)
    return tokens, 2 * counts - 1


def problems(batch: int) -> dict[str, tuple[Program, tuple[Any, ...], tuple[int | None, ...]]]:
    """By name: the function, its arguments, and along which of their dimensions they are mapped."""
    torch.manual_seed(0)
    texts = torch.randint(0, 4, (2, batch, 10))
    sizes = torch.randint(4, 11, (2, batch))
    counts, weight = torch.randint(3, 12, (batch,)), torch.randn(32, 32) / 8
    edges = (torch.rand(batch, 8, 8) < 0.3).long()
    rows = torch.randn(batch, 32)
    return {
        "polish notation": (polish, notation(batch), (0, 0)),
        "edit distance": (distance, (*texts, *sizes), (0, 0, 0, 0)),
        "breadth first": (breadth_first, (edges,), (0,)),
        "places that are positive": (positive, (rows[:, :16],), (0,)),
        "states, stacked": (collected, (rows, weight, counts), (0, None, 0)),
        "writes by place": (placed, (rows, torch.randint(0, 8, (batch, 12))), (0, 0)),
    }


def row_of(args: Sequence[Any], dims: Sequence[int | None], index: int) -> tuple[Any, ...]:
    own = (arg if dim is None else arg[index] for arg, dim in zip(args, dims, strict=True))
    return tuple(x.item() if x.dim() == 0 else x for x in own)


def timed(run: Program, *args: Any) -> float:
    started = time.perf_counter()
    run(*args)
    return time.perf_counter() - started


def looped(function: Program, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [function(*row) for row in rows]


def measured(batch: int, repeats: int) -> list[tuple[Any, ...]]:
    """A row of the table for each program."""
    found: list[tuple[Any, ...]] = []
    for name, (function, args, dims) in problems(batch).items():
        mapped = autobatch.vmap(function, in_dims=dims, scalars="python", executor="traced")
        rows = [row_of(args, dims, index) for index in range(batch)]
        for _ in range(3):
            mapped(*args)
        with autobatch.counts() as counts:
            mapped(*args)
        pairs = [(timed(looped, function, rows), timed(mapped, *args)) for _ in range(repeats)]
        loop, together = (min(times) for times in zip(*pairs, strict=True))
        ratio = f"{loop / together:.2f}"
        found.append((name, batch, counts.block_executions, counts.by_thread, ratio))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lists", description=__doc__)
    parser.add_argument("--batch", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(" | ".join(HEAD))
    for batch in options.batch:
        for row in measured(batch, options.repeats):
            print(" | ".join(map(str, row)), flush=True)


if __name__ == "__main__":
    main()
