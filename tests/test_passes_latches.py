"""Ways back to a loop's test: they meet where a round is dear and its last part is cheap."""

from __future__ import annotations

import pytest
import torch

import autobatch
from autobatch.frontend import lower_function
from autobatch.ir.verifier import verify
from autobatch.passes import run_passes
from autobatch.passes.clean_up import clean_up
from autobatch.passes.latches import join_latches
from autobatch.passes.simplify import simplify
from tests.language import cases
from tests.oracle import assert_matches_loop

FUNCTIONS = list(dict.fromkeys(func for func, _ in cases() if func.__name__ != "matching"))


def patient(x):
    """A dear round, of which only the last and cheap part differs; some leave it early."""
    best, waited = x * 1, 0
    for step in range(20):
        x = torch.sin(x * 3 + step).abs() * 1.25 + torch.cos(x).square() * 0.1
        if x > best:
            best, waited = x * 1, 0
        else:
            waited += 1
            if waited == 6:
                break
    return best, step


def folded(total, step):
    if total > 100:
        return folded(total / 2, step)
    return torch.sin(total).abs() * 1.5 + torch.cos(total + step).square() * 0.25


def skipping(x):
    """Cheap rounds, of which few have something to do; that is a call, and dear."""
    total = x
    for step in range(20):
        if (x + step) % 7 > 0:
            continue
        total = folded(total, step)
    return total


def passing(x):
    """The same, but that it is no call."""
    total = x
    for step in range(20):
        if (x + step) % 7 > 0:
            continue
        total = torch.sin(total) * 1.5 + torch.cos(total + step) * 0.25
    return total


def inner(x):
    """Ways back of which one leaves an inner loop."""
    total = x * 0
    for step in range(4):
        total = torch.sin(total + step).abs() * 1.5 + torch.cos(total + step).square() * 0.25
        if total > 1:
            continue
        while total < step:
            total = total + 0.5
    return total


def executions(func, *args):
    counts = []
    for size in (len(args[0]), 1):
        with autobatch.counts() as found:
            autobatch.vmap(func, executor="vmap")(*(arg[:size] for arg in args))
        counts.append(found)
    return counts


STARTS = torch.linspace(0.0, 3.0, 12, dtype=torch.float64)


def test_threads_stay_in_step_through_dear_rounds():
    counts, _ = executions(patient, STARTS)
    steps = [patient(x)[1] + 1 for x in STARTS]
    assert len(set(steps)) > 2
    shared = [
        n
        for (_, pc), n in counts.by_block.items()
        if counts.threads_by_block["patient", pc] == sum(steps)
    ]
    assert shared == [max(steps)]


def test_rounds_with_nothing_to_do_are_run_ahead():
    counts, _ = executions(skipping, torch.arange(7.0))
    own = {n for (name, _), n in counts.by_block.items() if name == "folded" and n > 0}
    assert own == {3}


def test_all_wait_for_what_is_no_call():
    counts, _ = executions(passing, torch.arange(7.0))
    assert max(counts.by_block.values()) <= 20


FORMS = [(patient, True), (passing, True), (skipping, False), (inner, False)]


@pytest.mark.parametrize("func, joined", FORMS)
def test_what_gets_a_block_before_its_test(func, joined):
    made = run_passes(lower_function(func), [clean_up])
    assert (len(join_latches(made).blocks) > len(made.blocks)) is joined


@pytest.mark.parametrize("func", [patient, skipping, passing, inner])
def test_results_stay(func):
    assert_matches_loop(func, (STARTS,))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda func: func.__name__)
def test_the_corpus_is_well_formed(func):
    assert verify(join_latches(simplify(lower_function(func)))) == []
