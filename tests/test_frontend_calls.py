"""Which calls end their block, what is known before a run, and programs of many functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import pytest
import torch

from autobatch.frontend import (
    MISSING,
    Resolver,
    lower,
    lower_function,
    lower_program,
    python_function,
    static_attribute,
)
from autobatch.ir.program import Call, Function
from autobatch.ir.verifier import verify
from autobatch.passes import run_passes


def is_program(value: object) -> str:
    value = getattr(value, "__func__", value)
    if isinstance(value, type):
        value = python_function(value) and value.__init__  # type: ignore[misc]
    if isinstance(value, torch.nn.Module) and type(value).__module__ == __name__:
        return "program"
    code = getattr(value, "__code__", None)
    return "program" if code is not None and code.co_filename == __file__ else "opaque"


RESOLVER = Resolver(is_program, frozenset({"sum", "append"}))


def calls(func: Callable[..., Any], **options: Any) -> list[str]:
    """``op`` or ``end`` for each call of the lowered function, in order."""
    function = lower_function(func, RESOLVER, **options)
    assert verify(function) == []
    found = []
    for block in function.blocks:
        found += ["op" for op in block.ops if op.name == "call"]
        found += ["end"] if isinstance(block.terminator, Call) else []
    return found


def helper(x):
    return x


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.own: Any = None

    def forward(self, x):
        x = self.linear(x)
        return x if self.own is None else self.own(x)

    def reads_parameter(self, x):
        return self.linear.weight.t(), self.scaled(x), self.prop(x)

    def scaled(self, x):
        return x

    @property
    def prop(self):
        raise AssertionError("properties are not run by lowering")


class Tree:
    def __init__(self, value):
        self.value = value

    def total(self):
        return self.value

    @staticmethod
    def plain(x):
        return x

    @classmethod
    def make(cls, x):
        return cls(x)


LAYER = Layer()
OUTER = Layer()
OUTER.own = LAYER


def test_known_callees() -> None:
    assert calls(lambda x: torch.sin(x) + math.floor(x) + len(x)) == ["op"] * 3
    assert calls(lambda x: helper(x)) == ["end"]
    assert calls(lambda x: torch.nn.functional.relu(helper(x))) == ["end", "op"]
    assert calls(lambda x: Tree(x)) == ["end"]
    assert calls(lambda x: (Tree.plain(x), Tree.make(x), Tree.total(x))) == ["end"] * 3
    assert calls(lambda x: LAYER(x)) == ["end"]
    assert calls(lambda x: LAYER.linear(x)) == ["op"]


def test_unknown_callees() -> None:
    assert calls(lambda x: x.sum()) == ["op"]
    assert calls(lambda x: x.total()) == ["end"]
    assert calls(lambda f, x: f(x)) == ["end"]
    assert calls(lambda x: unknown_name(x)) == ["end"]  # noqa: F821
    assert calls(lambda fs: fs[0](1)) == ["end"]
    assert calls(lambda x: [helper(y) for helper in x for y in x]) == ["end"]


def test_receiver() -> None:
    assert calls(LAYER.forward) == ["op", "end"]
    assert calls(Layer.forward, receiver=LAYER) == ["op", "end"]
    assert calls(Layer.forward) == ["end", "end"]
    assert calls(LAYER.reads_parameter) == ["op", "end", "end"]


def test_receiver_in_nested_functions() -> None:
    def method(self, x):
        inner = lambda y: self.linear(y)  # noqa: E731
        shadow = lambda self: self.linear(x)  # noqa: E731
        return inner, shadow

    function = lower_function(method, RESOLVER, receiver=LAYER)
    ends = [any(isinstance(b.terminator, Call) for b in f.blocks) for f in function.nested]
    assert ends == [False, True]


def test_local_names_hide_globals() -> None:
    def parameter(helper):
        return helper(1)

    def assigned(x):
        torch = x
        return torch.sin(x)

    def imported(x):
        import math as m  # noqa: PLC0415
        from math import floor  # noqa: PLC0415

        return m.gcd(x), floor(x)

    def reimported(x):
        import math as m  # noqa: PLC0415

        m = x if x else m
        return m.gcd(x)

    assert calls(parameter) == ["end"]
    assert calls(assigned) == ["end"]
    assert calls(imported) == ["op", "op"]
    assert calls(reimported) == ["end"]


def test_closures_are_known_as_they_are_now() -> None:
    found = helper
    unset: Any

    def closure(x):
        return found(x), unset(x)

    assert calls(closure) == ["end", "end"]
    found = math.sin
    assert calls(closure) == ["op", "end"]
    unset = math.cos
    assert calls(closure) == ["op", "op"]


class Careful:
    __slots__ = ("slot",)
    plain = 3

    def __init__(self) -> None:
        self.slot = 4

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("lowering runs no user code")

    @property
    def prop(self) -> Any:
        raise AssertionError("lowering runs no user code")

    def method(self) -> None: ...


class Guarded:
    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("lowering runs no user code")


def test_static_attributes() -> None:
    careful = Careful()
    assert static_attribute(careful, "plain") == 3
    assert static_attribute(careful, "method") == careful.method
    assert static_attribute(careful, "prop") is MISSING
    assert static_attribute(careful, "absent") is MISSING
    assert static_attribute(Guarded(), "x") is MISSING
    assert static_attribute(Careful, "prop") is MISSING
    assert static_attribute(Careful, "method") is Careful.method
    assert static_attribute(SimpleNamespace(x=1), "x") == 1
    assert static_attribute(LAYER, "linear") is LAYER.linear
    assert static_attribute(LAYER.linear, "weight") is LAYER.linear.weight
    assert static_attribute(torch, "sin") is torch.sin
    assert static_attribute([1], "append")([]) is None
    assert static_attribute(Tree, "plain") is Tree.plain
    assert static_attribute(Tree, "make") == Tree.make
    assert static_attribute(Tree(1), "make") == Tree.make


def test_python_functions() -> None:
    assert python_function(helper) == (helper, MISSING)
    assert python_function(LAYER) == (Layer.forward, LAYER)
    assert python_function(LAYER.scaled) == (Layer.scaled, LAYER)
    assert python_function(Tree) == (Tree.__init__, MISSING)
    assert python_function(len) is None
    assert python_function(partial(helper)) is None
    assert python_function(object) is None
    assert python_function(MethodType(len, "abc")) is None


def test_program_holds_each_callee_once() -> None:
    def root(x):
        return even(x), OUTER(x), Tree(x), [helper(y) for y in x], torch.sin(x)

    program = lower_program(root, RESOLVER, transform=run_passes)
    assert program.entry == "root" == next(iter(program.functions))
    assert set(program.functions) == {
        *("root", "even", "odd", "Layer.forward", "Tree.__init__", "helper")
    }
    assert all(name == function.name for name, function in program.functions.items())
    assert all(function.live_in for function in program.functions.values())
    assert program.out_vars == ("out.0", "out.1", "out.2", "out.3", "out.4")
    assert program.in_vars == ("x",)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def make(function):
    def helper(x):
        return function(x)

    return helper


def test_program_names_are_unique() -> None:
    one, two = make(math.sin), make(math.cos)
    assert one.__code__ is two.__code__
    other = lambda x: one(helper(x))  # noqa: E731
    program = lower_program(other, RESOLVER)
    assert list(program.functions) == [
        "<lambda>",
        "helper",
        "helper#2",
    ]


def two(x):
    return x, x


def nested_leaves(x):
    if x:
        return x, {"a": x, "b": [x, (x,)]}
    return 1, {"a": 2, "b": [3, (4,)]}


def uneven(x):
    if x:
        return x, x
    return x, x, x


def falls_off(x):
    if x:
        return x, x


def raises_otherwise(x):
    if x:
        return x, x
    raise ValueError


def starred(x):
    return x, *x


def mixed_keys(x):
    return {"a": x, 1: x}


def doubled_keys(x):
    return {"a": x, "a": x}  # noqa: F601


def empty(x):
    return ()


@pytest.mark.parametrize(
    "func, expected",
    [
        (two, ("out.0", "out.1")),
        (nested_leaves, ("out.0", "out.1.a", "out.1.b.0", "out.1.b.1.0")),
        (uneven, ("out",)),
        (falls_off, ("out",)),
        (raises_otherwise, ("out.0", "out.1")),
        (starred, ("out",)),
        (mixed_keys, ("out",)),
        (doubled_keys, ("out",)),
        (empty, ("out",)),
        (lambda x: (x, (x, x)), ("out.0", "out.1.0", "out.1.1")),
    ],
)
def test_leaves_of_results(func: FunctionType, expected: tuple[str, ...]) -> None:
    assert lower(func).out_vars == expected


def test_functions_without_a_way_out_keep_their_exit() -> None:
    def forever(x):
        while True:
            pass

    def fails(x):
        raise x

    for func in (forever, fails):
        for function in (lower_function(func), run_passes(lower_function(func))):
            assert isinstance(function, Function)
            assert verify(function) == []
