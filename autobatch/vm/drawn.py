"""Which objects a variable may name that is an item of what existed before: a layer of a list.

    %1 = getattr[layers] self      %1 = getattr[layers] self       %2 = enumerate(%1)
    %2 = iter %1                   %2 = getitem %1, i              %3 = iter %2
    layer, %3 = next %2                                            %4, %5 = next %3
                                                                   i, layer = unpack[2] %4

In: what defines the variables of a function, what its loops draw from, and what its names mean.
Out: the objects, none if they are not known. (``frontend.items`` says the same of expressions.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autobatch.frontend.resolve import members
from autobatch.ir.definitions import Definitions
from autobatch.ir.program import Call, Function, Op, Var

Meaning = Callable[[Var], object]


@dataclass(frozen=True, slots=True)
class Drawn:
    """``iterators`` are those that variables are taken from, by ``next`` alone."""

    definitions: Definitions
    iterators: Mapping[Var, Var]
    meaning: Meaning

    @classmethod
    def of(cls, function: Function, definitions: Definitions, meaning: Meaning) -> Drawn:
        return cls(definitions, iterators_of(function), meaning)

    def objects(self, name: Var) -> Sequence[object]:
        """What a variable may name."""
        if name in self.iterators:
            return self.items(self.source(self.iterators[name]))
        match self.definitions.get(name):
            case Op("copy", args=(source,)):
                return self.objects(source)
            case Op("getitem", args=(base, _)):
                return self.items(base)
            case Op("unpack", args=(item,), outs=outs) if item in self.iterators:
                return self.parts(self.source(self.iterators[item]), outs.index(name))
        return ()

    def source(self, iterator: Var) -> Var:
        """What an iterator goes through."""
        made = self.definitions.get(iterator)
        return made.args[0] if made is not None and made.name == "iter" else iterator

    def items(self, of: Var) -> Sequence[object]:
        """The items of what a variable names."""
        match self.definitions.get(of):
            case Op("call", args=(callee, source)) if self.meaning(callee) is reversed:
                return self.items(source)
        return members(self.meaning(of))

    def parts(self, of: Var, place: int) -> Sequence[object]:
        """What is at a place of the tuples that are the items of what a variable names."""
        match self.definitions.get(of):
            case Op("call", args=(callee, source, *_)) if self.meaning(callee) is enumerate:
                return self.items(source) if place == 1 else ()
            case Op("call", args=(callee, *sources)) if self.meaning(callee) is zip:
                return self.items(sources[place]) if place < len(sources) else ()
        return ()


def iterators_of(function: Function) -> Mapping[Var, Var]:
    """By variable, the iterator whose next item it is wherever it is assigned."""
    found: dict[Var, Var | None] = {}
    for block in function.blocks:
        for op in block.ops:
            taken = op.name == "next" and len(op.outs) == 2
            for place, out in enumerate(op.outs):
                iterator = op.args[0] if taken and not place else None
                found[out] = iterator if found.get(out, iterator) == iterator else None
        if isinstance(block.terminator, Call):
            found[block.terminator.out] = None
    return {out: iterator for out, iterator in found.items() if iterator is not None}
