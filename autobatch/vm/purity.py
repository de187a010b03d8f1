"""Whether a call of a program function can run out of turn, with other calls: its purity.

In: a lowered function and what its names mean (a module's globals, a closure, a receiver). Out:
a ``Purity``: that it has no effect but on what it makes itself, which parameters it may write in
place, which its result may share memory with, whether it draws. Callees that are known when it is
lowered are looked into, recursively; of those that are not, a fork-join call looks when it meets
them.
"""

from __future__ import annotations

import builtins
import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import BuiltinMethodType, CellType, FunctionType, MethodType
from typing import Any

from autobatch.batching.calling.meaning import are_same, called_as
from autobatch.batching.effects import (
    DRAW_WRITES,
    DRAWS,
    MUTATING_METHODS,
    effect_of,
    is_draw,
    is_inplace_name,
)
from autobatch.batching.updates import is_updating
from autobatch.frontend import MISSING, Path, generating, meaning
from autobatch.frontend.resolve import imported_before, inherited_method, static_attribute
from autobatch.ir.definitions import Definitions
from autobatch.ir.ops import INPLACE, info
from autobatch.ir.program import Block, Call, CallShape, Function, Op, Param, Var
from autobatch.passes.origins import OUTER, Fate, Given, Origins, Outer, Sources
from autobatch.random.python import is_python_draw
from autobatch.source import Span
from autobatch.structure import own_attribute
from autobatch.transforms.records import derives
from autobatch.vm.drawn import Drawn
from autobatch.vm.nested import Nested
from autobatch.vm.written_operands import written_operands


@dataclass(frozen=True, slots=True)
class Purity:
    """``writes`` and ``returns`` are names of ``params``; ``outer``: it may return what existed.

    Of what it writes, it writes ``sure`` whatever that is; the others by operators such as ``+=``,
    which make a new value of a number. ``draws``: it may draw random numbers, which is the only
    effect that a pure one may have. ``makes``: it makes an instance of a class, which may hold what
    it is given.
    """

    is_pure: bool
    writes: frozenset[Var] = frozenset()
    sure: frozenset[Var] = frozenset()
    returns: frozenset[Var] = frozenset()
    outer: bool = True
    draws: bool = False
    params: tuple[Param, ...] = ()
    makes: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether nothing depends on when it runs, or how often."""
        return self.is_pure and not self.draws

    def may_fork(self, seeded: bool) -> bool:
        """Whether a call can run out of turn; under a seed, what it draws depends on its path."""
        return self.is_pure and (seeded or not self.draws)


IMPURE = Purity(False)
PLAIN_MAKING = Purity(True, outer=False, makes=True)
"""Of a class whose instances are made without code of its own."""
LEAST = Purity(True, outer=False)
"""Of a function that is being looked at, before anything has been found of it."""


def supposed(found: Purity) -> Purity:
    """What is supposed of a function that is being looked at.

    That it gives what existed before, it gives by its own ``return``; it is not supposed of its
    calls of itself. They would be taken to write such things wherever a method of an instance is
    not known; where they come to do that, it is refused.
    """
    return replace(found, outer=False)


@dataclass(frozen=True, slots=True)
class Names:
    """What a function's names mean before it runs.

    ``nested`` are the program's own functions that captured variables are sure to name,
    ``imported`` what these hold that an import alone assigns.
    """

    namespace: Mapping[str, Any]
    closure: Mapping[str, CellType] = field(default_factory=dict)
    receiver: object = MISSING
    nested: Mapping[str, Nested] = field(default_factory=dict)
    imported: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, function: FunctionType, receiver: object = MISSING) -> Names:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        return cls(function.__globals__, dict(cells), receiver)

    def global_value(self, name: str) -> object:
        found = self.namespace.get(name, MISSING)
        return getattr(builtins, name, MISSING) if found is MISSING else found


def content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Derived:
    """What ``make(function)`` gives in a program: ``grad(f)``. It has the effects of ``f``."""

    make: object
    function: object
    __autobatch__ = "transform"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Items:
    """The objects one of which a variable names: operations of torch's, as the layers of a list."""

    objects: tuple[object, ...]


