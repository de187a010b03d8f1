"""Programs from their text: the same program again, whatever is in it, and errors that point."""

from __future__ import annotations

import math
from dataclasses import replace
from textwrap import dedent

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autobatch import ParseError, Program, execute, lower, parse
from autobatch.errors import VerifierError
from autobatch.ir.literals import literal
from autobatch.ir.op_parser import ATTRIBUTES
from autobatch.ir.ops import OPS
from autobatch.ir.program import CallShape, Converted, Handler, Join, Op, Param, UnpackShape
from autobatch.ir.scanner import Line, Text
from tests.building import Lines, block, collatz, function, line
from tests.goldens import assert_golden
from tests.test_ir_printer import outer
from tests.through_text import same


class Point:
    def __init__(self, x):
        self.x = x

    def scaled(self, x):
        return x * self.x


class Scaled(torch.nn.Module):
    def forward(self, x):
        return x if x > 0 else Point(2.0).scaled(x)


def clipped(x, limit=2.0):
    while x.abs() > limit:
        x = x / 2
    return {"x": x, "a b": (x, 1)}


def program_of(*blocks, called=None, **more) -> Program:
    main = function("f", "x", *blocks, **more)
    return Program({"f": main}, "f", called, ("out",))


def with_const(value: object) -> Program:
    at = Lines()
    return program_of(block(at.op("%1 = const", value), at.give("%1")))


@pytest.mark.parametrize("make", [collatz, outer])
def test_by_hand(make):
    main = make()
    same(Program({main.name: main}, main.name, make, ("out",)))


@pytest.mark.parametrize("func", [clipped, Point(2.0).scaled, Scaled()])
@pytest.mark.parametrize("passes", [None, []])
def test_lowered(func, passes):
    same(lower(func, passes=passes))


def test_event_shapes_and_leaves():
    declared = lower(clipped, {"x": (3, None), "limit": ()})
    assert declared.out_vars == ("out.x", "out.a b.0", "out.a b.1")
    assert same(declared).in_shapes == {"x": (3, None), "limit": ()}


FORMS = [
    ("n = floordiv n, %1", None),
    ("%1 = const", 2),
    ("%1 = global", "math"),
    ("setattr x, %1", "scale"),
    ("%1 = getattr x", "no name, but text"),
    ("delete", "x"),
    ("%1 = format x, %2", ""),
    ("%1 = format x, %2", "r"),
    ("a, b, c = unpack x", UnpackShape(1, True, 1)),
    ("%1 = import", ("torch.nn", 0, ("Linear",))),
    ("%1 = tuple", None),
    ("jump = call call, a, b, c, d", CallShape((False, True), ("key", None))),
    ("%1 = fork f", CallShape(())),
    ("%1 = call f, x", CallShape((False,), (), True)),
    ("y = defer x, %1", ("add", None)),
    ("a, b = defer x", ("unpack", UnpackShape(2))),
    ("y = defer f, x, z", ("call", CallShape((True,), ("k",)))),
    ("y = defer x", ("getattr", "shape")),
]


@pytest.mark.parametrize("text, attr", FORMS)
def test_operation(text, attr):
    at = Lines()
    names = "%1, %2, n, f, call, a, b, c, d, y, z, mode"
    main = function("f", f"x, {names}", block(at.op(text, attr), at.give("x")))
    same(Program({"f": main}, "f", None, ("out",)))


LAST = Handler(4, "e")


def test_terminators_clauses_and_converted():
    at = Lines()
    start = block(at.op("mode = global", "m"), at.branch("x", 1, 2))
    straight = Converted((at.op("y = copy x"), at.op("%9 = const", "; = #")), at.jump(4), 2)
    main = function(
        "f",
        "x",
        replace(start, converted=straight),
        replace(
            block(at.call("y", "x", "", 3, CallShape((), (), True)), modes=("mode", "x")),
            handler=LAST,
        ),
        block(Join(4, at.span())),
        block(at.fail("x", "y")),
        block(at.give("x")),
    )
    read = same(Program({"f": main}, "f", None, ("out",)))
    assert read.main.blocks[0].converted == straight
    assert read.main.blocks[1].modes == ("mode", "x") and read.main.blocks[1].handler == LAST
    assert "b1 under mode, x except e -> b4:" in str(read)


