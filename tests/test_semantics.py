"""What operations mean for one example, held to Python's own expressions, exceptions included."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autobatch.batching.binding import bind, defaults_of
from autobatch.batching.operations import FRAMED
from autobatch.batching.semantics import SEMANTICS, TAKES_ATTR, apply, load_global
from autobatch.ir.ops import BINARY, COMPARE, OPS, UNARY
from autobatch.ir.program import CallShape, Param, UnpackShape

VALUES = [0, 3, -2, 2.5, True, None, "ab", [1, 2], (3,), {1: 2}, {1}, torch.tensor([1.0, 2.0])]


def outcome(run: Any, *args: Any) -> Any:
    """The result, or the exception's type and message."""
    try:
        return run(*args)
    except Exception as error:
        return type(error), str(error)


def same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return isinstance(actual, torch.Tensor) and torch.allclose(actual, expected, equal_nan=True)
    return type(actual) is type(expected) and actual == expected


def test_the_table_is_complete():
    """What has no meaning in operands alone has one in the frame, or waits for the join."""
    assert OPS.keys() == SEMANTICS.keys() | FRAMED.keys() | {"fork", "defer"}
    assert not SEMANTICS.keys() & (FRAMED.keys() | {"fork", "defer"})
    assert SEMANTICS.keys() >= TAKES_ATTR


@pytest.mark.parametrize("name, sign", [(n, doc.removesuffix("x")) for n, doc in UNARY.items()])
def test_unary(name, sign):
    python = eval(f"lambda x: {sign}x")
    for value in VALUES:
        assert same(outcome(apply, name, None, (value,)), outcome(python, value))


@pytest.mark.parametrize("name, sign", [*BINARY.items(), *COMPARE.items()])
def test_binary(name, sign):
    python = eval(f"lambda x, y: x {sign} y")
    for x, y in itertools.product(VALUES, VALUES):
        assert same(outcome(apply, name, None, (x, y)), outcome(python, x, y)), (x, y)


@pytest.mark.parametrize("name, sign", BINARY.items())
def test_augmented(name, sign):
    """In place where Python is, on fresh operands for each side."""
    scope: dict[str, Any] = {}
    exec(f"def python(x, y):\n    x {sign}= y\n    return x", scope)
    for x, y in itertools.product([3, 2.5, [1], {1}, "a"], [2, [4], {5}, "b", 1.5]):
        first, second = (list(x), list(x)) if isinstance(x, list) else (x, x)
        actual = outcome(apply, f"i{name}", None, (first, y))
        assert same(actual, outcome(scope["python"], second, y))
        assert first == second
    x = torch.ones(2)
    alias = x
    assert apply("iadd", None, (x, 1)) is x
    assert alias.tolist() == [2.0, 2.0]


SHAPES = ["a,", "a, b", "*a,", "a, *b", "*a, b", "a, *b, c, d"]


@pytest.mark.parametrize("targets", SHAPES)
@pytest.mark.parametrize("value", [(), (1,), [1, 2], "abc", {1: 2, 3: 4}, range(9), 7, None])
def test_unpack(targets, value):
    names = [name.strip() for name in targets.split(",") if name.strip()]
    star = next((i for i, name in enumerate(names) if name.startswith("*")), None)
    plain = ", ".join(name.lstrip("*") for name in names)
    scope: dict[str, Any] = {}
    exec(f"def python(x):\n    {targets} = x\n    return ({plain},)", scope)
    shape = UnpackShape(len(names))
    if star is not None:
        shape = UnpackShape(star, True, len(names) - star - 1)
    assert outcome(apply, "unpack", shape, (value,)) == outcome(scope["python"], value)


def test_unpack_takes_no_more_than_python():
    items = iter(range(9))
    with pytest.raises(ValueError, match="too many"):
        apply("unpack", UnpackShape(2), (items,))
    assert next(items) == 3
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        apply("unpack", UnpackShape(2), (torch.tensor(1),))