@dataclass(eq=False, repr=False)
class Known:
    """The objects that variables of a function are sure to name, as lowering knows them."""

    function: Function
    names: Names
    definitions: Definitions
    seen: dict[Var, object] = field(default_factory=dict)
    """What has been looked up, with what it was."""
    drawn: dict[Var, Items] = field(default_factory=dict)
    """What items have been looked for, with those that there were."""

    @cached_property
    def place(self) -> Hashable:
        """Equal where names are looked up in the same way, while both are there."""
        names = self.names
        inner = tuple(names.nested.values())
        cells = tuple(map(id, names.closure.values()))
        return id(self.definitions), id(names.namespace), id(names.receiver), cells, inner

    def value(self, name: Var) -> object:
        found = self.seen[name] = self.looked_up(name)
        return found

    @cached_property
    def draws(self) -> Drawn:
        return Drawn.of(self.function, self.definitions, self.looked_up)

    def one_of(self, name: Var) -> Items:
        """What a variable may name that is an item, if all of these are operations of torch's."""
        objects = tuple(self.draws.objects(name))
        found = self.drawn[name] = Items(objects if all(map(is_operation, objects)) else ())
        return found

    def again(self, name: Var, before: object) -> object:
        """What has been looked up, as it is now."""
        return self.one_of(name) if type(before) is Items else self.looked_up(name)

    def looked_up(self, name: Var) -> object:
        params = self.function.params
        definition = self.definitions.get(name)
        if definition is None:
            is_receiver = bool(params) and name == params[0].name and name not in self.definitions
            return self.names.receiver if is_receiver else MISSING
        match definition.name:
            case "global":
                return self.names.global_value(definition.attr)
            case "load_free":
                cell = self.names.closure.get(definition.attr)
                name = definition.attr
                own = self.names.nested.get(name) or self.names.imported.get(name, MISSING)
                return own if cell is None else content(cell)
            case "getattr":
                base = self.looked_up(definition.args[0])
                if base is MISSING:
                    return self.inherited(definition.args[0], definition.attr)
                return static_attribute(base, definition.attr)
            case "import_from":
                base = self.looked_up(definition.args[0])
                return MISSING if base is MISSING else static_attribute(base, definition.attr)
            case "import" if definition.attr[0] == generating.__name__:
                return generating
            case "import":
                return imported_before(definition.attr, self.names.namespace)
            case "load_box":
                return self.boxed(definition.args[0])
            case "copy" | "load_outer":
                return self.looked_up(definition.args[0])
            case "const" if type(definition.attr) is FunctionType:  # a copy for constants
                return definition.attr
            case "call" if len(definition.args) > 1:
                make, function = map(self.looked_up, definition.args[:2])
                if derives(make) and function is not MISSING:
                    return Derived(make, function)
                asks = None if function is MISSING else self.asking(definition)
                if asks is not None:
                    return static_attribute(function, asks.attr)
        return MISSING

    def asking(self, call: Op) -> Op | None:
        """``getattr(base, text)`` as ``base.text``, where it is sure what text that is."""
        if call.name != "call" or len(call.args) != 3 or not call.attr.is_plain:
            return None
        text = self.text(call.args[2]) if self.looked_up(call.args[0]) is getattr else None
        return None if text is None else Op("getattr", call.outs, call.args[1:2], text, call.span)

    def text(self, name: Var) -> str | None:
        """The text that a variable is sure to hold."""
        found, definition = self.looked_up(name), self.definitions.get(name)
        while definition is not None and definition.name == "copy":
            definition = self.definitions.get(definition.args[0])
        if definition is not None and definition.name == "const":
            found = definition.attr
        return found if type(found) is str else None

    def inherited(self, of: Var, name: str) -> object:
        """What ``super().name`` is, where it is sure what that is asked of."""
        made = self.definitions.get(of)
        if made is None or made.name != "call" or len(made.args) != 3:
            return MISSING
        callee, kind, value = map(self.looked_up, made.args)
        if callee is not super or not isinstance(kind, type) or value is MISSING:
            return MISSING
        return inherited_method(kind, value, name)

    @cached_property
    def imports(self) -> Mapping[Var, Var]:
        """The captured variables, by their boxes, that an import alone assigns, and from what."""
        stores: dict[Var, list[Var]] = {}
        for block in self.function.blocks:
            for op in block.ops:
                if op.name == "store_box" or (op.name == "box" and op.args):
                    box, stored = (*op.outs, *op.args)
                    stores.setdefault(box, []).append(stored)
        found: dict[Var, Var] = {}
        for box, values in stores.items():
            definition = self.definitions.get(values[0])
            is_import = definition is not None and definition.name in ("import", "import_from")
            if is_import and len(values) == 1:
                found[box] = values[0]
        return found

    def boxed(self, box: Var) -> object:
        """What a captured variable holds that an import alone assigns, here or further out."""
        if box in self.imports:
            return self.looked_up(self.imports[box])
        definition = self.definitions.get(box)
        if definition is None or definition.name != "free_box":
            return MISSING
        return self.names.imported.get(definition.attr, MISSING)

    def places(self) -> frozenset[Span]:
        """Where functions are called that are known."""
        calls = self.calls()
        return frozenset(span for callee, span in calls if self.value(callee) is not MISSING)

    def calls(self) -> list[tuple[Var, Span]]:
        """What is called, and where."""
        found: list[tuple[Var, Span]] = []
        for block in self.function.blocks:
            found += [(op.args[0], op.span) for op in block.ops if is_call(op)]
            if isinstance(block.terminator, Call):
                found.append((block.terminator.callee, block.terminator.span))
        return found

    def calls_only(self, methods: frozenset[str]) -> bool:
        """Whether all that is called is known, be it as an item, or a method of these names."""
        for callee, _ in self.calls():
            method = self.method(callee)
            is_named = method is not None and method[1] in methods
            if is_named or self.value(callee) is not MISSING:
                continue
            if not self.one_of(callee).objects:
                return False
        return True

    def method(self, name: Var) -> tuple[Var, str] | None:
        """The receiver and the name of a method that a variable names: ``x.append``."""
        definition = self.definitions.get(name)
        if definition is None or definition.name != "getattr":
            return None
        return definition.args[0], definition.attr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Meant:
    """What the names mean to a function that have decided its lowering (``frontend.decided``)."""

    function: FunctionType
    receiver: object

    @property
    def place(self) -> Hashable:
        return id(self.function), id(self.receiver)

    def again(self, path: Path, before: object) -> object:
        return meaning(self.function, self.receiver, path)


