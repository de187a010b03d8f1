"""Functions of torch's that plain Python may call: those that write where they are asked to, those
of a table, and one of several; what a module has by one of several names; the name of a class.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autobatch
from autobatch.alone import beginning, running
from autobatch.runs import shortcuts
from autobatch.runs.trial import measuring
from autobatch.vm.invariants import checking
from tests.test_alone import outcome

XS = torch.tensor([[0.5, -1.0, 2.0], [-0.5, 1.5, 0.25], [3.0, 0.0, -2.0], [1.0, 1.0, 1.0]])
HELD = torch.tensor([-1.0, 2.0, -3.0])
TABLES = torch.tensor([[1.0, 2.0], [-1.0, 0.5]])
TABLE = {"relu": F.relu, "tanh": torch.tanh, "own": lambda x: x * x}


def activated(x: Tensor) -> Tensor:
    while x.sum() > 1:
        x = F.leaky_relu(F.relu(x - 0.5), 0.1) - F.elu(x) * 0.1
    return F.silu(x)


def of_a_table(x: Tensor) -> Tensor:
    for name in ("relu", "own"):
        x = TABLE[name if x[0] > 0 else "tanh"](x)
    return x


def chosen(x: Tensor) -> Tensor:
    found = torch.relu if x[0] > 0 else torch.tanh
    other = F.relu if x[1] > 0 else F.softplus
    return found(x) + other(x)


def bounded(x: Tensor) -> float:
    least = x[0].item() if x[0] > 0 else math.inf
    most = -math.inf
    if x[1] > 0:
        most = x[1].item()
    return min(least, 10.0) + max(most, -10.0)


def titled(x: Tensor) -> tuple[Tensor, str]:
    parts = [x, Box(x)]
    found = parts[0 if x[0] > 0 else 1]
    return x.sum(), type(found).__name__


class Box:
    def __init__(self, x: Tensor) -> None:
        self.x = x


@pytest.fixture(autouse=True)
def by_the_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(beginning, "SECONDS", 60.0)  # on any machine
    with measuring(True), checking(False):
        yield


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether plain Python has run each call, as one of the first."""
    found: list[bool] = []

    def noted(asked: running.Asked) -> running.Alone | None:
        done = beginning.begun(asked)
        found.append(done is not None)
        return done

    monkeypatch.setattr(shortcuts, "begun", noted)
    return found


def masked(x: Tensor) -> Tensor:
    """The least number of a dtype in the place of what is masked, as attention has it."""
    weights = {}
    for place in range(x.ndimension() + 1):
        scores = x.masked_fill(x < place, torch.finfo(x.dtype).min)
        weights[place] = scores.softmax(-1) + torch.iinfo(torch.int8).max
    return weights[0] * weights[1]


def attends(x: Tensor) -> Tensor:
    heads, weights = x[None, :, None], {}
    for place in range(2):
        found = F.scaled_dot_product_attention(heads, heads, heads, None)
        weights[place] = found.flatten() + F.embedding(torch.tensor(place), TABLES).sum()
    return torch.selu(weights[0]) if torch.is_tensor(x) and x.is_floating_point() else weights[1]


@pytest.mark.parametrize("func", [activated, of_a_table, chosen, bounded, titled, masked, attends])
def test_such_programs_begin_as_plain_python(func: Any, begun: list[bool]) -> None:
    found = autobatch.vmap(func)(XS)
    assert begun == [True]
    together = autobatch.vmap(func, plain="never")(XS)
    torch.testing.assert_close(found, together) if isinstance(found, Tensor) else None
    if isinstance(found, tuple):
        assert found[1] == together[1] == ["Tensor", "Box", "Tensor", "Tensor"]


def in_place(x: Tensor) -> Tensor:
    return F.relu(HELD, inplace=True) + x


def in_place_by_position(x: Tensor) -> Tensor:
    return F.relu(HELD, True) + x


def in_place_of_several(x: Tensor) -> Tensor:
    found = F.relu if x[0] > -9 else F.silu
    return found(HELD, True) + x


def in_place_of_a_table(x: Tensor) -> Tensor:
    return TABLE["relu" if x[0] > -9 else "own"](HELD, x.shape[0] > 0) + x  # type: ignore[call-arg]


def in_place_by_another(x: Tensor) -> Tensor:
    return functools.reduce(TABLE["relu"], [x + 0, x[0] > 9]) + x


def scales_rows(x: Tensor) -> Tensor:
    return F.embedding(torch.tensor([0]), HELD[:, None], None, 0.5) + x.sum()


def test_attention_that_draws_does_not(begun: list[bool]) -> None:
    def drops(x: Tensor) -> Tensor:
        heads = x[None, :, None]
        return F.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5)

    autobatch.vmap(drops, randomness="different")(XS)
    assert begun == [False]


@pytest.mark.parametrize(
    "func",
    [in_place, in_place_by_position, in_place_of_several, in_place_of_a_table, scales_rows],
)
def test_what_writes_in_place_does_not(func: Any, begun: list[bool]) -> None:
    before = HELD.clone()
    with pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(func)(XS)
    assert begun == [False]
    assert torch.equal(HELD, before)


def test_what_python_calls_may_write_in_place(begun: list[bool]) -> None:
    torch.testing.assert_close(
        autobatch.vmap(in_place_by_another)(XS), torch.stack([in_place_by_another(x) for x in XS])
    )
    assert begun == [False]


def by_place(word: str) -> int:
    counts = [word.count(letter) for letter in "abc"]
    return max(range(3), key=counts.__getitem__)


def test_the_greatest_place_of_a_list() -> None:
    words = ["abca", "cc", "b"]
    found, alone = outcome(by_place, words)
    assert found[0] == [0, 2, 1] and alone == 3
