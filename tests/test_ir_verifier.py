"""One broken program per rule, the programs next to them that are right, and the error's text."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import autobatch
from autobatch import lower, parse
from autobatch.errors import VerifierError
from autobatch.ir.dataflow import liveness
from autobatch.ir.fitting import fitted, misfit
from autobatch.ir.printer import HEADER
from autobatch.ir.program import CallShape, Function, Handler, Join, Op, Param, Program, UnpackShape
from autobatch.ir.verifier import FLOW, FORM, check, verify
from autobatch.passes import apply_pass, stages
from autobatch.source import Span
from tests.building import Lines, block, collatz, function, params
from tests.goldens import assert_golden

AT = Lines()
GIVE = block(AT.give("x"))


def one_op(text: str, attr: object = None) -> Function:
    """A function of x with one operation in its only block."""
    return function("f", "x", block(AT.op(text, attr), AT.give("x")))


def made(nested: Function, args: str, known: bool = True) -> Function:
    boxed = block(AT.op("%x = box x"), AT.op(f"g = function {args}", nested), AT.give("g"))
    return function("f", "x", boxed, nested=(nested,) if known else ())


LAMBDA = function("g", "", block(AT.op("%1 = load_free", "x"), AT.give("%1")), free=("x",))
DEFAULT = function("g", (Param("y", "positional", True),), block(AT.give("y")))
NOWHERE = Span("walk.py", 0, 0, 0, 0)

BROKEN = [
    (1, function("f", "x"), HEADER),
    (2, function("f", "x", block(AT.op("%1 = neg x"), AT.op("%2 = neg x")), GIVE), (0, 1)),
    (3, function("f", "x", block(AT.jump(2)), GIVE), (0, 0)),
    (3, function("f", "x", block(AT.branch("x", 1, -1)), GIVE), (0, 0)),
    (3, function("f", "x", block(AT.call("y", "x", "", 7)), GIVE), (0, 0)),
    (4, function("f", "x", GIVE, GIVE), (0, 0)),
    (4, function("f", "x", block(AT.jump(0))), (0, 0)),
    (5, function("f", "x", block(Op("neg", ("%1",), ("x",), None, NOWHERE), AT.give("x"))), (0, 0)),
    (5, function("f", "x", block(replace(AT.give("x"), span=None))), (0, 0)),
    (5, replace(function("f", "x", GIVE), span=None), HEADER),
    (6, one_op("a b = neg x"), (0, 0)),
    (6, function("f", "x", block(AT.give(""))), (0, 0)),
    (
        6,
        function(
            "f",
            "x",
            block(AT.op("a mode = neg x"), AT.jump(1)),
            block(AT.give("x"), modes=("a mode",)),
        ),
        (1, -1),
    ),
    (7, function("f", "x, x", GIVE), HEADER),
    (7, function("f", (Param("x", "starred", False),), GIVE), HEADER),
    (7, function("f", (Param("x", "var_keyword", False), *params("y")), GIVE), HEADER),
    (8, one_op("%1 = square x"), (0, 0)),
    (9, one_op("%1 = add x"), (0, 0)),
    (9, one_op("%1 = box x, x"), (0, 0)),
    (9, one_op("%1 = dict x, x, x"), (0, 0)),
    (12, one_op("%1 = call", CallShape(())), (0, 0)),
    (10, one_op("%1, %2 = neg x"), (0, 0)),
    (10, one_op("setitem_out = setitem x, x, x"), (0, 0)),
    (10, one_op("a, b, c = unpack x", UnpackShape(2)), (0, 0)),
    (11, one_op("%1 = neg x", "attr"), (0, 0)),
    (11, one_op("%1 = getattr x"), (0, 0)),
    (11, one_op("%1 = call x", "shape"), (0, 0)),
    (11, one_op("a, b = unpack x", 2), (0, 0)),
    (11, one_op("%1 = format x, x", "q"), (0, 0)),
    (11, one_op("%1 = import", "math"), (0, 0)),
    (11, one_op("%1 = function", "g"), (0, 0)),
    (12, one_op("%1 = call x, x", CallShape((False, False))), (0, 0)),
    (12, one_op("%1 = call x, x, x", CallShape((), ("a", "a"))), (0, 0)),
    (12, function("f", "x", block(AT.call("y", "x", "x", 1, CallShape(()))), GIVE), (0, 0)),
    (13, function("f", "x", block(AT.give("x"), handler=Handler(0, "%1"))), (0, 0)),
    (13, function("f", "x", block(Join(1, AT.span()), handler=Handler(1, "%1")), GIVE), (0, 0)),
    (
        13,
        function(
            "f",
            "x",
            block(AT.op("y = fork x", CallShape(())), AT.jump(1), handler=Handler(1, "%1")),
            GIVE,
        ),
        (0, 0),
    ),
    (3, function("f", "x", block(AT.jump(1), handler=Handler(2, "%1")), GIVE), (0, -1)),
    (6, function("f", "x", block(AT.jump(1), handler=Handler(1, "a b")), GIVE), (0, -1)),
    (
        14,
        function(
            "f",
            "x",
            block(AT.op("%1 = neg x"), AT.jump(1), handler=Handler(1, "%2")),
            block(AT.give("%1")),
        ),
        (1, 0),
    ),
    (14, one_op("y = add x, %1"), (0, 0)),
    (14, function("f", "x", block(AT.give("%1"))), (0, 0)),
    (
        14,
        function(
            "f",
            "x",
            block(AT.branch("x", 1, 2)),
            block(AT.op("%1 = neg x"), AT.jump(2)),
            block(AT.op("y = neg %1"), AT.give("y")),
        ),
        (2, 0),
    ),
    (14, function("f", "x", block(AT.op("delete", "%x"), AT.give("%x"))), (0, 1)),
    (15, function("f", "x", block(AT.give("x"), modes=("mode",))), (0, -1)),
    (16, one_op("%1 = load_box x", "x"), (0, 0)),
    (16, one_op("store_box x, x"), (0, 0)),
    (16, function("f", "x", block(AT.op("%x = box x"), AT.give("%x"))), (0, 1)),
    (16, function("f", "x", block(AT.op("%x = box x"), AT.op("y = neg %x"), AT.give("y"))), (0, 1)),
    (16, made(LAMBDA, "x"), (0, 1)),
    (17, one_op("%1 = load_free", "y"), (0, 0)),
    (17, one_op("%1 = free_box", "y"), (0, 0)),
    (18, made(LAMBDA, "%x", known=False), (0, 1)),
    (18, made(LAMBDA, "%x, x"), (0, 1)),
    (18, made(DEFAULT, ""), (0, 1)),
    (19, replace(function("f", "x", GIVE), live_in=(frozenset(),)), (0, -1)),
    (19, replace(function("f", "x", GIVE), live_in=(frozenset("x"),) * 2), HEADER),
]


@pytest.mark.parametrize("rule, broken, place", BROKEN)
def test_broken(rule, broken, place):
    faults = [fault for fault in verify(broken) if fault.function is broken]
    assert {fault.rule for fault in faults} == {rule}, [str(fault) for fault in faults]
    assert place in [fault.place for fault in faults]
    with pytest.raises(VerifierError, match=f"After a test the program .*\n(.*\n)*.*rule {rule}: "):
        check(broken, "a test")


def test_every_rule_of_functions_has_a_broken_program():
    assert {rule for rule, *_ in BROKEN} == FORM.keys() | FLOW.keys()


MAIN = function("f", "x", GIVE)
KEYWORDS = (Param("x", "var_keyword", False),)


@pytest.mark.parametrize(
    "rule, program",
    [
        (20, Program({"f": MAIN}, "g", len, ("out",))),
        (21, Program({"f": MAIN}, "f", len, ())),
        (22, Program({"f": MAIN}, "f", len, ("out",), {"y": (3,)})),
        (22, Program({"f": MAIN}, "f", len, ("out",), {"x": 3})),
        (22, Program({"f": MAIN}, "f", len, ("out",), {"x": (3, -1)})),
        (22, Program({"f": MAIN}, "f", len, ("out",), {"x": (2.0,)})),
        (22, Program({"f": function("f", KEYWORDS, GIVE)}, "f", len, ("out",), {"x": ()})),
        (1, Program({"f": MAIN, "g": function("g", "x")}, "f", len, ("out",))),
    ],
)
def test_broken_program(rule, program):
    assert [fault.rule for fault in verify(program)] == [rule]
    with pytest.raises(VerifierError, match=f"rule {rule}: "):
        check(program, "a test")


def test_declared_event_shapes_that_are_right():
    for shape in ((), (3,), (0, None)):
        assert verify(Program({"f": MAIN}, "f", len, ("out",), {"x": shape})) == []


RIGHT = [
    collatz(),
    replace(collatz(), live_in=liveness(collatz().blocks)),
    made(LAMBDA, "%x"),
    made(DEFAULT, "x"),
    one_op("a, b, c = unpack x", UnpackShape(1, True, 1)),
    one_op("%1 = call x, x, x, x", CallShape((True,), ("a", None))),
    one_op("%1 = import", (".heap", 1, ("cell",))),
    function("unbound", "x", block(AT.give("y"))),
    function("endless", "x", block(AT.jump(0)), block(AT.give("x"))),
    function("unreached", "", block(AT.jump(2)), block(AT.jump(2)), block(AT.give("y"))),
    function("f", "x", block(AT.op("mode = neg x"), AT.jump(1)), block(AT.give("x"), modes=("x",))),
]


@pytest.mark.parametrize("right", RIGHT)
def test_right(right):
    assert verify(right) == []
    check(right, "a test")


def test_faults_of_nested_functions_are_found():
    inner = function("g", "", block(AT.give("%9")))
    outer = made(inner, "")
    assert [(fault.rule, fault.function) for fault in verify(outer)] == [(14, inner)]


def test_golden_report():
    """All faults of all functions in one error, each below what it is about."""
    at = Lines()
    inner = function("g", "y", block(at.op("%1 = add y"), at.give("%1")))
    broken = function(
        "f",
        "x, x",
        block(at.op("%1 = square x"), at.op("g = function", inner), at.branch("x", 1, 9)),
        block(at.give("g")),
        block(at.jump(1)),
        nested=(inner,),
    )
    with pytest.raises(VerifierError) as caught:
        check(broken, "lowering")
    assert_golden("ir_faults", f"{caught.value}\n")


def test_faults_of_form_and_of_flow_are_told_together():
    at = Lines()
    broken = function(
        "f",
        "x, x",
        block(at.op("%1 = add x"), at.op("%2 = neg %8"), at.branch("%9", 1, 2)),
        block(at.give("x")),
        block(at.give("%1"), modes=("mode",)),
    )
    faults = verify(broken)
    assert [fault.rule for fault in faults] == [4, 7, 9, 14, 14, 15]


def test_an_unknown_operation_hides_no_other_fault():
    """What is wrong elsewhere is told with it, and with a wrong number of outs."""
    ops = (AT.op("%1 = square x"), AT.op("%2, %3 = neg %1"), AT.op("%4 = add %3, %9"))
    found = verify(function("f", "x", block(*ops, AT.give("%8"))))
    assert [(fault.rule, fault.place) for fault in found] == [
        (8, (0, 0)),
        (10, (0, 1)),
        (14, (0, 2)),
        (14, (0, 3)),
    ]


def test_a_wrong_attribute_hides_the_flow_only_where_it_tells_of_it():
    ops = (AT.op("%1 = getattr x", None), AT.op("%2 = add %1, %9"))
    found = verify(function("f", "x", block(*ops, AT.give("%2"))))
    assert [(fault.rule, fault.place) for fault in found] == [(11, (0, 0)), (14, (0, 1))]


NEG = AT.op("y = neg %8")
NAMELESS = Op("neg", (None,), ("%8",), None, AT.span())
WRONG = {
    "a target that is no block": (3, block(AT.branch("%8", 1, 7))),
    "a handler that is no block": (3, block(NEG, AT.jump(1), handler=Handler(7, "e"))),
    "a call on to no block": (3, block(AT.call("%9", "x", "%8", 7))),
    "no terminator": (2, block(NEG, NEG)),
    "a name with a blank": (6, block(AT.op("a b = neg %8"), AT.jump(1))),
    "a name that is no text": (6, block(NAMELESS, AT.jump(1))),
    "what is captured": (11, block(AT.op("y = load_free", 3), AT.branch("%8", 1, 1))),
    "what is deleted": (11, block(AT.op("delete", ["y"]), AT.branch("%8", 1, 1))),
    "what is made": (11, block(AT.op("y = function", "g"), AT.branch("%8", 1, 1))),
}


@pytest.mark.parametrize("rule, first", WRONG.values(), ids=WRONG)
def test_nothing_hides_faults_of_the_flow(rule, first):
    """They are told of the ways that there are."""
    then = block(AT.op("%1 = add x, %7"), AT.give("%9"))
    found = [(fault.rule, fault.message[:2]) for fault in verify(function("f", "x", first, then))]
    goes_on = 1 in first.successors()
    assert found == [(rule, found[0][1]), (14, "%8"), *[(14, "%7"), (14, "%9")] * goes_on]


@pytest.mark.parametrize("first", [block(AT.jump(7)), block(AT.op("delete", ["y"]), AT.jump(1))])
def test_nothing_is_told_that_need_not_be_wrong(first):
    """What is read behind a way that is not there, or behind a ``delete`` of nobody knows what."""
    live = (frozenset({"x"}), frozenset({"x", "y"}))
    then = block(AT.op("%1 = add x, y"), AT.give("%1"))
    found = verify(replace(function("f", "x, y", first, then), live_in=live))
    assert [fault.rule for fault in found] == [11 if first.ops else 3]


CALLED = function("g", (*params("x"), Param("y", "positional", True)), GIVE)
ANY = function("g", (Param("y", "var_positional", False), *KEYWORDS), GIVE)
ONLY = function("g", (*params("x"), Param("y", "keyword_only", False)), GIVE)
FITTING = [
    (CALLED, 0, {}, "x is not given"),
    (CALLED, 1, {}, None),
    (CALLED, 2, {}, None),
    (CALLED, 3, {}, "it takes 2 operands by place, and gets 3"),
    (CALLED, 1, {"x": 1}, "x is given twice"),
    (CALLED, 1, {"z": 1}, "it has no z to be given by name"),
    (CALLED, 0, {"y": 1}, "x is not given"),
    (CALLED, 0, {"y": 1, "x": 2}, None),
    (ANY, 3, {"z": 1}, None),
    (ONLY, 1, {}, "y is not given"),
    (ONLY, 2, {"y": 1}, "it takes 1 operands by place, and gets 2"),
    (ONLY, 1, {"y": 1}, None),
]


def calling(callee: Function, shape: CallShape, made: bool = False) -> Program:
    """A program that calls a function, by its name or where it is made."""
    operands = ", ".join(["x"] * (len(shape.positional) + len(shape.keywords)))
    look = AT.op("%1 = function", callee) if made else AT.op("%1 = global", "g")
    start = block(look, AT.call("x", "%1", operands, 1, shape))
    within = {"nested": (callee,)} if made else {}
    main = function("f", "x", start, GIVE, **within)
    return Program({"f": main} if made else {"f": main, "g": callee}, "f", None, ("out",))


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("callee, count, named, why", FITTING)
def test_calls_match_their_functions_parameters(callee, count, named, why, made):
    shape = CallShape((False,) * count, tuple(named))
    if made:
        callee = replace(callee, name="f.g", params=tuple(map(given, callee.params)))
        why = misfit(callee.params, shape)
    program = calling(callee, shape, made)
    found = verify(program)
    if why is None:
        assert found == [] and fitted(program) is program
        return
    assert [(fault.rule, fault.place) for fault in found] == [(23, (0, 1))]
    assert found[0].message.endswith(f": {why}; a call that is to fail is `unfit`")
    said = fitted(program)
    assert verify(said) == [] and " unfit -> x" in str(said)
    assert parse(str(said)) == said


def given(param: Param) -> Param:
    """The same without a default, which a function that is made would need an operand for."""
    return replace(param, has_default=False)


def test_starred_operands_may_fit():
    assert verify(calling(CALLED, CallShape((True,)))) == []
    assert verify(calling(CALLED, CallShape((), (None,)))) == []
    found = verify(calling(CALLED, CallShape((False, False, False, True))))
    assert [fault.rule for fault in found] == [23]


def test_methods_have_their_receiver():
    program = lower(Misfit().run)
    assert [" unfit" in line for line in str(program).splitlines() if "call %" in line] == [
        False,
        True,
        True,
    ]
    assert verify(program) == []


class Misfit:
    def step(self, x):
        return x + 1

    def run(self, x):
        y = self.step(x)
        if x > 10:
            return self.step()
        if x > 5:
            return self.step(x, y)
        return y


def two(x, y):
    while x < 10:
        x = x + y
    return x


def calls_two(x):
    return two(x, 1.0) if x > 0 else two(x, -x)


def test_a_pass_that_breaks_a_call_is_named():
    """Of calls that were sure before; what it lets be known of others is the program's own."""

    def loses_an_operand(function: Function) -> Function:
        if function.name != "two":
            return function
        param, first = function.params[1], function.blocks[0]
        const = AT.op(f"{param.name} = const", 1.0)
        start = replace(first, ops=(const, *first.ops))
        return replace(function, params=function.params[:1], blocks=(start, *function.blocks[1:]))

    with pytest.raises(VerifierError, match="After loses_an_operand the program") as raised:
        list(stages(lower(calls_two), [loses_an_operand]))
    assert str(raised.value).count("rule 23: the call does not fit two(x): it takes 1 ") == 2