Lookup = tuple[Known | Meant, Any, object]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement of a function, and what it rests on: what names meant, its own and its callees'.

    It holds as long as they mean the same, and calls of what they mean run the same.
    """

    value: Any
    own: tuple[tuple[Var, object], ...]
    others: tuple[Lookup, ...]
    called: tuple[tuple[object, tuple[Any, ...]], ...]

    @classmethod
    def of(cls, value: Any, known: Known, others: tuple[Lookup, ...]) -> Verdict:
        own = (*known.seen.items(), *known.drawn.items())
        found = (*(obj for _, obj in own), *(obj for *_, obj in others))
        named = {id(obj): obj for each in found for obj in objects_in(each)}
        called = ((obj, called_as(obj)) for obj in named.values())
        return cls(value, own, others, tuple((obj, how) for obj, how in called if how is not None))

    def holds(self, known: Known) -> bool:
        return (
            all(is_same(known.again(name, value), value) for name, value in self.own)
            and all(is_same(other.again(name, value), value) for other, name, value in self.others)
            and all(are_same(called_as(obj), how) for obj, how in self.called)
        )

    def rests_on(self, known: Known) -> list[Lookup]:
        return [*((known, name, value) for name, value in self.own), *self.others]


def different(lookups: Iterable[Lookup]) -> tuple[Lookup, ...]:
    """Each lookup once: a function's callees call the same ones again and again."""
    kept: dict[Hashable, list[Lookup]] = {}
    for lookup in lookups:
        known, name, value = lookup
        same = kept.setdefault((known.place, name), [])
        if not any(is_same(value, other) for _, _, other in same):
            same.append(lookup)
    return tuple(lookup for same in kept.values() for lookup in same)


