"""``torch.func`` on functions that a program makes: ``grad(lambda w: loss(w, x))``.

What such a function has captured may differ by thread. It is lifted: its captured values become
operands of the one batched call, and the Python function is made of them under vmap. A transform
of it (``grad(f)``) is kept as what it stands for until it is called, so that it reads what its
captured variables are then. ``None`` says that this cannot be done: a function with effects, or
with Python numbers or functions of each thread among what it has captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch import Tensor

from autobatch.batching import torch_ops
from autobatch.batching.callees import is_hashable
from autobatch.batching.context import Context
from autobatch.batching.levels import DrawError
from autobatch.batching.rows import ANY_EFFECT, run_rows
from autobatch.batching.trees import contents, tree_of
from autobatch.vm.values import BOX, CLOSURE, METHOD, UNSET, Cell, Column, Container, Uniform, read

TRANSFORMS = (
    *(torch.func.grad, torch.func.grad_and_value, torch.func.hessian),
    *(torch.func.jacfwd, torch.func.jacrev, torch.func.vmap),
)
"""Functions of ``torch.func`` that take a function and give one."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """``transform(f, *args, **named)``, as a function of ``f`` and the arguments of its call."""

    transform: Callable[..., Any]
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    __autobatch__ = "torch"

    def __call__(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.transform(f, *self.args, **dict(self.named))(*args, **kwargs)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A function without what it has captured; ``inner`` are the functions among that, by place."""

    static: Any
    inner: dict[int, Form]


@dataclass(frozen=True, slots=True, eq=False)
class Lifted:
    """``function`` of operands of which some are the captured values of a function, in a tuple."""

    function: Callable[..., Any]
    forms: tuple[Form | None, ...]
    make: Callable[[Any, tuple[Any, ...]], Any]

    @property
    def __name__(self) -> str:
        named = self.function.transform if isinstance(self.function, Transformed) else self.function
        return str(named.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        whole = [
            arg if form is None else self.remade(form, arg)
            for form, arg in zip(self.forms, args, strict=True)
        ]
        return self.function(*whole, **kwargs)

    def remade(self, form: Form, captured: tuple[Any, ...]) -> Any:
        parts = [
            self.remade(form.inner[place], part) if place in form.inner else part
            for place, part in enumerate(captured)
        ]
        count = len(form.static[0].free)
        boxes = (part if isinstance(part, CellType) else CellType(part) for part in parts[:count])
        return self.make(form.static, (*boxes, *parts[count:]))


def call(context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    """A call of torch's with functions of the program among its operands."""
    if is_transform(callee):
        made = transformed(callee, args, kwargs)
        if made is not None:
            return made
    elif takes_functions(callee):
        whole = lifted(context, callee, args)
        if whole is not None:
            return torch_ops.apply(context, *whole, kwargs, False)
    if has_effects(context, args):
        drawing = Drawing(callee, context.randomness)
        return run_rows(
            context, drawing, args, kwargs, ANY_EFFECT, keep=True, effect=True, fresh=False
        )
    return torch_ops.apply(context, callee, args, kwargs, False)


class Drawing:
    """A call for one thread that may draw: under "same" each draws what the first one does."""

    def __init__(self, function: Callable[..., Any], randomness: str) -> None:
        self.function, self.randomness = function, randomness
        named = function.transform if isinstance(function, Transformed) else function
        self.__name__ = self.__qualname__ = getattr(named, "__name__", type(named).__name__)
        self.state: Tensor | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.randomness == "different":
            return self.function(*args, **kwargs)
        before = torch.get_rng_state()
        if self.state is not None:
            torch.set_rng_state(self.state)
        elif self.randomness == "same":
            self.state = before
        result = self.function(*args, **kwargs)
        if self.randomness == "error" and not torch.equal(before, torch.get_rng_state()):
            torch.set_rng_state(before)
            raise DrawError(torch_ops.draw_message(self))
        return result


def is_transform(callee: Any) -> bool:
    return any(callee is each for each in TRANSFORMS)


def takes_functions(callee: Any) -> bool:
    """Whether it is one of ``torch.func``'s that call a function and give no other."""
    return isinstance(callee, Transformed) or getattr(callee, "__module__", "") == "torch.func"


def transformed(callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """What a transform of a program's function gives; the function's variables are as they are."""
    options: list[Any] = []
    contents([*args[1:], *kwargs.values()], options.append)
    if not is_closure(args[0]) or not all(type(value) is Uniform for value in options):
        return None
    named = tuple((name, tree_of(cell, None)) for name, cell in kwargs.items())
    meaning = Transformed(callee, tuple(tree_of(arg, None) for arg in args[1:]), named)
    if not is_hashable(meaning):  # a list or dict among the options, which may still change
        return None
    return Cell(Container(METHOD, [args[0]], meaning))


def lifted(context: Context, callee: Any, args: list[Cell]) -> tuple[Lifted, list[Cell]] | None:
    """The call of ``callee`` with what its functions have captured among the operands."""
    forms: list[Form | None] = []
    operands: list[Cell] = []
    for arg in args:
        form, operand = opened(context, arg) if is_closure(arg) else (None, arg)
        if operand is None:
            return None
        forms.append(form)
        operands.append(operand)
    return Lifted(callee, tuple(forms), context.closure), operands


def opened(
    context: Context, closure: Cell, outer: tuple[Container, ...] = ()
) -> tuple[Form | None, Cell | None]:
    """A function without what it has captured, and that, its defaults last, as one tuple."""
    value = read(closure)
    assert type(value) is Container
    if any(value is each for each in outer) or not context.is_pure(value.static):
        return None, None
    inner: dict[int, Form] = {}
    parts = list(map(unboxed, value.children()))
    for place, part in enumerate(parts):
        if is_closure(part):
            form, operand = opened(context, part, (*outer, value))
            if form is None or operand is None:
                return None, None
            inner[place], parts[place] = form, operand
        elif not is_liftable(part):
            return None, None
    return Form(value.static, inner), Cell(Container(tuple, parts))


def unboxed(cell: Cell) -> Cell:
    """What a captured variable's box holds; a default as it is."""
    value = read(cell)
    if type(value) is not Container or value.type is not BOX:
        return cell
    content: Cell = value.cells[0]
    return content


def has_effects(context: Context, args: list[Cell]) -> bool:
    """Whether the program's functions among the operands may change what they did not make."""
    reached: dict[int, Container] = {}
    reach(args, reached)
    functions = [value for value in reached.values() if value.type is CLOSURE]
    return not all(context.is_pure(function.static) for function in functions)


def reach(cells: Iterable[Cell], found: dict[int, Container]) -> None:
    """Note the functions, boxes and builtin containers that cells lead to."""
    for cell in cells:
        value = read(cell)
        if type(value) is not Container or id(value) in found:
            continue
        if value.type in (BOX, CLOSURE, list, tuple, dict):
            found[id(value)] = value
            reach(value.children(), found)


def is_closure(cell: Cell) -> bool:
    value = read(cell)
    return type(value) is Container and value.type is CLOSURE


def is_liftable(cell: Cell) -> bool:
    """Whether it is one thing as an operand and as what a function has captured."""
    leaves: list[Any] = []
    contents([cell], leaves.append)
    return all(
        leaf.tag == "tensor"
        if type(leaf) is Column
        else type(leaf) is Uniform and leaf.obj is not UNSET
        for leaf in leaves
    )
