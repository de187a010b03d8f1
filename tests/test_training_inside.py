"""Programs that train: what of it runs in a batch, and what is refused with what to write."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.errors import UnsupportedError


def error_of(w: Tensor, target: Tensor) -> Tensor:
    return ((w - target) ** 2).sum()


def trained(target: Tensor) -> tuple[Tensor, int]:
    w = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    steps = 0
    while steps < 20:
        optimizer.zero_grad()
        loss = error_of(w, target)
        loss.backward()
        optimizer.step()
        steps += 1
        if loss.item() < 1e-2:
            break
    return w.detach(), steps


def stepped(target: Tensor) -> tuple[Tensor, int]:
    w = torch.zeros(3)
    steps = 0
    while steps < 20:
        slope, loss = autobatch.grad(error_of)(w, target), error_of(w, target)
        w = w - 0.1 * slope
        steps += 1
        if loss < 1e-2:
            break
    return w, steps


TARGETS = torch.tensor([[1.0, 2.0, 3.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_an_optimizer_is_refused_with_its_place_and_what_to_write(engine: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        autobatch.vmap(trained, engine=engine)(TARGETS)
    told = str(caught.value)
    assert "cannot make an optimizer (`SGD`)" in told
    assert "optimizer = torch.optim.SGD([w], lr=0.1)" in told
    assert "autobatch.grad(loss)(w)" in told
    assert "autobatch.per_thread" in told


@pytest.mark.parametrize(
    ("program", "engine"),
    [
        (autobatch.per_thread(trained), "stackless"),
        (stepped, "stackless"),
        (trained, "sequential"),
    ],
)
def test_what_the_refusal_advises_gives_what_the_loop_does(program: Any, engine: str) -> None:
    expected = [trained(target) for target in TARGETS]
    w, steps = autobatch.vmap(program, engine=engine)(TARGETS)
    torch.testing.assert_close(w, torch.stack([each[0] for each in expected]))
    assert steps.tolist() == [each[1] for each in expected]


def climbed(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x.clone().requires_grad_(True)
        x = (x - 0.1 * torch.autograd.grad(error_of(x, x.new_ones(3)), x)[0]).detach()
        if x.sum() > 2:
            break
    return x


def climbed_as_advised(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x - 0.1 * autobatch.grad(error_of)(x, x.new_ones(3))
        if x.sum() > 2:
            break
    return x


def test_a_backward_pass_is_refused_with_what_to_write() -> None:
    with pytest.raises(UnsupportedError, match=r"write autobatch\.grad\(f\)\(x\)") as caught:
        autobatch.vmap(climbed)(TARGETS)
    assert "torch.autograd.grad(error_of(x, x.new_ones(3)), x)" in str(caught.value)
    assert "autobatch.per_thread" in str(caught.value)
    expected = torch.stack([climbed(target) for target in TARGETS])
    for program in (climbed_as_advised, autobatch.per_thread(climbed)):
        torch.testing.assert_close(autobatch.vmap(program)(TARGETS), expected)


class Remembers(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.hidden = torch.zeros(3)
        while self.hidden.sum() < 4:
            self.hidden = self.hidden + x.abs() + 1
        return self.hidden


def test_state_that_one_call_needs_may_be_a_local_variable() -> None:
    with pytest.raises(autobatch.SharedWriteError, match=r"local variable \(`hidden = …`\)"):
        autobatch.vmap(Remembers())(TARGETS)

    def local(x: Tensor) -> Tensor:
        hidden = torch.zeros(3)
        while hidden.sum() < 4:
            hidden = hidden + x.abs() + 1
        return hidden

    expected = torch.stack([Remembers()(target) for target in TARGETS])
    torch.testing.assert_close(autobatch.vmap(local)(TARGETS), expected)
