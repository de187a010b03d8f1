"""Methods that Python calls by itself, by the operation that asks them; what writes is refused.

In: a host operation that is about to run once for each thread since methods of the user's classes
have effects, or with functions of the user's among what it is given. Out: the error for a write to
what existed before the call, where one is seen (see ``Services.handing``).
"""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import functools
import heapq
import inspect
import itertools
import operator
import pickle
import types
import typing
import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from autobatch.batching import semantics
from autobatch.batching.context import Handing
from autobatch.batching.effects import (
    BUILTIN_TYPES,
    belongs_to_torch,
    is_library,
    is_library_module,
)
from autobatch.batching.kinds import found_in_class
from autobatch.batching.known_callees import is_called_at
from autobatch.batching.trees import ASKED as OPERANDS
from autobatch.source import Span
from autobatch.structure import own_attribute

ITERATION = "iter next getitem len length_hint"
OF_OPERANDS = frozenset(f"{ITERATION} contains index float int".split())
"""Special methods that are asked of an operand itself only."""
_ASKED = {
    "str": "str repr",
    "repr": "repr",
    "ascii": "repr",
    "format": "format str repr",
    "hash": "hash",
    "float": "float index",
    "int": "int index trunc",
    "complex": "complex float index",
    "bool": "bool len",
    "len": "len",
    "abs": "abs",
    "round": "round",
    "divmod": "divmod rdivmod",
    "pow": "pow rpow",
    "iter": "iter getitem",
    "next": "next",
    "reversed": "reversed len getitem",
    **dict.fromkeys(["list", "tuple", "enumerate", "zip", "map", "bytearray"], ITERATION),
    "bytes": f"bytes {ITERATION}",
    "open": "fspath index",
    "filter": f"{ITERATION} bool",
    **dict.fromkeys(["range", "slice", "hex", "oct", "bin", "chr"], "index"),
    "print": "str repr",
    "dir": "dir",
    **dict.fromkeys(["set", "frozenset", "dict"], f"{ITERATION} hash eq"),
    **dict.fromkeys(["any", "all"], f"{ITERATION} bool"),
    **dict.fromkeys(["min", "max", "sorted"], f"{ITERATION} lt gt"),
    "sum": f"{ITERATION} add radd",
}
"""Special methods, without their underscores, that a builtin asks of what it is given."""
_SETS = "union intersection difference symmetric_difference intersection_update difference_update"
_METHODS = {
    **dict.fromkeys(["index", "count", "remove"], "eq"),
    "sort": "lt gt",
    "join": ITERATION,
    "extend": ITERATION,
    "format": "format str repr",
    **dict.fromkeys(["get", "pop", "setdefault", "add", "discard"], "hash eq"),
    "fromkeys": f"{ITERATION} hash eq",
    "format_map": "format str repr getitem",
    **dict.fromkeys(
        f"update issubset issuperset isdisjoint {_SETS}".split(), f"{ITERATION} hash eq"
    ),
}
"""The same of methods of the builtin containers and of strings."""
_OPERATORS = {
    "getitem": "index hash eq getitem",
    "setitem": f"{ITERATION} index hash eq",
    "contains": f"contains eq hash {ITERATION}",
    "truth": "bool len",
    "not_": "bool len",
    "index": "index",
    "mul": "mul rmul index",
    "mod": "mod rmod str repr format",
}
_REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne eq"}


