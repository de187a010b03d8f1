"""Executors of the user's own: all that the protocol asks is a callable of the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from programs.collatz import collatz
from programs.mandelbrot import mandelbrot
from tests.oracle import assert_matches_loop


@dataclass(eq=False)
class AsItIs:
    """Gives the stretch back, or, where it is not ``bare``, what runs it; it records nothing."""

    bare: bool = True
    compiled: int = 0
    runs: list[int] = field(default_factory=list)

    def compile(self, stretch: Callable[..., Sequence[Tensor]], inputs: Sequence[Any]) -> Any:
        self.compiled += 1
        if self.bare:
            return stretch

        def noted(k: int, *values: Any) -> Sequence[Tensor]:
            self.runs.append(k)
            return stretch(k, *values)

        return noted


@dataclass(eq=False)
class OnTheExample(AsItIs):
    """Runs the stretch on the example once, as something that looks at its results would."""

    def compile(self, stretch: Callable[..., Sequence[Tensor]], inputs: Sequence[Any]) -> Any:
        k = next(len(each.value) for each in inputs if each.kind == "column")
        stretch(k, *(each.value for each in inputs))
        return super().compile(stretch, inputs)


def with_a_counter(x: Tensor, limit: Tensor) -> Any:
    """A number that all threads share, a view, a write in place, and a list."""
    rounds = 0
    while x.sum() < limit:
        x = x * 1.5 + rounds
        rounds += 1
    parts = [x, x[1:]]
    if x[0] > 3:
        parts[1] += rounds
    return parts[0], parts[1].sum(), rounds


def may_fail(table: Tensor, i: Tensor) -> Any:
    picked = table[i] * 2
    while picked < 10:
        picked = picked * picked + 1
    return picked


@pytest.mark.sampled(8)
@pytest.mark.parametrize("made", [AsItIs, lambda: AsItIs(bare=False), OnTheExample])
@pytest.mark.parametrize(
    ("func", "args", "scalars"),
    [
        (collatz, (torch.arange(1, 40),), "tensor"),
        (collatz, (torch.arange(1, 40),), "python"),
        (mandelbrot, (torch.linspace(-2, 1, 9), torch.linspace(-1, 1, 9)), "tensor"),
        (
            with_a_counter,
            (torch.linspace(0.1, 2, 12).reshape(4, 3), torch.arange(4.0) * 20),
            "tensor",
        ),
        (may_fail, (torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2, 1, -1])), "tensor"),
        (may_fail, (torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2, 3, -1])), "tensor"),
    ],
)
def test_an_executor_need_not_record(
    made: Callable[[], Any], func: Any, args: tuple[Any, ...], scalars: str
) -> None:
    configuration = {"executor": made(), "trace_after": 0}
    assert_matches_loop(func, args, scalars=scalars, configurations=(configuration,))


@pytest.mark.parametrize("made", [AsItIs, OnTheExample])
def test_what_an_executor_gives_is_what_runs(made: Callable[..., Any]) -> None:
    executor, sizes = made(bare=False), (4, 7, 2)
    for size in sizes:
        xs = torch.linspace(0.1, 2, 3 * size).reshape(size, 3)
        for _ in range(2):
            with autobatch.counts() as counts:
                autobatch.vmap(with_a_counter, executor=executor, trace_after=0)(xs, xs[:, 0] * 20)
            assert len(executor.runs) > 0
            executor.runs.clear()
        assert counts.traces == 0
    assert executor.compiled <= 10, "once for a stretch and signature, not for a batch size"


@dataclass(eq=False)
class Wrong:
    """Does in ``compile``, or makes of results, what ``spoil`` does."""

    spoil: Callable[[Sequence[Tensor], int], Any]
    at_once: bool = False

    def compile(self, stretch: Callable[..., Sequence[Tensor]], inputs: Sequence[Any]) -> Any:
        if self.at_once:
            return self.spoil((), 0)
        return lambda k, *values: self.spoil(stretch(k, *values), k)


def refuse(outs: Sequence[Tensor], k: int) -> Any:
    raise RuntimeError("no kernel")


def guarded(x: Tensor) -> Any:
    """What an executor raises is none of the program's exceptions."""
    try:
        while x.sum() < 10:
            x = x * 1.5 + 1
    except Exception:
        x = -x
    return x


