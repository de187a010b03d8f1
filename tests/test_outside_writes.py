"""Writes to what existed before the call are refused before they happen, whatever way they go.

``outside_writes.txt`` has one program a line (``;;`` parts its lines). Each is held to two things:
on the objects of ``outside_world`` it is refused and they stay as they were; on objects that the
program makes itself it does what the loop does, but for the lines marked ``# outside``.
``shared_writes.txt`` has those that are reduced over the threads: they leave what the loop leaves.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import autobatch
from tests.outside_world import MAKERS, program, shown, state, world

LINES = Path(__file__).with_name("outside_writes.txt").read_text().splitlines()
SHARED = Path(__file__).with_name("shared_writes.txt").read_text().splitlines()
MARK = "  # outside"
SOURCES = [line.removesuffix(MARK) for line in LINES]
OWN = [
    line
    for line in LINES
    if not line.endswith(MARK) and not re.search(r"\b(MS|HS|KINDS|M|Holder\.count)\b", line)
]
CONFIGURATIONS = (
    {"executor": "vmap"},
    {"executor": "traced", "trace_after": 0},
    {"engine": "sequential"},
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", SOURCES)
def test_outside(source: str) -> None:
    for configuration in CONFIGURATIONS:
        names = world()
        before = state(names)
        func = program(source, [*source.split(";;"), "return x"], names)
        batched = autobatch.vmap(func, **configuration)
        with pytest.raises(autobatch.SharedWriteError, match=r"existed before the call[\s\S]*\^"):
            batched(torch.tensor([0.0, 1.0, 2.0]))
        assert state(names) == before
        seeded(lambda: func(torch.tensor(2.0)))  # noqa: B023
        assert state(names) != before, "the loop writes nothing here"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", SHARED)
def test_shared(source: str) -> None:
    lines = [*source.split(";;"), "return x"]
    theirs = same_world()
    func = program(f"loop {source}", lines, theirs)
    for x in torch.tensor([0.0, 1.0, 2.0]):
        func(x)
    for configuration in CONFIGURATIONS[:2]:
        ours = same_world()
        before = state(ours)
        batched = autobatch.vmap(program(f"ours {source}", lines, ours), **configuration)
        batched(torch.tensor([0.0, 1.0, 2.0]))
        assert rounded(state(ours)) == rounded(state(theirs)) != rounded(before)


def same_world():
    torch.manual_seed(0)
    return world()


def rounded(text: str) -> str:
    return re.sub(r"\d\.\d{4,}", lambda number: f"{float(number[0]):.4f}", text)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", OWN)
def test_own(source: str) -> None:
    used = [name for name in MAKERS if re.search(rf"\b{name}\b", source)]
    made = [f"{name} = {MAKERS[name]}" for name in used]
    shows = "return (" + "".join(f"show({name}), " for name in used) + ")"
    names = {**world(), "show": autobatch.per_thread(shown)}
    func = program(f"own {source}", [*made, *source.split(";;"), shows], names)
    xs = torch.tensor([0.0, 1.0, 2.0])
    expected = seeded(lambda: [func(x.clone()) for x in xs])
    for configuration in CONFIGURATIONS:
        batched = autobatch.vmap(func, **configuration)
        assert list(zip(*seeded(lambda: batched(xs)), strict=True)) == expected  # noqa: B023


def seeded(run):
    random.seed(0)
    np.random.seed(0)
    return run()
