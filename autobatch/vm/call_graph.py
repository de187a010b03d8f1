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


@dataclass(slots=True, eq=False, repr=False)
class CallGraph:
    """``recursive``: some function is sure to be one that may come to call itself; ``comes_back``:
    the outermost one may.

    ``unknown``: some callee is not known. ``loops``: a called function has a loop. With
    ``inlines``, the outermost function is looked at as it is once what it calls is inlined.
    """

    library: Library
    entry: FunctionType
    recursive: bool = False
    comes_back: bool = False
    unknown: bool = False
    loops: bool = False
    inlines: bool = False
    path: list[CodeType] = field(default_factory=list)
    done: set[CodeType] = field(default_factory=set)

    @classmethod
    def of(
        cls, library: Library, function: FunctionType, receiver: object, inlines: bool = False
    ) -> CallGraph:
        """Raises what lowering ``function`` raises."""
        graph = cls(library, function, inlines=inlines)
        graph.follow(function, receiver)
        return graph

    @property
    def parts_in_calls(self) -> bool:
        """Whether threads that have been together part within calls, as far as is known."""
        return self.recursive or self.unknown or self.loops

    def follow(self, function: FunctionType, receiver: object) -> None:
        """Look through a function."""
        code = self.library.code_of(function, receiver)
        names = Names.of(function, receiver)
        if self.inlines and not self.path:
            code = self.library.with_loops_inside(code, names)
        known = Known(code.function, names, code.definitions)
        if self.path:
            self.loops |= any(pc in ways for pc, ways in enumerate(reaching(code.blocks)))
        self.path.append(function.__code__)
        for block in code.blocks:
            if isinstance(block.terminator, Call):
                self.look(known, block.terminator)
        self.done.add(self.path.pop())

    def look(self, known: Known, call: Call) -> None:
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
        elif code not in self.done:
            try:
                self.follow(*callee)
            except AutobatchError:
                return  # what is wrong is told when the call is reached

    def is_named_alike(self, known: Known, call: Call) -> bool:
        """Whether an unknown callee has the entry's name, as a method of another object does."""
        definition = known.definitions.get(call.callee)
        return definition is not None and definition.attr == self.entry.__name__