def show(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


CALLS = [
    ("f(a, b)", CallShape((False, False)), (1, 2)),
    ("f(*a, b)", CallShape((True, False)), ([1, 2], 3)),
    ("f(a, k=b)", CallShape((False,), ("k",)), (1, 2)),
    ("f(**a, **b)", CallShape((), (None, None)), ({"x": 1}, {"y": 2})),
    ("f(**a, **b)", CallShape((), (None, None)), ({"x": 1}, {"x": 2})),
    ("f(x=a, **b)", CallShape((), ("x", None)), (1, {"x": 2})),
    ("f(*a, **b)", CallShape((True,), (None,)), (7, {})),
    ("f(*a, **b)", CallShape((True,), (None,)), ((), [])),
    ("f(a, **b)", CallShape((False,), (None,)), (1, {2: 3})),
]


@pytest.mark.parametrize("text, shape, operands", CALLS)
def test_call(text, shape, operands):
    python = eval(f"lambda f, a, b: {text}")
    assert outcome(apply, "call", shape, (show, *operands)) == outcome(python, show, *operands)
    assert outcome(apply, "call", shape, (len, *operands))[0] is TypeError


def test_displays_and_text():
    assert apply("dict", None, ("a", 1, "b", 2, "a", 3)) == {"a": 3, "b": 2}
    assert apply("tuple", None, (1, 2)) == (1, 2)
    assert apply("set", None, ()) == set()
    assert apply("slice", None, (1, None, 2)) == slice(1, None, 2)
    assert apply("join", None, ("a", "b")) == "ab"
    assert apply("format", "r", ("a", ">5")) == f"{'a'!r:>5}"
    assert apply("format", "", (2.5, ".2f")) == "2.50"
    grown = [1]
    apply("extend", None, (grown, (2, 3)))
    apply("append", None, (grown, 4))
    assert (grown, apply("to_tuple", None, (grown,))) == ([1, 2, 3, 4], (1, 2, 3, 4))
    python = eval("lambda x: [*x]")
    assert outcome(apply, "extend", None, ([], 3)) == outcome(python, 3)
    python = eval("lambda x: {**x}")
    assert outcome(apply, "update", None, ({}, 3)) == outcome(python, 3)


def test_boxes_are_cells():
    box = apply("box", None, (1,))
    assert apply("load_box", "x", (box,)) == 1
    apply("store_box", None, (box, 2))
    assert box.cell_contents == 2
    with pytest.raises(UnboundLocalError, match="cannot access local variable 'x' where"):
        apply("load_box", "x", (apply("box", None, ()),))


def test_iteration_ends():
    items = apply("iter", None, ([5],))
    assert apply("next", None, (items,)) == (5, True)
    assert apply("next", None, (items,))[1] is False


def test_names_of_modules():
    assert load_global({"x": 1}, "x") == 1
    assert load_global({}, "len") is len
    assert load_global({"__builtins__": {"len": 3}}, "len") == 3
    with pytest.raises(NameError, match=r"^name 'absent' is not defined$"):
        load_global(globals(), "absent")
    assert apply("import_from", "nn", (torch,)) is torch.nn
    with pytest.raises(ImportError, match="cannot import name 'absent' from 'torch'"):
        apply("import_from", "absent", (torch,))


SIGNATURES = [
    "def f(a, b=5): return (a, b)",
    "def f(a, /, b, *, c=1, d): return (a, b, c, d)",
    "def f(*a, b=2, **c): return (a, b, c)",
    "def f(a=1, /, *b): return (a, b)",
    "def f(): return ()",
]


@pytest.mark.parametrize("source", SIGNATURES)
@given(
    args=st.lists(st.integers(), max_size=4),
    kwargs=st.dictionaries(st.sampled_from("abcde"), st.integers(), max_size=3),
)
def test_binding(source, args, kwargs):
    """Values and messages are those of a Python function of the same parameters."""
    scope: dict[str, Any] = {}
    exec(source, scope)
    f = scope["f"]
    kinds = {0: "positional_only", 1: "positional", 2: "var_positional"}
    kinds |= {3: "keyword_only", 4: "var_keyword"}
    params = tuple(
        Param(p.name, kinds[int(p.kind)], p.default is not p.empty)
        for p in inspect.signature(f).parameters.values()
    )

    def bound(*args: Any, **kwargs: Any) -> Any:
        return tuple(bind(params, "f", args, kwargs, defaults_of(f, params)).values())

    assert outcome(lambda: bound(*args, **kwargs)) == outcome(lambda: f(*args, **kwargs))
