"""Settings that hold for every test: one torch thread, fixed seeds, the engine's invariants.

GPU tests run only where there is a GPU.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch
import torch._dynamo  # else first recordings wait: see autobatch.batching.trace.loading
from hypothesis import settings
from torch.distributions import Distribution

from autobatch import options
from autobatch.runs import trial
from autobatch.runs.trial import measuring
from autobatch.vm.invariants import checking
from tests import oracle
from tests.sweeps import leave_to_sweeps

# The same examples at every run, so that a change is to blame for what it breaks;
# --hypothesis-profile=explore looks further.
settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("repeat")


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def invariants() -> Iterator[None]:
    """Every frame of every test is held to the engine's invariants."""
    with checking():
        yield


@pytest.fixture(autouse=True)
def validated_distributions() -> Iterator[None]:
    """What torch compiles in a test (``torch.cond``) switches that off for all that follow."""
    yield
    Distribution.set_default_validate_args(__debug__)


@pytest.fixture(autouse=True, scope="session")
def no_clock() -> Iterator[None]:
    """No test depends on how long anything takes, but for those that ask for it."""
    with measuring(False):
        yield


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What says no executor is recorded, so that it has block executions to be looked at.

    ``AUTOBATCH_EXECUTOR=auto`` runs all of it as users do.
    """
    if options.VARIABLE not in os.environ:
        monkeypatch.setattr(options, "EXECUTOR", "traced")


@pytest.fixture
def said_by_nobody(monkeypatch: pytest.MonkeyPatch, recorded: None) -> None:
    """What says no executor runs as users see it."""
    monkeypatch.setattr(options, "EXECUTOR", "auto")


@pytest.fixture(autouse=True, scope="session")
def fewer_pairs(pytestconfig: pytest.Config) -> Iterator[None]:
    """The default run, which leaves sweeps out, leaves some pairs of the oracle out as well."""
    before = oracle.EVERY_PAIR
    oracle.EVERY_PAIR = pytestconfig.option.markexpr != "not slow"
    yield
    oracle.EVERY_PAIR = before


@pytest.fixture
def plain_is_better(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plain Python is taken to be better, wherever it may run a program."""
    monkeypatch.setattr(trial, "BETTER", 0)
    monkeypatch.setattr(trial, "WORTH_MEASURING", 0)
    with measuring(True), checking(False):
        yield


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """What earlier files left alive is not walked by each collection again."""
    gc.collect()
    gc.freeze()
    yield


@pytest.fixture(autouse=True)
def fixed_seed() -> Iterator[None]:
    """Draws of a test repeat, and leave no trace in the next one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.hookimpl(tryfirst=True)  # before what is slow is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_sweeps(items)
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
