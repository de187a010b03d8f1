"""Calls that stay in a block: what is called is no program function (see ``resolving``).

In: a ``Target`` whose effect is neither ``program`` nor ``construct``, which need the engine. Out:
the cell of what it gives: of torch's functions by batched kernels, of callees that have a batched
meaning of their own by that, of all others thread by thread.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import partial
from operator import methodcaller
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

from autobatch.batching import arithmetic, builtins, guards, outs, writes
from autobatch.batching.arity import fits
from autobatch.batching.calling import modules, seeding, stateless
from autobatch.batching.calling.resolving import PYTHON, Target
from autobatch.batching.containers import iteration, methods
from autobatch.batching.containers.callees import (
    gives_back,
    in_place_option,
    is_code,
    is_fresh,
    is_hashable,
    is_used_up,
    makes_by_code,
    refuse_backward,
    refuse_optimizer,
    refuse_tensor_hook,
)
from autobatch.batching.context import Context
from autobatch.batching.effects import (
    MUTATING_METHODS,
    READ_ONLY,
    effect_of,
    is_generated_init,
    is_inplace_name,
)
from autobatch.batching.host import catching, suspended
from autobatch.batching.host.getters import method_called
from autobatch.batching.host.rower import own_memory
from autobatch.batching.host.rows import ANY_EFFECT, OWN_PARTS, run_rows
from autobatch.batching.kinds import is_instance
from autobatch.batching.marking import Spared, custom_function, is_marking
from autobatch.batching.objects import introspection
from autobatch.batching.objects.classes import (
    NO_INIT,
    PLAIN_NEW,
    blank,
    filled,
    named_tuple,
    of_named_tuple,
)
from autobatch.batching.operators import once
from autobatch.batching.refused_draws import looking, makes_modules
from autobatch.batching.seldom_draws import is_drawing
from autobatch.batching.sharing import TO_ARRAYS
from autobatch.batching.switching import refuse_switch
from autobatch.batching.tables import packed, rules, writing
from autobatch.batching.tables.joins import packed_cells
from autobatch.batching.tensors import torch_ops
from autobatch.batching.trace.recorder import refuse_hidden
from autobatch.batching.unseen import watched
from autobatch.batching.updates import updated
from autobatch.structure import own_attribute
from autobatch.transforms import batched as transforms
from autobatch.values.cells import (
    CLOSURE,
    METHOD,
    PARTIAL,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    read,
    uniform,
)

OWN_WRITES = frozenset(
    [
        *(list.append, list.extend, list.insert, list.pop, list.remove, list.reverse, list.clear),
        *(list.sort, set.add, set.update, set.discard, set.remove, set.pop, set.clear),
        *(dict.update, dict.setdefault, dict.pop, dict.popitem, dict.clear),
    ]
)
"""Methods that write to nothing but a thread's own list, dict or set."""


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
    if "generator" in kwargs:
        context.services.shows()
    match target.effect:
        case "generator":
            return suspended.call(context, target)
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
        refuse_switch(context.span, callee, target.entered)
        refuse_optimizer(context, callee)
        guards.refuse_writes(context, callee, args, kwargs)
    given = [*args, *kwargs.values()]
    found = packed_cells(callee, given) if is_hashable(callee) else packed_cells(None, given)
    if found:
        done = packed_call(context, target, found)
        if done is not None:
            return done
    elif target.effect == "torch" and "out" not in kwargs and rules.are_ragged(given):
        known = is_hashable(callee) and not writes_operands(callee, args, kwargs)
        done = rules.apply(context, callee, args, kwargs) if known else None
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
    if is_hashable(callee) and callee in OWN_WRITES and not kwargs:
        writes.refuse_foreign(context, args[0], "{}")
        return run_rows(context, callee, args, {}, OWN_PARTS, keep=True, fresh=False, once=True)
    keep = callee not in READ_ONLY if is_hashable(callee) else True
    context.foreign.note(own_attribute(callee, "__self__"))
    why = OWN_PARTS if own_attribute(callee, "__objclass__") in (list, dict, set) else ANY_EFFECT
    draws = context.randomness != "error" or not makes_modules(callee)
    if is_marking(callee):
        callee = Spared(callee, context.foreign.holds, writes.shared_write(context, "a tensor"))
    with nullcontext() if draws else looking(callee):
        result = run_rows(context, callee, args, kwargs, why, keep=keep, effect=True, fresh=False)
    return own_modules(context, result) if makes(callee) else result


