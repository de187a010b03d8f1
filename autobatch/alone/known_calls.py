"""What calls do whose callee is known: functions of Python's and of torch's, the user's, classes.

In: a callee, and what its arguments share. Out: what the call gives; what it writes and keeps is
noted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import ChainMap
from dataclasses import dataclass
from enum import Enum
from types import (
    FunctionType,
    MethodType,
)

import torch
from torch import nn

from autobatch.alone import arrays, computing, derivatives, dispatched, kept, reads
from autobatch.alone.kinds import NotAlone, titled
from autobatch.alone.members import Members
from autobatch.alone.modules import MADE, MAKING, own_forward
from autobatch.alone.taint import CODE, FOREIGN, NONE, OUTER_DEEP, TENSOR, TENSORS, Share, deep
from autobatch.batching import known_callees as callees
from autobatch.batching.effects import is_library
from autobatch.frontend import MISSING
from autobatch.ir.program import CallShape, Var

MANAGERS = arrays.MANAGERS | {contextlib.suppress}


@dataclass(frozen=True, slots=True)
class KnownCalls(Members):
    """Calls of one function of what is known."""

    def tensors_read(
        self, found: object, args: tuple[Var, ...], given: list[Share], shape: CallShape
    ) -> Share:
        """A function of Python's gets tensors: it reads them, or goes through them."""
        if arrays.is_function(found):
            if not self.world.shares.computes and found not in arrays.TO_ARRAYS:
                raise NotAlone(f"{titled(found)} gets what may be a tensor")
            return self.known_call(found, given, shape)
        if self.world.shares.computes and found in computing.GOING_ON:
            return self.known_call(found, given, shape)
        if found in computing.SHOWING and self.world.may_show(self.unit.function.span):
            return NONE
        if found in callees.GENERATORS:
            for share in given:
                self.world.shares.store(share & TENSORS)  # a generator keeps what it is seeded by
            return self.known_call(found, given, shape)
        mapped = self.known.looked_up(args[0]) if found is map else MISSING
        if mapped in reads.READERS:
            return self.known_call(found, [share & ~TENSORS for share in given], shape)
        if found not in reads.READERS and found not in reads.GOING_THROUGH:
            raise NotAlone(f"{titled(found)} gets what may be a tensor")
        return self.known_call(found, given, shape)

    def known_call(self, found: object, given: list[Share], shape: CallShape) -> Share:
        world, shares = self.world, self.world.shares
        if found is torch.no_grad and not given and shares.computes:
            return NONE  # a mode, which is looked at where it is entered
        if isinstance(found, FunctionType):
            found = world.meant(found)
        elif isinstance(found, MethodType) and isinstance(found.__func__, FunctionType):
            found = MethodType(world.meant(found.__func__), found.__self__)
        whole = union(given)
        derived = derivatives.derived(found) if shares.computes else None
        if derived is not None:
            return self.differentiated(derived, whole, given, shape)
        if self.is_of_torch(found):
            return computing.called(found, whole, shares, shape)
        if callees.is_known(found):
            return self.python_called(found, whole, given, shape)
        world.scale.objects |= kept.is_keeping(found)
        if kept.is_keeping(found):
            unit = world.kept(found)
            world.passed(unit, given, shape)
            return unit.returned
        if isinstance(found, nn.Module):
            return self.module_called(found, given, shape)
        if dispatched.is_dispatching(found):
            each_of = world.dispatched(found)
            if whole & TENSOR and any(map(callees.is_known, each_of)):
                raise NotAlone("a function of Python's that is registered may get a tensor")
            return arrays.joined(self.known_call(each, given, shape) for each in each_of)
        if kept.is_bound(found):
            world.met(found)
            shares.store(whole)
            got = whole | world.met(found)
            return got | shares.within(got) | shares.hidden | shares.lent
        if isinstance(found, type):
            if found in MADE and shares.computes:
                return self.module_made(found, whole, shape)
            return self.class_called(found, whole, given, shape)
        return self.users_called(found, whole, given, shape)

    def python_called(
        self, found: object, whole: Share, given: list[Share], shape: CallShape
    ) -> Share:
        """A function or class of Python's or numpy's, of which it is known what it does."""
        world, shares = self.world, self.world.shares
        if found in computing.NO_TENSORS:
            return NONE
        self.note_python(found, whole, shape)
        if found in callees.READS:
            made = TENSORS if found in computing.STARTING else TENSOR
            return shares.hidden | (shares.within(whole) & made if shares.computes else NONE)
        if found is dataclasses.replace:
            world.fields_are_replaced()
        if found in callees.GOING_THROUGH_FIELDS:
            world.meets_parts()
            shares.pool()
        if found is functools.partial and shares.computes:
            computing.check(shape)
        if found is type:
            if not shape.is_plain or len(given) != 1:
                world.kinds_are_made()
            return world.kind_of(whole)
        if found is slice:
            shares.slices_are_made()
        if found is super and len(given) == 2:
            return given[1]
        world.scale.made(found)
        world.made_of(found)
        if arrays.is_function(found):
            world.meets_arrays()
            return arrays.called(found, given, shares, shape)
        if found in callees.GENERATORS:
            if found in arrays.GENERATORS:
                world.meets_arrays()
            return shares.hidden
        return self.container_called(found, whole, given, shape)

    def note_python(self, found: object, whole: Share, shape: CallShape) -> None:
        """What a call of it may run by the way, and whether that is not looked into."""
        world = self.world
        world.asked_by(found)
        if world.may_do_more and whole & CODE and found not in callees.CALLS_NOTHING:
            raise NotAlone("it may write in place")  # ``functools.reduce(F.relu, rows)``
        if found in arrays.MANAGERS and (not shape.is_plain or "call" in shape.keywords):
            raise NotAlone("it has numpy call something")
        if found in MANAGERS and not world.suppresses:
            world.suppresses = world.shares.changed = True

    def container_called(
        self, found: object, whole: Share, given: list[Share], shape: CallShape
    ) -> Share:
        """What changes its first argument, or puts its arguments into what it gives."""
        shares, put_in = self.world.shares, held(found, given, shape)
        if found in callees.CHOOSING | callees.APPLYING:
            code = ~CODE | handed(found, given, shape)  # what it calls does not come out itself
            put_in, whole = put_in & code, whole & code
            whole |= shares.lent if found in callees.APPLYING else NONE
        if found is ChainMap:  # it writes to the first, and holds the others
            shares.chain(whole if shape.is_plain else whole | shares.within(whole))
            return first(given, shape) if shape.is_plain else whole | shares.within(whole)
        if found in callees.CHANGES:
            shares.write(given[0] if shape.is_plain and given else whole)
            shares.contain(whole)
            return shares.within(whole)
        put = shares.store if found in callees.GIVING_ATTRIBUTES else shares.contain
        put(deep(whole) | put_in)
        copied = found in callees.COPIES
        return shares.hidden | (whole & CODE) if copied else whole | shares.within(whole)

    def module_made(self, kind: type, whole: Share, shape: CallShape) -> Share:
        """A module of torch's without weights is made, which is a function of torch's from then on.

        What is known of it is forgotten: whoever asks it for anything else asks what is not known.
        """
        place, shares = MADE[kind], self.world.shares
        computing.check(shape)
        if whole & TENSOR:
            raise NotAlone(f"{kind.__name__} is given what may be a tensor")
        if place is not None and computing.may_say(shape, place, "inplace"):
            raise NotAlone("it may write in place")
        shares.changed |= not self.world.calls_torch
        self.world.calls_torch = True
        return CODE

    def class_called(self, kind: type, whole: Share, given: list[Share], shape: CallShape) -> Share:
        """A class of the user's is called, or an exception's."""
        world = self.world
        world.met_class(kind)
        if issubclass(kind, BaseException | Enum) and kind not in world.classes:
            world.shares.store(whole)
            return NONE
        world.built(kind, whole, given, shape)
        world.scale.objects = True
        return world.met(kind) if issubclass(kind, Enum) else NONE

    def users_called(
        self, found: object, whole: Share, given: list[Share], shape: CallShape
    ) -> Share:
        """A function or method of the user's is called, or an object with a ``__call__``."""
        world = self.world
        if isinstance(found, MethodType) and isinstance(found.__func__, FunctionType):
            if isinstance(found.__self__, nn.Module):
                own = world.know(found.__self__) | OUTER_DEEP
                unit = world.unit(found.__func__, found.__self__)
                world.passed(unit, [own, *given], shape, 1)
                return unit.returned
            if is_library(found.__func__) and is_kind_of_tuple(found.__self__):  # ``_make``
                world.as_receiver(found.__self__)
                world.shares.store(deep(whole))
                return NONE
            unit = world.unit(found.__func__)
            world.passed(unit, [world.receiver(unit, found.__self__), *given], shape, 1)
        elif isinstance(found, FunctionType):
            unit = world.unit(found)
            world.freed(unit)
            world.passed(unit, given, shape)
            world.scale.calls(self.unit.source, unit.source)
        else:
            called = vars(type(found)).get("__call__")
            if not isinstance(called, FunctionType) or is_library(type(found)):
                raise NotAlone(f"{titled(found)} is not known")
            unit = world.unit(called)
            world.passed(unit, [world.met(found), *given], shape, 1)
        return unit.returned

    def differentiated(
        self, function: FunctionType, whole: Share, given: list[Share], shape: CallShape
    ) -> Share:
        """A derivative of a function of the user's, which it calls with tensors of its own."""
        world, shares = self.world, self.world.shares
        unit = world.unit(world.meant(function))
        world.freed(unit)
        tensors = TENSOR | (shares.within(whole) & FOREIGN)
        world.passed(unit, [share | tensors for share in given], shape)
        world.scale.calls(self.unit.source, unit.source)
        shares.contain(tensors)  # those of a function of several are in a tuple
        return tensors | unit.returned

    def module_called(self, module: nn.Module, given: list[Share], shape: CallShape) -> Share:
        """A module is called: it runs its forward, and that of what it holds."""
        world, whole = self.world, union(given)
        own = world.know(module) | OUTER_DEEP
        forward = own_forward(module)
        if forward is not None:
            unit = world.unit(forward, module)
            world.passed(unit, [own, *given], shape, 1)
            return unit.returned
        computing.check(shape)
        parts = [part for part in module._modules.values() if part is not None]
        if type(module) is nn.Sequential and shape.is_plain and len(given) == 1:
            for part in parts:
                given = [self.module_called(part, given, shape)]
            return given[0]
        for part in parts:
            world.met(part)
        if type(module) in MAKING:
            return TENSOR
        return TENSOR | (world.shares.within(whole) & FOREIGN)


def union(shares: list[Share]) -> Share:
    found = NONE
    for share in shares:
        found |= share
    return found


def first(given: list[Share], shape: CallShape) -> Share:
    """The first argument that has a place."""
    return given[0] if shape.positional else NONE


def handed(found: object, given: list[Share], shape: CallShape) -> Share:
    """What a function of Python's may hand to one that it gets: not that one itself."""
    if not shape.is_plain:
        return union(given)
    placed = len(shape.positional)
    named = dict(zip(map(str, shape.keywords), given[placed:], strict=True))
    return union(callees.uncalled(found, given[:placed], named))


def is_kind_of_tuple(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, tuple)


def held(callee: object, given: list[Share], shape: CallShape) -> Share:
    """Which arguments are themselves within what a function of Python's gives: ``dict(a=x)``."""
    holds = callee in callees.HOLDING or not shape.is_plain
    return union(given if holds else given[len(shape.positional) :])
