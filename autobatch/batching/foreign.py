"""Objects that existed before the call: a program may read them, not write them.

``autobatch.objects(items)`` gives each thread an object of its own. Its lists, dicts and tensors
are private copies (``arguments.private``); an instance of the user's class is the caller's, and
so is all that it refers to. The objects that a program makes are not among these.
"""

from __future__ import annotations

import types
from array import array
from collections import ChainMap, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from autobatch import firsthand
from autobatch.batching.effects import is_library
from autobatch.batching.handed import Handed
from autobatch.batching.host.making import MADE
from autobatch.structure import is_collection, own_attributes
from autobatch.values.cells import Cell, Container, Objects, read

BUILTIN = (list, tuple, dict, set, frozenset, OrderedDict, defaultdict, deque)
_ATOMS = (str, bytes, int, float, complex, type(None))
_LASTING = (type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType)
"""What a program never makes."""
_SKIPPED = (*_ATOMS, *_LASTING)
_UNVISITED = (*_ATOMS, types.ModuleType, types.BuiltinFunctionType)


@dataclass(slots=True, eq=False, repr=False)
class Foreign:
    """What a run was given; ``known`` are the identities of all that it reaches, once asked for.

    ``memory`` are the storages of its tensors: a view of one is a tensor of its own. ``older`` is
    what was given before, of which something is still at work (see ``vm.refill``), ``inner`` what
    is not to be written just now (see ``transforms.captured``). ``own`` are modules that the
    program has made, by identity, with those in them: each is one thread's.
    """

    roots: dict[int, Any] = field(default_factory=dict)
    known: dict[int, Any] = field(default_factory=dict)
    memory: set[int] = field(default_factory=set)
    older: Foreign | None = None
    inner: Foreign | None = None
    own: WeakValueDictionary[int, nn.Module] = field(default_factory=WeakValueDictionary)

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Foreign:
        """What the arguments bring along; their own builtin containers and tensors are copies."""
        found = cls()
        for cell in cells:
            value = read(cell)
            if type(value) is Objects:
                for item in value.items:
                    found.roots.update((id(part), part) for part in instances(item))
            elif type(value) is Container:
                found.roots |= cls.of(value.children()).roots
        return found

    def note(self, obj: Any) -> None:
        """``obj`` is shared by all threads and goes to each of them as an object."""
        obj = owner_of(obj)
        if not isinstance(obj, _UNVISITED) and id(obj) not in self.known:
            self.roots[id(obj)] = obj

    @property
    def holds_any(self) -> bool:
        """Whether there is anything of the kind."""
        own = bool(self.roots or self.known or self.memory)
        return own or any(part is not None and part.holds_any for part in (self.older, self.inner))

    def holds(self, item: Any) -> bool:
        if isinstance(item, _SKIPPED):
            return isinstance(item, _LASTING)
        while self.roots:
            self.visit(self.roots.popitem()[1])
        if isinstance(item, memoryview):
            return self.holds(item.obj)
        if isinstance(item, ChainMap):
            return self.holds(item.maps[0])
        if id(item) in self.known or memory_of(item) in self.memory:
            return True
        return any(part is not None and part.holds(item) for part in (self.older, self.inner))

    def others(self, items: Iterable[Any]) -> list[Any]:
        """Items without those that are known to be held, at a glance: others may be, too."""
        while self.roots:
            self.visit(self.roots.popitem()[1])
        known = self.known
        return [item for item in items if id(item) not in known]

    def visit(self, obj: Any) -> None:
        waiting = [obj]
        while waiting:
            item = owner_of(waiting.pop())
            if isinstance(item, _UNVISITED) or id(item) in self.known:
                continue
            self.known[id(item)] = item
            place = memory_of(item)
            if place:
                self.memory.add(place)
            waiting += parts(item)


def owner_of(item: Any) -> Any:
    """What a method of Python's is bound to (``table.get``); anything else is itself."""
    return item.__self__ if isinstance(item, types.BuiltinFunctionType) else item


def memory_of(item: Any) -> int:
    """Where the memory of a tensor or array begins; 0 for what has none."""
    if isinstance(item, np.flatiter):
        item = item.base
    if isinstance(item, np.ndarray):
        while isinstance(item.base, np.ndarray):
            item = item.base
        if isinstance(item.base, Tensor | memoryview):
            return memory_of(item.base)
        return int(item.__array_interface__["data"][0])
    if isinstance(item, memoryview):
        return memory_of(item.obj)
    if isinstance(item, bytearray | array):
        return int(np.frombuffer(item, np.uint8).__array_interface__["data"][0]) if item else 0
    if not isinstance(item, Tensor):
        return 0
    try:
        storage = firsthand.untyped_storage(item)
        return 0 if storage.device.type == "meta" else storage.data_ptr()  # a recording's has none
    except (RuntimeError, NotImplementedError):  # sparse, or a wrapper of another
        return 0


VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
LENDING = ("__array__", "__array_interface__", "__array_struct__")
"""How an object lends its memory to arrays."""


def memories_of(item: Any) -> set[int]:
    """The same of what an array or a tensor that is made of an operand may have the memory of."""
    return {memory_of(item), *lent_by(item)} - {0}


def lent_by(item: Any) -> set[int]:
    """Where the memory is that an object lends, which is no array itself."""
    if isinstance(item, Tensor | np.ndarray | np.generic):
        return set()
    kind, found = type(item), set[int]()
    if any(hasattr(kind, name) for name in LENDING):
        found |= lent(np.asarray, item)
    if hasattr(kind, "__dlpack__"):
        found |= lent(from_dlpack, item)
    return found


def lent(convert: Callable[[Any], Any], item: Any) -> set[int]:
    try:
        return {memory_of(convert(item))}
    except Exception:  # no operand of that kind, as whoever takes it says
        return set()


def instances(item: Any) -> Iterator[Any]:
    """The objects that are no builtin containers or tensors, in a private copy of some."""
    waiting, seen = [item], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if type(part) in BUILTIN:
            waiting += parts(part)
        elif not isinstance(part, (*_SKIPPED, Tensor, nn.Module)) and not is_collection(part):
            yield part


def parts(item: Any) -> list[Any]:
    """What an object refers to, as far as its attributes and items say."""
    if isinstance(item, Tensor):
        return []
    if isinstance(item, types.CellType):
        return [item.cell_contents] if item != types.CellType() else []
    if isinstance(item, type):
        return [] if is_library(item) else list(vars(item).values())
    if isinstance(item, types.FunctionType):
        cells = [] if is_library(item) else item.__closure__ or ()
        defaults = (*(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values())
        own = (value for name, value in vars(item).items() if name != MADE)
        return [*cells, *defaults, *own]
    if isinstance(item, types.MethodType):
        return [item.__func__, item.__self__]
    if isinstance(item, Handed):
        return item.held()
    if isinstance(item, partial):
        return [item.func, *item.args, *item.keywords.values(), *vars(item).values()]
    table = own_attributes(item)
    found: list[Any] = [] if table is None else [table, *table.values()]
    for kind in type(item).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        found += [getattr(item, name) for name in names if hasattr(item, name)]
    if isinstance(item, dict):
        found += item.values()
    elif isinstance(item, list | tuple | set | frozenset | deque):
        found += item
    elif isinstance(item, VIEWS):
        found += item.mapping.values()
    elif isinstance(item, types.MappingProxyType):
        found += item.values()
    return found
