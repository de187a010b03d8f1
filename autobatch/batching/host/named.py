"""Attributes that a host operation asks for by a name that it gets as text.

``getattr``, ``hasattr``, ``"{0.p}".format(x)``, ``operator.attrgetter`` and ``methodcaller``, and
class patterns. In: the operation and real operands of it. Out: the error for a property, or another
function of the user's that gives such an attribute, which is seen to write what existed before the
call.
"""

from __future__ import annotations

import inspect
from _string import formatter_field_name_split  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter, methodcaller
from string import Formatter
from typing import Any

from torch import Tensor

from autobatch.batching.context import Handing
from autobatch.batching.effects import torch_effect
from autobatch.batching.host.asking import is_own
from autobatch.batching.host.getters import method_called
from autobatch.batching.host.own_methods import getter
from autobatch.batching.kinds import found_in_class
from autobatch.batching.shared import refusals
from autobatch.frontend.matching import class_attributes, mapping_values, sequence_length
from autobatch.structure import own_attribute, own_attributes

Step = tuple[bool, Any]
"""Of what a text asks for: an attribute by its name, or an item by its key."""
FORMATS = ("format", "format_map")
PATTERNS = (class_attributes, mapping_values, sequence_length)
BUILTINS: tuple[Any, ...] = (str, list, tuple, dict)


def refuse_named(
    handing: Handing | None,
    holds: Callable[[Any], bool],
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Refuse an operation that asks for an attribute whose code is seen to write.

    ``holds`` says whether an object existed before.
    """
    if handing is None:
        return
    for obj, path in asked(function, args, kwargs):
        refuse_path(handing, holds, obj, path)
    names = methods_called(function, args)
    if isinstance(function, methodcaller) and args and isinstance(args[0], Tensor):
        writes = torch_effect(names[0]) == "write"
        if writes and holds(args[0]):
            raise refusals.written(handing.span, "a tensor")
    for name in names:
        method = found_in_class(type(args[0]), name)
        if is_own(method):
            handing.refuse(method, args[0] if holds(args[0]) else None)


def methods_called(function: Any, args: Sequence[Any]) -> tuple[str, ...]:
    """The methods of its first operand that a ``methodcaller`` or a pattern calls."""
    kind = type(args[0]) if args else object
    if isinstance(function, methodcaller) and args:
        return (method_called(function),)
    if function is mapping_values and issubclass(kind, Mapping):
        return ("get", "__getitem__")
    if function is sequence_length and issubclass(kind, Sequence):
        return ("__len__",)
    return ()


def asks_by_name(function: Any) -> bool:
    """Whether an operation may ask for attributes by name."""
    by_text = function is getattr or function is hasattr
    by_text = by_text or any(function is each for each in PATTERNS) or is_format(function)
    return by_text or isinstance(function, attrgetter | methodcaller)


def is_format(function: Any) -> bool:
    name = own_attribute(function, "__name__", "")
    owner = own_attribute(function, "__objclass__") or type(own_attribute(function, "__self__"))
    return name in FORMATS and owner is str


def asked(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Any, list[Step]]]:
    """Objects, each with the way of attributes and items that is gone from it."""
    if isinstance(function, attrgetter):
        for name in function.__reduce__()[1] if args else ():
            yield args[0], [(True, part) for part in name.split(".")]
    elif (function is getattr or function is hasattr) and len(args) > 1:
        yield args[0], [(True, args[1])]
    elif function is class_attributes:
        subject, kind, count, names = args
        known = own_attribute(kind, "__match_args__", ())
        for name in (*known[:count], *names):
            yield subject, [(True, name)]
    elif is_format(function):
        text = own_attribute(function, "__self__")
        if type(text) is not str:
            text, args = (args[0] if args else ""), args[1:]
        if function.__name__ == "format_map":
            args, kwargs = (), args[0] if args and type(args[0]) is dict else {}
        numbers = iter(range(len(args)))
        for name, path in fields(text):
            at = next(numbers, None) if name == "" else name
            if isinstance(at, int) and at < len(args):
                yield args[at], path
            elif isinstance(at, str) and at in kwargs:
                yield kwargs[at], path


def fields(text: Any) -> Iterator[tuple[int | str, list[Step]]]:
    """What ``str.format`` asks for, what a field's own format names among it."""
    try:
        parts = list(Formatter().parse(text)) if type(text) is str else []
        for _, name, spec, _ in parts:
            if name is not None:
                first, rest = formatter_field_name_split(name)
                yield first, list(rest)
            yield from fields(spec or "")
    except ValueError:  # it fails as it does in the loop
        return


def refuse_path(handing: Handing, holds: Callable[[Any], bool], obj: Any, path: list[Step]) -> None:
    """Refuse the first attribute or item on a way that code of the user's gives, if it writes."""
    for is_attribute, name in path:
        if is_attribute:
            code = getter(obj, name) if isinstance(name, str) else None
        else:
            found = found_in_class(type(obj), "__getitem__")
            code = found if is_own(found) else None
        if code is not None:
            handing.refuse(code, obj if holds(obj) else None)
            return
        try:
            obj = stored(obj, name) if is_attribute else obj[name] if is_plain(obj) else None
        except (LookupError, TypeError, AttributeError):  # as it does in the loop
            return


def stored(obj: Any, name: Any) -> Any:
    """An attribute that no code gives."""
    held = own_attributes(obj) or {}
    return held[name] if name in held else inspect.getattr_static(obj, name)


def is_plain(obj: Any) -> bool:
    return type(obj) in BUILTINS


def watched(handing: Handing, holds: Callable[[Any], bool], function: Any) -> Any:
    """A function that host code calls with objects: what it asks of each is looked at first."""
    return partial(asks_first, handing, holds, function)


def asks_first(
    handing: Handing, holds: Callable[[Any], bool], function: Any, *args: Any, **kwargs: Any
) -> Any:
    refuse_named(handing, holds, function, args, kwargs)
    return function(*args, **kwargs)
