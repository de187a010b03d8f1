"""The definitional interpreter on programs written by hand: frames, boxes, modes, limits, notes."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any

import pytest
import torch

import autobatch
from autobatch.errors import DepthLimitError, StepLimitError
from autobatch.ir.program import CallShape, Function, Param
from autobatch.ir.verifier import verify
from autobatch.vm.sequential import interpreter
from autobatch.vm.sequential.frames import Closure
from autobatch.vm.steps import Steps
from tests.building import Lines, block, collatz, function
from tests.one_thread import run_thread
from tests.oracle import assert_matches_loop


def runs(made: Function, *args: Any, code: Any = None, **options: Any) -> Any:
    """The result of a function without captured variables; ``code`` lends its module."""
    assert verify(made) == []
    code = code or (lambda *args, **kwargs: None)
    return run_thread(made, code, args, **options)


def test_loop_and_branches():
    assert [runs(collatz(), n) for n in (1, 2, 7, 27)] == [0, 1, 16, 111]


def test_arguments_and_defaults():
    at = Lines()
    parameters = (Param("a", "positional", False), Param("b", "keyword_only", True))
    pair = function("pair", parameters, block(at.op("%1 = tuple a, b"), at.give("%1")))

    def code(a: int, *, b: int = 5) -> None: ...

    assert run_thread(pair, code, (1,)) == (1, 5)
    assert run_thread(pair, code, (), {"b": 2, "a": 3}) == (3, 2)
    with pytest.raises(TypeError, match=r"code\(\) missing 1 required positional argument: 'a'"):
        run_thread(pair, code)


def fib_function() -> Function:
    at = Lines()
    return function(
        "fib",
        "n",
        block(at.op("%1 = const", 2), at.op("%2 = le n, %1"), at.branch("%2", 1, 2)),
        block(at.op("out = const", 1), at.jump(5)),
        block(
            at.op("f = global", "fib"),
            at.op("%3 = const", 1),
            at.op("%4 = sub n, %3"),
            at.call("%5", "f", "%4", 3),
        ),
        block(at.op("%6 = sub n, %1"), at.call("%7", "f", "%6", 4)),
        block(at.op("out = add %5, %7"), at.jump(5)),
        block(at.give("out")),
    )


def fib(n: int) -> int:
    raise AssertionError("the lowered function is to run")


def test_recursion_by_lookup():
    made = fib_function()
    lookup = {fib: made}.get
    assert [run_thread(made, fib, (n,), lookup=lookup) for n in (1, 6, 10)] == [1, 8, 55]
    with pytest.raises(AssertionError, match="the lowered function is to run"):
        run_thread(made, fib, (6,))
    with pytest.raises(DepthLimitError, match="deeper than max_depth=4"):
        run_thread(made, fib, (9,), lookup=lookup, max_depth=4)
    with pytest.raises(StepLimitError, match="more than max_steps=20 block executions"):
        run_thread(made, fib, (9,), lookup=lookup, steps=Steps(max_steps=20))


def countdown() -> Function:
    at = Lines()
    return function(
        "down",
        "n",
        block(at.branch("n", 1, 2)),
        block(
            at.op("f = global", "down"),
            at.op("%1 = const", 1),
            at.op("n = isub n, %1"),
            at.call("n", "f", "n", 2),
        ),
        block(at.give("n")),
    )


def down(n: int) -> int:
    return n


def test_recursion_deeper_than_pythons_stack():
    made = countdown()
    assert run_thread(made, down, (9_000,), lookup={down: made}.get) == 0


def counter() -> Function:
    """A nested function over a box that the outer one changes after it was made."""
    at = Lines()
    inner = function(
        "inner",
        (Param("y", "positional", False), Param("scale", "positional", True)),
        block(
            at.op("%1 = load_free", "x"),
            at.op("%2 = mul %1, scale"),
            at.op("%3 = add %2, y"),
            at.give("%3"),
        ),
        free=("x",),
    )
    return function(
        "outer",
        "x",
        block(
            at.op("%x = box x"),
            at.op("%1 = const", 10),
            at.op("g = function %x, %1", inner),
            at.op("%2 = const", 7),
            at.op("store_box %x, %2"),
            at.call("%3", "g", "%1", 1),
        ),
        block(at.op("%4 = tuple %3, g"), at.give("%4")),
        nested=(inner,),
    )


def test_closures_share_boxes_and_are_python_callables():
    value, inner = runs(counter(), 1)
    assert value == 7 * 10 + 10
    assert isinstance(inner, Closure)
    assert inner(1, scale=2) == 15
    assert inner.__name__ == "inner"
    assert sorted([3, 1], key=inner) == [1, 3]
    assert functools.reduce(inner, [1, 2]) == 7 * 2 + 1
    with pytest.raises(TypeError, match=r"inner\(\) takes from 1 to 2 positional arguments"):
        inner(1, 2, 3)


def captured(x: Any) -> FunctionType:
    def code() -> Any:
        return x

    return code


def test_captured_variables_are_the_real_cells():
    at = Lines()
    inner = function("code", "", block(at.op("%1 = load_free", "x"), at.give("%1")), free=("x",))
    assert run_thread(inner, captured(3)) == 3

    def empty() -> FunctionType:
        def code() -> Any:
            return x

        return code
        x = 1

    with pytest.raises(NameError, match="cannot access free variable 'x' where it is not"):
        run_thread(inner, empty())


def test_unbound_variables():
    at = Lines()
    unbound = function("f", "x", block(at.op("y = neg z"), at.give("y")))
    with pytest.raises(UnboundLocalError, match="cannot access local variable 'z' where"):
        runs(unbound, 1)
    deleted = function("f", "x", block(at.op("delete", "x"), at.give("x")))
    with pytest.raises(UnboundLocalError, match="cannot access local variable 'x' where"):
        runs(deleted, 1)
    absent = function("f", "", block(at.op("x = global", "absent"), at.give("x")))
    with pytest.raises(NameError, match="name 'absent' is not defined"):
        runs(absent)


def under_a_mode() -> Function:
    at = Lines()
    return function(
        "f",
        "mode, g",
        block(at.jump(1)),
        block(at.call("%1", "g", "mode", 2), modes=("mode",)),
        block(at.op("%2 = neg %1"), at.jump(3), modes=("mode",)),
        block(at.give("%2")),
    )


def test_modes_last_until_the_call_of_their_block_has_returned():
    seen: list[bool] = []

    def g(manager: Any) -> int:
        seen.append(torch.is_grad_enabled())
        return 1

    assert runs(under_a_mode(), torch.no_grad(), g) == -1
    assert seen == [False]
    assert torch.is_grad_enabled()


def test_with_as_gives_what_entering_gives():
    at = Lines()
    made = function(
        "f",
        "mode",
        block(at.op("%1 = enter mode"), at.jump(1)),
        block(at.op("%2 = neg %1"), at.jump(2), modes=("mode",)),
        block(at.give("%1")),
    )

    class Gives(torch.no_grad):
        def __enter__(self) -> Any:
            super().__enter__()
            return 3

    assert runs(made, Gives()) == 3
    assert torch.is_grad_enabled()


def test_modes_reach_lowered_callees():
    at = Lines()
    asks = function(
        "asks",
        "_",
        block(
            at.op("%1 = global", "torch"),
            at.op("%2 = getattr %1", "is_grad_enabled"),
            at.op("%3 = call %2", CallShape(())),
            at.op("%4 = pos %3"),
            at.give("%4"),
        ),
    )

    def code(_: Any) -> bool:
        return torch.is_grad_enabled()

    assert runs(under_a_mode(), torch.no_grad(), code, lookup={code: asks}.get) == 0
    assert runs(under_a_mode(), torch.enable_grad(), code, lookup={code: asks}.get) == -1
    assert torch.is_grad_enabled()


def test_modes_are_left_by_exceptions():
    with pytest.raises(ZeroDivisionError):
        runs(under_a_mode(), torch.no_grad(), lambda _: 1 // 0)
    assert torch.is_grad_enabled()


def test_an_exception_is_noted_once_with_its_chain_and_operands():
    at = Lines()
    inner = function("inner", "x, y", block(at.op("%1 = matmul x, y"), at.give("%1")))
    outer = function(
        "outer",
        "x, y",
        block(at.op("f = function", inner), at.call("%1", "f", "x, y", 1)),
        block(at.give("%1")),
        nested=(inner,),
    )
    with pytest.raises(RuntimeError) as caught:
        runs(outer, torch.ones(3), torch.ones(4), threads=(5,))
    (note,) = caught.value.__notes__
    assert [text for text in note.splitlines() if "line" in text] == [
        '  File "/somewhere/walk.py", line 5: called here',
        '  File "/somewhere/walk.py", line 2',
    ]
    assert "Operands: float32 [3], float32 [4]" in note
    assert "Example index: 5" in note


def test_a_failure_below_an_opaque_call_is_noted_once():
    at = Lines()
    key = function("key", "x", block(at.op("%1 = invert x"), at.give("%1")))
    outer = function(
        "outer",
        "xs",
        block(
            at.op("f = function", key),
            at.op("%1 = global", "sorted"),
            at.op("%2 = call %1, xs, f", CallShape((False,), ("key",))),
            at.give("%2"),
        ),
        nested=(key,),
    )
    assert runs(outer, [1, 3, 2]) == [3, 2, 1]
    with pytest.raises(TypeError) as caught:
        runs(outer, [1, "a"])
    (note,) = caught.value.__notes__
    assert "line 6: called here" in note


def test_what_opaque_code_catches_leaves_no_trace():
    at = Lines()
    fails = function("fails", "", block(at.op("%1 = global", "absent"), at.give("%1")))
    outer = function(
        "outer",
        "attempt",
        block(
            at.op("f = function", fails),
            at.op("%1 = call attempt, f", CallShape((False,))),
            at.op("%2 = neg %1"),
            at.give("%2"),
        ),
        nested=(fails,),
    )

    def attempt(f: Any) -> Any:
        with pytest.raises(NameError):
            f()
        return "a"

    with pytest.raises(TypeError, match="bad operand type for unary -") as caught:
        runs(outer, attempt)
    assert "line 6" in caught.value.__notes__[0]


def test_raise_from():
    at = Lines()
    both = function("f", "x, y", block(at.fail("x", "y")), block(at.give("x")))
    with pytest.raises(ValueError, match="late") as caught:
        runs(both, ValueError("late"), KeyError("early"))
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ValueError):
        runs(both, ValueError, None)
    with pytest.raises(TypeError, match="exceptions must derive from BaseException"):
        runs(both, 3, None)
    with pytest.raises(StopIteration):
        runs(both, StopIteration, None)


def test_methods():
    class Walker:
        scale = 3

        def step(self, x: int) -> int:
            raise AssertionError("the lowered function is to run")

    at = Lines()
    step = function("step", "self, x", block(at.op("%1 = getattr self", "scale"), at.give("%1")))
    outer = function(
        "outer",
        "w, x",
        block(at.op("%1 = getattr w", "step"), at.call("%2", "%1", "x", 1)),
        block(at.give("%2")),
    )
    assert runs(outer, Walker(), 1, lookup={Walker.step: step}.get) == 3


def test_relative_and_plain_imports():
    at = Lines()
    made = function(
        "f",
        "",
        block(
            at.op("%1 = import", ("torch.nn", 0, ())),
            at.op("%2 = import", ("errors", 1, ("AutobatchError",))),
            at.op("%3 = import_from %2", "AutobatchError"),
            at.op("%4 = tuple %1, %3"),
            at.give("%4"),
        ),
    )
    code = eval("lambda: None", {"__name__": "autobatch.x", "__package__": "autobatch"})
    module, error = runs(made, code=code)
    assert module is torch
    assert error.__name__ == "AutobatchError"


def test_the_interpreter_is_short_enough_to_be_the_definition():
    assert len(inspect.getsource(interpreter).splitlines()) < 150


def test_a_shared_argument_deeper_than_pythons_stack():
    deep = torch.zeros(())
    for _ in range(2000):
        deep = [deep]

    def innermost(x, tree):
        while isinstance(tree, list):
            tree = tree[0]
        return tree.add_(x)

    xs = torch.tensor([1.0, 2.0])
    result = autobatch.vmap(innermost, in_dims=(0, None), engine="sequential")(xs, deep)
    assert torch.equal(result, xs)
    while isinstance(deep, list):
        deep = deep[0]
    assert deep == 0


class Scale:
    def __init__(self) -> None:
        self.by = 2.0

    def times(self, x, more=0):
        return x * self.by + more


SCALE = Scale()
PARTIAL = functools.partial(SCALE.times, 2)


def by_partials(x):
    own = functools.partial(SCALE.times, x)
    return own() + own(5) + functools.partial(Scale.times, SCALE, x, more=3)() + PARTIAL(x)


def test_partials_of_methods():
    assert_matches_loop(by_partials, (torch.arange(3.0),))


def powers(x, n):
    y = x.to_dense()
    while n > 0:
        y = torch.sparse.mm(x, y)
        n = n - 1
    return y


def test_rows_of_sparse_tensors():
    xs = torch.stack([torch.eye(2) * n for n in range(4)]).to_sparse()
    assert_matches_loop(powers, (xs, torch.tensor([2, 0, 3, 1])))


def sums_of_parts(x):
    total = x.sum()
    if total > 2:
        return (x * 2).sum()
    return total + x.to_dense().sum() * 0


def made_sparse(x):
    y = (x.to_dense() + 1).to_sparse()
    return y.sum() if x.sum() > 2 else (y * 2).to_dense().sum()


def test_sums_of_sparse_rows_meet_others():
    xs = torch.stack([torch.eye(2) * n for n in range(4)]).to_sparse()
    assert_matches_loop(sums_of_parts, (xs,))
    assert_matches_loop(made_sparse, (xs,))
