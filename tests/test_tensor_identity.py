"""What a program may ask of a tensor and do to it, beside its values: its shape, its identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.outside_world import program

XS = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [0.0, -1.0, 2.0, 9.0]])
RIGHT = (
    "y = x[None];;y.squeeze_();;return y",
    "y = x[None];;y.squeeze_(0);;y += 1;;return x, y",
    "y = x[None];;y.squeeze_().add_(1);;return x",
    "y = x.clone()[None];;z = y;;y.squeeze_();;z += 1;;return y, z",
    "y = x[1:];;y.unsqueeze_(0);;y *= 2;;return x, y",
    "y = x.view(2, 2);;y.t_();;y[0] = 7;;return x, y",
    "y = x.view(2, 2);;z = y;;y.transpose_(0, 1);;z[0] = 7;;return x, y",
    "y = x[None];;if x[0] > 1:;;    y.squeeze_();;y += 1;;return x",
    "x.unsqueeze_(0);;return x, x.dim()",
    "y = x * 1;;return x._is_view(), y._is_view(), y[1:]._is_view(), y.view(2, 2)._is_view()",
    "y = x;;z = x * 1;;return y is x, z is x",
    "y, z = x.float(), x.to(x.dtype);;y += 1;;return y is x, z is y, x.double() is x, x[:] is x",
    "y = x.view(2, 2).t();;z = y.contiguous();;return z is y, x.contiguous() is x, z is not z",
    "y = x.flatten() if x[0] > 1 else x.view(4);;z = y.squeeze();;return y is x, z is y, z is x",
    "y = x.expand(4);;z = torch.atleast_1d(x);;return y is x, z is x, x.reshape(4) is x.float()",
    "return x.grad_fn is None, W._version == 0, W._base is None, x.is_leaf, (x * W).is_leaf",
    "y = x * 2;;for row in y:;;    row += 1;;return y",
    "return x.as_strided((2, 2), (1, 2)), (x * 2)[1:].as_strided((2,), (2,))",
    "y = Node(x);;i = id(y);;if x[0] > 1:;;    x += 1;;return i == id(Node(y).kids), i == id(y)",
    "y = {id(W): x};;return y[id(W)]",
    "with torch.no_grad():;;    for row in W:;;        x += row.clone().add_(1);;return x",
    "y = x * W;;for i in range(4):;;    y[i] += 1;;return y.detach()",
)
REFUSED = {
    "y = x.clone()[None];;z = y[0];;y.squeeze_();;return z": "another name has a part",
    "y = torch.zeros(1, 3);;z = y[0];;y.squeeze_();;return z + x[0]": "another name has a part",
    "y = x * 2;;y.data = x;;return y": r"sets \.data of a tensor[\s\S]*y\.copy_",
    "y = x * 2;;y.requires_grad = True;;return y": r"sets \.requires_grad[\s\S]*requires_grad_\(",
    "y = x;;return id(x) == id(y)": r"identity of a tensor[\s\S]*x is y",
    "y = [x];;z = y;;return id(y) == id(z)": r"identity of a list[\s\S]*\^[\s\S]*x is y",
    "y = {};;return x if id(y) in {id(y)} else -x": r"identity of a dict[\s\S]*x is y",
    "y, z = (x, 1), set();;return id(y) == id(y)": r"identity of a tuple[\s\S]*x == y",
    "y = x[0].item();;return id(y) == id(y)": r"identity of a number[\s\S]*x == y",
    "y = x[x > 1];;return id(y) == id(y)": r"identity of a tensor[\s\S]*x is y",
    "y = x[x > 1];;return hash(y) == hash(y)": r"identity of a tensor[\s\S]*x is y",
    "y = x[x > 1];;return y.data_ptr() == y.data_ptr()": r"memory of a tensor[\s\S]*_is_view",
    "return x.data_ptr() == x[0].data_ptr()": r"memory of a tensor[\s\S]*_is_view",
    "return hash(x) == hash(x)": r"identity of a tensor[\s\S]*x is y",
    "y = x * 2;;y += 1;;return y._version": r"how often a tensor has been written[\s\S]*\^",
    "y = torch.zeros(2);;y += 1;;return y._version + x": r"how often a tensor has been written",
    "return x[:2]._base is x": r"memory of a tensor[\s\S]*_is_view",
    "return x[0] + (x._cdata == x._cdata)": r"identity of a tensor[\s\S]*\^",
    "return str((x * W).grad_fn)": r"was computed by[\s\S]*requires_grad",
    "return x.view(2, 2)[:, 0].as_strided((2,), (1,))": r"reaches around[\s\S]*whole tensor",
    "y = x * 2;;return torch.as_strided(y[:2], (2,), (2,))": r"reaches around[\s\S]*whole tensor",
    "y = x * 2;;return y[1:].as_strided((2,), (1,), 0)": r"reaches around[\s\S]*whole tensor",
    "x.untyped_storage().fill_(0);;return x": r"memory of a tensor[\s\S]*\^",
}
BY_AUTOGRAD = (
    "y = x * W;;for row in y:;;    row += 1;;return y",
    "y = x * W;;for i, row in enumerate(y):;;    row.fill_(i);;return y",
    "y = x * W;;a, b, c, d = y;;a.mul_(2);;return y",
    "y = x.view(2, 2) * W[0];;for row in y:;;    row[0] = 3;;return y",
    "y = x * 1;;for row in y:;;    row += W[0];;return y",
    "y = x * W;;if x[0] > 1:;;    for row in y:;;        row += 1;;return y",
)


class Node:
    def __init__(self, kids: Any) -> None:
        self.kids = kids


def made(source: str) -> Callable[..., Any]:
    names = {"torch": torch, "W": torch.ones(4, requires_grad=True), "Node": Node}
    return program(f"identity {source}", source.split(";;"), names)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", RIGHT)
def test_as_in_the_loop(source: str) -> None:
    assert_matches_loop(made(source), [XS], batch_sizes=[1, 3])


@pytest.mark.parametrize("source", REFUSED)
def test_refused_with_advice(source: str) -> None:
    func = made(source)
    for configuration in CONFIGURATIONS:
        if configuration.get("engine") != "sequential":
            with pytest.raises(autobatch.UnsupportedError, match=REFUSED[source]):
                autobatch.vmap(func, **configuration)(XS)


@pytest.mark.parametrize("source", BY_AUTOGRAD)
def test_what_autograd_refuses_for_one_example(source: str) -> None:
    func = made(source)
    with pytest.raises(RuntimeError, match=r"view.*is being modified inplace"):
        func(XS[1].clone())
    for configuration in CONFIGURATIONS:
        for _ in range(3):
            with pytest.raises(RuntimeError, match=r"view.*is being modified inplace"):
                autobatch.vmap(func, **configuration)(XS)
