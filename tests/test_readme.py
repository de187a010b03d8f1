"""The README's promises: two commands, and a remedy for everything torch.vmap refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import autobatch
from tests.oracle import assert_matches_loop

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
CHAPTER = re.sub(r"\s+", " ", README[README.index("## torch.vmap said …") :])

FLOW = "attempting to use a Tensor in some data-dependent control flow"
ITEM = "calling .item() on a Tensor"
STORAGE = "Cannot access data pointer of Tensor that doesn't have storage"


def test_quick_start_is_two_commands() -> None:
    section = README[README.index("## Quick start") :].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 1
    first, second = blocks[0].splitlines()
    assert first.startswith("pip install ") and first.endswith("python -m programs.encode_stdlib")
    assert second.startswith("pip install ") and "&& python -m pytest" in second


def branch(x: Tensor) -> Tensor:
    return x if x > 0 else -x


def loop(n: Tensor) -> int:
    steps = 0
    while n > 0:
        n = n - 2
        steps += 1
    return steps


def condition(x: Tensor) -> Tensor:
    return x > 0 and x < 2


def assertion(x: Tensor) -> Tensor:
    assert x > -10
    return x * 2


def item(x: Tensor) -> float:
    return x.item() * 2


def total(n: Tensor) -> int:
    return sum(i for i in range(n))


def zeros(n: Tensor) -> Tensor:
    return torch.zeros(n).sum()


def list_index(n: Tensor) -> float:
    return [1.5, 2.5, 3.5, 4.5][n]


def constant(n: Tensor) -> str:
    return "small" if n.dim() == 0 else "large"


def nonzero(x: Tensor) -> int:
    return len(torch.nonzero(x > 0))


def mask(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def select(x: Tensor) -> Tensor:
    return torch.masked_select(x, x > 0).sum()


def unique(x: Tensor) -> int:
    return len(x.round().unique())


def fill(x: Tensor) -> Tensor:
    out = torch.zeros(3)
    out[0] = x
    return out


def copy(x: Tensor) -> Tensor:
    out = torch.zeros(3)
    out.copy_(x)
    return out


def as_list(x: Tensor) -> int:
    return len(x.tolist())


CELL = nn.LSTMCell(3, 3)


def cell(x: Tensor) -> Tensor:
    return CELL(x)[0]


def allclose(x: Tensor) -> bool:
    return torch.allclose(x, x.round(), atol=0.3)


def equal(x: Tensor) -> bool:
    return torch.equal(x, x.relu())


NUMBERS = torch.tensor([0, 1, 2, 3])
REALS = torch.tensor([-1.5, 0.5, 1.0, 2.5])
VECTORS = torch.tensor([[-1.5, 0.5, 1.0], [2.0, 0.0, -1.0], [0.0, 1.0, 2.0]])

REMEDIED = [
    (branch, REALS, FLOW),
    (loop, NUMBERS, FLOW),
    (condition, REALS, FLOW),
    (assertion, REALS, FLOW),
    (item, REALS, ITEM),
    (total, NUMBERS, ITEM),
    (zeros, NUMBERS, ITEM),
    (list_index, NUMBERS, ITEM),
    (constant, NUMBERS, "must only return Tensors, got type"),
    (nonzero, VECTORS, "batching operators that can output dynamic shape"),
    (unique, VECTORS, "batching operators that can output dynamic shape"),
    (mask, VECTORS, "indexing with a boolean mask"),
    (select, VECTORS, "`mask` in torch.masked_select"),
    (fill, REALS, "inplace arithmetic(self, *extra_args) is not possible"),
    (copy, VECTORS, "inplace arithmetic(self, *extra_args) is not possible"),
    (as_list, VECTORS, STORAGE),
    (cell, VECTORS, "Batching rule not implemented"),
    (allclose, VECTORS, "isn't supported yet"),
    (equal, VECTORS, "Batching rule not implemented"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("function", "xs", "says"), REMEDIED, ids=[case[0].__name__ for case in REMEDIED]
)
def test_what_torch_vmap_refuses_runs(
    function: Callable[[Tensor], Any], xs: Tensor, says: str
) -> None:
    assert re.sub(r"\s+", " ", says) in CHAPTER
    with pytest.raises((RuntimeError, ValueError)) as refusal:
        torch.vmap(function)(xs)
    assert says in str(refusal.value)
    with torch.no_grad():
        assert_matches_loop(function, (xs,))


def test_randomness_is_said() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + torch.rand(())

    xs = torch.zeros(8)
    assert "called random operation while in randomness error mode" in CHAPTER
    for vmap in (torch.vmap, autobatch.vmap):
        with pytest.raises(Exception, match="random"):
            vmap(noisy)(xs)
    assert len(autobatch.vmap(noisy, randomness="different")(xs).unique()) == 8
    assert len(autobatch.vmap(noisy, randomness="same")(xs).unique()) == 1


def test_arguments_that_cannot_be_mapped() -> None:
    def scaled(x: Tensor, factor: float) -> Tensor:
        return x * factor

    for vmap in (torch.vmap, autobatch.vmap):
        with pytest.raises(ValueError, match=r"3\.0|float"):
            vmap(scaled)(REALS, 3.0)
        with pytest.raises(ValueError, match="in_dims"):
            vmap(scaled, in_dims=(0, None, 0))(REALS, 3.0)
        with pytest.raises(ValueError, match=r"4.*3|3.*4"):
            vmap(torch.add)(REALS, VECTORS)
    expected = REALS * 3.0
    assert torch.equal(autobatch.vmap(scaled, in_dims=(0, None))(REALS, 3.0), expected)
    assert torch.equal(autobatch.function(scaled).batch(REALS, 3.0), expected)


def test_batch_norm_in_train_mode_is_refused() -> None:
    layer = nn.BatchNorm1d(3)

    def normed(x: Tensor) -> Tensor:
        return layer(x)

    xs = torch.randn(4, 5, 3)
    for vmap in (torch.vmap, autobatch.vmap):
        with pytest.raises(Exception, match=r"(?i)batch.?norm"):
            vmap(normed)(xs)
    assert torch.equal(layer.running_mean, torch.zeros(3))
    layer.eval()
    with torch.no_grad():
        assert_matches_loop(normed, (xs,))


def test_one_hot_wants_its_width() -> None:
    with pytest.raises(RuntimeError, match="provide an explicit positive num_classes argument"):
        torch.vmap(functional.one_hot)(NUMBERS)

    def wide(n: Tensor) -> Tensor:
        return functional.one_hot(n, 4)

    assert_matches_loop(wide, (NUMBERS,))


def test_backward_goes_outside() -> None:
    weight = torch.ones((), requires_grad=True)

    def scaled(x: Tensor) -> Tensor:
        return weight * x if x > 0 else x

    autobatch.vmap(scaled)(REALS).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, REALS[REALS > 0].sum())
