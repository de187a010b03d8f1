"""Functions and methods of Python's that programs of objects alone may call, by what they do.

``READS`` look at what they get, and give something that cannot be written to. ``COPIES`` give
something new that holds what they get. ``LENDS`` may give what they get, or what is within it, and
call functions that they get. ``CHANGES`` write their first argument. ``GENERATORS`` make what draws
from a state of its own. All that is not here is not known: what draws from a state that others see,
prints, reads a clock or a file among it.
"""

from __future__ import annotations

import bisect
import builtins
import contextlib
import copy
import dataclasses
import functools
import heapq
import itertools
import json
import math
import operator
import random
import re
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from types import MethodDescriptorType
from typing import Any, TypeVar

import torch

from autobatch.batching import known_arrays as arrays
from autobatch.batching import known_library as library
from autobatch.batching.effects import MUTATING_METHODS
from autobatch.frontend import generating
from autobatch.structure import own_attribute

T = TypeVar("T")

# fmt: off
_READS = (
    "abs all any ascii bin bool bytes callable chr complex divmod float format hash hex int"
    " isinstance issubclass len oct ord pow range repr round str"
)
_COPIES = "dict frozenset list set slice sorted tuple"
_LENDS = "enumerate filter iter map max min next reversed sum super type zip object"
_WRITES = frozenset({"subtract", "move_to_end", "difference_update", "shuffle"})
# fmt: on


def _of(names: str) -> tuple[Any, ...]:
    return tuple(getattr(builtins, name) for name in names.split())


def _functions(module: Any) -> tuple[Any, ...]:
    return tuple(
        found for name, found in vars(module).items() if name[0] != "_" and callable(found)
    )


_TYPES = (str, bytes, int, float, complex, list, dict, set, frozenset, tuple, range, deque, Counter)
_CONTAINERS = (list, dict, set, frozenset, tuple, deque, Counter, OrderedDict, defaultdict)
_VALUES = (str, bytes, int, float, complex)
ASKING = frozenset({"format", "format_map"})
"""Methods that ask for any attribute."""
_KEEPING = frozenset({"_replace", "_asdict"})
"""Of named tuples."""
_METHODS = _KEEPING | {
    name
    for kind in (*_TYPES, OrderedDict, ChainMap, re.Match, re.Pattern, random.Random)
    for name in dir(kind)
    if name[:2] != "__" and name not in ASKING
}
SENDING = frozenset({"send", "throw"})
OF_GOING = SENDING | {"close"}
"""Methods of what a function gives that yields."""
METHODS = _METHODS | library.VALUE_METHODS | library.METHODS | library.WRITING_METHODS
"""Methods of the data that there may be."""
WRITING_METHODS = (MUTATING_METHODS & _METHODS) | _WRITES | library.WRITING_METHODS


def _unbound(kinds: tuple[type, ...]) -> frozenset[Any]:
    """Their methods that write nothing, as functions: ``str.upper``."""
    return frozenset(
        found
        for kind in kinds
        for name, found in vars(kind).items()
        if type(found) is MethodDescriptorType and name in METHODS - WRITING_METHODS
    )


READS = frozenset(
    {*_of(_READS), *_functions(math), re.escape, operator.contains, operator.countOf}
    | {contextlib.suppress, json.dumps, json.loads, *arrays.MANAGERS}
    | {torch.finfo, torch.iinfo, torch.is_tensor}
    | _unbound(_VALUES)
    | library.READS
)
COPIES = frozenset(
    {*_of(_COPIES), deque, defaultdict, OrderedDict, Counter, copy.copy, copy.deepcopy}
    | {dataclasses.asdict, dataclasses.astuple}
)
GIVING_ATTRIBUTES = frozenset(
    {copy.copy, copy.deepcopy, dataclasses.replace, functools.partial, slice, defaultdict}
    | library.KEEPING
)
"""Those that give what has what they get in attributes."""
GOING_THROUGH_FIELDS = frozenset({dataclasses.asdict, dataclasses.astuple})
"""Those that put what objects have in their attributes into containers."""
CHANGES = frozenset(
    {heapq.heappush, heapq.heappop, heapq.heapify, heapq.heapreplace, heapq.heappushpop}
    | {bisect.insort, bisect.insort_left, bisect.insort_right}
    | library.CHANGES
)
_OPERATORS = (
    "add sub mul truediv floordiv mod pow neg pos invert and_ or_ xor lshift rshift not_ truth is_"
    " is_not lt le eq ne gt ge getitem itemgetter"
)
LENDS = frozenset(
    {*_of(_LENDS), bisect.bisect, bisect.bisect_left, bisect.bisect_right, functools.reduce}
    | {heapq.merge, heapq.nsmallest, heapq.nlargest, dataclasses.replace, functools.cmp_to_key}
    | {re.match, re.search, re.fullmatch, re.findall, re.finditer, re.split, re.sub, re.compile}
    | {generating.items, generating.items_of_each}
    | {functools.partial, functools.lru_cache, functools.cache, ChainMap}
    | _unbound((list, dict, set, frozenset, tuple, deque))
    | {*_functions(itertools), *(getattr(operator, name) for name in _OPERATORS.split())}
    | library.LENDS
)
HOLDING = frozenset(
    {itertools.repeat, itertools.zip_longest, itertools.accumulate, slice, functools.partial}
)
"""Those that give a parameter itself among what they give; all may do so by keywords."""
GENERATORS = frozenset({random.Random}) | arrays.GENERATORS
_NONE: frozenset[str] = frozenset()
KNOWN = READS | COPIES | LENDS | CHANGES | GENERATORS | arrays.FUNCTIONS