def alias(x):
    def step(h, w):
        return h * w

    again = step
    return again(x) if x > 3 else step(x, x)


def test_a_pass_may_tell_what_the_programs_own_misfits_run():
    def knows(function: Function) -> Function:
        def named(block_):
            end = block_.terminator
            is_call = getattr(end, "callee", "") == "again"
            return replace(block_, terminator=replace(end, callee="step")) if is_call else block_

        return replace(function, blocks=tuple(map(named, function.blocks)))

    program = lower(alias, passes=[])
    assert " unfit" not in str(program)
    ((_, after),) = stages(program, [knows])
    assert str(after).count(" unfit") == 1
    inputs = torch.tensor([1.0, 5.0])
    with pytest.raises(TypeError, match=r"step\(\) missing 1 required positional argument: 'w'"):
        autobatch.execute(after, inputs)
    assert autobatch.execute(after, inputs[:1])[0].tolist() == [1.0]


def test_what_has_been_found_right_is_judged_anew_where_it_stands_now():
    """Blocks are judged by themselves once, and the function that they are in when it is new."""
    left, right = collatz(), function("f", "x", block(AT.jump(1)), GIVE)
    assert verify(left) == verify(right) == []
    moved = replace(left, blocks=(*left.blocks[:-1], right.blocks[0]))
    assert 4 in [fault.rule for fault in verify(moved)]
    assert verify(moved) == verify(moved)
    worse = replace(left, blocks=(*left.blocks[:-1], block(AT.op("%1 = add x"), AT.give("x"))))
    assert [(fault.rule, fault.place) for fault in verify(worse)] == [
        (9, (len(left.blocks) - 1, 0))
    ]
    assert verify(replace(left, params=params("n, n")))[0].rule == 7
    assert verify(left) == []


def test_a_pass_that_changes_nothing_gives_the_function_itself():
    """So it is not verified again; a pass that puts another literal of the same value counts."""

    def same(function: Function) -> Function:
        return replace(function, blocks=tuple(function.blocks))

    def floats(function: Function) -> Function:
        start, *others = function.blocks
        ops = tuple(replace(op, attr=1.0) if op.name == "const" else op for op in start.ops)
        return replace(function, blocks=(replace(start, ops=ops), *others))

    one = function("f", "x", block(AT.op("%1 = const", 1), AT.give("%1")))
    assert apply_pass(same, one) is one
    assert type(apply_pass(floats, one).blocks[0].ops[0].attr) is float
