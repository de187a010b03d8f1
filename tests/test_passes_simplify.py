"""Control-flow clean-up by hand, and on what lowering makes; the driver of the passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autobatch.errors import VerifierError
from autobatch.frontend import lower_function
from autobatch.ir.program import Block, Branch, Function, Jump, Raise, Return
from autobatch.ir.verifier import verify
from autobatch.passes import PIPELINE, apply_pass, run_passes, simplify
from tests.building import Lines, block, function, line
from tests.goldens import assert_golden

HERE = line(1)


def shape(made: Function) -> list[str]:
    """The blocks as text: number of operations, modes, and where they go."""
    assert verify(made) == []
    return [_shape(each) for each in made.blocks]


def _shape(each: Block) -> str:
    ops = f"{len(each.ops)}{'*' * len(each.modes)}"
    match each.terminator:
        case Jump(target=target):
            return f"{ops} -> {target}"
        case Branch(then=then, otherwise=otherwise):
            return f"{ops} ? {then} : {otherwise}"
        case Return():
            return f"{ops} return"
        case Raise():
            return f"{ops} raise"
    return f"{ops} call"


def test_the_example_of_the_docstring() -> None:
    at = Lines()
    made = function(
        "f",
        "i, n",
        block(at.jump(1)),
        block(at.op("%1 = lt i, n"), at.branch("%1", 2, 5)),
        block(at.op("i = add i, i"), at.jump(3)),
        block(at.jump(1)),
        block(at.jump(5)),
        block(at.op("%2 = copy i"), at.give("%2")),
    )
    assert shape(simplify(made)) == ["1 ? 1 : 2", "1 -> 0", "1 return"]


def test_a_branch_with_one_way_still_asks() -> None:
    at = Lines()
    made = function("f", "x", block(at.branch("x", 1, 2)), block(at.jump(2)), block(at.give("x")))
    [only] = simplify(made).blocks
    assert [op.name for op in only.ops] == ["truth"]


def branched(other_goes_to: int) -> Function:
    """A branch: one side works, jumps and works again; the other jumps to the given block."""
    at = Lines()
    return function(
        "f",
        "x",
        block(at.op("%1 = copy x"), at.branch("%1", 1, 2)),
        block(at.op("y = copy x"), at.jump(3)),
        block(at.op("z = copy x"), at.jump(other_goes_to)),
        block(at.op("w = copy y"), at.jump(4)),
        block(at.give("x")),
    )


def test_work_behind_a_break_is_not_pulled_into_the_loop() -> None:
    assert shape(simplify(branched(0))) == ["1 ? 1 : 2", "1 -> 3", "1 -> 0", "1 return"]


def test_work_in_a_branch_is_joined_from_afar() -> None:
    assert shape(simplify(branched(4))) == ["1 ? 1 : 2", "2 -> 3", "1 -> 3", "0 return"]


@pytest.mark.parametrize(
    "modes, expected",
    [
        (((), ("m",), ()), ["1 -> 1", "0* -> 2", "1 return"]),
        ((("m",), ("m",), ()), ["1* -> 1", "1 return"]),
        (((), ("m",), ("m",)), ["1 -> 1", "1* return"]),
        (((), (), ()), ["2 return"]),
        ((("m",), (), ("m",)), ["1* -> 1", "0 -> 2", "1* return"]),
        ((("m",), (), ()), ["1* -> 1", "1 return"]),
        ((("m", "x"), ("m",), ("m",)), ["1** -> 1", "1* return"]),
    ],
)
def test_modes_are_entered_and_left_as_before(modes, expected) -> None:
    at = Lines()
    blocks = (
        block(at.op("y = copy x"), at.jump(1)),
        block(at.jump(2)),
        block(at.op("z = copy x"), at.give("x")),
    )
    blocks = tuple(replace(b, modes=names) for b, names in zip(blocks, modes, strict=True))
    assert shape(simplify(function("f", "x, m", *blocks))) == expected


def test_loops_of_nothing() -> None:
    at = Lines()
    circle = function("f", "x", block(at.jump(1)), block(at.jump(0)), block(at.give("x")))
    assert len(simplify(circle).blocks) == 2
    alone = function("f", "x", block(at.jump(0)), block(at.give("x")))
    assert len(simplify(alone).blocks) == 2


def nested(n):
    found = []
    for i in range(n):
        if i % 2:
            if i > 5:
                found.append(i)
                break
            continue

        def inner(k=i):
            while k:
                k -= 1
            return k, i  # noqa: B023

        found.append(inner)
    else:
        return None
    if found:
        pass
    with found:
        pass
    return found


def test_golden_text_of_lowering_and_passes() -> None:
    made = lower_function(nested)
    assert_golden("passes", f"{made}\n\n== after the passes\n\n{run_passes(made)}\n")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("each", PIPELINE)
def test_passes_on_what_they_made(each) -> None:
    """Each pass keeps the rules, and a second run of the pipeline changes nothing."""
    assert verify(apply_pass(each, lower_function(nested))) == []
    once = run_passes(lower_function(nested))
    assert run_passes(once) == once
    assert run_passes(once).live_in == once.live_in
    assert once.nested[0].live_in


def test_the_driver_names_the_pass_that_breaks_a_rule() -> None:
    def loses_return(made: Function) -> Function:
        return replace(made, blocks=(Block((), Jump(0, HERE)),))

    with pytest.raises(VerifierError, match="After loses_return the program is not valid"):
        run_passes(lower_function(nested), [simplify, loses_return])


def with_two_ways(at: Lines, *body: Block) -> Function:
    return function(
        "f",
        "i, n, f",
        block(at.jump(1)),
        block(at.op("%1 = lt i, n"), at.branch("%1", 2, 6)),
        block(at.op("%2 = gt i, n"), at.branch("%2", 3, 4)),
        *body,
        block(at.jump(1)),
        block(at.op("%3 = copy i"), at.give("%3")),
    )


def test_ways_of_a_loop_meet_before_its_next_round() -> None:
    at = Lines()
    ways = [block(at.op("i = add i, i"), at.jump(5)), block(at.op("i = sub i, i"), at.jump(5))]
    made = shape(simplify(with_two_ways(at, *ways)))
    assert made == ["1 ? 1 : 5", "1 ? 2 : 3", "1 -> 4", "1 -> 4", "0 -> 0", "1 return"]


def test_they_do_not_where_a_round_calls() -> None:
    at = Lines()
    ways = [block(at.call("i", "f", "i", 5)), block(at.op("i = sub i, i"), at.jump(5))]
    made = shape(simplify(with_two_ways(at, *ways)))
    assert made == ["1 ? 1 : 4", "1 ? 2 : 3", "0 call", "1 -> 0", "1 return"]
