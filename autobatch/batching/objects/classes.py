"""Instances of classes that are containers of cells: which can be, and what they begin with.

Named tuples are tuples of cells with names; an instance of a plain class is the cells of its
attributes, those of a dataclass as its generated ``__init__`` sets them.
"""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
import sys
from typing import Any

from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.context import Context
from autobatch.batching.effects import effect_of, has_library_base
from autobatch.batching.kinds import (
    found_in_class,
    generated_init,
    is_instance,
    named_cells,
    owner_of,
)
from autobatch.batching.operators import once
from autobatch.structure import own_attribute
from autobatch.values.cells import Cell, Container, Uniform, read, uniform


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
    if own_attribute(kind.__new__, "__module__", "").startswith("namedtuple_") is False:
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


PLAIN_NEW: Any = object.__new__
NO_INIT: Any = object.__init__
PLAIN_LOOK: Any = object.__getattribute__


def is_plain_class(kind: type) -> bool:
    """Whether instances can be containers of cells: no base that keeps state of its own.

    Of what has an abstract method left there are none: making one fails.
    """
    if type(kind).__call__ is not type.__call__ or kind.__new__ is not PLAIN_NEW:
        return False
    if inspect.isabstract(kind):
        return False
    looks_up = kind.__getattribute__ is PLAIN_LOOK
    return looks_up and not has_library_base(kind)


def has_no_init(kind: type) -> bool:
    """Whether building an instance runs nothing."""
    init: object = kind.__init__  # type: ignore[misc]
    return init is object.__init__


def only_holds(kind: Any) -> bool:
    """Whether to build an instance of a class is to hold what is given: no code of its own runs."""
    if not isinstance(kind, type) or effect_of(kind) != "program":
        return False
    if issubclass(kind, tuple):
        made = own_attribute(kind.__new__, "__module__", "")
        plain = type(kind).__call__ is type.__call__ and kind.__init__ is object.__init__
        return plain and hasattr(kind, "_fields") and made.startswith("namedtuple_")
    if (
        not is_plain_class(kind)
        or not generated_init(kind)
        or found_in_class(kind, "__post_init__") is not None
    ):
        return False
    factories = {field.default_factory for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return factories <= {dataclasses.MISSING, list, dict}


GENERATED = frozenset({"<string>", dataclasses.__file__, reprlib.__file__})
"""Where the methods stand that ``dataclasses`` has written."""


def has_own_code(kind: type) -> bool:
    """Whether instances of a class have methods, operators or properties that somebody wrote."""
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] in sys.stdlib_module_names:
            continue
        for value in vars(each).values():
            code = own_attribute(own_attribute(value, "__func__", value), "__code__")
            if isinstance(value, property) or (code and code.co_filename not in GENERATED):
                return True
    return False


def holds_alone(kind: type) -> bool:
    """Whether instances of a class only have attributes: to make one, to read and to assign them
    runs no code that somebody wrote.
    """
    if has_own_code(kind):
        return False
    return only_holds(kind) or (is_plain_class(kind) and has_no_init(kind))


def dataclass_fields(
    context: Context, kind: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> tuple[dict[str, Cell], list[Cell]]:
    """The attributes that the generated ``__init__`` of a class sets.

    And what ``__post_init__`` gets: the values of its ``InitVar``s.
    """
    every = [field for field in kind.__dataclass_fields__.values() if kind_of(field) != "class"]
    fields = [field for field in every if field.init]
    names = [field.name for field in fields if not field.kw_only]
    if len(args) > len(names) or not {*kwargs} <= {field.name for field in fields}:
        once(context, lambda: kind(*[None] * len(args), **dict.fromkeys(kwargs)))
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    values: dict[str, Cell] = {}
    for field in every:
        if field.name in given:
            values[field.name] = given[field.name]
        elif field.default is not dataclasses.MISSING:
            values[field.name] = uniform(field.default, shared=True)
        elif field.default_factory is not dataclasses.MISSING:
            made = resolve_object(field.default_factory, [], {})
            values[field.name] = context.invoke(context, made.callee, made.args, made.kwargs)
        elif field.init:
            once(context, lambda: kind(*[None] * len(args), **dict.fromkeys(kwargs)))
    passed = [field.name for field in every if kind_of(field) == "init"]
    return values, [values.pop(name) for name in passed if name in values]


def kind_of(field: Any) -> str:
    """``"class"`` for a ``ClassVar``, ``"init"`` for an ``InitVar``, else ``"field"``."""
    if field._field_type is dataclasses._FIELD_CLASSVAR:  # type: ignore[attr-defined]
        return "class"
    initial = field._field_type is dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]
    return "init" if initial else "field"


def filled(context: Context, init: Any, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``super().__init__(...)`` into what ``dataclasses`` has generated, which has no source.

    None where the receiver is an object of the host.
    """
    value = read(args[0]) if args else None
    if not is_instance(value):
        return None
    fields, passed = dataclass_fields(context, owner_of(value.type, init), args[1:], kwargs)
    named_cells(value).update(fields)
    if found_in_class(value.type, "__post_init__") is not None:
        context.invoke(context, value.type.__post_init__, [args[0], *passed], {})
    return uniform(None)
