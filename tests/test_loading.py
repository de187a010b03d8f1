"""The first recording in a process waits until what records is worth loading."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import Tensor

JOB = """
    import sys, torch, autobatch
    from programs.collatz import collatz

    def run(times, **options):
        options = {"plain": "never", "executor": "traced", **options}
        with autobatch.counts() as made:
            for _ in range(times):
                autobatch.vmap(collatz, **options)(torch.arange(1, 28))
        print(made.traces > 0, "torch._dynamo" in sys.modules)

    run(2)
    FIRST
"""


def drawn(x: Tensor) -> Tensor:
    return x + torch.randn(2) + torch.randint(3, (2,)) + torch.rand_like(x)


def after_a_short_job(first: str) -> list[str]:
    """Whether the job recorded and had loaded torch's tracing, and then the same of ``first``."""
    text = textwrap.dedent(JOB).replace("FIRST", first)
    command = [sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_short_job_does_not_load_it_and_a_long_one_does() -> None:
    assert after_a_short_job("run(50)") == ["False", "False", "True", "True"]


@pytest.mark.slow
def test_it_is_loaded_where_recording_is_asked_for() -> None:
    assert after_a_short_job("run(1, trace_after=0)") == ["False", "False", "True", "True"]


def test_a_seeded_job_that_draws_does_not_load_it() -> None:
    job = """
        import sys, torch, autobatch
        from tests.test_loading import drawn

        for randomness in ({"seed": 0}, {"randomness": "different"}, {"randomness": "same"}):
            autobatch.vmap(drawn, plain="never", **randomness)(torch.ones(3, 2))
        print("torch._dynamo" in sys.modules)
    """
    command = [sys.executable, "-c", textwrap.dedent(job)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
