"""Whether plain Python is better is measured within a transform, too, and the measure sees none."""

import pytest
import torch

import autobatch
from autobatch.compat import within_level
from autobatch.runs import trial
from autobatch.runs.trial import measuring
from autobatch.vm.invariants import checking

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def measured_within_transforms(monkeypatch):
    judge = trial.Trial.judge
    monkeypatch.setattr(trial, "WORTH_MEASURING", 0)
    monkeypatch.setattr(trial.Trial, "judge", lambda run: judge(run) if within_level() else None)
    with measuring(True), checking(False):
        yield


def bounded(x):
    total = x[0] * 0
    for i in range(3):
        total = total + x[i] ** 3 if x[i] > 0 else total * x[i]
    return total


def pulled(x):
    out, pull = autobatch.vjp(bounded, x)
    return pull(out)[0]


def pushed(x):
    return autobatch.jvp(bounded, (x,), (x,))[1]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    "whole",
    [
        lambda x: autobatch.grad(bounded)(x),
        lambda x: autobatch.jacrev(bounded)(x),
        lambda x: autobatch.jacfwd(bounded)(x),
        lambda x: autobatch.hessian(bounded)(x),
        pulled,
        pushed,
        lambda x: autobatch.vmap(autobatch.grad(bounded))(torch.stack((x, x + 1))).sum(0),
    ],
)
def test_a_run_is_measured_within_a_transform(whole, ends, monkeypatch):
    if ends:
        monkeypatch.setattr(trial, "SURELY", 0)
    expected = torch.stack([whole(row) for row in X])
    for _ in range(6):
        torch.testing.assert_close(autobatch.vmap(whole)(X), expected)
