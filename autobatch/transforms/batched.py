"""What a call of a transform means for the group of threads that makes it.

In: a callee that is or makes a transform, and the cells of its arguments, the function first.
Out: the cell of the result. ``grad(f)`` within a program gives a bound method of the transform and
``f``, so it reads what ``f`` has captured when it is called, as in Python.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autobatch.batching.context import Context
from autobatch.batching.host.rows import ANY_EFFECT, run_rows
from autobatch.batching.operators import once
from autobatch.batching.trace import Untraceable
from autobatch.batching.trees import NotATree, contents, tree_of
from autobatch.options import own_options
from autobatch.transforms import jacobians, loops
from autobatch.transforms.captured import held
from autobatch.transforms.derivatives import gradient, pullback, pulled, pushed
from autobatch.transforms.mapping import loop_options, mapped, own_option_here
from autobatch.transforms.records import (
    DIRECT,
    GRADIENTS,
    TORCH,
    Pull,
    Transform,
    kind_of,
    transform_of,
)
from autobatch.transforms.runs import Call
from autobatch.values.cells import METHOD, Cell, Container, Uniform, read


def call(context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    """A call of a transform, or of what makes one."""
    if context.forecasts is not None and kind_of_call(callee) not in GRADIENTS:
        raise Untraceable("it runs a program function")
    if isinstance(callee, Transform):
        return transformed(Call(context, callee, args[0], args[1:], kwargs))
    if isinstance(callee, Pull):
        return pulled_back(context, callee, args, kwargs)
    kind = kind_of(callee)
    if kind in DIRECT and args:
        done = direct(Call(context, callee, args[0], args[1:], kwargs), kind)
        if done is not None:
            return done
    elif kind is not None:
        made = maker(context, callee, args, kwargs)
        if made is not None:
            return made
    return run_rows(context, callee, args, kwargs, ANY_EFFECT, keep=True, effect=True, fresh=False)


def kind_of_call(callee: Any) -> str | None:
    """Which transform a callee is or makes; None for a pullback."""
    return callee.kind if isinstance(callee, Transform) else kind_of(callee)


def pulled_back(context: Context, pull: Pull, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    """A call of what ``vjp`` returns: thread by thread where the threads' functions are unlike."""
    given = read(args[0])
    if type(given) is Container and len(args) == 2 and not kwargs:
        function, *primals = given.children()
        whole = Call(context, pull.flat, function, [*primals, args[1]], {})
        with held(context, args[:1]):  # the run of ``vjp`` has written what is to be written
            return pulled(whole, pull)
    whole = Call(context, pull, args[0], args[1:], kwargs)
    return whole.by_thread("it pulls back by functions of several kinds")


def transformed(call: Call) -> Cell:
    """A call of what a transform has made."""
    assert isinstance(call.callee, Transform)
    kind, options = call.callee.kind, call.callee.options()
    match kind:
        case "grad" | "grad_and_value" | "value_and_grad":
            return gradient(call, options, kind)
        case "jacrev":
            return jacobians.reverse(call, options)
        case "jacfwd":
            return jacobians.forward(call, options)
        case "hessian":
            return jacobians.second(call, options)
    assert kind == "vmap", kind
    return mapped(call, options)


def direct(call: Call, kind: str) -> Cell | None:
    """``vjp``, ``jvp``, ``pfor`` and ``map_fn``; None where their arguments do not fit."""
    if kind in LOOPS:
        return loop(call, kind)
    given = {name: read(cell) for name, cell in call.kwargs.items()}
    if not all(type(value) is Uniform and type(value.obj) is bool for value in given.values()):
        return None
    options = {name: value.obj for name, value in given.items()}  # type: ignore[union-attr]
    has_aux, strict = options.pop("has_aux", False), options.pop("strict", False)
    if kind == "vjp" and not options and call.args:
        return pullback(call, has_aux)
    if kind == "jvp" and not options and len(call.args) == 2:
        return pushed(call, strict, has_aux)
    return None


LOOPS = {"pfor": (loops.counted, "n"), "map_fn": (loops.over_elements, "elems")}
"""What loops mean, and what the argument after their function is called."""


def loop(call: Call, kind: str) -> Cell | None:
    """``pfor`` and ``map_fn``: a batch of its own for each thread where an option is to hold there.

    All others are those of the call that the program is run by.
    """
    meaning, name = LOOPS[kind]
    given = call.args or [call.kwargs[name]] if name in call.kwargs or call.args else []
    if len(given) != 1:
        return None
    try:
        named = {key: tree_of(cell, None) for key, cell in call.kwargs.items() if key != name}
    except NotATree:
        return call.by_thread("its options differ by thread")
    options = loop_options(kind, getattr(read(call.function), "obj", None), named)
    apart = own_option_here(call.context, options)
    if apart:
        return call.by_thread(f"it has {apart} of its own")
    return meaning(replace(call, args=given, kwargs={}), options["randomness"])


def maker(context: Context, make: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``grad(f)`` and the like; None where no function is given, or an option differs by thread."""
    if not args:
        return None
    options: list[Any] = []
    contents([*args[1:], *kwargs.values()], options.append)
    if not all(type(value) is Uniform for value in options):
        return None
    try:
        given = tuple(tree_of(arg, None) for arg in args[1:])
        named = {name: tree_of(cell, None) for name, cell in kwargs.items()}
    except NotATree:
        return None
    if kind_of(make) == "vmap" and make not in TORCH:
        own = own_options(getattr(read(args[0]), "obj", None))
        if len(given) > 2:  # randomness, by its place
            own.pop("randomness", None)
        named = own | named
    once(context, lambda: make(placeholder, *given, **named))  # an option that is wrong is told
    return Cell(Container(METHOD, [args[0]], transform_of(make, given, named)))


def placeholder(*args: Any, **kwargs: Any) -> Any:
    """Stands for a function while options are looked at."""
    raise AssertionError("nothing calls it")
