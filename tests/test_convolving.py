"""Convolutions with a shared weight of which each thread wants its own gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import autobatch
from autobatch.values.convolving import Way, convolved
from tests.test_transforms import engines, same

WAYS = {
    "plain": ((4, 3), Way((1,), (0,), (1,), 1)),
    "groups": ((4, 2, 3), Way((2, 1), (1, 2), (1, 2), 2)),
    "space": ((2, 2, 2, 1), Way((1, 1, 2), (0, 1, 0), (1, 1, 1), 1)),
}
"""Of each a weight ``[O, *K]``, whose channels follow from the groups."""


def operands(name: str, n: int = 2, k: int = 3) -> tuple[Tensor, Tensor, Tensor, Way]:
    torch.manual_seed(0)
    (outs, *kernel), way = WAYS[name]
    space = (5, 4, 3)[: len(kernel)]
    input = torch.randn(k, n, 2, *space, dtype=torch.float64)
    weight = torch.randn(outs, 2 // way.groups, *kernel, dtype=torch.float64)
    bias = torch.randn(outs, dtype=torch.float64)
    return input, weight.expand(k, *weight.shape), bias.expand(k, outs), way


def reference(way: Way) -> Callable[..., Tensor]:
    """The same of each thread's own weight."""

    def apply(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if bias is None:
            return torch.vmap(lambda x, w: way.of(x, w))(input, weight)
        return torch.vmap(lambda x, w, b: way.of(x, w, b))(input, weight, bias)

    return apply


BIASES: dict[str, Callable[[Tensor], Tensor | None]] = {
    "repeated": lambda bias: bias,
    "its own": lambda bias: bias * torch.arange(1.0, 4.0)[:, None],
    "none": lambda bias: None,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("name", WAYS)
def test_derivatives_are_of_each_threads_own(name: str, bias: str) -> None:
    input, weight, shift, way = operands(name)
    given = [each for each in (input, weight, BIASES[bias](shift)) if each is not None]

    def of(run: Callable[..., Tensor]) -> Any:
        leaves = [each.detach().requires_grad_() for each in given]
        found = run(*leaves, *[None] * (3 - len(given)))
        first = torch.autograd.grad(found.sin().sum(), leaves, retain_graph=True)
        watched = torch.autograd.grad(found.sin().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(each.sin().sum() for each in watched), leaves)
        return found.detach(), first, second

    same(of(lambda *each: convolved(*each, way)), of(reference(way)))


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_gradient_of_one_operand_is_differentiated(wanted: int) -> None:
    given = list(operands("groups"))[:3]

    def of(run: Callable[..., Tensor]) -> Tensor:
        leaf = given[wanted].detach().requires_grad_()
        found = run(*given[:wanted], leaf, *given[wanted + 1 :])
        (slope,) = torch.autograd.grad(found.sin().sum(), leaf, create_graph=True)
        return torch.autograd.grad(slope.sin().sum(), leaf)[0]

    way = WAYS["groups"][1]
    same(of(lambda *each: convolved(*each, way)), of(reference(way)))


@pytest.mark.parametrize("name", WAYS)
def test_it_is_mapped_and_has_tangents(name: str) -> None:
    input, weight, bias, way = operands(name)

    def of(run: Callable[..., Tensor]) -> Any:
        _, pull = torch.func.vjp(run, input, weight, bias)
        out = run(input, weight, bias)
        rows = torch.vmap(pull)(torch.stack([out, out.cos()]))
        tangents = (input.cos(), weight.cos().contiguous(), bias.sin().contiguous())
        return rows, torch.func.jvp(run, (input, weight.contiguous(), bias.contiguous()), tangents)

    same(of(lambda *each: convolved(*each, way)), of(reference(way)))


class Convolutional(nn.Module):
    """An image ``[2, 6, 6]`` through as many rounds of one convolution as it needs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 12, 3, padding=1)
        layers = nn.Conv2d(12, 12, 3, padding=1), nn.Tanh(), nn.Conv2d(12, 12, 1, padding="same")
        self.around = nn.Sequential(*layers, nn.MaxPool2d(1))
        self.last = nn.Conv1d(12, 2, 3, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        rounds = 0
        while h.abs().mean() > 0.3 and rounds < 3:
            h = self.around(h) * 0.8
            rounds += 1
        return self.last(h[:, 0][None])[0].sum() + self.last(h[:, 1]).sum()


def shared_model() -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    torch.manual_seed(0)
    model = Convolutional().double()
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    return model, parameters, torch.randn(5, 2, 6, 6, dtype=torch.float64)


@pytest.mark.sampled(2)
@engines
def test_gradients_of_each_example(way: dict[str, Any]) -> None:
    model, parameters, images = shared_model()

    def loss(given: dict[str, Tensor], image: Tensor) -> Tensor:
        scores = functional_call(model, given, (image,))
        weight = given["first.weight"]
        again = F.conv2d(image[None], weight, stride=2) if scores > 0 else F.conv2d(-image, weight)
        return scores**2 + again.sum()

    rows = [torch.func.grad(loss)(parameters, image) for image in images]
    expected = {name: torch.stack([row[name] for row in rows]) for name in parameters}
    mapped = autobatch.vmap(autobatch.grad(loss), in_dims=(None, 0), **way)
    for _ in range(3):
        with autobatch.counts() as counts:
            same(mapped(parameters, images), expected)
        assert counts.fallbacks == 0


def test_a_shared_weight_is_convolved_with_once() -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(given: dict[str, Tensor], image: Tensor) -> Tensor:
        return functional_call(model, given, (image,)).sum()

    images = torch.randn(3, 16, 6, 6)
    with torch.profiler.profile(record_shapes=True) as seen:
        autobatch.vmap(autobatch.grad(loss), in_dims=(None, 0))(parameters, images)
    events = [event for event in seen.events() if event.name == "aten::convolution"]
    assert [event.input_shapes[1] for event in events] == [[16, 16, 3, 3]] * 2


def test_so_it_is_where_it_is_recorded() -> None:
    """A recording cannot tell which weights will repeat one tensor."""

    def loss(weight: Tensor, image: Tensor) -> Tensor:
        scores = F.conv2d(image, weight).tanh()
        return scores.sum() if scores.mean() > 0 else scores.sin().sum()

    images, weight = torch.randn(3, 16, 6, 6).double(), torch.randn(16, 16, 3, 3).double()
    mapped = autobatch.vmap(autobatch.grad(loss), in_dims=(None, 0), trace_after=0)
    expected = torch.stack([torch.func.grad(loss)(weight, image) for image in images])
    with autobatch.counts() as counts:
        same(mapped(weight, images), expected)
    assert counts.traces_by_block["loss", 0] == 1
    same(mapped(weight, images), expected)
    with torch.profiler.profile(record_shapes=True) as seen:
        same(mapped(weight, images), expected)
    events = [event for event in seen.events() if event.name == "aten::convolution"]
    assert [event.input_shapes[1] for event in events] == [[16, 16, 3, 3]]


@pytest.mark.parametrize("by_hand", [False, True])
@engines
def test_what_nobody_needs_adds_nothing(way: dict[str, Any], by_hand: bool) -> None:
    conv = nn.Sequential(nn.Conv2d(1, 600, 2)).double()  # large enough to stay in one place
    parameters = {name: each.detach() for name, each in conv.named_parameters()}
    images = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]], [[[0.0, 1.0], [2.0, 3.0]]]]).double()

    def loss(given: dict[str, Tensor], image: Tensor) -> Tensor:
        if by_hand:
            scores = F.conv2d(image.log(), given["0.weight"], given["0.bias"]).sum()
        else:
            scores = functional_call(conv, given, (image.log(),)).sum()
        return scores if image.min() > 0 else given["0.bias"].sum() * image.sum()

    rows = [torch.func.grad(loss)(parameters, image) for image in images]
    expected = {name: torch.stack([row[name] for row in rows]) for name in parameters}
    expected["0.weight"][1] = 0.0  # by itself, an example has an infinite factor of nothing
    mapped = autobatch.vmap(autobatch.grad(loss), in_dims=(None, 0), **way)
    for _ in range(3):
        same(mapped(parameters, images), expected)
