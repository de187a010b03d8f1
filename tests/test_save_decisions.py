"""What a call that is saved by running it again has decided: neither more nor less."""

from __future__ import annotations

import torch
from torch import Tensor

from autobatch.saving.savers import decided, saving
from autobatch.saving.segments import Tape


def test_what_runs_beside_calls_decides_for_itself():
    """A product that is not recorded asks whether a gradient may be spoilt, as a replay does."""

    def square(x: Tensor) -> tuple[Tensor]:
        y = x * x
        return (y.exp(),) if decided(lambda: False) else (y,)

    x = torch.ones(3, requires_grad=True)
    tape = Tape(lambda _: None)
    with saving(tape):
        assert decided(lambda: True)
        (y,) = tape.call(square, [x], True)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((3,), 2.0))
