"""Block order: loops stand together and before what follows them; what the program does stays."""

from __future__ import annotations

import pytest

from autobatch.frontend import lower_function
from autobatch.ir.program import Function, Raise, Return
from autobatch.ir.verifier import verify
from autobatch.passes.layout import order_blocks
from autobatch.passes.simplify import simplify
from tests.building import Lines, block, function
from tests.language import cases
from tests.one_thread import run_thread


def shape(made: Function) -> list[tuple[int, ...]]:
    return [each.successors() for each in made.blocks]


def graph(*edges: tuple[int, ...]) -> Function:
    """Blocks by their successors: none is a raise, except the last, which returns."""
    at = Lines()
    blocks = []
    for label, targets in enumerate(edges):
        if not targets:
            last = label == len(edges) - 1
            blocks.append(block(at.give("x") if last else at.fail("x")))
        elif len(targets) == 1:
            blocks.append(block(at.jump(targets[0])))
        else:
            blocks.append(block(at.branch("x", *targets)))
    return function("f", "x", *blocks)


ORDERS = [
    # a way out of the loop with work of its own goes behind the loop
    ([(1, 4), (2, 3), (4,), (0,), ()], [(1, 4), (3, 2), (0,), (4,), ()]),
    # a way that only raises stays where it is
    ([(1, 4), (2, 3), (), (0,), ()], [(1, 4), (2, 3), (), (0,), ()]),
    # straight branches keep the source's order
    ([(1, 2), (3,), (3,), ()], [(1, 2), (3,), (3,), ()]),
    # a return within two loops goes behind both
    (
        [(1, 6), (2, 5), (3, 4), (6,), (1,), (0,), ()],
        [(1, 6), (2, 4), (5, 3), (1,), (0,), (6,), ()],
    ),
    # a raise in the inner loop's head stays in the outer loop
    ([(1, 4), (2, 3), (), (1, 0), ()], [(1, 4), (2, 3), (), (1, 0), ()]),
    # an endless loop, and an exit that nothing reaches
    ([(1,), (0,), ()], [(1,), (0,), ()]),
    # a loop of one block
    ([(0, 1), ()], [(0, 1), ()]),
]


@pytest.mark.parametrize("before, after", ORDERS)
def test_order(before, after):
    made = order_blocks(graph(*before))
    assert shape(made) == after
    assert verify(made) == []
    assert shape(order_blocks(made)) == after


FUNCTIONS = list(dict.fromkeys(func for func, _ in cases() if func.__name__ != "matching"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda func: func.__name__)
def test_loops_of_the_corpus_precede_what_follows(func):
    made = order_blocks(simplify(lower_function(func)))
    assert verify(made) == []
    assert isinstance(made.blocks[-1].terminator, Return)
    for head in range(len(made.blocks)):
        loop = {label for label in range(len(made.blocks)) if connected(made, head, label)}
        for label in loop:
            for target in set(made.blocks[label].successors()) - loop:
                assert target > max(loop) or only_raises(made, target), f"\n{made}"


def connected(made: Function, one: int, other: int) -> bool:
    return other in reached(made, one) and one in reached(made, other)


def reached(made: Function, start: int) -> set[int]:
    found: set[int] = set()
    pending = [start]
    while pending:
        more = set(made.blocks[pending.pop()].successors()) - found
        found |= more
        pending += more
    return found


def only_raises(made: Function, label: int) -> bool:
    ends = [each for each in {label} | reached(made, label) if not made.blocks[each].successors()]
    return bool(ends) and all(isinstance(made.blocks[end].terminator, Raise) for end in ends)


def test_source_order_is_changed_where_a_loop_is_left_with_work():
    def search(xs, wanted):
        i = 0
        while i < len(xs):
            if xs[i] == wanted:
                return i * 10
            i += 1
        return -1

    made = simplify(lower_function(search))
    ordered = order_blocks(made)
    assert shape(made) != shape(ordered)
    assert [run_thread(ordered, search, ([3, 4], x)) for x in (3, 4, 5)] == [0, 10, -1]
