"""The functions that a program of objects alone may run, and what their names mean.

``Functions`` brings in a function once, by its lowered code and, where that is a module of torch's
kind, its receiver; notes how it may be called, and what has been looked up of its names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import CellType, FunctionType, ModuleType
from typing import Any

from autobatch.alone import arrays
from autobatch.alone.columns import by_columns
from autobatch.alone.inner import Inner
from autobatch.alone.kinds import NotAlone, Reasons
from autobatch.alone.modes import decorated
from autobatch.alone.scale import Scale
from autobatch.alone.taint import NONE, Share, Shares, Unit
from autobatch.alone.webs import told_apart
from autobatch.batching import known_callees as callees
from autobatch.batching.binding import defaults_of
from autobatch.batching.effects import effect_of, is_library
from autobatch.batching.generators import is_generator
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING, lower_function
from autobatch.frontend.resolve import static_attribute
from autobatch.ir.definitions import definitions_of
from autobatch.ir.program import CallShape, Function, Op, Var
from autobatch.source import Span
from autobatch.vm.library import Library
from autobatch.vm.purity import Known, Names, content

MOST_UNITS = 200
"""Functions of a program past which it is not looked through."""


@dataclass(slots=True, eq=False, repr=False)
class Functions(ABC):
    """All functions that a program may run, as they are found."""

    library: Library
    shares: Shares = field(default_factory=Shares)
    units: dict[tuple[int, ...], tuple[Unit, Known]] = field(default_factory=dict)
    doubted: bool = False
    """Something is not known yet, and may be when more has been found."""
    is_settled: bool = False
    lookups: list[tuple[Callable[[], Any], Any]] = field(default_factory=list)
    looked: set[tuple[int, str]] = field(default_factory=set)
    functions: dict[int, FunctionType] = field(default_factory=dict)
    suspended: dict[tuple[int, int], Function] = field(default_factory=dict)
    """The lowering of those that yield, by receiver, too."""
    may_yield: bool = False
    """Whether the program may call functions that yield."""
    may_lend: bool = False
    """Whether a container's methods that write to it may be values: not where only a part of a
    program runs so, and leaves them beside containers that are kept in another way.
    """
    yields: bool = False
    """It calls some, or Python does (``__iter__``)."""
    catches: bool = False
    """Something catches exceptions, or does something where there is one."""
    imports: dict[int, Mapping[str, object]] = field(default_factory=dict)
    """What nested functions capture that imports assign."""
    nested: Inner = field(default_factory=Inner)
    scale: Scale = field(default_factory=Scale)
    refusals: Reasons | None = None
    """All that keeps it from being proved, where that is asked for; else the first is raised."""
    arrays: bool = False
    """Something of numpy's may be met."""
    may_print: bool = False
    """Whether threads that come to a ``print`` may be given up (see ``printing``)."""
    printed: Span | None = None
    """Where it has a ``print``, if it has one."""
    shown: Span | None = None
    """Where it makes text of what may be a tensor, which gives up a thread, too."""

    @abstractmethod
    def met(self, value: Any) -> Share:
        """What a value that existed before shares with the program; what is in it may run."""

    def unit(
        self, function: FunctionType, receiver: object = MISSING, yields: bool = False
    ) -> Unit:
        """A user's function; of a ``receiver`` that is known, a module, it is one by itself.

        ``yields``: it may yield, whatever others may, since Python calls it by itself
        (``__iter__``).
        """
        if effect_of(function) != "program" or is_library(function):
            raise NotAlone(f"{function.__qualname__} is no program")
        if any(name.startswith("__autobatch") for name in vars(function)):
            raise NotAlone(f"{function.__qualname__} is marked")
        try:
            lowered = self.lowered(function, receiver, yields)
        except AutobatchError as error:
            why = str(error).partition("\n")[0]
            form = f"{function.__qualname__} has a form that is refused: {why}"
            refused = NotAlone(form)
            refused.at(error.span)
            raise refused from error
        if id(function) not in self.functions:
            self.functions[id(function)] = function
            self.shares.changed = True
        unit = self.of_function(lowered, Names.of(function, receiver))
        unit.yields |= is_generator(function)
        for name, value in defaults_of(function, lowered.params).items():
            self.shares.add(unit, [name], self.met(value))
        return unit

    def lowered(
        self, function: FunctionType, receiver: object = MISSING, yields: bool = False
    ) -> Function:
        """A function as it is looked into."""
        if not is_generator(function):
            return self.library.code_of(function, receiver).function
        if not yields:
            self.may_go_on(function.__qualname__)
        key = (id(function), id(receiver))
        if key not in self.suspended:
            found = lower_function(function, self.library.resolver, receiver=receiver, yields=True)
            self.suspended[key] = found
            self.goes_on()
        return self.suspended[key]

    def may_go_on(self, name: str) -> None:
        """The program makes generators."""
        if not self.may_yield:
            raise NotAlone(f"{name} yields")
        self.goes_on()

    def goes_on(self) -> None:
        if not self.yields:
            self.yields = self.shares.changed = self.scale.objects = True

    def captures(self, lowered: Function, imported: Mapping[str, object]) -> None:
        """A function that the program makes captures what imports assign."""
        if self.imports.setdefault(id(lowered), imported).keys() != imported.keys():
            raise NotAlone("a function captures several imports by one name")

    def of_function(self, lowered: Function, names: Names) -> Unit:
        key: tuple[int, ...] = (id(lowered), id(names.receiver))
        if not makes_functions(lowered):  # which read what is around it by its names alone
            key += tuple(map(id, names.closure.values()))
        found = self.units.get(key)
        if found is None:
            if len(self.units) >= MOST_UNITS:
                raise NotAlone(f"it has more than {MOST_UNITS} functions")
            if lowered.yields is not None:
                self.may_go_on(lowered.name)
            own = told_apart(lowered)
            names = replace(names, imported=self.imports.get(id(lowered), {}))
            known = by_columns(Known(own, names, definitions_of(own)))
            yields = lowered.yields is not None
            found = self.units[key] = (Unit(known.function, lowered, yields=yields), known)
            self.shares.changed = True
        elif names.closure and not is_one(found[1].names.closure, names.closure):
            raise NotAlone("one function has several closures")
        elif found[0].is_first:  # something calls it, or may
            found[0].is_first, self.shares.changed = False, True
        return found[0]

    def escapes(self, unit: Unit, bound: bool = False) -> None:
        """It may be called with anything; ``bound``: as a method of an instance."""
        if bound and not unit.is_bound:
            unit.is_bound = self.shares.changed = True
        elif not bound and not unit.escapes:
            unit.escapes = self.shares.changed = True

    def builds_by(self, unit: Unit) -> None:
        """It may be called for a new instance, of a class that is a value."""
        if not unit.is_built_by:
            unit.is_built_by = self.shares.changed = True

    def freed(self, unit: Unit) -> None:
        """It is called as a function, whatever class may have it as a method."""
        if not unit.is_free:
            unit.is_free = self.shares.changed = True

    def made(self, lowered: Function, names: Names) -> None:
        """A function that the program makes as it runs."""
        self.handed_on(self.of_function(lowered, names))

    def handed_on(self, unit: Unit) -> None:
        """A function is a value: it may be called with whatever a call gets."""
        if not unit.is_handed_on:
            unit.is_handed_on = self.shares.changed = True

    def passed(self, unit: Unit, given: list[Share], shape: CallShape, receivers: int = 0) -> None:
        """Arguments come to the parameters of a function."""
        params = [p.name for p in unit.function.params]
        whole = NONE
        for share in given:
            whole |= share
        stars = [p.name for p in unit.function.params if p.kind.startswith("var_")]
        if not shape.is_plain or stars:
            self.shares.contain(whole)
            own = [name for name in params[:receivers] if name not in stars]
            for receiver, share in zip(own, given, strict=False):
                self.shares.add(unit, [receiver], share)
            self.shares.add(unit, params[len(own) :], whole | self.shares.within(whole))
            return
        positional = given[: receivers + len(shape.positional)]
        for param, share in zip(params, positional, strict=False):
            self.shares.add(unit, [param], share)
        for name, share in zip(shape.keywords, given[len(positional) :], strict=True):
            self.shares.add(unit, [name] if name in params else [], share)

    # What names mean.

    def meant(self, function: FunctionType) -> FunctionType:
        """What a function runs; of one under ``@torch.no_grad()`` that is what this has wrapped."""
        inner = decorated(function) if self.shares.computes else None
        if inner is None:
            return function
        if (id(function), "wrapped") not in self.looked:
            self.looked.add((id(function), "wrapped"))
            self.lookups.append((lambda: decorated(function), inner))
        return self.meant(inner)

    def prints(self, namespace: Mapping[str, Any], span: Span) -> None:
        """It calls Python's ``print``, by a name that is no module's own."""

        def look() -> object:
            return namespace.get("print", MISSING)

        if not self.may_print or look() is not MISSING:
            raise NotAlone("it prints")
        self.printed = self.printed or span
        if (id(namespace), "print") not in self.looked:
            self.looked.add((id(namespace), "print"))
            self.lookups.append((look, MISSING))

    @property
    def method_names(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Methods of the data that there may be; those that write it; those that give values."""
        known = arrays if self.arrays else callees
        found, writing, of_values = known.METHODS, known.WRITING_METHODS, known.METHODS_OF_VALUES
        if self.yields:  # what is sent comes out of containers, as what is yielded
            return found | callees.OF_GOING, writing | callees.SENDING, of_values
        return found, writing, of_values

    def meets_arrays(self) -> None:
        """Something of numpy's is; its arrays go thread by thread, in a batch."""
        self.shares.changed |= not self.arrays
        self.arrays = self.scale.objects = True

    def refuses(self, error: NotAlone) -> None:
        assert self.refusals is not None
        self.refusals.setdefault((str(error), error.span), error)

    def doubt(self, reason: str) -> None:
        """What is known of a value does not do; a value may still turn out to be a tensor."""
        if self.is_settled:
            raise NotAlone(reason)
        self.doubted = True

    def value(self, unit: Unit, known: Known, name: Var) -> object:
        """What a variable is sure to name, noted."""
        found = known.looked_up(name)
        if (id(known), name) not in self.looked:
            self.looked.add((id(known), name))
            self.lookups.append((lambda: known.looked_up(name), found))
        return found

    def attribute_of_module(self, module: ModuleType, name: str) -> object:
        """What a module has by a name, noted."""
        found = static_attribute(module, name)
        if (id(module), f"attribute {name}") not in self.looked:
            self.looked.add((id(module), f"attribute {name}"))
            self.lookups.append((lambda: static_attribute(module, name), found))
        return found

    def read(self, known: Known, op: Op) -> object:
        """What a global or a captured variable of the function itself holds, noted."""
        names = known.names
        table: Mapping[str, Any] = {} if op.name == "global" else names.closure

        def look() -> object:
            if op.name == "global":
                return names.global_value(op.attr)
            if op.attr in table:
                return content(table[op.attr])
            return names.imported.get(op.attr, MISSING)

        found = look()
        if (id(known), f"{op.name} {op.attr}") not in self.looked:
            self.looked.add((id(known), f"{op.name} {op.attr}"))
            self.lookups.append((look, found))
        return found


def makes_functions(lowered: Function) -> bool:
    return any(op.name == "function" for block in lowered.blocks for op in block.ops)


def is_one(some: Mapping[str, CellType], others: Mapping[str, CellType]) -> bool:
    """Whether two closures have the same cells."""
    return all(cell is others.get(name) for name, cell in some.items())