ANEW = (MethodType, BuiltinMethodType, Nested)
"""What is made anew at each look: it is equal where it is of the same object."""


def objects_in(value: object) -> tuple[object, ...]:
    return value.objects if isinstance(value, Items) else (value,)


def is_same(left: object, right: object) -> bool:
    """The same object; methods are bound, and nested functions found, anew at each look."""
    if type(left) is Items and type(right) is Items:
        same = map(is_same, left.objects, right.objects)
        return len(left.objects) == len(right.objects) and all(same)
    if type(left) is Derived and type(right) is Derived:
        return left.make is right.make and is_same(left.function, right.function)
    return left is right or (isinstance(left, ANEW) and type(left) is type(right) and left == right)


@dataclass(eq=False, repr=False)
class Analysis:
    """The purity of one function; ``purity_of`` gives that of an object known to be called."""

    known: Known
    purity_of: Callable[[object], Purity | None]
    is_opaque: Callable[[str], bool]
    writes: set[Var] = field(default_factory=set)
    sure: set[Var] = field(default_factory=set)
    draws: bool = False
    found: dict[Any, tuple[object, Purity | None]] = field(default_factory=dict)
    """What has been called, by identity, with its purity."""

    def callee(self, called: object) -> Purity | None:
        """The purity of what is known to be called.

        It is looked for once in an analysis: what rests on an open question is not kept by others,
        and each of two functions that call each other would be looked at again at every call.
        """
        key = called if isinstance(called, ANEW) else id(called)
        if key not in self.found:
            self.found[key] = (called, self.purity_of(called))
        return self.found[key][1]

    def purity(self) -> Purity:
        sources = self.sources
        function = self.known.function
        pure = [self.is_pure_block(block) for block in function.blocks]  # all, for their writes
        returned: Origins = frozenset()
        for label, block in enumerate(function.blocks):
            if hasattr(block.terminator, "value"):
                returned |= sources.inside([block.terminator.value], label)
        given = frozenset(origin.param for origin in returned if type(origin) is Given)
        outer = any(type(origin) is Outer for origin in returned)
        writes, sure = frozenset(self.writes | self.sure), frozenset(self.sure)
        return Purity(all(pure), writes, sure, given, outer, self.draws, function.params)

    @cached_property
    def sources(self) -> Sources:
        return Sources(
            self.known.function, self.gives_outer, lambda call: fate(self.known, self.callee, call)
        )

    def gives_outer(self, call: Call) -> bool:
        found = self.known.value(call.callee)
        purity = self.callee(found) if found is not MISSING else None
        return purity is None or purity.outer

    def is_pure_block(self, block: Block) -> bool:
        pure = [not block.modes, *map(self.is_pure_op, block.ops)]
        if isinstance(block.terminator, Call):
            call = block.terminator
            pure.append(self.is_pure_call(call.callee, call.args, call.shape))
        return all(pure)

    def is_pure_op(self, op: Op) -> bool:
        match info(op.name).effect:
            case "unknown" | "captures":
                return False
            case "writes":
                return self.may_write(op.args[:1], sure=op.name not in INPLACE)
            case "calls":
                return self.is_pure_call(op.args[0], op.args[1:], op.attr)
        return True

    def may_write(self, names: tuple[Var, ...], sure: bool = True) -> bool:
        """Note a write of what the variables name; whether it stays within what is its own."""
        for origin in self.sources.origins(names):
            if origin is OUTER:
                return False
            if type(origin) is Given:
                (self.sure if sure else self.writes).add(origin.param)
        return True

    def is_pure_call(self, callee: Var, args: tuple[Var, ...], shape: CallShape) -> bool:
        found = self.known.value(callee)
        method = self.known.method(callee)
        if found is not MISSING:
            return self.is_pure_callee(found, callee, args, shape)
        if method is None:
            return True  # looked at when it is met
        name = method[1]
        self.draws = self.draws or name in DRAWS or name in DRAW_WRITES
        if "out" in shape.keywords:
            return False
        return self.may_write(written_by(self.known, self.callee, callee, args, shape))

    def is_pure_callee(
        self,
        found: object,
        callee: Var,
        args: tuple[Var, ...],
        shape: CallShape,
    ) -> bool:
        purity = self.callee(found)
        written = written_by(self.known, self.callee, callee, args, shape)
        if purity is not None:
            self.draws = self.draws or purity.draws
            surely = written_by(self.known, self.callee, callee, args, shape, sure=True)
            within = [self.may_write(written, sure=False), self.may_write(surely)]
            return all(within) and purity.is_pure
        effect = effect_of(found)
        if "out" in shape.keywords or (effect == "unknown" and not is_python_draw(found)):
            return False
        self.draws = self.draws or effect in ("draw", "unknown") or is_draw(found)
        return self.may_write(written)


