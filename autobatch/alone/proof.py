"""Whether a program is one of Python objects alone, and whether anybody can see what it does.

In: a Python function, what its arguments share with the caller, and the classes that are in them.
Out: a ``Proof``, or ``NotAlone`` with a reason. All code is looked at that may run: the functions
that are named, those of the classes that have instances, by their names; special methods, which
Python calls by itself, always. Each operation and callee must be known to work on data, and
nothing may be written that existed before (Andersen's analysis in its smallest form, over a closed
world). What this rests on is noted, and ``Proof.holds`` looks at it again before each run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import EnumMeta
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from autobatch.alone import printing
from autobatch.alone.computing import FEWEST, Limits
from autobatch.alone.kinds import NotAlone, Reasons
from autobatch.alone.steps import Steps
from autobatch.alone.taint import NONE, OUTER_DEEP, OWN, TENSOR, TENSORS, Share, Shares, Unit
from autobatch.alone.torchs import is_torch_as_it_was
from autobatch.alone.world import Data, World
from autobatch.batching.generators import Given, is_generator, yields_within
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.source import Span
from autobatch.vm.library import Library
from autobatch.vm.looking import Looking
from autobatch.vm.purity import is_same

NUMBERS = (bool, int, float, complex)


@dataclass(frozen=True, slots=True)
class Grounds:
    """What has been looked up, and the classes and functions that have been looked into."""

    lookups: tuple[tuple[Callable[[], Any], Any], ...]
    classes: tuple[tuple[type, tuple[type, ...], dict[str, Any]], ...]
    functions: tuple[tuple[FunctionType, Any, Any, Any], ...]

    @classmethod
    def of(cls, world: World) -> Grounds:
        classes = ((kind, kind.__mro__, members) for kind, members in world.classes.items())
        functions = (
            (f, f.__code__, f.__defaults__, dict(f.__kwdefaults__ or {}))
            for f in world.functions.values()
        )
        return cls(tuple(world.lookups), tuple(classes), tuple(functions))

    def hold(self) -> bool:
        """Whether all that was looked up is still the same."""
        try:
            return (
                all(is_alike(look(), value) for look, value in self.lookups)
                and all(
                    function.__code__ is code
                    and function.__defaults__ is defaults
                    and (function.__kwdefaults__ or {}) == named
                    for function, code, defaults, named in self.functions
                )
                and all(is_unchanged(*each) for each in self.classes)
            )
        except Exception:  # of a comparison: something else is there
            return False


@dataclass(frozen=True, slots=True)
class Proof:
    """``copies``: a thread needs containers of its own; ``returns``: it may give back some.

    ``keeps_own``: some of those that it is given may be within what it gives back.

    ``keeps_tensors``: some may be in what it gives back. Where all that differs by thread are
    tensors and numbers, up to ``most_threads`` are better run so (None: any number). It rests on
    its ``grounds``, on what ``data`` held that all threads share and, where it ``computes``, on the
    ``tensors`` that it reads; where it ``asks_torch``, on what torch's functions are. Where it
    ``shows_memory``, numpy may ask tensors for it, which those with gradients refuse. ``is_alone``:
    threads together may be refused it, for what functions of it do that yield. ``prints``
    is where threads may come to a ``print``, and are given up (see ``printing``); ``shows``, where
    they may make text of a tensor that may have a gradient, and are, too. ``attached``: some of the
    tensors need gradients.
    """

    copies: bool
    returns: bool
    keeps_tensors: bool
    most_threads: int | None
    grounds: Grounds
    data: tuple[Data, ...]
    computes: bool = False
    tensors: tuple[Tensor, ...] = ()
    asks_torch: bool = False
    shows_memory: bool = False
    prints: Span | None = None
    attached: bool = False
    is_alone: bool = False
    keeps_own: bool = False
    shows: Span | None = None

    @property
    def gives_up(self) -> Span | None:
        """Where threads may be given up."""
        return self.prints or self.shows

    def holds(self, limits: Limits) -> bool:
        """Whether all that it rests on is still the same, and within what a call allows."""
        limits = limits if self.attached else limits.detached()
        try:
            return (
                self.grounds.hold()
                and all(each.is_as_before(limits) for each in self.data)
                and (not self.computes or limits.allow_held(self.tensors))
                and (not self.asks_torch or is_torch_as_it_was())
            )
        except Exception:  # of a comparison: something else is there
            return False


def is_alike(found: object, before: object) -> bool:
    """Whether it is the same, or another number of its kind: nothing rests on which."""
    return is_same(found, before) or (type(found) in NUMBERS and type(found) is type(before))


def is_unchanged(kind: type, bases: tuple[type, ...], members: dict[str, Any]) -> bool:
    """Whether a class has the same bases and, by identity, the same members."""
    found = vars(kind)
    return (
        kind.__mro__ == bases
        and found.keys() == members.keys()
        and all(map(operator.is_, found.values(), members.values()))
    )


def proved(
    function: FunctionType,
    receiver: object,
    given: Mapping[int | str, Share],
    classes: frozenset[type],
    library: Library,
    computes: bool = False,
    holds_tensors: bool = False,
    attached: bool = False,
    limits: Limits = FEWEST,
    modules: Iterable[nn.Module] = (),
    refusals: Reasons | None = None,
    holds_arrays: bool = False,
    leading: Iterable[str] = (),
) -> Proof:
    """The proof for a function that gets what has these shares; ``receiver`` comes first.

    ``given`` has the share of each argument, by place or name. ``computes``: it may compute with
    tensors within the ``limits``; ``holds_tensors``: objects among the arguments hold some, or
    something of numpy's (``holds_arrays``); ``attached``: some of those need gradients;
    ``modules`` are among them; ``leading`` are the attributes by which instances among them have
    more than numbers and texts. ``refusals``: to be filled with all that keeps it from being
    proved; otherwise the first is raised.
    """
    world = World(library, Shares(computes), limits=limits, may_print=True, refusals=refusals)
    world.arrays, world.attached = holds_arrays, attached
    world.may_yield = world.may_lend = True
    world.shares.leading = set(leading)
    if holds_tensors:
        world.shares.store(TENSORS)
    for kind in classes:
        if isinstance(kind, EnumMeta):  # of members, which lead to all others
            world.met_callable(kind)
        else:
            world.instance_existed(kind)
    for module in modules:
        world.met(module)
    unit, whole = entered(world, world.meant(function), receiver, given)
    settle(world, partial(look_through, world))
    if refusals:
        raise next(iter(refusals.values()))
    if world.printed is not None or world.shown is not None:
        for printer, known in world.units.values():
            does = "prints" if world.printed else "makes text of what may be a tensor"
            printing.check(printer.function, known, printer.yields, does)
    meets_tensors = holds_tensors or bool(whole & TENSORS or world.modules or world.tensors)
    asks_torch = computes or meets_tensors
    if asks_torch and not is_torch_as_it_was():
        raise NotAlone("functions of torch's have been changed")
    whole = unit.returned | unit.given_back | world.shares.kept()
    return Proof(
        world.shares.writes_own or bool(world.yields and world.shares.anything & OWN),
        (whole if computes else unit.returned) & ~TENSOR != NONE,
        bool(whole & TENSORS),
        world.scale.most_threads(),
        Grounds.of(world),
        tuple(data for data, _ in world.data.values() if data.may_change),
        computes,
        tuple(world.tensors.values()),
        asks_torch,
        meets_tensors and world.arrays,
        world.printed,
        world.attached,
        computes and are_refused(world),
        bool(whole & OWN),
        world.shown,
    )


def are_refused(world: World) -> bool:
    """Whether functions that yield may be refused a batch, which knows more of what they get.

    So is one that is left within a ``try``; and one that the program makes, where it is handed on.
    """
    if any(unit.source.yields is not None for unit, _ in world.units.values()):
        return True
    given = Given(frozenset(world.classes), frozenset(), (), False)
    for function in filter(is_generator, world.functions.values()):
        try:
            looking = Looking(world.library, True, given)
            if yields_within(function) or looking.found(function) is not None:
                return True
        except AutobatchError:
            return True
    return False


def entered(
    world: World, function: FunctionType, receiver: object, given: Mapping[int | str, Share]
) -> tuple[Unit, Share]:
    """The unit that the program begins with, which is given its arguments, and all their shares."""
    is_module = isinstance(receiver, nn.Module)
    unit = world.unit(function, receiver if is_module else MISSING)
    unit.is_first = True
    whole = NONE
    for share in given.values():
        whole |= share
    if receiver is not MISSING:
        found = world.know(receiver) if is_module else world.met(receiver)
        if is_module or type(receiver) not in world.classes:
            found |= OUTER_DEEP
        world.shares.add(unit, [unit.function.params[0].name], found)
    rest = unit.function.params[receiver is not MISSING :]
    if any(param.kind.startswith("var_") for param in rest):
        world.shares.add(unit, [param.name for param in rest], whole)
        world.shares.store(whole)
    else:
        places = dict(enumerate(param.name for param in rest))
        for at, share in given.items():
            name = places.get(at) if isinstance(at, int) else at
            world.shares.add(unit, [] if name is None else [name], share)
    return unit, whole


def look_through(world: World) -> None:
    """Look at all that runs, once."""
    for unit, known in list(world.units.values()):
        world.shares.enter(unit)
        Steps(world, unit, known).run()


def settle(world: World, look: Callable[[], None]) -> None:
    """Look through all that runs until nothing new is found; then doubts are refusals."""
    shares = world.shares
    shares.changed = True
    while shares.changed:
        shares.changed = False
        world.methods()
        look()
    if world.doubted:
        world.is_settled = True
        look()