UNDERSTOOD = frozenset({"autobatch", "torch", "builtins", "operator", "_operator"})
"""Of their functions that are in no table here, none asks for a special method."""
CACHES = (functools._lru_cache_wrapper,)
"""What calls a function of the user's, and gives several callers the same object."""
MAKERS = ("__new__", "__init__", "__post_init__", "_missing_")
"""Methods that make an instance, or, of an enumeration, find one."""
_OPERATIONS = {
    "in": "contains",
    "not_in": "contains",
    "format": "format str repr",
    **dict.fromkeys(("extend", "iter", "unpack", "to_tuple"), ITERATION),
    "to_set": f"{ITERATION} hash eq",
    "next": "next",
    "set": "hash eq",
    "dict": "hash eq",
}
_BY_OPERATION = {
    id(semantics.SEMANTICS[name]): _OPERATORS.get(found, found)
    for name, found in _OPERATIONS.items()
}
"""The same of operations of a program that are no functions of Python's."""
_BY_MODULE = {
    **dict.fromkeys(["_heapq", "_bisect"], "lt gt"),
    **dict.fromkeys(["itertools", "_functools", "collections"], ITERATION),
}
REDUCED = "reduce_ex reduce getstate getnewargs_ex getnewargs"
_HOLDING: tuple[Any, ...] = (
    *(functools.partial, types.SimpleNamespace, types.MethodType, weakref.ref, typing.cast),
)
_BY_FUNCTION: dict[Any, str] = {
    **dict.fromkeys(_HOLDING, ""),
    copy.copy: f"copy {REDUCED} setstate del",
    copy.deepcopy: f"deepcopy {REDUCED} setstate del",
    **dict.fromkeys([dataclasses.asdict, dataclasses.astuple], f"deepcopy {REDUCED} setstate"),
    dataclasses.replace: "init post_init",
    **dict.fromkeys([pickle.dump, pickle.dumps], REDUCED),
    itertools.accumulate: f"{ITERATION} add radd",
    itertools.groupby: f"{ITERATION} eq",
    **dict.fromkeys([heapq.merge, heapq.nsmallest, heapq.nlargest], f"{ITERATION} lt gt"),
    **dict.fromkeys([collections.Counter, collections.OrderedDict], f"{ITERATION} hash eq"),
    itertools.chain.from_iterable: ITERATION,
}
_OF_ITEMS: tuple[Any, ...] = (itertools.chain.from_iterable,)
"""Functions that go through what their operand holds."""
_WHOLE: tuple[Any, ...] = (
    *(copy.deepcopy, pickle.dump, pickle.dumps, dataclasses.asdict, dataclasses.astuple),
)
"""Functions that go through all that their operand leads to."""
_OF_ANOTHER = frozenset({"__init__", "__post_init__", "__setstate__", "__del__"})
"""Special methods that are asked of an instance made anew."""
_ORDERED = frozenset({"__lt__", "__le__", "__gt__", "__ge__", "__eq__"})
"""What the methods ask that ``functools.total_ordering`` adds."""


def asked_by(function: Any, top: bool) -> frozenset[str]:
    """The special methods that an operation asks; none where that is not known.

    ``top``: of an operand itself, not of what a list, tuple or dict among them holds.
    """
    function = function.func if isinstance(function, partial) else function
    name = own_attribute(function, "__name__", "")
    top = top or any(function == known for known in _OF_ITEMS)
    if isinstance(function, operator.itemgetter):
        found = "getitem"
    elif is_hashed_plainly(function) and function in _BY_FUNCTION:
        found = _BY_FUNCTION[function]
    elif getattr(builtins, name, None) is function:
        found = _ASKED.get(name, "")
    elif getattr(operator, name, None) is function:
        plain = name.strip("_")
        found = _OPERATORS.get(name, f"{plain} {_REFLECTED.get(plain, 'r' + plain)}")
    elif id(function) in _BY_OPERATION:
        found = _BY_OPERATION[id(function)]
    elif is_method(function):
        found = _METHODS.get(name, "")
    elif isinstance(function, CACHES):
        found = "hash eq"
    elif belongs_to_torch(function):
        return frozenset(f"__{each}__" for each in OPERANDS)
    else:
        found = _BY_MODULE.get(module_of(function), "")
    names = found.split() if top else [each for each in found.split() if each not in OF_OPERANDS]
    return frozenset(f"__{each}__" for each in names)


def is_hashed_plainly(function: Any) -> bool:
    """Whether to look a function up runs no code of the user's."""
    return isinstance(function, type | types.FunctionType | types.BuiltinFunctionType)


def is_handed(item: Any) -> bool:
    """Whether an argument is a function in C: what it is given to may call it."""
    return isinstance(item, type | types.BuiltinFunctionType | types.MethodDescriptorType)