READERS: tuple[object, ...] = (
    *(len, abs, int, float, bool, str, repr, range, round, ord, chr, any, all, isinstance),
    *(divmod, pow, math.sqrt, math.exp, math.log, math.floor, math.ceil),
)
"""Builtins whose result is new, whatever they get."""
CONSUMERS: tuple[object, ...] = (next,)
"""Builtins that change their first argument."""


def is_operation(found: object) -> bool:
    """Whether it is torch's, and draws nothing now."""
    return effect_of(found) == "torch" and not is_draw(found)


def is_call(op: Op) -> bool:
    """Whether an operation calls, if later."""
    return op.does in ("call", "fork")


def written_by(
    known: Known,
    purity_of: Callable[[object], Purity | None],
    callee: Var,
    args: tuple[Var, ...],
    shape: CallShape,
    sure: bool = False,
) -> tuple[Var, ...]:
    """The operands that a call may write, as far as it is known what it calls; of a program
    function only those that it is ``sure`` to, whatever they are, if so asked.
    """
    found, method = known.value(callee), known.method(callee)
    receiver = None if method is None else method[0]
    written = args if "out" in shape.keywords else ()
    if found is MISSING:
        if method is None:
            return written  # looked at when it is met
        is_write = method[1] in MUTATING_METHODS or is_inplace_name(method[1])
        return (method[0],) if is_write else written
    purity = purity_of(found)
    if purity is not None:
        names = purity.sure if sure else purity.writes
        return written_operands(found, purity.params, names, callee, receiver, args, shape)
    if effect_of(found) == "write":
        return args[:1] if receiver is None else (receiver,)
    if found in CONSUMERS or found == random.shuffle:
        return args[:1]
    return args if is_updating(found) else written


def fate(known: Known, purity_of: Callable[[object], Purity | None], call: Op | Call) -> Fate:
    """What becomes of a call's arguments."""
    callee, args = (call.callee, call.args) if isinstance(call, Call) else (call.args[0], call.args)
    found = known.value(callee)
    if found is MISSING:
        return "stores"
    purity = purity_of(found)
    if purity is not None:
        if not purity.is_pure or purity.writes:
            return "stores"
        if purity.makes:
            return "holds"
        return "returns" if purity.returns else "reads"
    if any(found is each for each in READERS) or (found is sum and len(args) == 2):
        return "reads"
    return "returns" if effect_of(found) in ("torch", "host") else "stores"


def may_change(callee: object) -> bool:
    """Whether what is no program function may write to what it is given.

    What nothing is known of is guarded where it runs (``Context.visible``).
    """
    name = own_attribute(callee, "__name__", "")
    if name in MUTATING_METHODS or is_inplace_name(name):
        return True
    consumes = any(callee is each for each in CONSUMERS)
    return consumes or callee == random.shuffle or effect_of(callee) == "write"