CALLED_AT: dict[Any, int] = {
    **dict.fromkeys((map, filter, functools.reduce, functools.cmp_to_key, defaultdict), 0),
    **dict.fromkeys((generating.items, generating.items_of_each), 0),
    **dict.fromkeys((itertools.starmap, itertools.takewhile, itertools.dropwhile), 0),
    itertools.filterfalse: 0,
    **dict.fromkeys((itertools.accumulate, itertools.groupby, re.sub, re.subn), 1),
    **dict.fromkeys((heapq.nlargest, heapq.nsmallest), 2),
}
"""At which place stands a function that is called; by keyword it may stand in each of these."""
CALLED_BY_NAME = frozenset(
    {sorted, min, max, heapq.merge, bisect.bisect, bisect.bisect_left, bisect.bisect_right}
)
CHOOSING = frozenset(
    {sorted, min, max, heapq.merge, heapq.nlargest, heapq.nsmallest}
    | {filter, itertools.takewhile, itertools.dropwhile, itertools.filterfalse}
)
"""Those that give some of what they get, by what a function says of it."""
APPLYING = frozenset(
    {map, functools.reduce, itertools.starmap, itertools.accumulate, itertools.groupby}
)
"""Those that give what a function gives, or some of what they get."""
CALLS_NOTHING = (
    (READS - {json.dumps, json.loads} - library.CALLING) | (arrays.FUNCTIONS - arrays.CALLING)
) | {
    *(dict, frozenset, list, set, slice, tuple, deque, OrderedDict, Counter),
    *(enumerate, next, reversed, sum, zip, heapq.heappush, heapq.heappop, heapq.heapify),
}
"""Those that call no function that they get, or that is within what they get."""
CALLING_METHODS = frozenset({"sort", "sub", "subn"})
"""Methods of Python's that may call what they get."""

WRITING_ITEMS = frozenset({"__init__", "__setitem__", "__delitem__"})
OF_ITEMS = WRITING_ITEMS | {"__getitem__"}
"""Special methods that are asked for by name, of what a class inherits them from."""
WRITING_ARGUMENTS = frozenset({"pack_into", "readinto", "readinto1", "shuffle"})
"""Methods that write what they get."""
HOLDING_METHODS = frozenset({"groups", "groupdict", "fromkeys", "_replace"})
"""Methods whose result has a parameter itself within."""
LENT_METHODS = METHODS - WRITING_METHODS - WRITING_ARGUMENTS - HOLDING_METHODS - CALLING_METHODS
"""Methods that may be values: they do no more than give what is within, or something new."""
LENT_WRITING = (WRITING_METHODS & {name for kind in _CONTAINERS for name in dir(kind)}) - (
    CALLING_METHODS
)
"""Methods that may be values where they are of what the program makes: ``push = stack.append``."""
METHODS_OF_VALUES = (
    METHODS
    - library.METHODS
    - {name for kind in (*_CONTAINERS, random.Random) for name in dir(kind)}
    - {*_KEEPING, "maketrans", "sub", "subn"}
)
"""Methods of texts, numbers and what patterns find: they give such, and what they get."""
TAKING_ITEMS = frozenset(
    {"extend", "extendleft", "update", "intersection_update", "difference_update"}
    | {"symmetric_difference_update"}
)
"""Methods that put what is within their arguments into a container, and nothing else."""
COPYING_METHODS = frozenset(
    {"copy", "fromkeys", "union", "intersection", "difference", "symmetric_difference"}
)
"""Methods that give something new of what is in what they get."""
ELEMENT_METHODS = frozenset({"get", "pop", "popleft", "setdefault", "index", "count", "popitem"})
"""Methods that give what is within, or what they get."""


def is_called_at(function: Any, place: int | str, count: int) -> bool:
    """Whether what is given at a place, or by a name, is a function that is called.

    ``count`` is how many arguments have a place: ``iter(f, end)`` calls what ``iter(xs)`` reads.
    """
    if own_attribute(function, "__name__", "") == "sort":  # of a list, bound or not
        return place == "key"
    if function is iter:
        return place == 0 and count == 2
    try:
        at = CALLED_AT.get(function)
        return at == place or (
            isinstance(place, str) and (at is not None or function in CALLED_BY_NAME)
        )
    except TypeError:  # unhashable
        return False


def uncalled(function: Any, args: Sequence[T], kwargs: Mapping[str, T]) -> list[T]:
    """The arguments without the functions that are called: those are asked for nothing else."""
    count = len(args)
    placed = [arg for place, arg in enumerate(args) if not is_called_at(function, place, count)]
    return placed + [arg for name, arg in kwargs.items() if not is_called_at(function, name, count)]


def is_known(callee: Any) -> bool:
    """Whether it is in one of the tables."""
    try:
        return callable(callee) and callee in KNOWN
    except TypeError:  # unhashable
        return False


def asked(callee: Any) -> frozenset[str]:
    """The attributes that a function of a library asks what it gets for, by name."""
    try:
        asked = library.ASKED.get(callee, _NONE)
        return arrays.ASKED if callee in arrays.FUNCTIONS else asked
    except TypeError:  # unhashable
        return _NONE