def makes(callee: Any) -> bool:
    """Whether what it gives did not exist before."""
    return isinstance(callee, type) or callee is copy.deepcopy or callee is copy.copy


def own_modules(context: Context, made: Cell) -> Cell:
    """Modules that have been made for the threads, one for each: no one that all share."""
    value = read(made)
    items = value.items if type(value) is Objects else [getattr(value, "obj", None)]
    own = [item for item in items if isinstance(item, nn.Module)]
    for module in own:
        context.foreign.own.update((id(part), part) for part in module.modules())
    return Cell(Objects(own)) if own and type(value) is Uniform else made


def may_write(cell: Cell) -> bool:
    """Whether it is a function that writes to what it is called with: ``map(list.append, …)``."""
    value = read(cell)
    if type(value) is Objects:
        return value.lists is None and any(map(calls_what_writes, value.items))
    obj = value.obj if type(value) is Uniform else None
    is_function = callable(obj) and not isinstance(obj, type | nn.Module)
    return (is_function and effect_of(obj) in ("write", "unknown")) or calls_what_writes(obj)


def calls_what_writes(obj: Any) -> bool:
    if type(obj) is not methodcaller:
        return False
    name = method_called(obj)
    return name in MUTATING_METHODS or is_inplace_name(name)


def torch_call(context: Context, target: Target) -> Cell:
    """A function or module of torch's, or what draws."""
    callee, args, kwargs = target.callee, target.args, target.kwargs
    draws = target.effect == "draw" and not is_still(callee, args, kwargs)
    draws = draws or is_drawing(callee, args, kwargs)
    if callee is torch.func.functional_call and not draws:
        out = stateless.called(context, args, kwargs)
        if out is not None:
            return out
    if (kind := custom_function(callee)) is not None:
        refuse_hidden(kind.__name__)
    refuse_backward(context, callee)
    refuse_tensor_hook(context, callee, args)
    refuse_switch(context.span, callee, target.entered)
    keeping = modules.keeping(callee) if isinstance(callee, nn.Module) else []
    if keeping:
        if not all(context.foreign.own.get(id(part)) is part for part in keeping):
            raise writes.shared_write(context, *modules.what_changes(keeping[0]))
        why = "it changes itself"
        return run_rows(context, callee, args, kwargs, why, keep=True, effect=True, fresh=False)
    writes.refuse_other_memory(context, callee)
    if callee is vector_to_parameters:
        parameters = [*args[1:2], *(kwargs[name] for name in kwargs if name == "parameters")]
        return writes.write_several(context, callee, args, kwargs, parameters)
    if "out" in kwargs:
        return outs.write_out(context, callee, args, kwargs, draws)
    if in_place_option(callee, args, kwargs):
        return writes.write(context, callee, args, kwargs)
    if any(map(is_program_s, (*args, *kwargs.values()))):
        return run_rows(context, callee, args, kwargs, ANY_EFFECT, True, fresh=False, effect=True)
    written = updated(callee, args, kwargs)
    if not all(writes.may_be_tensor(read(cell)) for cell in written):
        return writes.write_several(context, callee, args, kwargs, written)
    if written:
        if any(map(writes.is_outside, written)):
            raise writes.shared_write(context, "a tensor")
        return run_rows(context, callee, args, kwargs, "it writes to operands", True, effect=False)
    result = torch_ops.apply(context, callee, args, kwargs, draws)
    return modules.own_parts(callee, args, result) if type(callee) in PYTHON else result


def is_program_s(cell: Cell) -> bool:
    """Whether it is code of the user's, which torch is given to call."""
    value = read(cell)
    if type(value) is Container:
        return value.type in (CLOSURE, METHOD, PARTIAL)
    obj = value.obj if type(value) is Uniform else None
    return isinstance(obj, FunctionType | MethodType) and effect_of(obj) in ("program", "unknown")


