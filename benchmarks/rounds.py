"""``python -m benchmarks.rounds [--batch N …] [--width N] [--repeats N] [--training]``: loops of a
layer as one writes them, with branches, calls and lists of layers in them.

For each program and batch size: microseconds of process time for a round, of the batch and of torch
code by hand that does the same (where threads part, it takes the rows of each way, and puts what
they make together), the least of some runs of each, which take turns; and the plain loop's over the
batch's. A round has one product with a square matrix for each thread, or three in a row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time

import torch
from torch import Tensor, nn

import autobatch
from benchmarks.harness import least

BATCHES = (64, 1024)
WIDTH, ROUNDS, LAYERS = 32, 100, 3
HEAD = ("program", "batch", "autobatch", "by hand", "over by hand", "loop over autobatch")
Program = Callable[[Tensor], Tensor]


@dataclass
class State:
    h: Tensor
    count: int = 0


class Model(nn.Module):
    """What all programs share: ``weight`` ``[width, width]``, and layers of that size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(LAYERS))
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)

    def straight(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[0])
        for row in x:
            h = torch.tanh(self.weight @ h + row)
        return h

    def either(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[0])
        for row in x:
            if row.sum() > 0:
                h = torch.tanh(self.weight @ h + row)
            else:
                h = torch.sin(self.weight @ h - row)
        return h

    def kept_in_an_object(self, x: Tensor) -> Tensor:
        state = State(torch.zeros_like(x[0]))
        for row in x:
            if row.sum() > 0:
                state.h = torch.tanh(self.weight @ state.h + row)
                state.count += 1
            else:
                state.h = torch.sin(self.weight @ state.h - row)
        return state.h * state.count

    def skipping(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[0])
        for row in x:
            if row.sum() < 0:
                continue
            h = torch.tanh(self.weight @ h + row)
        return h

    def one_of_three(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[0])
        for row in x:
            total = row.sum()
            if total > 2:
                h = torch.tanh(self.weight @ h + row)
            elif total < -2:
                h = torch.sin(self.weight @ h - row)
            else:
                h = h * 0.5 + row
        return h

    def by_a_function(self, x: Tensor) -> Tensor:
        def step(h: Tensor, row: Tensor) -> Tensor:
            return torch.tanh(self.weight @ h + row)

        h = torch.zeros_like(x[0])
        for row in x:
            h = step(h, row)
        return h

    def through_layers(self, h: Tensor, row: Tensor) -> Tensor:
        for layer in self.layers:
            h = torch.relu(layer(h))
        return h + row

    def by_a_method(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[0])
        for row in x:
            h = self.through_layers(h, row)
        return h


@dataclass(frozen=True, slots=True)
class ByHand:
    """The same for all threads at once: ``x`` is ``[B, T, width]``."""

    model: Model

    def straight(self, x: Tensor) -> Tensor:
        h, weight = torch.zeros_like(x[:, 0]), self.model.weight.t()
        for row in x.unbind(1):
            h = torch.tanh(torch.addmm(row, h, weight))
        return h

    by_a_function = straight

    def either(self, x: Tensor) -> Tensor:
        h, weight = torch.zeros_like(x[:, 0]), self.model.weight.t()
        for row in x.unbind(1):
            h = both_ways(row.sum(1) > 0, h, row, weight)
        return h

    def kept_in_an_object(self, x: Tensor) -> Tensor:
        h, weight = torch.zeros_like(x[:, 0]), self.model.weight.t()
        count = torch.zeros(len(x), dtype=torch.int64)
        for row in x.unbind(1):
            one = row.sum(1) > 0
            h = both_ways(one, h, row, weight)
            count = count + one
        return h * count[:, None]

    def skipping(self, x: Tensor) -> Tensor:
        h, weight = torch.zeros_like(x[:, 0]), self.model.weight.t()
        for row in x.unbind(1):
            yes = (row.sum(1) >= 0).nonzero().squeeze(1)
            h = h.index_copy(0, yes, torch.tanh(torch.addmm(row[yes], h[yes], weight)))
        return h

    def one_of_three(self, x: Tensor) -> Tensor:
        h, weight = torch.zeros_like(x[:, 0]), self.model.weight.t()
        for row in x.unbind(1):
            total = row.sum(1)
            high, low = total > 2, total < -2
            a, b = high.nonzero().squeeze(1), low.nonzero().squeeze(1)
            c = (~(high | low)).nonzero().squeeze(1)
            new = torch.empty_like(h)
            new = new.index_copy(0, a, torch.tanh(torch.addmm(row[a], h[a], weight)))
            new = new.index_copy(0, b, torch.sin(h[b] @ weight - row[b]))
            h = new.index_copy(0, c, h[c] * 0.5 + row[c])
        return h

    def by_a_method(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[:, 0])
        for row in x.unbind(1):
            for layer in self.model.layers:
                h = torch.relu(layer(h))
            h = h + row
        return h


def both_ways(one: Tensor, h: Tensor, row: Tensor, weight: Tensor) -> Tensor:
    """``tanh`` for the threads of ``one``, ``sin`` for the others."""
    yes, no = one.nonzero().squeeze(1), (~one).nonzero().squeeze(1)
    new = torch.empty_like(h)
    new = new.index_copy(0, yes, torch.tanh(torch.addmm(row[yes], h[yes], weight)))
    return new.index_copy(0, no, torch.sin(h[no] @ weight - row[no]))


PROGRAMS = (
    *("straight", "either", "kept_in_an_object", "skipping", "one_of_three"),
    *("by_a_function", "by_a_method"),
)


def measured(name: str, batch: int, width: int, repeats: int, training: bool) -> list[str]:
    torch.manual_seed(0)
    model, x = Model(width), torch.randn(batch, ROUNDS, width)
    program: Program = getattr(model, name)
    batched, by_hand = autobatch.vmap(program, executor="traced"), getattr(ByHand(model), name)

    def step(run: Program) -> Callable[[], object]:
        def forward() -> object:
            made = run(x)
            return made.sum().backward() if training else made

        return forward

    def loop() -> object:
        made = [program(row) for row in x[:16]]
        return torch.stack(made).sum().backward() if training else made

    with torch.set_grad_enabled(training):
        for _ in range(12):
            torch.testing.assert_close(batched(x), by_hand(x), rtol=1e-3, atol=1e-3)
        ours, hand, plain = least((step(batched), step(by_hand), loop), repeats, process_time)
    scale = 1e6 / ROUNDS
    plain *= batch / min(batch, 16)
    return [
        *(name.replace("_", " "), str(batch), f"{ours * scale:.0f}", f"{hand * scale:.0f}"),
        *(f"{ours / hand:.1f}", f"{plain / ours:.1f}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounds")
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--training", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(" | ".join(HEAD))
    for batch in given.batch:
        for name in PROGRAMS:
            row = measured(name, batch, given.width, given.repeats, given.training)
            print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
