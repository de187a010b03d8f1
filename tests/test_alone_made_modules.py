"""Programs that make modules of torch's without weights (`nn.MSELoss()`) run as plain Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as of_torch

import autobatch
from autobatch.alone.torchs import is_torch_as_it_was

X, Y = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
W = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()

pytestmark = pytest.mark.usefixtures("plain_is_better")


def of_words(x: Tensor) -> Tensor:
    """What two ways lead to, as in a program of objects."""
    return {"as it is": x, "twice": x * 2}["as it is" if x.sum() > 0 else "twice"]


def criterion(x: Tensor, y: Tensor) -> Tensor:
    loss = nn.SmoothL1Loss(reduction="sum")
    return loss(of_words(x) @ W, y)  # type: ignore[no-any-return]


def several(x: Tensor, y: Tensor) -> Tensor:
    losses = [nn.MSELoss(), nn.CrossEntropyLoss(label_smoothing=0.1)]
    acts = {"relu": nn.ReLU(), "leaky": nn.LeakyReLU(0.2), "gelu": nn.GELU("tanh")}
    z = acts["relu" if x[0] > 0 else "leaky"](of_words(x) @ W)
    return sum((loss(z, y.softmax(0)) for loss in losses), acts["gelu"](z).sum())


def at_once(x: Tensor, y: Tensor) -> Tensor:
    return nn.Softmax(dim=0)(of_words(x) @ W) + nn.Tanh()(y)  # type: ignore[no-any-return]


def in_place(x: Tensor, y: Tensor) -> Tensor:
    return nn.ReLU(inplace=True)(of_words(x) @ W) + y  # type: ignore[no-any-return]


def in_place_by_its_place(x: Tensor, y: Tensor) -> Tensor:
    return nn.LeakyReLU(0.2, True)(of_words(x) @ W) + y  # type: ignore[no-any-return]


def weighted(x: Tensor, y: Tensor) -> Tensor:
    loss = nn.CrossEntropyLoss(weight=y.abs())
    return loss(of_words(x) @ W, y.softmax(0))  # type: ignore[no-any-return]


def written(x: Tensor, y: Tensor) -> Tensor:
    act = nn.ReLU()
    act.inplace = True
    return act(of_words(x) @ W) + y  # type: ignore[no-any-return]


def ran(function: Callable[..., Tensor]) -> int:
    """How many examples plain Python has run in the last of some calls, which are the loop's."""
    expected = torch.stack([function(x.clone(), y.clone()) for x, y in zip(X, Y, strict=True)])
    gradient = torch.autograd.grad(expected.sum(), W)
    mapped = autobatch.vmap(function)
    for _ in range(4):
        with autobatch.counts() as counts:
            found = mapped(X, Y)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), W), gradient)
    return counts.plain


@pytest.mark.parametrize("function", [criterion, several, at_once])
def test_modules_without_weights_are_made(function: Callable[..., Tensor]) -> None:
    assert ran(function) == len(X)


@pytest.mark.parametrize("function", [in_place, in_place_by_its_place, weighted])
def test_others_are_not(function: Callable[..., Tensor]) -> None:
    assert ran(function) == 0


def test_to_write_to_one_is_refused_as_ever() -> None:
    with pytest.raises(autobatch.errors.SharedWriteError):
        ran(written)


def test_what_makes_or_calls_them_may_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(criterion) == len(X)

    def making(self: nn.SmoothL1Loss, reduction: str = "mean") -> None:
        nn.Module.__init__(self)
        self.reduction, self.beta = "mean", 2.0

    with monkeypatch.context() as patch:
        patch.setattr(nn.SmoothL1Loss, "__init__", making)
        assert not is_torch_as_it_was()
        assert ran(criterion) == 0
    handle = of_torch.register_module_forward_hook(lambda module, given, out: out * 3)
    try:
        assert ran(criterion) == 0
    finally:
        handle.remove()
    assert is_torch_as_it_was()
