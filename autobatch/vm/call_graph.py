"""What a program calls, as far as can be seen before it runs: itself, or functions with loops.

In: a program function. Callees that lowering knows are followed; one that it does not know (a
method of an object, a function that the program makes) may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType, FunctionType

from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.ir.dataflow import reaching
from autobatch.ir.program import Call
from autobatch.vm.library import Library, function_of
from autobatch.vm.purity import Known, Names


@dataclass(slots=True, eq=False)
class CallGraph:
    """``recursive``: some function is sure to be one that may come to call itself; ``comes_back``:
    the outermost one may.

    ``unknown``: some callee is not known. ``loops``: a called function has a loop, ``rounds``: one
    that is called in a loop has.
    """

    library: Library
    entry: FunctionType
    recursive: bool = False
    comes_back: bool = False
    unknown: bool = False
    loops: bool = False
    rounds: bool = False
    path: list[CodeType] = field(default_factory=list)
    done: set[tuple[CodeType, bool]] = field(default_factory=set)

    @classmethod
    def of(cls, library: Library, function: FunctionType, receiver: object) -> CallGraph:
        """Raises what lowering ``function`` raises."""
        graph = cls(library, function)
        graph.follow(function, receiver, inside=False)
        return graph

    @property
    def parts_in_calls(self) -> bool:
        """Whether threads that have been together part within calls, as far as is known.

        Calls in a loop are left out: their threads meet at each round, and may run as one.
        """
        return self.recursive or self.unknown or (self.loops and not self.rounds)

    def follow(self, function: FunctionType, receiver: object, inside: bool) -> None:
        """Look through a function, which is called ``inside`` a loop or not."""
        code = self.library.code_of(function, receiver)
        known = Known(code.function, Names.of(function, receiver), code.definitions)
        after = reaching(code.blocks)
        looping = [pc in ways for pc, ways in enumerate(after)]
        if self.path and any(looping):
            self.loops, self.rounds = True, self.rounds or inside
        self.path.append(function.__code__)
        for block, loops in zip(code.blocks, looping, strict=True):
            if isinstance(block.terminator, Call):
                self.look(known, block.terminator, inside or loops)
        self.done.add((self.path.pop(), inside))

    def look(self, known: Known, call: Call, inside: bool) -> None:
        value = known.value(call.callee)
        if value is MISSING:
            self.unknown = True
            self.comes_back |= self.is_named_alike(known, call)
            return
        callee = function_of(value)
        if callee is None:
            return
        code = callee[0].__code__
        if code in self.path:
            self.recursive = True
            self.comes_back |= code is self.path[0]
        elif (code, inside) not in self.done:
            try:
                self.follow(*callee, inside)
            except AutobatchError:
                return  # what is wrong is told when the call is reached

    def is_named_alike(self, known: Known, call: Call) -> bool:
        """Whether an unknown callee has the entry's name, as a method of another object does."""
        definition = known.definitions.get(call.callee)
        return definition is not None and definition.attr == self.entry.__name__
