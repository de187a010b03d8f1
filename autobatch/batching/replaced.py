"""What somebody has put in the place of functions of torch's, as it is now.

What is known of a function of torch's is known of its own code, and of what that calls by a name:
``F.relu`` is a line of Python that asks ``torch`` for its ``relu``. Anybody may put another in the
place of one at any time (``mock.patch``), and put it back. So what is known, recorded and compiled
belongs to what has been replaced when that was found out: each ``Replaced`` has a library of its
own (see ``vm.library``). A function of torch's that comes to what has been replaced runs thread by
thread, as Python code of nobody knows what; a module is lowered as one of the user's.

The engines compute with torch by name as well: what is replaced under a name that autobatch's own
code reads (``torch.where``) would compute something else there, so examples run one after the other
meanwhile. The little that this does with tensors itself it has from ``firsthand``.

Looked at: the names that torch's Python for tensors and modules reads, in the modules where it
looks for them, all functions of torch's in C, and all that tensors have. ``look`` is the check
before each call, under a microsecond: it asks whether any of these namespaces has changed at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from operator import is_
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodDescriptorType
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autobatch.frontend import MISSING
from autobatch.tags import namespace_of, tags_of

Place = tuple[int, str, Any]
"""A namespace, by its place in ``_SPACES``, a name in it, and what it means."""


def read_in(code: CodeType) -> Iterator[str]:
    """The names that a function reads, and those within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from read_in(inner)


def defined_in(module: Any) -> Iterator[FunctionType]:
    """The functions of a module of torch's, and the methods of its classes."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else (value,)
        yield from (each for each in members if isinstance(each, FunctionType))


def _read() -> frozenset[str]:
    """The names that torch's Python for tensors and modules reads."""
    places = [found for name, found in sys.modules.items() if name.startswith("torch.nn.modules.")]
    places += [F, torch.functional, torch._tensor]
    codes = (function.__code__ for place in places for function in defined_in(place))
    return frozenset(name for code in codes for name in read_in(code))


_READ = _read()
_HOMES: tuple[Any, ...] = (
    *(torch, F, torch.functional, torch._tensor, torch._C._nn, torch._VF),
    *(torch.special, torch.linalg, torch.fft),
)
_OF_TENSORS: tuple[type, ...] = (Tensor, nn.Parameter)
_SPACES = tuple(namespace_of(home) for home in (*_HOMES, *_OF_TENSORS))
_INHERITED = frozenset(dir(torch._C.TensorBase))
"""What a tensor has if its class has nothing of its own under the name."""
_SHOWS = frozenset({"__repr__", "__str__", "__format__", "__dir__", "__doc__", "__module__"})
"""What no operation on tensors asks for."""


def _is_function(found: Any) -> bool:
    return callable(found) and not isinstance(found, type)


def _is_noted(name: str, found: Any) -> bool:
    return isinstance(found, BuiltinFunctionType) or (name in _READ and _is_function(found))


@lru_cache
def _ours(loaded: int, prefix: str) -> frozenset[str]:
    """The names that the functions of autobatch's modules read."""
    places = [found for name, found in sys.modules.items() if name.startswith(prefix)]
    codes = (function.__code__ for place in places for function in defined_in(place))
    return frozenset(name for code in codes for name in read_in(code))


def read_by(prefix: str) -> frozenset[str]:
    """The names that the functions of some of autobatch's modules read: 0.1 s, and kept."""
    return _ours(sum(name.startswith(prefix) for name in sys.modules), prefix)


def _noted(at: int, space: Mapping[str, Any]) -> dict[str, Any]:
    """What a namespace has under the names that matter."""
    if at >= len(_HOMES):
        own = dict.fromkeys(_INHERITED, MISSING) | dict(space)
        return {name: found for name, found in own.items() if name not in _SHOWS}
    if space is vars(F):
        return {name: found for name, found in space.items() if _is_function(found)}
    return {name: found for name, found in space.items() if _is_noted(name, found)}


_NOTED = tuple(_noted(*each) for each in enumerate(_SPACES))
"""As it was when autobatch was imported."""


