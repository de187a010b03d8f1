"""Calls: from the cell of a callee to what is called with what, and the calls that stay in a block.

``resolve`` unwraps bound methods, partials, modules and callable instances. A ``Target`` whose
effect is ``program`` or ``construct`` needs the engine; ``run`` does all others.
"""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from autobatch.batching import (
    arithmetic,
    builtins,
    catching,
    guards,
    introspection,
    iteration,
    methods,
    modules,
    packed,
    rowwise,
    seeding,
    segments,
    stateless,
    torch_ops,
    writes,
)
from autobatch.batching.callees import (
    gives_operand,
    has_tensor,
    in_place_option,
    is_code,
    is_fresh,
    is_hashable,
    is_used_up,
    refuse_backward,
    refuse_optimizer,
    updated,
)
from autobatch.batching.context import Context
from autobatch.batching.effects import READ_ONLY, effect_of, has_library_base
from autobatch.batching.kinds import generated_init, is_instance
from autobatch.batching.operators import once
from autobatch.batching.rows import ANY_EFFECT, run_rows
from autobatch.batching.unseen import watched
from autobatch.forms import meant
from autobatch.transforms import batched as transforms
from autobatch.transforms.records import is_torchs, made_of
from autobatch.vm import packs
from autobatch.vm.values import (
    CLOSURE,
    METHOD,
    STATELESS,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A call laid open: ``callee`` is a Python callable, or the container of a closure."""

    effect: str
    callee: Any
    args: list[Cell]
    kwargs: dict[str, Cell]

    def given(self, args: list[Cell], kwargs: dict[str, Cell]) -> Target:
        """The same call with more arguments."""
        return Target(self.effect, self.callee, [*self.args, *args], {**self.kwargs, **kwargs})


def resolve(callee: Cell, args: list[Cell], kwargs: dict[str, Cell]) -> Target:
    """What calling ``callee`` runs."""
    value = read(callee)
    match value:
        case Container(type=kind, cells=cells, static=function) if kind is METHOD:
            return resolve_object(function, [*cells, *args], kwargs)
        case Container(type=kind) if kind is CLOSURE:
            return Target("program", value, args, kwargs)
        case Container(type=kind) if kind is STATELESS:
            effect, run_by, first = stateless.target(value)
            if effect == "program":
                return resolve_object(run_by, [callee, *args], kwargs)
            return Target(effect, run_by, [*first, *args], kwargs)
        case Container(type=kind) if is_instance(value) and callable(
            getattr(kind, "__call__", None)  # noqa: B004
        ):
            return resolve_object(kind.__call__, [callee, *args], kwargs)
        case Uniform(obj=obj):
            return resolve_object(obj, args, kwargs)
        case Objects():
            return Target("objects", callee, args, kwargs)
    return Target("host", not_callable, [callee, *args], kwargs)


def not_callable(obj: Any, *args: Any, **kwargs: Any) -> Any:
    return obj(*args, **kwargs)


def resolve_object(obj: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Target:
    made = made_of(obj)
    if made is not None:
        function = Cell(Uniform(made.function, shared=True))
        return Target("transform", made.transform, [function, *args], kwargs)
    wrapped = meant(obj)
    if wrapped is not obj and not is_torchs(obj):  # which hands attributes on
        return resolve_object(wrapped, args, kwargs)
    if type(obj) is types.FunctionType:
        return Target(effect_of(obj), obj, args, kwargs)
    if isinstance(obj, partial):
        given = [Cell(Uniform(arg, shared=True)) for arg in obj.args]
        named = {name: Cell(Uniform(arg, shared=True)) for name, arg in obj.keywords.items()}
        return resolve_object(obj.func, [*given, *args], {**named, **kwargs})
    effect: str = effect_of(obj)
    if isinstance(obj, nn.Module) and effect != "program" and modules.writes_argument(obj):
        effect = "chain" if modules.is_chain(obj) else "write"
    if effect != "program":
        return Target(effect, obj, args, kwargs)
    if isinstance(obj, types.MethodType):
        return resolve_object(obj.__func__, [uniform(obj.__self__, shared=True), *args], kwargs)
    if isinstance(obj, nn.Module):
        return module_target(obj, args, kwargs)
    if isinstance(obj, type):
        return Target("construct", obj, args, kwargs)
    if not isinstance(obj, types.FunctionType):
        return resolve_object(type(obj).__call__, [uniform(obj, shared=True), *args], kwargs)
    return Target("program", obj, args, kwargs)


def module_target(module: nn.Module, args: list[Cell], kwargs: dict[str, Cell]) -> Target:
    """What calling a module with parts of the user's own runs."""
    if modules.has_hooks(module):
        return Target("hooked", module, args, kwargs)
    if modules.is_chain(module):
        return Target("chain", module, args, kwargs)
    return resolve_object(type(module).forward, [uniform(module, shared=True), *args], kwargs)


PYTHON = (types.FunctionType, types.MethodType)


def run(context: Context, target: Target) -> Cell:
    """A call of what is no program function."""
    given = context.contributions
    if given is None or not given.written:
        return performed(context, target)
    cells = [*target.args, *target.kwargs.values()]
    return watched(
        context, target.effect, target.callee, cells, partial(performed, context, target)
    )


def performed(context: Context, target: Target) -> Cell:
    callee, args, kwargs = target.callee, target.args, target.kwargs
    match target.effect:
        case "chain" if len(args) == 1 and not kwargs:
            return modules.run_chain(context, callee.children(), args[0])
        case "hooked":
            return modules.run_hooked(context, callee, args, kwargs)
        case "transform":
            return transforms.call(context, callee, args, kwargs)
    if context.paths is not None:
        seeding.check_generator(context, target.effect, kwargs)
        drawn = seeding.python_draw(context, callee, args, kwargs)
        if drawn is not None:
            return drawn
    if target.effect in ("host", "unknown") or type(callee) in PYTHON:
        refuse_optimizer(context, callee)
        guards.refuse_writes(context, callee, args, kwargs)
    given = [*args, *kwargs.values()]
    if any(packs.is_packed(read(cell)) for cell in given):
        done = packed_call(context, target, given)
        if done is not None:
            return done
    done = special_call(context, callee, args, kwargs)
    if done is not None:
        return done
    match target.effect:
        case "torch" | "draw":
            return torch_call(context, target)
        case "write":
            return writes.write(context, callee, args, kwargs)
    if isinstance(callee, type) and issubclass(callee, BaseException):
        return catching.made(context, callee, args, kwargs)
    if target.effect == "host" and not any(map(may_write, given)):
        return host_call(context, target)
    keep = callee not in READ_ONLY if is_hashable(callee) else True
    context.foreign.note(getattr(callee, "__self__", None))
    return run_rows(context, callee, args, kwargs, ANY_EFFECT, keep=keep, effect=True, fresh=False)


def may_write(cell: Cell) -> bool:
    """Whether it is a function that writes to what it is called with: ``map(list.append, …)``."""
    value = read(cell)
    obj = value.obj if type(value) is Uniform else None
    is_function = callable(obj) and not isinstance(obj, type | nn.Module)
    return is_function and effect_of(obj) in ("write", "unknown")


def torch_call(context: Context, target: Target) -> Cell:
    """A function or module of torch's, or what draws."""
    callee, args, kwargs = target.callee, target.args, target.kwargs
    draws = target.effect == "draw"
    if callee is torch.func.functional_call and not draws:
        out = stateless.called(context, args, kwargs)
        if out is not None:
            return out
    refuse_backward(context, callee)
    if isinstance(callee, nn.Module) and modules.keeps_statistics(callee):
        what = "the running statistics of a BatchNorm"
        raise writes.shared_write(context, what, modules.KEEP_NONE)
    if "out" in kwargs:
        return writes.write_out(context, callee, args, kwargs, draws)
    if in_place_option(callee, args, kwargs):
        return writes.write(context, callee, args, kwargs)
    written = updated(callee, args, kwargs) if is_hashable(callee) else []
    if written:
        if any(map(writes.is_outside, written)):
            raise writes.shared_write(context, "a tensor")
        return run_rows(context, callee, args, kwargs, "it writes to operands", True, effect=False)
    result = torch_ops.apply(context, callee, args, kwargs, draws)
    return modules.own_parts(callee, args, result) if type(callee) in PYTHON else result


def host_call(context: Context, target: Target) -> Cell:
    """A function without effects that is not torch's: once, as arithmetic, or row by row."""
    callee, args, kwargs = target.callee, target.args, target.kwargs
    guards.refuse_iterators(context, callee, args, kwargs)
    cells = [*args, *kwargs.values()]
    if all(type(read(cell)) is Uniform for cell in cells) and not any(map(is_code, cells)):
        names, count = list(kwargs), len(args)
        return once(
            context,
            lambda *objs: callee(*objs[:count], **dict(zip(names, objs[count:], strict=True))),
            *[read(cell).obj for cell in cells],  # type: ignore[union-attr]
            receiver=getattr(callee, "__self__", None),
            meaning=callee,
        )
    done = arithmetic.apply(context, callee, callee, args) if not kwargs else None
    if done is not None:
        return done
    keep = any(map(is_used_up, cells)) or (gives_operand(callee) and any(map(has_tensor, cells)))
    fresh = is_fresh(callee)
    return run_rows(context, callee, args, kwargs, "no batched form", keep=keep, fresh=fresh)


def packed_call(context: Context, target: Target, cells: list[Cell]) -> Cell | None:
    """A call with tensors of different lengths; None for one that is to go on as it is."""
    callee, args, kwargs = target.callee, target.args, target.kwargs
    hashable = is_hashable(callee)
    if hashable:
        done = packed.call(context, callee, args, kwargs)
        if done is not None or takes_packed(callee):
            return done
    pure = target.effect in ("torch", "draw") and "out" not in kwargs
    if (pure or gives_value(callee)) and not in_place_option(callee, args, kwargs):
        for rule in (rowwise.apply, segments.apply) if pure and hashable else ():
            done = rule(context, callee, args, kwargs)
            if done is not None:
                return done
        return packed.lent(context, cells, lambda: run(context, target))
    packed.unpack(context, cells)
    return None


def takes_packed(callee: Any) -> bool:
    """Whether its batched meaning knows packed values: iteration, types, methods of lists."""
    if callee in iteration.HANDLERS:
        return callee not in (list, tuple)
    return callee in introspection.HANDLERS or getattr(callee, "__objclass__", None) in (list, dict)


def gives_value(callee: Any) -> bool:
    """Whether a builtin only looks at a tensor, and gives no part of it back."""
    return any(
        callee is known for known in (abs, sum, any, all, int, float, bool, str, repr, round)
    )


def special_call(
    context: Context, callee: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """Callees that have a batched meaning of their own."""
    if not is_hashable(callee):
        return None
    handler = builtins.HANDLERS.get(callee)
    if handler is not None:
        return handler(context, args, kwargs)
    if callee is PLAIN_NEW and len(args) == 1 and not kwargs:
        return blank(read(args[0]))
    if callee is NO_INIT and len(args) == 1 and not kwargs and is_instance(read(args[0])):
        return uniform(None)
    if args and not kwargs and getattr(callee, "__objclass__", None) in (list, dict):
        return methods.method(context, callee, args[0], args[1:])
    if isinstance(callee, type) and issubclass(callee, tuple) and hasattr(callee, "_fields"):
        return named_tuple(context, callee, args, kwargs)
    if args and getattr(callee, "__name__", "") in ("_replace", "_asdict"):
        return of_named_tuple(callee, args, kwargs)
    if args and getattr(callee, "__objclass__", None) in (int, float, bool):
        value = read(args[0])
        if type(value) is Column and value.tag != "tensor" and not kwargs:
            return arithmetic.apply(context, callee, callee, args)
    return None


def blank(kind: Any) -> Cell | None:
    """``object.__new__(C)``: an instance that has no attributes yet."""
    made = kind.obj if type(kind) is Uniform else None
    if not isinstance(made, type) or effect_of(made) != "program" or not is_plain_class(made):
        return None
    return Cell(Container(made, {}))


def named_tuple(
    context: Context, kind: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``Point(x, y)``: a tuple of cells with names."""
    if getattr(kind.__new__, "__module__", "").startswith("namedtuple_") is False:
        return None
    defaults = {name: uniform(value, shared=True) for name, value in kind._field_defaults.items()}
    fields = dict(zip(kind._fields, args, strict=False))
    given = {**defaults, **fields, **kwargs}
    if (
        len(args) > len(kind._fields)
        or set(given) != set(kind._fields)
        or set(fields) & set(kwargs)
    ):
        once(context, lambda: kind(*[None] * len(args), **dict.fromkeys(kwargs)))
    return Cell(Container(kind, [given[name] for name in kind._fields]))


def of_named_tuple(callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``point._replace(x=1)`` and ``point._asdict()`` of a tuple of cells with names."""
    value = read(args[0])
    fields = getattr(value.type, "_fields", None) if type(value) is Container else None
    if fields is None or len(args) > 1 or not set(kwargs) <= set(fields):
        return None
    parts = dict(zip(fields, value.children(), strict=True))  # type: ignore[union-attr]
    if callee is value.type._replace:  # type: ignore[union-attr]
        return Cell(Container(value.type, list({**parts, **kwargs}.values())))  # type: ignore[union-attr]
    if callee is value.type._asdict and not kwargs:  # type: ignore[union-attr]
        return Cell(Container(dict, dict(parts)))
    return None


def partition(callee: Cell) -> list[tuple[list[int], Cell]]:
    """Rows by what they call, for callees that differ by thread: the rows and their callee."""
    value = read(callee)
    assert type(value) is Objects
    groups: dict[tuple[int, int], list[int]] = {}
    for row, item in enumerate(value.items):
        given, function = taken_apart(item)
        groups.setdefault((id(function), len(given)), []).append(row)
    parts: list[tuple[list[int], Cell]] = []
    for rows in groups.values():
        receivers, functions = zip(*(taken_apart(value.items[row]) for row in rows), strict=True)
        if functions[0] is value.items[rows[0]]:
            parts.append((rows, uniform(functions[0], shared=True)))
        else:
            own = [Cell(Objects(list(column))) for column in zip(*receivers, strict=True)]
            parts.append((rows, Cell(Container(METHOD, own, functions[0]))))
    return parts


def taken_apart(item: Any) -> tuple[tuple[Any, ...], Any]:
    """The function of a method, of an instance that can be called or of a partial call.

    With what it is given first: the receiver, the arguments.
    """
    if isinstance(item, partial) and not item.keywords:
        given, function = taken_apart(item.func)
        return (*given, *item.args), function
    if isinstance(item, types.MethodType):
        return (item.__self__,), item.__func__
    owner = getattr(item, "__self__", None)
    if isinstance(item, types.BuiltinMethodType) and not isinstance(
        owner, types.ModuleType | type | None
    ):
        return (owner,), getattr(type(owner), item.__name__)
    if not isinstance(item, (*PYTHON, type, nn.Module, partial)) and effect_of(item) == "program":
        return (item,), type(item).__call__
    return (), item


PLAIN_NEW: Any = object.__new__
NO_INIT: Any = object.__init__


def is_plain_class(kind: type) -> bool:
    """Whether instances can be containers of cells: no base that keeps state of its own."""
    if type(kind).__call__ is not type.__call__ or kind.__new__ is not PLAIN_NEW:
        return False
    return not has_library_base(kind)


def only_holds(kind: Any) -> bool:
    """Whether to build an instance of a class is to hold what is given: no code of its own runs."""
    if not isinstance(kind, type) or effect_of(kind) != "program":
        return False
    if issubclass(kind, tuple):
        made = getattr(kind.__new__, "__module__", "")
        plain = type(kind).__call__ is type.__call__ and kind.__init__ is object.__init__
        return plain and hasattr(kind, "_fields") and made.startswith("namedtuple_")
    if not is_plain_class(kind) or not generated_init(kind) or hasattr(kind, "__post_init__"):
        return False
    factories = {field.default_factory for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return factories <= {dataclasses.MISSING, list, dict}


def dataclass_fields(
    context: Context, kind: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> dict[str, Cell]:
    """The attributes that a generated ``__init__`` sets."""
    fields = [field for field in dataclasses.fields(kind) if field.init]
    names = [field.name for field in fields if not field.kw_only]
    if len(args) > len(names) or not {*kwargs} <= {field.name for field in fields}:
        once(context, lambda: kind(*[None] * len(args), **dict.fromkeys(kwargs)))
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    attributes: dict[str, Cell] = {}
    for field in dataclasses.fields(kind):
        if field.name in given:
            attributes[field.name] = given[field.name]
        elif field.default is not dataclasses.MISSING:
            attributes[field.name] = uniform(field.default, shared=True)
        elif field.default_factory is not dataclasses.MISSING:
            made = resolve_object(field.default_factory, [], {})
            attributes[field.name] = context.invoke(context, made.callee, [], {})
        elif field.init:
            once(context, lambda: kind(*[None] * len(args), **dict.fromkeys(kwargs)))
    return attributes
