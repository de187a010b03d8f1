"""Attributes that name another tensor, made of the one that all threads share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"executor": "vmap"},
    {"trace_after": 0, "plain": "never"},
    {"trace_after": 0, "engine": "program_counter"},
    {"chunk_size": 2},
)
XS = torch.tensor([[1.0, 2.0], [-1.0, 5.0], [-2.0, -2.0], [0.5, 1.0]])


class Total(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("t", torch.zeros(2))
        self.other = self.t

    def in_place_first(self, x):
        self.t += x
        self.t = self.t + x
        return x

    def anew_first(self, x):
        self.t = self.t + x
        self.t += x
        return x

    def elements(self, x):
        self.t = self.t + x
        self.t[0] += x[1]
        return x

    def by_branches(self, x):
        if x[0] > 0:
            self.t = torch.maximum(self.t, x)
        else:
            self.t.copy_(torch.maximum(self.t, x))
        return x

    def by_another_name(self, x):
        self.t = self.t + x
        self.other += x
        return x

    def assigned(self, x):
        self.t.zero_()
        self.t = torch.ones(2)
        return x

    def smallest(self, x):
        n = 0
        while x[0] < 3:
            x = x + 1
            n += 1
        self.t = torch.minimum(self.t, x - 9)
        return n

    def added(self, x):
        while x[0] < 3:
            x = x + 1
            self.t = self.t + x
        return x


def told(function: Any, options: dict[str, Any]) -> str:
    with pytest.raises(autobatch.SharedWriteError) as caught:
        autobatch.vmap(function, **options)(XS)
    return str(caught.value)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "name",
    ["in_place_first", "anew_first", "elements", "by_branches", "by_another_name", "assigned"],
)
def test_a_tensor_written_in_place_and_replaced_is_refused(name, options):
    """What it has in the end, and what the first one has, would depend on the order."""
    state = Total()
    text = told(getattr(state, name), options)
    assert "in two ways" in text and "another one takes its place" in text
    assert torch.equal(state.t, torch.zeros(2)) and state.t is state.other


@pytest.mark.parametrize("width", [1, 2, 10])
@pytest.mark.parametrize("name", ["smallest", "added"])
def test_a_stream_goes_on_with_what_took_its_place(name, width):
    xs = [x + 0.0 for x in torch.randn(40, 2, generator=torch.Generator().manual_seed(0))]
    xs = [x - 5 * (i % 7 == 3) for i, x in enumerate(xs)]
    mine, wanted = Total(), Total()
    expected: list[Tensor] = [getattr(wanted, name)(x.clone()) for x in xs]
    found = dict(autobatch.stream(getattr(mine, name), xs, width))
    assert all(
        torch.equal(torch.as_tensor(found[i]), torch.as_tensor(e)) for i, e in enumerate(expected)
    )
    torch.testing.assert_close(mine.t, wanted.t)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_torch_says_to_a_shape_has_no_context(options):
    t = torch.zeros(())

    def function(x):
        t.add_(x)
        return x

    with pytest.raises(RuntimeError, match="broadcast shape") as caught:
        autobatch.vmap(function, **options)(XS)
    assert caught.value.__context__ is None
