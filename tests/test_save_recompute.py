"""``save="recompute"``: the gradients of "keep", from a small part of what it saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.errors import OptionError
from autobatch.saving.segments import Segment, Tape
from benchmarks.counting import Counting
from tests.test_transforms_generated import SMOOTH, TREES, make_example, smooth_parts

engines = pytest.mark.parametrize("engine", ["stackless", "program_counter"])


def pulled_along(h: Tensor, w: Tensor, steps: int) -> Tensor:
    i = 0
    while i < steps:
        h = h * 0.5 + torch.tanh(w @ h)
        i += 1
    return h


def until_small(h: Tensor, w: Tensor, limit: Tensor) -> Tensor:
    steps = 0
    while torch.linalg.vector_norm(h) > limit and steps < 60:
        h = torch.sin(w @ h) * 0.9
        if h[0] > 0:
            h = h * h.cos()
        steps += 1
    return h.exp()


def descending(h: Tensor, w: Tensor, depth: int) -> Tensor:
    if depth == 0:
        return torch.sin(h)
    return descending(torch.tanh(w @ h), w, depth - 1) * descending(h.cos(), w, depth - 1)


def noisy(h: Tensor, w: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        h = torch.tanh(w @ h) + torch.randn(3, dtype=h.dtype)
    return h


def written(h: Tensor, w: Tensor, steps: int) -> Tensor:
    out = torch.zeros(3, dtype=h.dtype)
    seen = []
    for i in range(steps):
        out[i % 3] += torch.tanh(w @ h)[i % 3]
        h = h * 0.9
        h *= torch.exp(-h * h)
        seen.append(h)
    return out + torch.stack(seen).sum(0)


def silent(h: Tensor, w: Tensor, steps: int) -> Tensor:
    scale = torch.ones((), dtype=h.dtype)
    for _ in range(steps):
        with torch.no_grad():
            scale = (h * h).sum().sqrt() + scale
        h = torch.tanh(w @ h) / scale
    return h


def made_inputs(k: int = 5) -> tuple[Tensor, Tensor]:
    h = torch.randn(k, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    return h, w


LIMITS = torch.tensor([0.01, 0.1, 0.2, 0.5, 1.0], dtype=torch.float64)
PROGRAMS: dict[str, tuple[Callable[..., Tensor], Any, Any]] = {
    "loop": (pulled_along, 30, (0, None, None)),
    "divergent": (until_small, LIMITS, (0, None, 0)),
    "recursive": (descending, 4, (0, None, None)),
    "drawing": (noisy, 20, (0, None, None)),
    "written": (written, 12, (0, None, None)),
    "silent": (silent, 12, (0, None, None)),
}


def gradients(
    function: Callable[..., Any], args: tuple[Any, ...], **options: Any
) -> tuple[Tensor, ...]:
    """Of a sum of squares by all arguments that want them; recorded stretches are warm."""
    mapped = autobatch.vmap(function, trace_after=0, randomness="different", **options)
    given = [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
    for _ in range(2):
        torch.manual_seed(3)
        result = mapped(*args)
        found = torch.autograd.grad((result * result).sum(), given)
    return (result.detach(), *found)


@pytest.mark.sampled(4)
@engines
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_keep(name: str, engine: str) -> None:
    function, extra, in_dims = PROGRAMS[name]
    args = (*made_inputs(), extra)
    options = {"engine": engine, "in_dims": in_dims}
    kept = gradients(function, args, **options)
    with autobatch.counts() as seen:
        again = gradients(function, args, save="recompute", **options)
    assert_close(again, kept)
    assert seen.recomputed > 0


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """The same; a bundle of rounds sums gradients before they are added to the others."""
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_seeded_draws_are_the_same() -> None:
    args = (*made_inputs(), 20)
    options: dict[str, Any] = {"in_dims": (0, None, None), "seed": 5}

    def run(save: str) -> tuple[Tensor, ...]:
        mapped = autobatch.vmap(noisy, save=save, **options)
        return torch.autograd.grad(mapped(*args).square().sum(), args[:2])

    assert all(map(torch.equal, run("keep"), run("recompute")))


@engines
def test_gradcheck_and_second_derivatives(engine: str) -> None:
    options: dict[str, Any] = {"in_dims": (0, None, None), "engine": engine, "trace_after": 0}
    mapped = autobatch.vmap(pulled_along, save="recompute", **options)
    h, w = made_inputs(2)
    with autobatch.counts() as seen:
        assert torch.autograd.gradcheck(lambda h, w: mapped(h, w, 7), (h, w))
        assert torch.autograd.gradgradcheck(lambda h, w: mapped(h, w, 4), (h, w))
    assert seen.recomputed > 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*SMOOTH, *TREES])
def test_programs(name: str) -> None:
    example = make_example(name)
    args = example.mapped(autobatch.objects, autobatch.ragged) if name in TREES else example.args
    inputs = [a.requires_grad_() for a in args if isinstance(a, Tensor) and a.is_floating_point()]
    if isinstance(example.function, torch.nn.Module):
        inputs += list(example.function.parameters())

    def run(save: str) -> tuple[Tensor | None, ...]:
        mapped = autobatch.vmap(example.function, trace_after=0, save=save)
        for _ in range(2):
            parts = [part for part in smooth_parts(mapped(*args)) if part.requires_grad]
            total = sum((part.sum() for part in parts), torch.zeros(()))
            found = torch.autograd.grad(total, inputs, allow_unused=True)
        return found

    for kept, again in zip(run("keep"), run("recompute"), strict=True):
        assert (kept is None) is (again is None)
        if kept is not None and again is not None:
            # What no round of a loop changes is computed once by ``keep``, so that gradients are
            # summed in another order.
            torch.testing.assert_close(again, kept, rtol=1e-12, atol=1e-12)


# What is kept.


def peak_of(save: str, steps: int) -> int:
    """The bytes that a call and its backward take, recorded stretches being warm."""
    h = torch.randn(4, 8, requires_grad=True)
    w = (torch.randn(8, 8) / 3).requires_grad_()
    mapped = autobatch.vmap(pulled_along, in_dims=(0, None, None), save=save, trace_after=0)
    for _ in range(2):
        torch.autograd.grad(mapped(h, w, 3).sum(), (h, w))
    with Counting() as counted:
        torch.autograd.grad(mapped(h, w, steps).sum(), (h, w))
    return counted.peak_bytes


def test_a_long_loop_peaks_at_an_eighth_of_what_keep_saves() -> None:
    assert peak_of("recompute", 4096) * 8 <= peak_of("keep", 4096)


def test_memory_grows_as_the_square_root_of_the_steps() -> None:
    assert peak_of("recompute", 1600) <= 4.5 * peak_of("recompute", 100)


def test_every_call_runs_again_once() -> None:
    h, w = made_inputs()
    mapped = autobatch.vmap(pulled_along, in_dims=(0, None, None), save="recompute", trace_after=0)
    mapped(h, w, 3)
    with autobatch.counts() as seen:
        result = mapped(h, w, 50)
        assert seen.recomputed == 0
        executions = seen.block_executions
        torch.autograd.grad(result.sum(), (h, w))
    assert seen.recomputed == 50
    assert seen.block_executions == executions


def doubled(x: Tensor) -> Tensor:
    return x * x


def test_segments_grow_by_a_step() -> None:
    tape, x = Tape(lambda calls: None), torch.ones(2, requires_grad=True)
    found: list[Segment] = []
    for _ in range(10):
        if not found or found[-1] is not tape.segment:
            found.append(tape.segment)
        x = tape.call(doubled, (x,), True)
    assert [len(segment.calls) for segment in found] == [1, 2, 3, 4]
    assert [len(segment.given) for segment in found] == [1, 1, 1, 1]


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.exp()


def test_what_nobody_asks_for_goes_with_the_next_segment() -> None:
    ran: list[int] = []
    tape, x = Tape(ran.append), torch.ones(2, requires_grad=True)
    segments, y = [tape.segment], x
    for _ in range(3):
        y, unused = tape.call(both, (y,), True)
        segments.append(tape.segment)
    torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert ran == [2, 1]  # the last segment of two steps, the first one of one
    assert [len(segment.found) for segment in dict.fromkeys(segments)] == [1, 0, 0]
    assert unused.requires_grad


def test_a_backward_that_is_kept_can_run_twice() -> None:
    h, w = made_inputs()
    mapped = autobatch.vmap(until_small, in_dims=(0, None, 0), save="recompute", trace_after=0)
    result = mapped(h, w, LIMITS).sum()
    first = torch.autograd.grad(result, (h, w), retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(result, (h, w))))


def test_a_change_in_place_after_the_call_is_told() -> None:
    h, w = made_inputs()
    shift = torch.ones(3, dtype=torch.float64)

    def shifted(h: Tensor, w: Tensor, shift: Tensor) -> Tensor:
        for _ in range(4):
            h = torch.tanh(w @ h) + shift
        return h

    options: dict[str, Any] = {"in_dims": (0, None, None), "trace_after": 0, "save": "recompute"}
    result = autobatch.vmap(shifted, **options)(h, w, shift)
    shift.add_(1)
    with pytest.raises(RuntimeError, match="changed in place after the call"):
        result.sum().backward()


def test_a_backward_under_autocast_is_the_same() -> None:
    h, w = (arg.detach().float().requires_grad_() for arg in made_inputs())
    mapped = autobatch.vmap(pulled_along, in_dims=(0, None, None), save="recompute", trace_after=0)
    result = mapped(h, w, 6).sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(result, (h, w))
    kept = autobatch.vmap(pulled_along, in_dims=(0, None, None), trace_after=0)(h, w, 6).sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = torch.autograd.grad(kept, (h, w))
    assert all(map(torch.equal, found, expected))


# Where it does not apply.


def test_without_gradients_nothing_is_written_down() -> None:
    h, w = made_inputs()
    mapped = autobatch.vmap(pulled_along, in_dims=(0, None, None), save="recompute")
    with torch.no_grad():
        assert torch.equal(mapped(h, w, 5), mapped(h, w, 5))


def test_transforms_keep_what_they_save() -> None:
    h, w = made_inputs()

    def size(h: Tensor, w: Tensor) -> Tensor:
        return pulled_along(h, w, 6).sum()

    mapped = autobatch.vmap(
        autobatch.grad(size), in_dims=(0, None), save="recompute", trace_after=0
    )
    expected = autobatch.vmap(autobatch.grad(size), in_dims=(0, None))(h, w)
    with autobatch.counts() as seen:
        assert torch.allclose(mapped(h, w), expected)
    assert seen.recomputed == 0


def test_streams() -> None:
    h, w = made_inputs()
    options: dict[str, Any] = {"shared": {"w": w, "steps": 12}, "order": "input", "trace_after": 0}

    def run(save: str) -> tuple[Tensor, ...]:
        examples = [(row,) for row in h]
        for _ in range(2):
            found = [
                result
                for _, result in autobatch.stream(pulled_along, examples, 3, save=save, **options)
            ]
        return torch.autograd.grad(torch.stack(found).sum(), (h, w))

    kept = run("keep")
    with autobatch.counts() as seen:
        assert all(map(torch.equal, run("recompute"), kept))
    assert seen.recomputed > 0


def test_options() -> None:
    with pytest.raises(OptionError, match='executor must be "traced"'):
        autobatch.vmap(pulled_along, save="recompute", executor="vmap")
    with pytest.raises(OptionError, match="save is 'all'"):
        autobatch.vmap(pulled_along, save="all")