def is_torchs(function: Any) -> bool:
    """Whether it is a function that torch's source defines."""
    if not isinstance(function, FunctionType):
        return False
    module = function.__globals__.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] == "torch"


@dataclass(slots=True, eq=False, repr=False, weakref_slot=True)
class Replaced:
    """What has been replaced: ``names``, wherever they are. There is one of it for the same.

    ``one_by_one``: examples run one after the other meanwhile. Among that is what Python asks
    tensors by itself, or what is no plain method, or what the engines compute with.
    """

    places: tuple[Place, ...]
    names: frozenset[str] = field(init=False)
    one_by_one: bool = field(init=False)
    known: dict[tuple[Any, Any], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = frozenset(name for _, name, _ in self.places)
        of_tensors = [(name, new) for at, name, new in self.places if at >= len(_HOMES)]
        self.one_by_one = any(
            name.startswith("__") or not isinstance(new, (FunctionType, MethodDescriptorType))
            for name, new in of_tensors
        ) or bool(self.names and self.names & read_by("autobatch."))

    def is_met(self, function: Any, kind: type | None = None) -> bool:
        """Whether a function of torch's comes to what has been replaced, as far as names tell.

        It may be a method of ``kind``.
        """
        if not self.names or not is_torchs(function):
            return False
        key = (function.__code__, kind)
        found = self.known.get(key)
        if found is None:
            codes = (each.__code__ for each in run_by(function, kind))
            found = self.known[key] = any(not self.names.isdisjoint(read_in(c)) for c in codes)
        return found


def run_by(function: FunctionType, kind: type | None) -> Iterator[FunctionType]:
    """A function of torch's and those that it may come to, by their names."""
    pending, seen = [function], {function}
    while pending:
        current = pending.pop()
        yield current
        held: list[Any] = [getattr(current, "__wrapped__", None)]
        held += map(content, current.__closure__ or ())
        for name in read_in(current.__code__):
            held += [space.get(name) for space in (current.__globals__, *_SPACES)]
            held.append(getattr(kind, name, None))
        for found in held:
            if is_torchs(found) and found not in seen:
                seen.add(found)
                pending.append(found)


def content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


NOTHING = Replaced(())
"""Torch's functions are as they were."""


@dataclass(slots=True, eq=False, repr=False)
class _State:
    """``now`` is what was replaced when the namespaces had these ``tags``."""

    tags: list[int] | None = None
    now: Replaced = NOTHING


STATE = _State()
"""Of the process: ``STATE.now`` is what the last ``look`` has found."""
_tags = tags_of(_SPACES)
_known: WeakValueDictionary[tuple[tuple[int, str, int], ...], Replaced] = WeakValueDictionary()


def look() -> Replaced:
    """What is replaced now."""
    tags = None if _tags is None else _tags()
    if tags is None or tags != STATE.tags:
        STATE.now, STATE.tags = _found(), tags
    return STATE.now


def _found() -> Replaced:
    """The same, by a look through all names: some 60 us."""
    places: list[Place] = []
    for at, (space, noted) in enumerate(zip(_SPACES, _NOTED, strict=True)):
        found = map(space.get, noted, repeat(MISSING))
        if not all(map(is_, found, noted.values())):
            now = ((name, space.get(name, MISSING)) for name in noted)
            places += [(at, name, new) for name, new in now if new is not noted[name]]
    if not places:
        return NOTHING
    key = tuple((at, name, id(new)) for at, name, new in places)
    return _known.setdefault(key, Replaced(tuple(places)))


def put_back(before: Replaced) -> str:
    """Replace what was replaced ``before``, and nothing else; the names of what was not so."""
    wanted = {(at, name): new for at, name, new in before.places}
    differs = wanted.keys() | {(at, name) for at, name, _ in look().places}
    names: list[str] = []
    for at, name in sorted(differs):
        owner, new = (*_HOMES, *_OF_TENSORS)[at], wanted.get((at, name), _NOTED[at][name])
        if _SPACES[at].get(name, MISSING) is new:
            continue
        names.append(f"{owner.__name__}.{name}")
        delattr(owner, name) if new is MISSING else setattr(owner, name, new)
    look()
    return " and ".join(names)
