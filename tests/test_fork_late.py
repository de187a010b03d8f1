"""Forked calls that turn out to write what they get, after something that others may have seen."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

X = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])


class Stats:
    def __init__(self):
        self.calls = 0

    def bump(self):
        self.calls += 1
        return self.calls


class Agent:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def draw(self):
        return self.rng.random()


class Tape:
    def __init__(self):
        self.written = deque()

    def put(self, value):
        self.written.append(value)
        return len(self.written)


def of_stats(x, stats, depth):
    number = stats.bump()
    if depth == 0:
        return x * number
    return of_stats(x * 2, stats, depth - 1) + of_stats(x + 1, stats, depth - 1)


def counts(x):
    queue, stats = deque([1]), Stats()
    return of_stats(x, stats, 2), stats.calls + len(queue)


def of_agent(x, agent, depth):
    if depth == 0:
        return x * agent.draw()
    return of_agent(x * 2, agent, depth - 1) + of_agent(x + 1, agent, depth - 1)


def draws_by_method(x):
    return of_agent(x, Agent(3), 2)


def of_generator(x, rng, depth):
    if depth == 0:
        return x * rng.random()
    return of_generator(x * 2, rng, depth - 1) + of_generator(x + 1, rng, depth - 1)


def draws(x):
    return of_generator(x, random.Random(int(x[0] * 8)), 2)


def draws_of_numpys(x):
    return of_generator(x, np.random.default_rng(3), 2)


def of_tape(x, tape, depth):
    number = tape.put(depth)
    if depth == 0:
        return x * number
    return of_tape(x * 2, tape, depth - 1) + of_tape(x + 1, tape, depth - 1)


def records(x):
    tape = Tape()
    return of_tape(x, tape, 2), len(tape.written)


def grown(x, rng, depth):
    if depth == 0 or len(x) <= 1:
        return depth
    value = rng.uniform(-1, 1)
    return grown(x[x < value], rng, depth - 1) + grown(x[x >= value], rng, depth - 1)


def grows(x):
    return grown(torch.cat([x, x - 1, x * 2]), random.Random(len(x)), 3)


def within(x, depth):
    rng, stats = random.Random(depth), Stats()

    def visit(x, depth):
        if depth == 0:
            return x * rng.random() + stats.bump()
        return visit(x * 2, depth - 1) + visit(x + 1, depth - 1)

    return visit(x, depth), stats.calls


PROGRAMS = [counts, draws_by_method, draws, draws_of_numpys, records, grows]


@pytest.mark.parametrize("program", [*PROGRAMS, lambda x: within(x, 2)])
def test_such_calls_run_one_by_one(program):
    assert_matches_loop(program, [X])


def of_tree(tree, stats, x):
    if tree is None:
        return x
    return (of_tree(tree[0], stats, x) + of_tree(tree[1], stats, x)).tanh()


def of_trees(tree, x):
    queue = deque([0])
    return of_tree(tree, None, x) + len(queue)


def of_trees_alone(tree, x):
    return of_tree(tree, None, x) + 1


def test_calls_that_get_nothing_to_write_still_run_together():
    tree = None
    for _ in range(5):
        tree = (tree, tree)
    args = autobatch.objects([tree, tree[0]]), X[:2]
    executions = []
    for program in (of_trees, of_trees_alone):
        forked = autobatch.vmap(program, plain="never")
        forked(*args)
        with autobatch.counts() as counted:
            forked(*args)
        executions.append(counted.block_executions)
    assert executions[0] == executions[1]
