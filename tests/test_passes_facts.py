"""What is known of variables: true on every way through the blocks, and found in bounded time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autobatch.ir.program import Block, Branch, Jump, Op, Return
from autobatch.passes import facts
from autobatch.passes.facts import Facts, Literal, Same, facts_before
from tests.building import Lines, block, line

NAMES = st.sampled_from("abcd")
HERE = line(1)
VISITS = 60
"""Of one block, at most: each of four variables can lose twice, by two ways, and some to spare."""


def turning() -> tuple[Block, ...]:
    """``c`` is first known for a copy of ``a``, then of ``b``: half a loop hears of it late."""
    at = Lines()
    return (
        block(at.jump(7)),
        block(at.op("b = copy a"), at.branch("a", 3, 2)),
        block(at.op("b = copy d"), at.jump(3)),
        block(at.op("c = copy b"), at.jump(4)),
        block(at.branch("a", 5, 9)),
        block(at.branch("d", 6, 9)),
        block(at.jump(8)),
        block(at.op("d = const", 0), at.jump(1)),
        block(at.jump(4)),
        block(at.give("c")),
    )


@st.composite
def graphs(draw) -> tuple[Block, ...]:
    count = draw(st.integers(1, 9))
    labels = st.integers(0, count)
    copied = st.builds(lambda a, b: Op("copy", (a,), (b,), None, HERE), NAMES, NAMES)
    given_ = st.builds(lambda a, n: Op("const", (a,), (), n, HERE), NAMES, st.integers(0, 1))
    ends = st.builds(lambda t: Jump(t, HERE), labels) | st.builds(
        lambda c, a, b: Branch(c, a, b, HERE), NAMES, labels, labels
    )
    straight = st.lists(copied | given_, max_size=2).map(tuple)
    blocks = [Block(draw(straight), draw(ends)) for _ in range(count)]
    return (*blocks, Block((), Return("a", HERE)))


def hold(known: Facts, env: dict[str, Any]) -> None:
    for name, fact in known.items():
        if isinstance(fact, Literal):
            assert env[name] == fact.value
        else:
            assert isinstance(fact, Same)
            assert env[name] == env[fact.source]


@given(graphs(), st.lists(st.booleans(), max_size=30))
@example(turning(), [])
def test_facts_hold_on_every_way(blocks: tuple[Block, ...], turns: list[bool]) -> None:
    visits = 0

    def counted(each: Block, known: Facts) -> Facts:
        nonlocal visits
        visits += 1
        assert visits <= VISITS * len(blocks), "the facts go round in a circle"
        return through(each, known)

    with pytest.MonkeyPatch.context() as patch:
        through = facts.facts_after
        patch.setattr(facts, "facts_after", counted)
        before = facts_before(blocks)

    env: dict[str, Any] = {name: object() for name in "abcd"}
    label = 0
    for turn in turns:
        hold(before[label], env)
        for op in blocks[label].ops:
            env[op.outs[0]] = op.attr if op.name == "const" else env[op.args[0]]
        successors = blocks[label].successors()
        if not successors:
            break
        label = successors[turn and len(successors) > 1]
