"""``save="recompute"``: rounds of a loop that is one replay are one function of autograd's."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import Node, saved_tensors_hooks

import autobatch
from autobatch.saving import bundles
from tests.test_save_recompute import assert_close, made_inputs

engines = pytest.mark.parametrize("engine", ["stackless", "program_counter"])
ROUNDS = "RoundsBackward"


def pulled(h: Tensor, w: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        h = h * 0.5 + torch.tanh(w @ h)
    return h


def left(h: Tensor, w: Tensor, steps: int) -> Tensor:
    """Threads leave in rounds of their own, far apart."""
    for _ in range(steps):
        h = torch.tanh(w @ h) * 0.99 + h * 0.01
        if (h * h).sum() < 1e-2:
            break
    return h


def counted(h: Tensor, w: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """What goes round is two differentiated tensors, one that is not, and a number."""
    still, other = h.detach(), h * 2
    for i in range(steps):
        h = torch.sin(w @ h) + other * (i * 0.01)
        other = other * 0.9 + h
        still = still * 0.5 + 1
    return h, still, other


def changing_places(h: Tensor, w: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    old = h
    for i in range(steps):
        old, h = h, torch.sin(w @ h) + old * (i * 0.01)
    return h, old


def without_a_name_before(h: Tensor, w: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        last = torch.tanh(w @ h)
        h = last * 0.9
    return last


def steep(h: Tensor, w: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        h = torch.tanh(w @ h) / (h * h + 1)
    return h


BUNDLED = (pulled, left, counted, without_a_name_before)


def batched(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options = {"in_dims": (0, None, None), "save": "recompute", "trace_after": 0} | options
    return autobatch.vmap(function, **options)


def nodes_of(*results: Tensor) -> Iterator[Node]:
    waiting = [result.grad_fn for result in results]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [other for other, _ in node.next_functions]
            yield node


def kinds_of(*results: Tensor) -> Counter[str]:
    return Counter(type(node).__name__ for node in nodes_of(*results))


def parts_of(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def by_loop(function: Callable[..., Any], h: Tensor, w: Tensor, steps: int) -> list[Tensor]:
    rows = [parts_of(function(row.clone(), w, steps)) for row in h]
    return [torch.stack(parts) for parts in zip(*rows, strict=True)]


def gradients(parts: list[Tensor], h: Tensor, w: Tensor) -> list[Tensor]:
    total = sum((p.square().sum() for p in parts if p.requires_grad), torch.zeros(()).double())
    return [*(p.detach() for p in parts), *torch.autograd.grad(total, (h, w))]


@engines
@pytest.mark.parametrize("function", [*BUNDLED, changing_places])
def test_as_the_loop(function: Callable[..., Any], engine: str) -> None:
    h, w = made_inputs()
    mapped = batched(function, engine=engine)
    for steps in (40, 41, 40, 3):
        parts, expected = parts_of(mapped(h, w, steps)), by_loop(function, h, w, steps)
        if steps > 3 and function in BUNDLED:
            assert kinds_of(*parts)[ROUNDS]
        assert [p.requires_grad for p in parts] == [e.requires_grad for e in expected]
        assert_close(gradients(parts, h, w), gradients(expected, h, w))


def test_a_node_for_each_of_about_the_square_root_of_the_rounds() -> None:
    h, w = made_inputs()
    mapped = batched(pulled)
    for _ in range(2):
        seen = kinds_of(mapped(h, w, 400))
    assert seen[ROUNDS] < 30
    assert seen["MmBackward0"] < 10


@engines
def test_second_derivatives(engine: str) -> None:
    h, w = made_inputs(2)
    mapped = batched(pulled, engine=engine)
    assert kinds_of(mapped(h, w, 12))[ROUNDS]
    assert torch.autograd.gradgradcheck(lambda h, w: mapped(h, w, 12), (h, w))


def test_where_something_may_be_infinite_each_round_is_a_call() -> None:
    h, w = made_inputs()
    for _ in range(2):
        assert not kinds_of(batched(steep)(h, w, 20))[ROUNDS]
    mapped = batched(pulled)
    mapped(h, w, 20)
    infinite = h.detach().clone()
    infinite[1, 0] = torch.inf
    assert not kinds_of(mapped(infinite.requires_grad_(), w, 20))[ROUNDS]


def test_a_round_that_fails_is_run_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote over is not what its bundle goes on with."""
    h, w = made_inputs()
    mapped = batched(pulled)
    expected = gradients([mapped(h, w, 30)], h, w)
    of, failed = bundles.Bundle.__call__, []

    def failing(bundle: Any, k: int, *values: Any) -> Any:
        made = of(bundle, k, *values)
        if bundle.runs == 3 and len(failed) < 2:
            for each in made:
                each.fill_(7)
            failed.append(bundle)
            raise MemoryError
        return made

    monkeypatch.setattr(bundles.Bundle, "__call__", failing)
    assert_close(gradients([mapped(h, w, 30)], h, w), expected)
    assert len(failed) == 2


def test_nothing_is_left_of_a_graph_that_is_dropped() -> None:
    h, w = made_inputs()
    mapped = batched(pulled)
    result = mapped(h, w, 30)
    assert kinds_of(result)[ROUNDS]

    def logs() -> int:
        return sum(type(each) is bundles.Log for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = logs()
        del result
        assert logs() < before
        result = mapped(h, w, 30)
        torch.autograd.grad(result.sum(), (h, w))
        del result
        assert not logs()
    finally:
        gc.enable()


def test_hooks_of_whoever_calls_see_nothing_of_it() -> None:
    h, w = made_inputs()
    mapped = batched(pulled)
    mapped(h, w, 30)
    seen: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        seen.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = mapped(h, w, 30)
    assert kinds_of(result)[ROUNDS]
    assert not seen
