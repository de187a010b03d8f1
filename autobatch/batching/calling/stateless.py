"""``torch.func.functional_call``: modules whose parameters are operands.

In: a module of the user's own, and tensors by the names of its parameters and buffers, the same
for all threads or a thread's own. Out: what its ``forward`` gives, which is lowered as any other;
a part of torch's own is one operation on its parameters. The module itself does not change.

A module with given parameters is a container of their cells; its parts are such modules too, and
all else that ``forward`` reads of it is the module's.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from autobatch.batching.context import Context
from autobatch.batching.converters.dense import affine, weighted
from autobatch.batching.converters.registry import unhooked
from autobatch.batching.effects import effect_of
from autobatch.batching.host.rows import run_rows
from autobatch.batching.module_classes import (
    call_of,
    has_own_functions,
    is_chain,
    is_defined,
)
from autobatch.batching.submodules import is_hooked, parts_of
from autobatch.values.cells import (
    METHOD,
    STATELESS,
    Cell,
    Column,
    Container,
    Uniform,
    read,
    uniform,
)
from autobatch.values.repeated import is_repeated

LINEAR = {("weight",): weighted, ("weight", "bias"): affine}
"""What an ``nn.Linear`` does, by the parameters that it is given."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, slots=True)
class Operation:
    """A module of torch's own as a function of its parameters, by name, and its arguments."""

    module: nn.Module
    names: tuple[str, ...]
    __autobatch__ = "torch"
    __autobatch_composed__ = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        count = len(self.names)
        given = dict(zip(self.names, args[:count], strict=True))
        return torch.func.functional_call(self.module, given, args[count:], kwargs)

    @property
    def __name__(self) -> str:
        return type(self.module).__name__


@dataclass(frozen=True, slots=True)
class Chain:
    """The parts of an ``nn.Sequential``, as something to call each."""

    parts: tuple[Cell, ...]

    def children(self) -> Iterator[Cell]:
        return iter(self.parts)


