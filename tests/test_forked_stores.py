"""Loops that add up, or store, what calls of themselves give: as wide as the recursion.

What is written so may have other names, lie in what the call was given, or be a number, which
nobody can write. Values, order and exceptions are the loop's; block executions are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop


@dataclass
class Node:
    value: float
    row: Tensor
    children: list[Node] = field(default_factory=list)


def tree(seed: int, depth: int = 4) -> Node:
    count = (seed * 7 + depth * 3) % 4 if depth else 0
    row = torch.tensor([seed % 3 - 1.0, 0.5])
    return Node(seed % 5 - 1.5, row, [tree(seed * 3 + i + 1, depth - 1) for i in range(count)])


TREES = [tree(seed) for seed in range(7)]


# What forks.


def on_top_of_an_attribute(node):
    total = node.value
    for child in node.children:
        total += on_top_of_an_attribute(child) * node.value
    return total


def to_a_tensor_of_no_dimensions(node):
    total = torch.zeros(())
    for child in node.children:
        total += to_a_tensor_of_no_dimensions(child)
    return total + node.value


def to_a_clone(node):
    total = node.row.clone()
    for child in node.children:
        total += to_a_clone(child) * 0.5
    return total


def by_index(node):
    found = [None] * len(node.children)
    for i, child in enumerate(node.children):
        found[i] = by_index(child)
    return sum(found) + node.value


def by_key(node):
    found = {}
    for i, child in enumerate(node.children):
        found[i % 2] = by_key(child)
    found["own"] = node.value
    return sum(found.values()) * len(found)


def in_a_dict_comprehension(node):
    found = {i: in_a_dict_comprehension(child) for i, child in enumerate(node.children)}
    return sum(found.values()) + node.value


def extended(node):
    found = [node.value]
    for child in node.children:
        found.extend(extended(child))
        found.append(len(found) * 0.5)
    return found


def of_extended(node):
    return sum(extended(node))


def starred(node):
    if not node.children:
        return node.value
    return max(node.value, *[starred(child) for child in node.children]) + 0.5


def on_top_of_an_item(node):
    total = [0.0, node.value]
    for child in node.children:
        total[child.value > 0] += on_top_of_an_item(child)
    return total[0] * 0.5 - total[1]


def on_top_of_a_key(node):
    found = {"sum": node.value, "large": 0}
    for child in node.children:
        found["sum"] += on_top_of_a_key(child)[0]
        found["large"] += 1
    return found["sum"], found["large"]


def of_keys(node):
    return on_top_of_a_key(node)[0]


FORKING = [
    *(on_top_of_an_item, of_keys),
    *(on_top_of_an_attribute, to_a_tensor_of_no_dimensions, to_a_clone),
    *(by_index, by_key, in_a_dict_comprehension, of_extended, starred),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", FORKING, ids=lambda f: f.__name__)
def test_as_many_steps_as_trees_are_deep(func: Callable[..., Any]) -> None:
    assert_matches_loop(func, [autobatch.objects(TREES)], batch_sizes=(1, 7))
    for batch in (TREES, TREES * 4):
        with autobatch.counts() as counts:
            autobatch.vmap(func, plain="never")(autobatch.objects(batch))
        assert counts.block_executions <= 12 * 5


def asked_each_time(node):
    best = None
    for child in node.children:
        value = asked_each_time(child)
        if value > 2.0:
            break  # and call no more
        best = value if best is None else max(best, value)
    return node.value if best is None else best + node.value


def test_a_result_that_is_asked_for_at_once_is_not_forked() -> None:
    """Alone at its join, it would only cost: as many block executions as one after the other."""
    executions = []
    for fork in ("auto", "off"):
        with autobatch.counts() as counts:
            autobatch.vmap(asked_each_time, plain="never", fork=fork)(autobatch.objects(TREES))
        executions.append(counts.block_executions)
    assert executions[0] == executions[1]


# What others see.


def aliased(node):
    found = [0.0, node.value]
    other = found
    for child in node.children:
        found[1] = aliased(child) + other[1]
    return other[1]


def aliased_later(node):
    found, seen = [node.value], 0
    for child in node.children:
        found.extend([aliased_later(child)])
        other = found
        seen += len(other)
    return seen + sum(found)


def within_a_list(node):
    rows = [node.row * 1.0]
    total = rows[0]
    for child in node.children:
        total += within_a_list(child)
    return rows[0] + total


def of_a_view(node):
    rows = torch.zeros(2, 2)
    total = rows[0]
    for child in node.children:
        total += of_a_view(child)
    return rows.sum(0) + node.row


def read_by_the_calls(node, total):
    for child in node.children:
        total += read_by_the_calls(child, total) * 0.25
    return total + node.value


def read_by_itself(node):
    return read_by_the_calls(node, node.row * 1.0)


def captured(node):
    total = node.row * 1.0

    def walk(inner):
        return total * 0.5 + inner.value

    for child in node.children:
        total += walk(child)
    return total


def written_in_between(node):
    factor, total = node.row * 1.0, node.row * 0.0
    for child in node.children:
        total = total + written_in_between(child) * factor
        factor.add_(1.0)
    return total + factor


def written_by_a_helper(node):
    factor, total = node.row * 1.0, node.row * 0.0
    for child in node.children:
        total = total + written_by_a_helper(child) * factor
        add_one(factor)
    return total + factor


def add_one(x):
    x += 1


def first_and_last(node):
    found = [node.value]
    for child in node.children:
        found.append(first_and_last(child))
        found[-1] = found[-1] * 0.5 + found[0]
        found[0] = 1.0
    return sum(found)


def sets_and_dicts(node):
    seen, named = set(), {"own": node.value}
    for child in node.children:
        seen.add(sets_and_dicts(child))
        named.update({child.value: sets_and_dicts(child)})
        named["own"] = 0.5
    return len(seen) + sum(named.values())


def inserted(node):
    found = [node.value]
    for child in node.children:
        found.insert(1, inserted(child))
        found.insert(0, found[1])
    return found[0] - found[-1] + len(found)


def in_a_list_of_another(node):
    rows = [[0.0]]
    row = rows[0]
    for child in node.children:
        rows[0][0] += in_a_list_of_another(child)
        row.append(row[0])
    return sum(row) + node.value


def moved_on(node):
    found = [0.0]
    for child in node.children:
        found[-1] += moved_on(child)
        found.append(found[0])
    return sum(found) + node.value


def not_always_a_call(node):
    found, last = [0.0, 0.0, 0.0], 1.0
    for i, child in enumerate(node.children):
        last = not_always_a_call(child) if child.value > 0 else 0.5
        found[i] = last
        found[0] = last + i
    return found[0] + found[1] * 2.0 + found[2] * 3.0 + last


SEEN = [
    *(aliased, aliased_later, within_a_list, of_a_view, read_by_itself, captured),
    *(written_in_between, written_by_a_helper, first_and_last, sets_and_dicts, inserted),
    *(not_always_a_call, in_a_list_of_another, moved_on),
]
SOME = [CONFIGURATIONS[1], CONFIGURATIONS[2], {"executor": "vmap", "max_width": 3}]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("func", SEEN, ids=lambda f: f.__name__)
def test_what_is_written_is_seen_by_all_names(func: Callable[..., Any]) -> None:
    assert_matches_loop(func, [autobatch.objects(TREES)], configurations=SOME)


def made_by_itself(n):
    """The objects are the program's own, and ``+=`` changes what lies in them."""
    tree = grown(int(n))
    first = gathered(tree)
    return first, gathered(tree), tree["row"].sum()