@pytest.mark.parametrize(
    "kinds", [(0,), (0, 1), (1, 3), (1, 2, 3, 4), (4,), (0, 0, 1, 1, 3, 3), (2,), (0, 3), ()]
)
@pytest.mark.parametrize("has_default", [False, True])
def test_parameters(kinds, has_default):
    named = ("positional_only", "positional", "var_positional", "keyword_only", "var_keyword")
    made = [
        Param(f"a{i}", named[kind], has_default and kind not in (2, 4))
        for i, kind in enumerate(kinds)
    ]
    at = Lines()
    main = function("f", tuple(made), block(at.op("%1 = const"), at.give("%1")))
    same(Program({"f": main}, "f", None, ("out",)))


def test_nested_functions_stay_where_they_are():
    """Of one name, within each other, and not made by any operation."""
    at = Lines()

    def inner(name, *nested):
        return function(name, "y", block(at.give("y")), nested=nested)

    nested = (inner("g", inner("g"), inner("x@2")), inner("g"), inner("two words", inner("g")))
    used = block(at.op("h = function", nested[1]), at.give("h"))
    main = function("g", "x", used, nested=nested)
    read = same(Program({"g": main, "k#2": inner("k#2", inner("k"))}, "g", None, ("out",)))
    names = [each.name for each in read.main.walk()]
    assert names == ["g", "g", "g", "x@2", "g", "two words", "g"]
    assert read.main.blocks[0].ops[0].attr is read.main.nested[1]


def test_spans_of_several_files_and_lines():
    at = Lines()
    far = replace(line(3), file="/else where/walk.py", end_line=9)
    other = Op("copy", ("y",), ("x",), None, replace(far, file="/else where/my file.py"))
    main = program_of(block(Op("neg", ("x",), ("x",), None, far), other, at.give("x")))
    text = str(same(main))
    assert "# walk.py@2:3:4-9:12" in text and "# my_file.py:3:4-9:12" in text
    assert "walk.py@2 = '/else where/walk.py'" in text


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.complex_numbers(),
        st.text(),
        st.binary(),
        st.just(...),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_literals(value):
    text = literal(value)
    assert "\n" not in text
    at = Line(Text("a text", text), 1, text)
    read = at.value()
    assert at.rest() == "" and literal(read) == text
    if "frozenset" not in text:  # whose own text is in no order
        assert repr(read) == repr(value)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, -0.0, 2**20_000, -(2**20_000), "🐍\u2028"], ids=range(6)
)
def test_literals_at_the_edge(value):
    (op,) = same(with_const(value)).main.blocks[0].ops
    assert literal(op.attr) == literal(value)


def test_objects_have_names_in_a_table():
    point, twin = Point(1), Point(2)
    program = with_const((math.sqrt, point, (twin, point), Point))
    text = str(same(program))
    assert "const (<math.sqrt>, <tests.test_ir_parser.Point object>, " in text
    assert text.endswith(
        "objects\n  <math.sqrt>: imported\n  <tests.test_ir_parser.Point object>: given\n"
        "  <tests.test_ir_parser.Point object>@2: given\n"
        "  <tests.test_ir_parser.Point>: imported"
    )


def test_a_name_that_means_another_object_is_given():
    def impostor(x):
        return x

    impostor.__qualname__ = "clipped"
    program = with_const(impostor)
    text = str(program)
    assert text.endswith("<tests.test_ir_parser.clipped>: given")
    assert parse(text, program.objects) == program
    with pytest.raises(ParseError, match="importing does not give it"):
        parse(text)


def test_an_object_that_is_missing_is_named():
    bound = lower(Point(3.0).scaled)
    with pytest.raises(ParseError) as caught:
        parse(str(bound))
    assert 'autobatch.parse(text, objects={"<tests.test_ir_parser.Point.scaled>": …})' in str(
        caught.value
    )
    gone = str(with_const(math.sqrt)).replace("math.sqrt", "math.squirt")
    with pytest.raises(ParseError, match="has no attribute 'squirt'"):
        parse(gone)
    with pytest.raises(ParseError, match="no module 'maths'"):
        parse(gone.replace("math.squirt", "maths.sqrt"))


def test_given_objects_come_before_imported_ones():
    program = with_const(math.sqrt)
    read = parse(str(program), {"<math.sqrt>": math.cbrt})
    assert read.main.blocks[0].ops[0].attr is math.cbrt