def only_at(size: int) -> Callable[[Sequence[Tensor], int], Any]:
    """Right for one number of rows only."""
    return lambda outs, k: [out[:size] for out in outs]


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (Wrong(refuse, at_once=True), "Wrong is wrong: compile raised RuntimeError: no kernel"),
        (Wrong(lambda outs, k: 3, at_once=True), "compile gave 3, which is not callable"),
        (Wrong(refuse), "what it made of the stretch raised RuntimeError: no kernel"),
        (Wrong(lambda outs, k: outs[1:]), "results of a stretch it gives"),
        (Wrong(lambda outs, k: None), "it gives a NoneType"),
        (Wrong(lambda outs, k: [*outs[1:], 1]), "is a int, not a tensor|is float32"),
        (Wrong(lambda outs, k: [o.double() for o in outs]), "is float64 .*the stretch gives"),
        (Wrong(lambda outs, k: [~o if o.dtype == torch.bool else o + 1 for o in outs]), "values"),
        (Wrong(only_at(4)), r"of 7 rows, is \w+ \[4.* the stretch gives \w+ \[7"),
    ],
)
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_what_is_wrong_with_an_executor_is_told(executor: Wrong, message: str, engine: str) -> None:
    mapped = autobatch.vmap(guarded, executor=executor, engine=engine, trace_after=0)
    with pytest.raises(autobatch.ExecutorError, match=message) as caught:
        for size in (4, 7):
            mapped(torch.linspace(0.1, 2, 3 * size).reshape(size, 3))
    assert caught.value.diagnostic.span is not None


@dataclass(eq=False)
class Buffered:
    """Writes its results over those of its last call for as many rows."""

    buffers: dict[Any, Tensor] = field(default_factory=dict)

    def compile(self, stretch: Callable[..., Sequence[Tensor]], inputs: Sequence[Any]) -> Any:
        def kept(k: int, *values: Any) -> Sequence[Tensor]:
            outs = stretch(k, *values)
            of = [self.buffers.setdefault((stretch, i, o.shape), o) for i, o in enumerate(outs)]
            return [buffer.copy_(out) for buffer, out in zip(of, outs, strict=True)]

        return kept


@dataclass(eq=False)
class Spoiling:
    """Writes to what it gets."""

    def compile(self, stretch: Callable[..., Sequence[Tensor]], inputs: Sequence[Any]) -> Any:
        def spoiling(k: int, *values: Any) -> Sequence[Tensor]:
            outs = stretch(k, *values)
            for each in values:
                if isinstance(each, Tensor) and each.is_floating_point():
                    each.zero_()
            return outs

        return spoiling


def two_before(x: Tensor, n: Tensor) -> Any:
    before, i = x, 0
    while i < n:
        x, before = x * 0.5 + before, x
        i += 1
    return x, before


@pytest.mark.parametrize("rounds", [[5, 5, 5, 5], [2, 5, 3, 5]])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
@pytest.mark.parametrize("made", [Buffered, Spoiling])
def test_an_executor_that_writes_is_told(made: Any, engine: str, rounds: list[int]) -> None:
    mapped = autobatch.vmap(two_before, executor=made(), engine=engine, trace_after=0)
    with pytest.raises(autobatch.ExecutorError, match=r"writes to (its inputs|the results that)"):
        mapped(torch.arange(1.0, 9).reshape(4, 2), torch.tensor(rounds))
    with pytest.raises(autobatch.ExecutorError):
        mapped(torch.arange(1.0, 9).reshape(4, 2), torch.tensor(rounds))


def test_an_executor_may_refuse_a_stretch() -> None:
    class Refusing:
        def compile(self, stretch: Any, inputs: Any) -> Any:
            raise autobatch.Untraceable("not for me")

    xs = torch.linspace(0.1, 2, 12).reshape(4, 3)
    configuration = {"executor": Refusing(), "trace_after": 0}
    assert_matches_loop(guarded, (xs,), configurations=(configuration,))
