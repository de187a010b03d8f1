"""Writes to what existed before the call are refused before they happen, whatever way they go.

``outside_writes.txt`` has one program a line (``;;`` parts its lines). Each is held to two things:
on the objects of ``outside_world`` it is refused and they stay as they were; on objects that the
program makes itself it does what the loop does, but for the lines marked ``# outside``.
``shared_writes.txt`` has those that are reduced over the threads: they leave what the loop leaves.
"""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import prune, vector_to_parameters

import autobatch
from autobatch.errors import SharedWriteError
from tests.oracle import assert_matches_loop
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


@pytest.mark.sampled(16)
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


@pytest.mark.sampled(8)
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


@pytest.mark.sampled(16)
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


# Functions and modules of torch's that write what their names do not tell.

LAYER = torch.nn.Linear(2, 1)
SCALING = torch.nn.Embedding(5, 3, max_norm=1.0)
SCALING_BAG = torch.nn.EmbeddingBag(5, 3, max_norm=1.0)


def sets_parameters(x):
    vector_to_parameters(x, LAYER.parameters())
    return x


def sets_listed_parameters(x):
    vector_to_parameters(vec=x, parameters=[LAYER.weight, LAYER.bias])
    return x


def scales_rows(x):
    return SCALING(x.long())


def scales_rows_of_bags(x):
    return SCALING_BAG(x.long()[None])


LISTED = [LAYER]


def halves(x):
    LISTED[0].half()
    return x


def converts(x):
    for layer in LISTED:
        layer.to(torch.float64)
    return x


def normalises(x):
    torch.nn.utils.parametrizations.weight_norm(LAYER)
    return x


def prunes(x):
    prune.l1_unstructured(LAYER, "weight", 1)
    return x


WAYS = [{}, {"plain": "never"}, {"plain": "never", "trace_after": 0}, {"executor": "compiled"}]


UNSAID = [sets_parameters, sets_listed_parameters, scales_rows, scales_rows_of_bags]
UNSAID += [halves, converts, normalises, prunes]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("func", UNSAID)
def test_what_torch_writes_unsaid_is_refused(func, options):
    modules = LAYER, SCALING, SCALING_BAG
    held = [parameter for module in modules for parameter in module.parameters()]
    with torch.no_grad():
        for parameter in held:
            parameter.fill_(3.0)
    with pytest.raises(SharedWriteError):
        autobatch.vmap(func, **options)(torch.ones(4, 3))
    assert all((parameter == 3.0).all() for parameter in held)
    assert list(LAYER._parameters) == ["weight", "bias"] and LAYER.weight.dtype is torch.float32


def test_what_torch_writes_of_the_programs_own():
    def func(x, n):
        layer, table = torch.nn.Linear(2, 1), torch.nn.Embedding(5, 3, max_norm=1.0)
        torch.nn.init.ones_(table.weight)
        vector_to_parameters(x, layer.parameters())
        saved = io.BytesIO()
        torch.save(x, saved)
        if n > 1:
            torch.save(x, saved)
        size = len(saved.getvalue())
        saved.seek(0)
        out = layer(torch.ones(2)).detach()
        return out, table(n).detach(), table.weight.detach().sum(), size, torch.load(saved)

    args = torch.arange(12.0).view(4, 3), torch.tensor([0, 2, 1, 3])
    assert_matches_loop(func, args, randomness="different")
