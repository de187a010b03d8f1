"""Parts of a program that plain Python may run: their blocks, found from what their variables hold.

In: the code of a function, a block that threads have come to, and which of the variables that live
there hold a tensor, or anything else that is no data (``held``). Out: a ``Part``, the blocks from
there on that only work on data and that nobody sees, or None where there is none that is worth it:
one with a loop in it, or a call of a function. It rests on a proof (``proof``), whose lookups are
made again before each run; a block that the proof does not let pass is left out.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CellType, FunctionType, ModuleType
from typing import Any

from autobatch.alone.kinds import NotAlone
from autobatch.alone.members import is_method
from autobatch.alone.proof import Grounds, settle
from autobatch.alone.steps import BOXES, HOLDS, INSIDE, OPERATORS, WRITES, Steps
from autobatch.alone.taint import Share, Unit
from autobatch.alone.world import Data, World
from autobatch.alone.written import Makers, Written, may_be_written, written_part
from autobatch.batching import known_callees as callees
from autobatch.batching.operations import Scope
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.ir.dataflow import op_reads, terminator_reads
from autobatch.ir.definitions import definitions_of
from autobatch.ir.ops import INPLACE, SUMS
from autobatch.ir.program import (
    Block,
    Call,
    Function,
    Join,
    Jump,
    Label,
    Op,
    Param,
    Return,
    Var,
)
from autobatch.vm.code import Code
from autobatch.vm.library import Library
from autobatch.vm.purity import Known, Names

# fmt: off
PLAIN = frozenset({
    *OPERATORS, *SUMS, *INPLACE, *HOLDS, *WRITES, *INSIDE, *BOXES, "truth", "box", "format", "join",
    "const", "global", "load_free", "getattr", "call", "copy", "load_outer", "select", "iter",
    "function", "store_box", "clear_box",
}) - {"matmul", "imatmul"}
"""Operations that plain Python may run for a thread."""
# fmt: on
CALL = -1
"""Stands for the end of a block, where that is a call by itself."""
MOST_PARTS = 16
"""Of one function."""
MOST_TRIED = 24
"""Blocks that are left out of a part before it is given up."""


Made = tuple[tuple[Function, Mapping[str, Any]], ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Held:
    """What the variables of a group hold that a part begins with: all of it is data.

    ``shares`` says what of it existed before, ``stored`` what is within it, ``callables`` are the
    functions among it; ``classes`` have instances there; ``made`` are functions that the program
    has made, with the names of their modules.
    """

    shares: tuple[tuple[Var, Share], ...]
    stored: Share
    callables: tuple[Any, ...]
    classes: frozenset[type]
    made: Made = ()

    def __hash__(self) -> int:
        made = tuple(id(function) for function, _ in self.made)
        return hash((self.shares, self.stored, self.callables, self.classes, made))

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is Held
            and (self.shares, self.stored, self.classes)
            == (other.shares, other.stored, other.classes)
            and same(self.callables, other.callables)
            and same([f for f, _ in self.made], [f for f, _ in other.made])
            and same([names for _, names in self.made], [names for _, names in other.made])
        )


def same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


@dataclass(frozen=True, slots=True)
class Part:
    """``written`` runs the blocks from one on, given ``variables``; ``assigned`` are set in it.

    ``outer`` are objects that existed before and that it may hand out. ``makers`` are those of
    the functions that it has been given, with what their keys name.
    """

    written: Written
    variables: tuple[Var, ...]
    assigned: frozenset[Var]
    names: Mapping[Var, str]
    outer: tuple[Data, ...]
    grounds: Grounds
    makers: Makers = field(default_factory=dict)

    def holds(self) -> bool:
        """Whether the code that it may run is still the same."""
        has_code = (each for each in self.outer if each.classes or each.callables)
        return self.grounds.hold() and all(each.is_as_before() for each in has_code)


@dataclass(slots=True, eq=False, repr=False)
class Candidate:
    """The blocks from one on which data alone may run, while some variables hold none.

    ``uses`` are the variables that they begin with; ``parts`` by what these hold. After each one
    that comes to nothing, ``left`` executions of the block are not looked at, then twice as many.
    """

    blocks: dict[Label, Block]
    uses: tuple[Var, ...]
    parts: dict[Held, Part | None] = field(default_factory=dict)
    waited: int = 0
    left: int = 0
    is_call: bool = False

    def refuse(self) -> None:
        self.waited = self.left = min(2 * self.waited + 1, 1023)


@dataclass(slots=True, eq=False, repr=False)
class Finder:
    """The parts of one function, in a module and with the captured variables that it has."""

    code: Code
    scope: Scope
    library: Library
    known: Known
    boxes: Mapping[str, CellType]
    candidates: dict[tuple[Label, frozenset[Var]], Candidate | None] = field(default_factory=dict)
    calls_alone: dict[int, Candidate] = field(default_factory=dict)
    plain: list[bool] | None = None

    @classmethod
    def of(cls, code: Code, scope: Scope, library: Library) -> Finder:
        boxes = {name: box for name, box in scope.free.items() if isinstance(box, CellType)}
        names = Names(scope.namespace, boxes)
        known = Known(code.function, names, definitions_of(code.function))
        return cls(code, scope, library, known, boxes)

    def candidate(self, pc: Label, others: frozenset[Var]) -> Candidate | None:
        """The blocks from ``pc`` on that read none of the ``others``; None if not worth it."""
        key = (pc, others)
        if key not in self.candidates:
            if len(self.candidates) > MOST_PARTS * len(self.code.blocks):
                return None
            self.candidates[key] = self.looked_for(pc, others, frozenset())
        return self.candidates[key]

    def call(self, call: Call) -> Candidate:
        """A call by itself."""
        found = self.calls_alone.get(id(call))
        if found is None:
            uses = tuple(dict.fromkeys((call.callee, *call.args)))
            found = Candidate({CALL: Block((), call)}, uses, is_call=True)
            self.calls_alone[id(call)] = found
        return found

    def looked_for(
        self, pc: Label, others: frozenset[Var], without: frozenset[Label]
    ) -> Candidate | None:
        """The candidate at a block that is to do without some blocks."""
        if self.plain is None:
            self.plain = [self.is_plain(block) for block in self.code.blocks]
        blocks: dict[Label, Block] = {}
        todo = [pc]
        while todo:
            label = todo.pop()
            if label in blocks or label in without or not self.plain[label]:
                continue
            block = simple(self.code.blocks[label])
            if not others.isdisjoint(reads_of(block)):
                continue
            blocks[label] = block
            todo += block.successors()
        if pc not in blocks or not self.is_worth_it(blocks):
            return None
        read = {name for block in blocks.values() for name in reads_of(block)}
        uses = tuple(sorted(read & self.code.function.live_in[pc]))
        return Candidate(blocks, uses)

    def is_worth_it(self, blocks: Mapping[Label, Block]) -> bool:
        """Whether there is a loop in them, or a call of a program's function."""
        if any(self.calls(block) for block in blocks.values()):
            return True
        left = dict(blocks)
        while left:
            ends = [at for at, b in left.items() if not any(t in left for t in b.successors())]
            if not ends:
                return True
            for at in ends:
                del left[at]
        return False

    def calls(self, block: Block) -> bool:
        """Whether it calls a function of the program's."""
        named = [op.args[0] for op in block.ops if op.name == "call"]
        if isinstance(block.terminator, Call):
            named.append(block.terminator.callee)
        found = map(self.known.looked_up, named)
        return any(isinstance(each, FunctionType) and not callees.is_known(each) for each in found)

    def is_plain(self, block: Block) -> bool:
        """Whether its operations may be ones on data."""
        block = simple(block)
        if block.modes or block.handler is not None or isinstance(block.terminator, Return | Join):
            return False
        for op in block.ops:
            if op.name not in PLAIN:
                return False
            if op.name == "load_free" and op.attr not in self.boxes:
                return False
            if op.name == "function" and not may_be_written(op.attr):
                return False
            if op.name == "call" and not self.may_call(op.args[0]):
                return False
        return not isinstance(block.terminator, Call) or self.may_call(block.terminator.callee)

    def may_call(self, callee: Var) -> bool:
        """Whether it may be nothing of torch's that is called, nor what is not known."""
        found = self.known.looked_up(callee)
        if found is MISSING:
            method = self.known.method(callee)
            return method is None or method[1] not in callees.ASKING
        if callees.is_known(found) or isinstance(found, FunctionType | type):
            return True
        return is_method(found)

    # The proof.

    def part(self, pc: Label, candidate: Candidate, held: Held) -> Part | None:
        """The part for what its variables hold, kept or new; None if there is none."""
        kept = candidate.parts.get(held)
        if kept is not None and kept.holds():
            return kept
        if kept is None and held in candidate.parts:
            return None
        if len(candidate.parts) >= MOST_PARTS:
            return None
        found = candidate.parts[held] = self.proved(pc, candidate, held)
        return found

    def proved(self, pc: Label, candidate: Candidate, held: Held) -> Part | None:
        """The part for what its variables hold, without the blocks that the proof refuses."""
        without: frozenset[Label] = frozenset()
        others = frozenset(self.code.function.live_in[pc]) - {name for name, _ in held.shares}
        for _ in range(MOST_TRIED):
            smaller: Candidate | None = candidate
            if not candidate.is_call:
                smaller = self.looked_for(pc, others, without)
            if smaller is None:
                return None
            try:
                world = self.looked_through(pc, smaller, held)
            except Refused as refused:
                if pc in refused.labels or not refused.labels:
                    return None
                without |= refused.labels
                continue
            except (NotAlone, AutobatchError):
                return None
            return self.made(pc, smaller, world)
        return None

    def made(self, pc: Label, candidate: Candidate, world: World) -> Part:
        blocks = candidate.blocks
        outs = {out for block in blocks.values() for op in block.ops for out in op.outs}
        outs |= {b.terminator.out for b in blocks.values() if isinstance(b.terminator, Call)}
        written, names = written_part(
            self.code.function, blocks, pc, candidate.uses, dict_of(self.scope), self.boxes
        )
        return Part(
            written,
            candidate.uses,
            frozenset(outs),
            names,
            tuple(data for data, _ in world.data.values() if data.nature),
            Grounds.of(world),
        )

    def looked_through(self, pc: Label, candidate: Candidate, held: Held) -> World:
        """Look through all that the blocks run until nothing new is found; see ``proof.settle``."""
        world = World(self.library)
        labels = [pc, *(label for label in candidate.blocks if label != pc)]
        whole = function_of(self.code.function, candidate, labels)
        unit = Unit(whole, whole)
        world.units[id(whole), id(self.known.names.receiver)] = (unit, self.known)
        for kind in held.classes:
            world.instance_existed(kind)
        for each in held.callables:
            if not isinstance(each, ModuleType):
                world.met(each)
        for function, namespace in held.made:
            world.made(function, Names(namespace))
            world.shares.give(held.stored)
        world.shares.store(held.stored)
        world.shares.box(held.stored)
        for name, share in held.shares:
            world.shares.add(unit, [name], share)

        def look() -> None:
            for each, known in list(world.units.values()):
                world.shares.enter(each)
                steps = Steps(world, each, known)
                if each is unit:
                    for label, block in zip(labels, whole.blocks, strict=False):
                        try:
                            steps.block(block)
                        except (NotAlone, AutobatchError) as error:
                            raise Refused(frozenset({label})) from error
                    continue
                try:
                    steps.run()
                except (NotAlone, AutobatchError) as error:
                    raise Refused(self.callers(candidate, each.source)) from error

        settle(world, look)
        if any(data.holds_arrays for data, _ in world.data.values()):
            raise NotAlone("an array that existed before, of which there may be views")
        return world

    def callers(self, candidate: Candidate, function: Function) -> frozenset[Label]:
        """The blocks that may have brought in a function: its callers, or all that call some."""
        direct: set[Label] = set()
        some: set[Label] = set()
        for label, block in candidate.blocks.items():
            named = [op.args[0] for op in block.ops if op.name == "call"]
            if isinstance(block.terminator, Call):
                named.append(block.terminator.callee)
            for found in map(self.known.looked_up, named):
                if isinstance(found, FunctionType) and not callees.is_known(found):
                    some.add(label)
                    if self.library.code_of(found).function is function:
                        direct.add(label)
            if any(op.name == "function" for op in block.ops):
                some.add(label)
        return frozenset(direct or some)