def is_still(callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> bool:
    """Whether a function that drops some of its operand is told not to: ``training=False``."""
    given = [kwargs[name] for name in ("training", "train") if name in kwargs]
    if "dropout" in own_attribute(callee, "__name__", ""):
        given += args[2:3]
    return any(type(value) is Uniform and value.obj is False for value in map(read, given))


def host_call(context: Context, target: Target) -> Cell:
    """A function without effects that is not torch's: once, as arithmetic, or row by row."""
    callee, args, kwargs = target.callee, target.args, target.kwargs
    guards.refuse_iterators(context, callee, args, kwargs)
    cells = [*args, *kwargs.values()]
    runs_code = any(map(is_code, cells)) or makes_by_code(callee, args, kwargs)
    if not runs_code and all(type(read(cell)) is Uniform for cell in cells):
        names, count = list(kwargs), len(args)
        return once(
            context,
            lambda *objs: callee(*objs[:count], **dict(zip(names, objs[count:], strict=True))),
            *[read(cell).obj for cell in cells],  # type: ignore[union-attr]
            receiver=own_attribute(callee, "__self__"),
            meaning=callee,
        )
    done = arithmetic.apply(context, callee, callee, args) if not kwargs else None
    if done is not None:
        return done
    sees = not context.services.blind()
    keep = gives_back(callee, args, sees) or any(map(is_used_up, cells))
    if not gives_value(callee):
        own_memory(context, cells)
    fresh = is_fresh(callee)
    context.foreign.note(own_attribute(callee, "__self__"))
    held = any(type(read(cell)) is Objects for cell in cells)
    why = "objects" if held else "no batched form"
    result = run_rows(context, callee, args, kwargs, why, keep=keep, fresh=fresh)
    return own_modules(context, result) if makes(callee) else result


def packed_call(context: Context, target: Target, cells: list[Cell]) -> Cell | None:
    """A call with tensors of different lengths; None for one that is to go on as it is."""
    callee, args, kwargs = target.callee, target.args, target.kwargs
    hashable = is_hashable(callee)
    if hashable:
        done = packed.call(context, callee, args, kwargs)
        if done is not None or takes_packed(callee):
            return done
    if hashable and callee in TO_ARRAYS:  # of the memory that is each thread's own from here on
        packed.unpack(context, cells)
        return None
    pure = target.effect in ("torch", "draw") and "out" not in kwargs
    if (pure or gives_value(callee)) and not writes_operands(callee, args, kwargs):
        done = rules.apply(context, callee, args, kwargs) if pure and hashable else None
        if done is not None:
            return done
        return packed.lent(context, cells, lambda: run(context, target))
    if target.effect == "write" and writing.apply(context, callee, args, kwargs):
        return args[0]
    packed.unpack(context, cells)
    return None


def writes_operands(callee: Any, args: list[Cell], kwargs: dict[str, Cell]) -> bool:
    """Whether a function without a name that says so writes to what it is given."""
    return in_place_option(callee, args, kwargs) or bool(updated(callee, args, kwargs))


def takes_packed(callee: Any) -> bool:
    """Whether its batched meaning knows packed values: iteration, types, methods of lists."""
    if callee in iteration.HANDLERS:
        return callee not in (list, tuple)
    return callee in introspection.HANDLERS or own_attribute(callee, "__objclass__") in (list, dict)


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
    if not fits(callee, len(args), kwargs):
        return None
    handler = builtins.HANDLERS.get(callee)
    if handler is not None:
        since = len(context.before)
        done = handler(context, args, kwargs)
        if done is None:
            context.put_back(since)
        return done
    if callee is PLAIN_NEW and len(args) == 1 and not kwargs:
        return blank(read(args[0]))
    if callee is NO_INIT and len(args) == 1 and not kwargs and is_instance(read(args[0])):
        return uniform(None)
    if is_generated_init(callee):
        done = filled(context, callee, args, kwargs)
        if done is None and args:
            guards.refuse_shared(context, args[0])
        return done
    if args and not kwargs and own_attribute(callee, "__objclass__") in (list, dict):
        return methods.method(context, callee, args[0], args[1:])
    if isinstance(callee, type) and issubclass(callee, tuple) and hasattr(callee, "_fields"):
        return named_tuple(context, callee, args, kwargs)
    if args and own_attribute(callee, "__name__", "") in ("_replace", "_asdict"):
        return of_named_tuple(callee, args, kwargs)
    if args and own_attribute(callee, "__objclass__") in (int, float, bool):
        value = read(args[0])
        if type(value) is Column and value.tag != "tensor" and not kwargs:
            return arithmetic.apply(context, callee, callee, args)
    return None
