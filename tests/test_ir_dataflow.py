"""The dataflow solver: liveness, and variables that may have no value, against all short paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autobatch.ir.dataflow import (
    liveness,
    maybe_unbound,
    op_reads,
    op_writes,
    predecessors,
    terminator_reads,
    terminator_writes,
)
from autobatch.ir.program import Block, Branch, Call, CallShape, Jump, Op, Raise, Return
from tests.building import Lines, block, collatz, line

NAMES = st.sampled_from("abcd")
HERE = line(1)


def test_collatz() -> None:
    blocks = collatz().blocks
    live = liveness(blocks)
    assert live[0] == {"n"}
    assert all("n" in names for names in live[:-2])
    assert not maybe_unbound(blocks, ["n"])
    assert maybe_unbound(blocks, []) == {"n"}


def test_reads_and_writes() -> None:
    at = Lines()
    assert op_reads(at.op("delete", "x")) == op_writes(at.op("delete", "x")) == ("x",)
    assert op_reads(at.op("z = add x, y")) == ("x", "y")
    assert terminator_reads(Raise("x", "y", HERE)) == ("x", "y")
    assert terminator_reads(Raise("x", None, HERE)) == ("x",)
    called = Call("z", "f", ("x",), CallShape((False,)), 1, HERE)
    assert (terminator_reads(called), terminator_writes(called)) == (("f", "x"), ("z",))


def test_modes_are_read_by_their_block() -> None:
    blocks = (Block((), Jump(1, HERE), ("m",)), Block((), Return("x", HERE)))
    assert liveness(blocks) == ({"m", "x"}, {"x"})
    assert predecessors(blocks) == [[], [0]]


@st.composite
def flow_graphs(draw) -> tuple[Block, ...]:
    count = draw(st.integers(1, 4))
    labels = st.integers(0, count)
    blocks = []
    for _ in range(count):
        ops = draw(
            st.lists(
                st.one_of(
                    st.builds(lambda a, b: Op("copy", (a,), (b,), None, HERE), NAMES, NAMES),
                    st.builds(lambda a: Op("delete", (), (), a, HERE), NAMES),
                ),
                max_size=2,
            )
        )
        end = draw(
            st.one_of(
                st.builds(lambda t: Jump(t, HERE), labels),
                st.builds(lambda c, a, b: Branch(c, a, b, HERE), NAMES, labels, labels),
            )
        )
        blocks.append(Block(tuple(ops), end))
    return (*blocks, Block((), Return(draw(NAMES), HERE)))


def events(blocks: tuple[Block, ...], label: int) -> list[tuple[str, str]]:
    """What a block reads and writes, in order."""
    found = []
    for op in blocks[label].ops:
        found += [("read", name) for name in op_reads(op)]
        kind = "unbind" if op.name == "delete" else "bind"
        found += [(kind, name) for name in op_writes(op)]
    return found + [("read", name) for name in terminator_reads(blocks[label].terminator)]


def paths(blocks: tuple[Block, ...], label: int, length: int) -> list[list[tuple[str, str]]]:
    found = [events(blocks, label)]
    if length:
        for target in blocks[label].successors():
            rest = paths(blocks, target, length - 1)
            found += [events(blocks, label) + path for path in rest]
    return found


def first_reads(path: list[tuple[str, str]]) -> set[str]:
    touched: set[str] = set()
    found = set()
    for kind, name in path:
        if kind == "read" and name not in touched:
            found.add(name)
        touched.add(name)
    return found


def unbound_reads(path: list[tuple[str, str]]) -> set[str]:
    bound: set[str] = set()
    found = set()
    for kind, name in path:
        if kind == "read" and name not in bound:
            found.add(name)
        (bound.add if kind == "bind" else bound.discard)(name) if kind != "read" else None
    return found


@given(flow_graphs())
def test_against_all_paths(blocks: tuple[Block, ...]) -> None:
    for label, live in enumerate(liveness(blocks)):
        assert live == set().union(*map(first_reads, paths(blocks, label, 6)))
    assert maybe_unbound(blocks, []) >= set().union(*map(unbound_reads, paths(blocks, 0, 6)))


def test_blocks_that_nothing_reaches_count_for_nothing() -> None:
    at = Lines()
    blocks = (
        block(at.op("a = const", 1), at.jump(2)),
        block(at.op("b = copy c"), at.jump(2)),
        block(at.give("a")),
    )
    assert maybe_unbound(blocks, []) == set()
