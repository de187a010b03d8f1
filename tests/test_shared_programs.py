"""Programs whose examples write to what they share: results and state are those of the loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from programs.residual_quantiser import DTYPES, ResidualQuantiser, example

OPTIONS: tuple[dict[str, Any], ...] = (
    {"executor": "vmap"},
    {"trace_after": 0},
    {"engine": "program_counter"},
    {"chunk_size": 5},
    {"stateful": "sequential"},
)
BATCH = 24


def two_models(dtype: torch.dtype) -> tuple[ResidualQuantiser, ResidualQuantiser, torch.Tensor]:
    made = [example(BATCH, dtype) for _ in range(2)]
    ours, theirs = (each.function for each in made)
    assert isinstance(ours, ResidualQuantiser) and isinstance(theirs, ResidualQuantiser)
    (xs,) = made[0].args
    assert isinstance(xs, torch.Tensor)
    return ours, theirs, xs


def assert_same_state(ours: ResidualQuantiser, theirs: ResidualQuantiser) -> None:
    wanted = theirs.state_dict()
    for name, tensor in ours.state_dict().items():
        torch.testing.assert_close(tensor, wanted[name], msg=name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_code_book_learns_as_in_the_loop(options: Any, dtype: torch.dtype) -> None:
    ours, theirs, xs = two_models(dtype)
    batched = autobatch.vmap(ours, **options)
    for _ in range(3):
        found, stages = batched(xs)
        wanted = [theirs(x) for x in xs]
        torch.testing.assert_close(found, torch.stack([y for y, _ in wanted]))
        assert stages.tolist() == [stage for _, stage in wanted]
        assert ours.seen == BATCH and ours.uses.sum() == stages.sum()
        assert_same_state(ours, theirs)
        ours.refit()
        theirs.refit()


def test_each_buffer_is_written_once() -> None:
    ours, _, xs = two_models(torch.float32)
    with autobatch.counts() as counts:
        _, stages = autobatch.vmap(ours)(xs)
    assert len(set(stages.tolist())) > 3 and counts.shared_writes == 4


def test_a_stream_writes_what_the_loop_writes() -> None:
    ours, theirs, xs = two_models(torch.float64)
    found = dict(autobatch.stream(ours, xs, width=5))
    wanted = [theirs(x) for x in xs]
    assert [int(found[place][1]) for place in range(BATCH)] == [stage for _, stage in wanted]
    assert_same_state(ours, theirs)


def test_refitting_helps() -> None:
    ours, _, xs = two_models(torch.float64)
    batched = autobatch.vmap(ours)
    errors = []
    for _ in range(4):
        errors.append((xs - batched(xs)[0]).norm())
        ours.refit()
    assert errors[-1] < errors[0]
