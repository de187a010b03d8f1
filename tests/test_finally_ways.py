# ruff: noqa: B012
"""The ways out of ``finally``: what lowering makes of them grows as the statements do."""

from __future__ import annotations

import itertools
import linecache
from textwrap import indent

import pytest
import torch

import autobatch
from autobatch.frontend import lower

NUMBERS = torch.tensor([1.0, -1.0, 7.0, -3.0, 0.0])


def taken_back(x):
    try:
        return x
    finally:
        while True:
            try:
                return x + 1
            finally:
                break


def left_by_all_ways(x):
    for _ in range(3):
        try:
            if x > 0:
                return x
            if x < -1:
                break
            continue
        finally:
            x = x - 1
            if x > 5:
                return x * 100
    return x - 1000


def taken_back_within(x):
    try:
        if x > 0:
            return x
        x = x * 2
    finally:
        try:
            if x < 0:
                return x + 7
        finally:
            for _ in range(2):
                try:
                    return -x
                finally:
                    if x > 1:
                        continue
    return x


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("program", [taken_back, left_by_all_ways, taken_back_within])
def test_a_return_gives_what_it_gives_in_python(program, engine):
    found = autobatch.vmap(program, engine=engine)(NUMBERS)
    assert found.tolist() == [program(x).item() for x in NUMBERS]


def nested(depth):
    """A ``try`` in a ``try``, each with a return, and a return in each ``finally``."""
    lines = []
    for d in range(depth):
        lines += [d * 4 * " " + f"try:\n{d * 4 * ' '}    if x > {d}: return x + {d}"]
    lines += [depth * 4 * " " + "x = x * 2"]
    for d in reversed(range(depth)):
        lines += [d * 4 * " " + f"finally:\n{d * 4 * ' '}    if x < -{d}: return x - {d}"]
    return "\n".join(["def f(x):", indent("\n".join([*lines, "return x"]), "    ")])


def test_blocks_grow_with_the_nesting_and_no_faster():
    counts = []
    for depth in range(1, 6):
        text, space = nested(depth), {}
        file = f"<nested {depth}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), space)
        counts.append(len(lower(space["f"]).function.blocks))
    steps = {after - before for before, after in itertools.pairwise(counts)}
    assert len(steps) == 1, counts