@autobatch.per_thread
def grown(n):
    row = torch.full((2,), float(n))
    return {"row": row, "children": [grown(n - 1), grown(n - 2)] if n > 1 else []}


def gathered(node):
    total = node["row"]
    for child in node["children"]:
        total += gathered(child)
    return total


def test_tensors_in_objects_of_the_program_are_written() -> None:
    assert_matches_loop(made_by_itself, [torch.arange(1, 6)], configurations=SOME)


# Exceptions.


def out_of_range(node):
    found = [node.value]
    for i, child in enumerate(node.children):
        found[i] = out_of_range(child)
        found[i] = found[i] // (child.value + 0.5)
    return sum(found)


def in_place_before_a_failure(node):
    total = node.row * 1.0
    found = [0.0]
    for child in node.children:
        inner, rest = in_place_before_a_failure(child)
        total += inner
        found.extend(rest)
        total += 1 // (child.value + 1.5 - len(found))
    return total, found


def of_both(node):
    total, found = in_place_before_a_failure(node)
    return total, sum(found)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [out_of_range, of_both])
@pytest.mark.parametrize("start", [0, 3, 5])
def test_exceptions_are_the_first(func: Callable[..., Any], start: int) -> None:
    trees = TREES[start:] + TREES[:start]
    assert_matches_loop(func, [autobatch.objects(trees)], batch_sizes=(1, 7), configurations=SOME)
    found = autobatch.vmap(func, plain="never", on_error="isolate")(autobatch.objects(trees))
    for node, result in zip(trees, found, strict=True):
        try:
            expected = func(node)
        except Exception as error:
            assert (type(result.exception), str(result.exception)) == (type(error), str(error))
        else:
            torch.testing.assert_close(result.value, expected, check_dtype=False)


def weighted(node, weight):
    total, parts = node.row.clone(), [weight.sum()] * 3
    for i, child in enumerate(node.children):
        total += weighted(child, weight) * weight
        parts[i] = weighted(child, weight).sum() * weight[0]
    return torch.tanh(total) + sum(parts)


def test_gradients_flow() -> None:
    loop, batched = (torch.tensor([0.3, -0.2], requires_grad=True) for _ in range(2))
    torch.stack([weighted(node, loop) for node in TREES]).sum().backward()
    autobatch.vmap(weighted, in_dims=(0, None))(autobatch.objects(TREES), batched).sum().backward()
    torch.testing.assert_close(batched.grad, loop.grad, rtol=1e-4, atol=1e-4)
