"""What each operation means for one example: a Python callable on real values.

In: an operation's name, its attribute, and real Python objects or torch tensors as operands.
Out: what Python itself would give, or the very exception that it would raise.

The sequential engine runs programs by this table, the fallback runs single threads by it,
and the batched engines find the exact exception of one thread with it. Operations that need
more than their operands (``global``, ``import``, ``load_free``, ``free_box``, ``function``,
``delete``, ``enter``) are not in the table: an engine gives them their frame.

Boxes are Python's own closure cells, so a program's nested functions and real ones share them.
"""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from types import CellType
from typing import Any

from autobatch.batching import managers, raising
from autobatch.ir import sums
from autobatch.ir.ops import BINARY, OPS
from autobatch.ir.program import CallShape, UnpackShape
from autobatch.structure import own_attribute

UNBOUND_LOCAL = "cannot access local variable {!r} where it is not associated with a value"
UNBOUND_FREE = (
    "cannot access free variable {!r} where it is not associated with a value in enclosing scope"
)

_KEYWORDS = {"and": "and_", "or": "or_"}
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "s": str,
    "r": repr,
    "a": ascii,
}


def apply(name: str, attr: Any, operands: Iterable[Any]) -> Any:
    """The result of one operation; the tuple of its results where it has several outs."""
    meaning = SEMANTICS[name]
    return meaning(attr, *operands) if name in TAKES_ATTR else meaning(*operands)


def load_global(namespace: Mapping[str, Any], name: str) -> Any:
    """A name of a module's, or a builtin, as the code of that module sees it."""
    if name in namespace:
        return namespace[name]
    scope = namespace.get("__builtins__", builtins)
    scope = scope if isinstance(scope, Mapping) else vars(scope)
    if name in scope:
        return scope[name]
    raise NameError(f"name {name!r} is not defined", name=name)


def call(shape: CallShape, callee: Callable[..., Any], *operands: Any) -> Any:
    """``callee(*operands)`` as ``shape`` lays the operands out."""
    args, kwargs = arguments(shape, callee, operands)
    return callee(*args, **kwargs)


def arguments(
    shape: CallShape, callee: object, operands: tuple[Any, ...]
) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments of a call, with ``*x`` and ``**x`` laid open."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    count = len(shape.positional)
    for starred, value in zip(shape.positional, operands[:count], strict=True):
        if starred:
            args += spread(callee, value, count == 1)
        else:
            args.append(value)
    for name, value in zip(shape.keywords, operands[count:], strict=True):
        for key, item in ((name, value),) if name is not None else entries(callee, value):
            if key in kwargs:
                raise TypeError(
                    f"{_title(callee)} got multiple values for keyword argument {key!r}"
                )
            kwargs[key] = item
    return args, kwargs


def spread(callee: object, value: Any, alone: bool) -> Iterable[Any]:
    """What ``*value`` hands on; ``alone``: the callee is given it, otherwise a list of all."""
    if hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__"):
        return list(value)
    what = f"{_title(callee)} argument" if alone else "Value"
    raise TypeError(f"{what} after * must be an iterable, not {type(value).__name__}")


def entries(callee: object, value: Any) -> Iterable[tuple[str, Any]]:
    if not hasattr(value, "keys"):
        kind = type(value).__name__
        raise TypeError(f"{_title(callee)} argument after ** must be a mapping, not {kind}")
    found = dict(value)
    if not all(isinstance(key, str) for key in found):
        raise TypeError("keywords must be strings")
    return found.items()


def _title(callee: object) -> str:
    """How Python's messages name a callee."""
    name = own_attribute(callee, "__qualname__")
    if name is None:
        return str(callee)
    module = own_attribute(callee, "__module__")
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


def unpack(shape: UnpackShape, value: Any) -> tuple[Any, ...]:
    """The items for ``a, *b, c = value``: never asks an iterator for more than Python does."""
    items = _iterate(value)
    before = list(islice(items, shape.before))
    least = shape.before + shape.after
    if not shape.starred:
        if len(before) < shape.before:
            raise ValueError(_too_few(shape.before, len(before), ""))
        if next(items, _END) is not _END:
            del items  # a generator is left before the exception has a traceback
            raise ValueError(f"too many values to unpack (expected {shape.before})")
        return tuple(before)
    rest = list(items) if len(before) == shape.before else []
    if len(before) + len(rest) < least:
        raise ValueError(_too_few(least, len(before) + len(rest), "at least "))
    split = len(rest) - shape.after
    return (*before, rest[:split], *rest[split:])


def _iterate(value: Any) -> Iterator[Any]:
    try:
        return iter(value)
    except TypeError:
        if hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__"):
            raise
        kind = type(value).__name__
        raise TypeError(f"cannot unpack non-iterable {kind} object") from None


