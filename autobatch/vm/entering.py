"""Entering a program function: its code, what it closes over, the cells of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, Literal

from autobatch.batching.binding import bind, by_name, defaults_of
from autobatch.batching.calling import resolving
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.making import handed_on
from autobatch.batching.operations import CAPTURED, Scope
from autobatch.errors import UnsupportedError, placed
from autobatch.frontend import MISSING
from autobatch.random.paths import Paths
from autobatch.values.cells import STATELESS, Cell, Container, Uniform, uniform
from autobatch.vm.code import Code
from autobatch.vm.judgements import Entrance, Judgements
from autobatch.vm.library import Library
from autobatch.vm.nested import Nested
from autobatch.vm.purity import IMPURE, Names, Purity
from autobatch.vm.state import Late

BY_PLACE = ("positional_only", "positional")

Forking = Literal["none", "silent", "drawing"]
"""Which calls may be forked: pure ones, with those that draw or without."""


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """What a call of a program function runs; ``env`` holds its parameters.

    ``paths`` are where its rows draw, if there is a seed; ``late`` is for what may wait for calls
    that it forks, if it is a forked call itself; ``names`` gives what its names mean.
    """

    code: Code
    scope: Scope
    env: dict[str, Cell]
    purity: Purity = IMPURE
    paths: Paths | None = None
    late: Late | None = None
    names: Callable[[], Names] | None = None


def entered(
    library: Library,
    context: Context,
    target: resolving.Target,
    forking: Forking = "none",
    judgements: Judgements | None = None,
    inlines: bool = False,
) -> Entry:
    """A call of a program function, its arguments bound; ``RowsFail`` where they do not fit.

    ``forking``: which of its calls run as fork-join calls, as ``judgements`` have it; ``inlines``:
    what it calls is inlined first, loops and all.
    """
    try:
        code, scope, env = begun(library, target, judgements)
    except TypeError as error:
        raise RowsFail(context.lowest(), error) from error
    except UnsupportedError as error:
        raise placed(error, context.span) from None
    within: object = target.callee
    receiver: object = MISSING
    names: Callable[[], Names]
    if isinstance(target.callee, Container):
        within = scope.namespace
        names = partial(library.names_within, Nested(target.callee.static[0], scope.namespace))
    else:
        receiver = receiver_in(target.args)
        names = partial(Names.of, target.callee, receiver)
    if inlines:
        code = library.with_loops_inside(code, names())
    if forking == "none" or judgements is None:
        return Entry(code, scope, env, names=names)
    forked = judgements.with_forks(code, within, receiver, forking == "drawing", names)
    purity = IMPURE if code.has_effects else forked.purity
    return Entry(forked, scope, env, purity, names=names)


def begun(
    library: Library, target: resolving.Target, judgements: Judgements | None
) -> tuple[Code, Scope, dict[str, Cell]]:
    """What ``opened`` gives, in short where a call gives each parameter by its place."""
    entrance = entrance_of(library, target, judgements)
    if entrance is None or target.kwargs or len(target.args) != len(entrance.params):
        return opened(library, target)
    return entrance.code, entrance.scope, dict(zip(entrance.params, target.args, strict=True))


def entrance_of(
    library: Library, target: resolving.Target, judgements: Judgements | None
) -> Entrance | None:
    """What calls of a Python function begin with that give each parameter by its place."""
    if judgements is None or type(target.callee) is not FunctionType:
        return None
    found: Entrance | None = judgements.entrance(
        target.callee, lambda: entrance_to(library, target)
    )
    return found


def entrance_to(library: Library, target: resolving.Target) -> Entrance | None:
    code, scope, _ = entered_function(library, target)
    params = code.function.params
    plain = all(param.kind in BY_PLACE for param in params)
    captured = any(isinstance(box, Cell) for box in scope.free.values())
    names = tuple(param.name for param in params)
    return Entrance(code, scope, names) if plain and not captured else None


def opened(library: Library, target: resolving.Target) -> tuple[Code, Scope, dict[str, Cell]]:
    """What a call runs, and the variables that it begins with; ``TypeError`` as Python has it."""
    if isinstance(target.callee, Container):
        code, scope, defaults = entered_closure(library, target.callee)
    else:
        code, scope, defaults = entered_function(library, target)
    params = code.function.params
    env = bind(params, scope.title, target.args, target.kwargs, defaults)
    for param in params:
        if param.kind == "var_positional":
            env[param.name] = Cell(Container(tuple, list(env[param.name])))
        elif param.kind == "var_keyword":
            env[param.name] = Cell(Container(dict, dict(env[param.name])))
    captured = {name: box for name, box in scope.free.items() if isinstance(box, Cell)}
    if captured:
        env[CAPTURED] = Cell(Container(dict, captured))
    return code, scope, env


def entered_closure(library: Library, closure: Container) -> tuple[Code, Scope, dict[str, Cell]]:
    """A function that the program made, with its boxes and defaults."""
    lowered, namespace, title = closure.static
    if lowered.yields is not None:  # a batch of generators
        raise handed_on(lowered, lowered.span)
    cells = list(closure.children())
    boxes = zip(lowered.free, cells, strict=False)
    free: Any = {name: getattr(cell.value, "obj", cell) for name, cell in boxes}
    scope = Scope(lowered, namespace, lowered.title_in(title), free)
    defaults = by_name(lowered.params, cells[len(lowered.free) :])
    return library.code_for(lowered), scope, defaults


def entered_function(
    library: Library, target: resolving.Target
) -> tuple[Code, Scope, dict[str, Cell]]:
    """A Python function, with its closure and its defaults as they are now."""
    function = target.callee
    code = library.code_of(function, *receiver_of(target) or module_of(target))
    closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    scope = Scope(code.function, function.__globals__, function.__qualname__, dict(closure))
    given = defaults_of(function, code.function.params)
    return code, scope, {name: uniform(value, shared=True) for name, value in given.items()}


def receiver_of(target: resolving.Target) -> tuple[Any, ...]:
    """The first argument, where it is an object that existed before the call."""
    receiver = receiver_in(target.args)
    return () if receiver is MISSING else (receiver,)


def module_of(target: resolving.Target) -> tuple[Any, ...]:
    """The first argument, where it is a module that has been given parameters, without these.

    Lowering may go by it, as by a receiver: what a call of a part of it is, an operation or the end
    of a block, is the shape of the text only, and the text serves modules that are called as well.
    """
    value = target.args[0].value if target.args else None
    given = type(value) is Container and value.type is STATELESS
    return (value.static[0],) if given else ()  # type: ignore[union-attr]


def receiver_in(args: Sequence[Cell]) -> object:
    """The same among arguments; ``MISSING`` where it is no such object."""
    value = args[0].value if args else None
    return value.obj if type(value) is Uniform and value.shared else MISSING