def is_method(function: Any) -> bool:
    """Whether it is a method of a builtin container or string, bound or not."""
    receiver = own_attribute(function, "__self__")
    owner = own_attribute(function, "__objclass__") or type(receiver)
    return (receiver if isinstance(receiver, type) else owner) in BUILTIN_TYPES


def module_of(function: Any) -> str:
    return (own_attribute(function, "__module__") if callable(function) else None) or ""


def may_ask_any(function: Any) -> bool:
    """Whether it is a library's, and nothing is known of what it asks: any special method."""
    module = module_of(function) or type(function).__module__
    if module in _BY_MODULE or module.partition(".")[0] in UNDERSTOOD:
        return False
    is_known = is_hashed_plainly(function) and function in _BY_FUNCTION
    return is_library_module(module) and not is_known


def looks_through(function: Any) -> bool:
    """Whether it goes through all that its operand leads to."""
    return any(function is each for each in _WHOLE)


def is_own(method: Any) -> bool:
    """Whether it is a function of the user's, and no library has put its own in that place."""
    if not isinstance(method, types.FunctionType) or is_library(method):
        return False
    return not is_library_module(method.__globals__.get("__name__", ""))


def refuse_asked(
    handing: Handing | None,
    function: Any,
    receivers: Iterable[tuple[type, Any, bool]],
    handed: Iterable[Any] = (),
) -> None:
    """Refuse an operation of which a method of some classes writes what existed before.

    With each class comes an instance that existed before, if there is one, and whether it is an
    operand itself. ``handed`` are functions that the operation is given, to call them with what it
    goes through: ``map(str, xs)``, ``reduce(operator.add, xs)``.
    """
    called = frozenset().union(*(asked_by(each, True) for each in handed))
    for kind, receiver, top in receivers if handing is not None else ():
        for name in asked_of(kind, function, top, called):
            method = found_in_class(kind, name)
            if is_own(method):
                handing.refuse(method, None if name in _OF_ANOTHER else receiver)  # type: ignore[union-attr]


def asked_of(kind: type, function: Any, top: bool, called: frozenset[str]) -> Iterator[str]:
    """The special methods of a class that an operation may ask, and those that they ask."""
    names = asked_by(function, top) | called
    if may_ask_any(function):
        names |= {name for base in kind.__mro__ for name in vars(base) if name[:2] == "__"}
    yield from names
    if any(module_of(found_in_class(kind, name)) == "functools" for name in names & _ORDERED):
        yield from _ORDERED - names


def refuse_called(handing: Handing | None, callee: Any) -> None:
    """Refuse a call on the host that runs a function of the user's which is seen to write.

    ``functools.cache`` calls what it has wrapped; a class that Python builds, those that make it.
    """
    if handing is None:
        return
    if isinstance(callee, CACHES) and is_own(callee.__wrapped__):
        handing.refuse(callee.__wrapped__)
    if isinstance(callee, type) and not is_library(callee) and callee not in BUILTIN_TYPES:
        for name, owner in (("__call__", type(callee)), *((made, callee) for made in MAKERS)):
            method = inspect.getattr_static(owner, name, None)
            method = own_attribute(method, "__func__", method)
            if is_own(method):
                handing.refuse(method, None if name in _OF_ANOTHER else callee)


def refuse_subclass(handing: Handing | None, bases: tuple[Any, ...]) -> None:
    """Refuse ``type(name, bases, namespace)`` of which a base's hook is seen to write."""
    for base in bases if handing is not None else ():
        hook = getattr(getattr(base, "__init_subclass__", None), "__func__", None)
        if is_own(hook):
            handing.refuse(hook, base)  # type: ignore[union-attr]


def handed(
    handing: Handing | None,
    span: Span | None,
    function: Any,
    count: int,
    place: int | str,
    column: list[Any],
) -> list[Any]:
    """What a host function is given of an argument, rows: functions that it calls are watched.

    ``place`` is the position of the argument, or its name; ``count`` are those with a position.
    """
    if handing is None or not column or not is_called_at(function, place, count):
        return column
    handing.span = span
    return [handing.twin(item) if callable(item) else item for item in column]