class Refused(Exception):
    """Some blocks do what is not known to be seen by nobody."""

    def __init__(self, labels: frozenset[Label]) -> None:
        super().__init__(labels)
        self.labels = labels


def simple(block: Block) -> Block:
    """A block whose calls run where they stand: none is forked, and nothing joined."""
    ops = tuple(map(plain_op, block.ops))
    end = block.terminator
    if isinstance(end, Join):
        return replace(block, ops=ops, terminator=Jump(end.target, end.span), converted=None)
    return replace(block, ops=ops, converted=None)


def plain_op(op: Op) -> Op:
    if op.name == "defer":
        name, attr = op.attr
        op = replace(op, name=name, attr=attr)
    return replace(op, name="call") if op.name == "fork" else op


def reads_of(block: Block) -> set[Var]:
    found = {arg for op in block.ops for arg in op_reads(op)}
    return found | set(terminator_reads(block.terminator))


def function_of(function: Function, candidate: Candidate, labels: list[Label]) -> Function:
    """The blocks as a function of their variables; whatever they lead to is its end."""
    place = {label: at for at, label in enumerate(labels)}
    last = len(labels)
    for block in candidate.blocks.values():
        for target in block.successors():
            place.setdefault(target, last)
    blocks = [candidate.blocks[label].retargeted(place) for label in labels]
    end = Block((), Return("%part", function.span))
    params = tuple(Param(name, "positional", False) for name in candidate.uses)
    return replace(function, params=params, blocks=(*blocks, end), live_in=(), types=())


def dict_of(scope: Scope) -> dict[str, Any]:
    """The module's names: a function's globals, which its code looks into."""
    found = scope.namespace
    assert isinstance(found, dict)
    return found