# Text that was written by hand.

BY_HAND = dedent(
    """
    # Halves while it is large.
    program halved -> out

    function halved(x):
      b0:
        %1 = const 1.0
        %2 = gt x, %1
        branch %2 ? b1 : b2
      b1:
        %3 = const 2
        x = truediv x, %3
        jump b0

      b2:
        return x
    """
)


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_text_by_hand_runs(engine):
    program = parse(BY_HAND)
    assert program.callable is None
    (halved,) = execute(program, torch.tensor([0.5, 3.0, 16.0]), engine=engine)
    assert halved.tolist() == [0.5, 0.75, 1.0]
    same(program)


def test_text_by_hand_is_its_own_source():
    program = parse(BY_HAND)
    span = program.main.blocks[1].ops[1].span
    lines = BY_HAND.split("\n")
    assert (span.file, span.line) == ("<program text>", 12)
    assert lines[span.line - 1][span.column : span.end_column] == "x = truediv x, %3"


def test_a_parsed_program_runs_as_the_function():
    program = lower(clipped)
    x = torch.tensor([1.0, 5.0, 100.0])
    limits = torch.tensor([2.0, 1.0, 3.0])
    for read in (parse(str(program)), program):
        results = execute(read, x, limits)
        for leaf, expected in zip(results, execute(lower(clipped), x, limits), strict=True):
            assert torch.equal(leaf, expected)
    scaled = lower(Point(3.0).scaled)
    (result,) = execute(parse(str(scaled), scaled.objects), x)
    assert result.tolist() == [3, 15, 300]


# What is no program.

WRONG = [
    ("program halved", "programme halved"),
    ("program halved -> out", "program halved"),
    ("program halved -> out\n", "\n"),
    ("function halved(x):", "function halved(x:"),
    ("  b1:", "  b2:"),
    ("  b1:", "  b1 over mode:"),
    ("branch %2 ? b1 : b2", "brunch %2 ? b1 : b2"),
    ("branch %2 ? b1 : b2", "branch %2 ? b1, b2"),
    ("branch %2 ? b1 : b2", "branch %2 ? one : b2"),
    ("const 1.0", "const 1.0.0"),
    ("const 1.0", "const one"),
    ("const 1.0", "const <math.sqrt>"),
    ("const 1.0", "const (1.0, 2"),
    ("gt x, %1", "greater x, %1"),
    ("gt x, %1", "gt x,%1"),
    ("gt x, %1", "gt x, %1  # line 3"),
    ("gt x, %1", "function[g] x"),
    ("gt x, %1", "call x(a=x, %1)"),
    ("    jump b0\n", ""),
    ("program halved -> out\n", "program halved -> out\nprogram halved -> out\n"),
    ("function halved(x):", "function halved(x) in outer:"),
    ("    return x", "    return x\n\nfunction halved(x):\n  b0:\n    return x"),
    ("    return x", "    return x\n\nobjects\n  <math.sqrt>: known"),
    ("    return x", "    return x\n\nobjects\n  math.sqrt: imported"),
    ("    return x", "    return x\n\nfiles\n  walk.py: 3"),
]


@pytest.mark.parametrize("right, wrong", WRONG)
def test_errors_point_at_what_is_wrong(right, wrong):
    assert BY_HAND.count(right) == 1
    with pytest.raises(ParseError) as caught:
        parse(BY_HAND.replace(right, wrong))
    error = caught.value
    assert error.filename == "<program text>"
    assert f"line {error.lineno}, column {error.offset}." in str(error)
    assert "^" in str(error)


def test_golden_errors():
    texts = []
    for right, wrong in WRONG:
        with pytest.raises(ParseError) as caught:
            parse(BY_HAND.replace(right, wrong))
        texts.append(str(caught.value))
    assert_golden("parse_errors", "\n\n".join(texts) + "\n")


def test_a_text_that_breaks_a_rule():
    with pytest.raises(VerifierError, match=r"After parsing .*\n(.*\n)*.*rule 14: %9 has no"):
        parse(BY_HAND.replace("return x", "return %9"))


def test_every_operation_can_be_read():
    """A new form of attribute needs a reader."""
    for name, declared in OPS.items():
        if declared.attr:
            assert declared.attr.split()[0].strip("(,:") in ATTRIBUTES, name