def called(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell | None:
    """``functional_call``; None where it is one operation, or not what is seen through here."""
    if len(args) not in (2, 3, 4) or not set(kwargs) <= {"args", "kwargs"}:
        return None
    module = getattr(read(args[0]), "obj", None)
    if not isinstance(module, nn.Module):
        return None
    parts = parts_of(module)
    if any(map(is_hooked, parts)):
        why = "the module has hooks"
        return run_rows(context, torch.func.functional_call, args, kwargs, why)
    if any(map(has_own_functions, parts)):
        return None
    given = parameters(args[1])
    known = names_of(module)
    if given is None or not given.keys() <= known.keys():
        return None
    if any(len(given.keys() & others) > 1 for others in known.values()):
        return None  # two tensors for one that is tied: torch's error
    if effect_of(module) != "program" and not goes_by_parts(module, given.values()):
        return None
    slots = dict(zip(("args", "kwargs"), args[2:], strict=False)) | kwargs
    positional, named = slots.get("args", uniform(())), slots.get("kwargs", uniform({}))
    keywords = entries(named)
    if keywords is None:
        return None
    for name, others in known.items():  # tied: one tensor under several names
        if name in given:
            given |= dict.fromkeys(others, given[name])
    return context.invoke(context, cell_of(module, given), unpacked(positional), keywords)


def goes_by_parts(module: nn.Module, given: Iterable[Cell]) -> bool:
    """Whether torch's own module has a form for a large parameter that the threads share.

    As one operation it would read that for each thread; where all are small, one is faster.
    """
    if not is_chain(module) and type(module) not in (nn.Linear, *CONVOLUTIONS):
        return False
    values = map(read, given)
    return any(type(value) is Column and is_repeated(value.table) for value in values)


def parameters(cell: Cell) -> dict[str, Cell] | None:
    """The given tensors by name, from a dict or several."""
    value = read(cell)
    if type(value) is Container and value.type is tuple:
        found: dict[str, Cell] = {}
        for part in map(parameters, value.children()):
            if part is None:
                return None
            found |= part
        return found
    return entries(cell)


def entries(cell: Cell) -> dict[str, Cell] | None:
    """The entries of a dict, which is program-made or the same for all threads."""
    value = read(cell)
    if type(value) is Container and value.type is dict:
        return dict(value.cells)  # type: ignore[arg-type]
    if type(value) is Uniform and (value.obj is None or isinstance(value.obj, dict)):
        return {key: Cell(Uniform(item, value.shared)) for key, item in (value.obj or {}).items()}
    return None


def unpacked(cell: Cell) -> list[Cell]:
    """The positional arguments: a tuple of them, or a single one."""
    value = read(cell)
    if type(value) is Container and value.type is tuple:
        return list(value.children())
    if type(value) is Uniform and (value.obj is None or isinstance(value.obj, tuple)):
        return [Cell(Uniform(item, value.shared)) for item in value.obj or ()]
    return [cell]


def names_of(module: nn.Module) -> dict[str, list[str]]:
    """Each parameter's and buffer's name, and the names of the same tensor."""
    found: dict[int, list[str]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        found.setdefault(id(tensor), []).append(name)
    return {name: names for names in found.values() for name in names}


def cell_of(module: nn.Module, given: dict[str, Cell]) -> Cell:
    """A module with given parameters; a list or dict of modules as one of such cells.

    The module itself is the static part of that, for its methods.
    """
    if isinstance(module, nn.ModuleList):
        parts = [part(module, given, name) for name, _ in children(module)]
        return Cell(Container(tuple, parts, module))
    if isinstance(module, nn.ModuleDict):
        named = {name: part(module, given, name) for name in module}
        return Cell(Container(dict, named, module))
    if not given:
        return uniform(module, shared=True)
    return Cell(Container(STATELESS, list(given.values()), (module, tuple(given))))


def children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(module._modules.items())  # type: ignore[arg-type]


def part(module: nn.Module, given: dict[str, Cell], name: str) -> Cell:
    """A part of a module with those of the given parameters that are its own."""
    prefix = name + "."
    own = {key.removeprefix(prefix): cell for key, cell in given.items() if key.startswith(prefix)}
    return cell_of(getattr(module, name), own)


PLACES = ("__getitem__", "__iter__", "__len__")


def in_order(value: Container) -> list[Cell] | None:
    """The parts, by place, of a list of modules with given parameters, or of an ``nn.Sequential``.

    None for anything else.
    """
    if value.type is not STATELESS:
        return list(value.children()) if isinstance(value.static, nn.ModuleList) else None
    module, names = value.static
    kind = type(module)
    if not isinstance(module, nn.Sequential) or any(
        getattr(kind, name) is not getattr(nn.Sequential, name)
        or not is_defined(getattr(kind, name), nn.Sequential)
        for name in PLACES
    ):
        return None
    given = dict(zip(names, value.children(), strict=True))
    return [part(module, given, name) for name, _ in children(module)]


Listed = nn.ModuleList | nn.Sequential
SLICES: WeakKeyDictionary[Listed, dict[Any, Listed]] = WeakKeyDictionary()
"""Slices of lists of modules, each made once, so that groups that have taken it are alike."""


def item(value: Container, parts: list[Cell], key: Any) -> Cell:
    """``module[key]``, of which these are the parts; a slice of them is such a module."""
    module: Listed = value.static[0] if value.type is STATELESS else value.static
    if not isinstance(key, slice):
        module[key]  # its errors are its own
        found: Cell = parts[key]
        return found
    known, place = SLICES.setdefault(module, {}), (key.start, key.stop, key.step)
    wanted, made = list(module)[key], known.get(place)
    if made is None or list(map(id, made)) != list(map(id, wanted)):
        made = known[place] = cast(Listed, module[key])
    taken = Container(tuple, parts[key], made)
    return Cell(taken) if isinstance(module, nn.ModuleList) else as_module(taken)


def as_module(value: Container) -> Cell:
    """An ``nn.Sequential`` of some parts."""
    made = whole(value)
    return Cell(made) if made.cells else uniform(value.static, shared=True)


def is_of_module(value: Container, name: str) -> bool:
    """Whether an attribute is that of a module with given parameters, or of a list of such."""
    return value.type is STATELESS or (
        isinstance(value.static, nn.Module) and name not in ("keys", "values", "items")
    )


def whole(value: Container) -> Container:
    """A list or dict of modules as the module that it stands for."""
    given: dict[str, Cell] = {}
    module: nn.Module = value.static
    for (name, _), cell in zip(children(module), value.children(), strict=True):
        inner = cell.value
        if type(inner) is Container:
            inner = inner if inner.type is STATELESS else whole(inner)
            own = zip(inner.static[1], inner.children(), strict=True)
            given |= {f"{name}.{key}": tensor for key, tensor in own}
    return Container(STATELESS, list(given.values()), (module, tuple(given)))


def attribute(context: Context, cell: Cell, value: Container, name: str) -> Cell:
    """``self.name`` of a module with given parameters."""
    if value.type is not STATELESS:
        value = whole(value)
        cell = Cell(value)
    module, names = value.static
    given = dict(zip(names, value.children(), strict=True))
    if name in given:
        found: Cell = given[name]
        return found
    if name in module._modules:
        return part(module, given, name)
    kind = getattr(type(module), name, None)
    if isinstance(kind, property) and kind.fget is not None:
        return context.invoke(context, kind.fget, [cell], {})
    if isinstance(kind, types.FunctionType) and name not in vars(module):
        return Cell(Container(METHOD, [cell], kind))
    return uniform(getattr(module, name), shared=True)


def target(value: Container, stage: int = 0) -> tuple[str, Any, list[Cell]]:
    """What a call of a module with given parameters runs: effect, callee, leading arguments.

    ``stage``: how far a function of torch's has come that calls it (see ``module_classes``).
    """
    module, names = value.static
    call = call_of(type(module), stage)
    if call is not None:
        return "program", call, [Cell(value)]
    given = dict(zip(names, value.children(), strict=True))
    if is_chain(module) and (
        effect_of(module) == "program" or goes_by_parts(module, value.children())
    ):
        return "chain", Chain(tuple(part(module, given, name) for name, _ in children(module))), []
    if effect_of(module) != "program":
        rule = LINEAR.get(names) if type(module) is nn.Linear and unhooked(module) else None
        if rule is not None and names == tuple(name for name, _ in module.named_parameters()):
            return "torch", rule, list(given.values())
        return "torch", Operation(module, names), list(given.values())
    return "program", type(module).forward, [Cell(value)]
