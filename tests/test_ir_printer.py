"""The text of programs: every form of the grammar once, and golden files for whole programs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from autobatch.frontend import lower_program
from autobatch.ir.literals import literal
from autobatch.ir.ops import OPS
from autobatch.ir.program import CallShape, Function, Param, Program, UnpackShape
from autobatch.passes import run_passes
from programs.collatz import collatz as collatz_program
from programs.fibonacci import fibonacci
from programs.gcd import gcd
from programs.mandelbrot import mandelbrot
from tests.building import Lines, block, collatz, function, line
from tests.goldens import assert_golden

FOLDER = str(Path(__file__).parents[1])


def anywhere(program: Program) -> str:
    """The text, wherever the repository is."""
    return str(program).replace(FOLDER, "…")


def outer() -> Function:
    """Two lambdas of one name, boxes, modes, a call and a raise."""
    at = Lines()
    first = function("<lambda>", "y", block(at.give("y")))
    second = function(
        "<lambda>", "", block(at.op("%1 = load_free", "x"), at.give("%1")), free=("x",)
    )
    return function(
        "outer",
        (Param("x", "positional_only", False), Param("scale", "keyword_only", True)),
        block(
            at.op("%x = box x"),
            at.op("f = function", first),
            at.op("g = function %x", second),
            at.op("%1 = load_box %x", "x"),
            at.op("%2 = getattr %1", "shape"),
            at.op("a, rest = unpack %2", UnpackShape(1, True)),
            at.op("%3 = call f, rest", CallShape((True,))),
            at.op("mode = global", "no_grad"),
            at.branch("a", 1, 2),
        ),
        block(at.call("%4", "g", "", 3), modes=("mode",)),
        block(at.op("error = const", "no rows"), at.fail("error")),
        block(at.give("%3")),
        nested=(first, second),
    )


@pytest.mark.parametrize("make", [collatz, outer])
def test_golden(make):
    main = make()
    program = Program({main.name: main}, main.name, make, ("out",))
    assert_golden(f"ir_{main.name}", f"{anywhere(program)}\n")


@pytest.mark.parametrize("func", [collatz_program, fibonacci, gcd, mandelbrot])
def test_golden_programs(func):
    program = lower_program(func, transform=run_passes)
    assert_golden(f"program_{func.__name__}", f"{anywhere(program)}\n")


OPERATIONS = [
    ("n = floordiv n, %1", None, "n = floordiv n, %1"),
    ("%1 = const", 2, "%1 = const 2"),
    ("%1 = const", None, "%1 = const None"),
    ("%1 = const", "a\nb", r"%1 = const 'a\nb'"),
    ("%1 = global", "math", "%1 = global math"),
    ("%1 = getattr x", "shape", "%1 = getattr[shape] x"),
    ("setattr x, %1", "scale", "setattr[scale] x, %1"),
    ("delete", "x", "delete x"),
    ("store_box %x, y", None, "store_box %x, y"),
    ("%1 = format x, %2", "", "%1 = format x, %2"),
    ("%1 = format x, %2", "r", "%1 = format[r] x, %2"),
    ("a, b = unpack x", UnpackShape(2), "a, b = unpack[2] x"),
    ("a, b, c = unpack x", UnpackShape(1, True, 1), "a, b, c = unpack[1, *, 1] x"),
    ("%1 = import", ("torch.nn", 0, ("Linear",)), "%1 = import ('torch.nn', 0, ('Linear',))"),
    ("%1 = tuple", None, "%1 = tuple"),
    (
        "%1 = call f, a, b, c, d",
        CallShape((False, True), ("key", None)),
        "%1 = call f(a, *b, key=c, **d)",
    ),
]


@pytest.mark.parametrize("written, attr, expected", OPERATIONS)
def test_operation(written, attr, expected):
    assert str(Lines().op(written, attr)) == expected


def test_terminators():
    at = Lines()
    assert str(at.jump(3)) == "jump b3"
    assert str(at.branch("%2", 3, 4)) == "branch %2 ? b3 : b4"
    assert str(at.call("%4", "fib", "%3", 2)) == "call fib(%3) -> %4, then b2"
    assert str(at.give("n")) == "return n"
    assert str(at.fail("e")) == "raise e"
    assert str(at.fail("e", "c")) == "raise e from c"


KINDS = ("positional_only", "positional", "var_positional", "keyword_only", "var_keyword")


@pytest.mark.parametrize(
    "kinds, expected",
    [
        ((0,), "a0, /"),
        ((0, 1), "a0, /, a1"),
        ((1, 3), "a0, *, a1"),
        ((1, 2, 3, 4), "a0, *a1, a2, **a3"),
        ((4,), "**a0"),
    ],
)
def test_parameters(kinds, expected):
    parameters = tuple(Param(f"a{i}", KINDS[kind], False) for i, kind in enumerate(kinds))
    text = str(function("f", parameters, block(Lines().give("x"))))
    assert text.startswith(f"function f({expected}):  # walk.py:1:4-12\n")


def test_declared_event_shapes():
    f = function("f", "x, y, z", block(Lines().give("x")))
    shapes = {"x": (), "z": (3, None)}
    text = str(Program({"f": f}, "f", len, ("out",), shapes))
    assert text.startswith("program f of x [], z [3, *] -> out\n\nfunction f(x, y, z):")
    broken = str(Program({"f": f}, "f", len, ("out",), {"x": 3}))
    assert broken.startswith("program f of x 3 -> out\n")


def test_literals():
    assert literal(math.inf) == "1e309"
    assert literal((1, (True,), ...)) == "(1, (True,), ...)"
    assert literal(frozenset({"b", "a"})) == "frozenset({'a', 'b'})"
    assert literal(math.sqrt) == "<math.sqrt>"
    assert literal(object()) == "<builtins.object object>"
    assert literal(line(1)) == literal(line(2)) == "<autobatch.source.Span object>"


def test_text_depends_on_the_records_alone():
    assert str(outer()) == str(outer())


def test_an_operation_of_another_file_says_so():
    at = Lines()
    main = function("f", "x", block(at.give("x")))
    moved = Function(
        "f", main.params, main.blocks, (), main.span.__class__("/else/other.py", 9, 0, 9, 1)
    )
    assert "# walk.py:2:4-12" in str(moved)


def test_every_operation_prints():
    for name in OPS:
        assert name in str(Lines().op(f"%1 = {name} a, b"))