def _too_few(expected: int, got: int, least: str) -> str:
    return f"not enough values to unpack (expected {least}{expected}, got {got})"


_END = object()


def _next(iterator: Iterator[Any]) -> tuple[Any, bool]:
    item = next(iterator, _END)
    return (None, False) if item is _END else (item, True)


def _dict(*items: Any) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _extend(target: list[Any], value: Any) -> None:
    if not (hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")):
        raise TypeError(f"Value after * must be an iterable, not {type(value).__name__}")
    target.extend(value)


def _update(target: dict[Any, Any], value: Any) -> None:
    if not hasattr(value, "keys"):
        raise TypeError(f"{type(value).__name__!r} object is not a mapping")
    target.update(value)


def _box(*content: Any) -> CellType:
    return CellType(*content)


def unbound_local(name: str) -> UnboundLocalError:
    """What Python raises for a function's own variable that has no value; it sets no ``name``."""
    return UnboundLocalError(UNBOUND_LOCAL.format(name))


def unbound_free(name: str) -> NameError:
    """What Python raises for a variable of a function around that has no value."""
    return NameError(UNBOUND_FREE.format(name), name=name)


def load_box(name: str, box: CellType, unbound: Callable[[str], NameError] = unbound_local) -> Any:
    """The value in a box; ``unbound`` makes what an empty one raises."""
    try:
        return box.cell_contents
    except ValueError:
        raise unbound(name) from None


def _store_box(box: CellType, value: Any) -> None:
    box.cell_contents = value


def _clear_box(name: str, box: CellType) -> None:
    load_box(name, box)
    del box.cell_contents


def handled(name: str, error: BaseException | None) -> Any:
    """What ``raise`` without an exception, ``sys.exception()`` or ``sys.exc_info()`` is about."""
    if name == "exc_info":
        return (None,) * 3 if error is None else (type(error), error, error.__traceback__)
    if error is None and name == "raise":
        raise RuntimeError("No active exception to reraise")
    return error


def _format(conversion: str, value: Any, spec: str) -> str:
    return format(_CONVERSIONS[conversion](value), spec)


def import_from(name: str, module: Any) -> Any:
    """``from module import name``: an attribute, or a submodule that was imported before."""
    try:
        return getattr(module, name)
    except AttributeError:
        title = own_attribute(module, "__name__", "<unknown module name>")
        found = sys.modules.get(f"{title}.{name}")
        if found is not None:
            return found
        place = getattr(module, "__file__", None) or "unknown location"
        message = f"cannot import name {name!r} from {title!r} ({place})"
        raise ImportError(message, name=title, path=place) from None


def _binary(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(operator, _KEYWORDS.get(name, name))
    return function


SEMANTICS: dict[str, Callable[..., Any]] = {
    **{name: _binary(name) for name in BINARY},
    **{f"i{name}": _binary(f"i{name}") for name in BINARY},
    **{name: _binary(name) for name in ("neg", "pos", "invert")},
    **{name: _binary(name) for name in ("lt", "le", "eq", "ne", "gt", "ge", "is_not")},
    "not": operator.not_,
    "is": operator.is_,
    "in": lambda item, container: item in container,
    "not_in": lambda item, container: item not in container,
    "const": lambda value: value,
    "copy": lambda value: value,
    "box": _box,
    "load_box": load_box,
    "load_outer_box": partial(load_box, unbound=unbound_free),
    "store_box": _store_box,
    "clear_box": _clear_box,
    "getattr": lambda name, value: getattr(value, name),
    "setattr": lambda name, target, value: setattr(target, name, value),
    "delattr": lambda name, target: delattr(target, name),
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "slice": slice,
    "tuple": lambda *items: items,
    "list": lambda *items: list(items),
    "set": lambda *items: set(items),
    "dict": _dict,
    "extend": _extend,
    "update": _update,
    "append": lambda target, value: target.append(value),
    "to_tuple": tuple,
    "to_set": set,
    "format": _format,
    "join": lambda *parts: "".join(parts),
    "unpack": unpack,
    "iter": iter,
    "next": _next,
    "call": call,
    "import_from": import_from,
    "truth": bool,
    "select": lambda condition, yes, no: yes if condition else no,
    "sum_begun": sums.begun,
    "sum_left": sums.left,
    "sum_lost": sums.lost_by,
    "sum_whole": sums.whole,
    "catches": raising.catches,
    "enter": managers.enter_mode,
    "manager": managers.way,
    "assertion": AssertionError,
}

TAKES_ATTR = frozenset(name for name, info in OPS.items() if info.attr and name in SEMANTICS)
"""Operations whose meaning takes the attribute before the operands."""
