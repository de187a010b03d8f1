"""Program functions as they are compiled: one version for each function and its arguments' types.

A ``Version`` collects the text of its blocks, each for the types that its live variables come
with; ``text_of`` makes one LLVM function of them, ``define {i8, …} @f0(…, ptr %area, ptr %fuel, i64
%depth)``. Arrays that it returns are written to ``%area``, which is its caller's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from autobatch.compiled.types import Array, Type, bytes_of, flat_types, machine_of
from autobatch.compiled.writer import GIVEN_UP, SPENT, Writer
from autobatch.ir.dataflow import led_to
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import Block, Call, Function, Label, Return
from autobatch.source import Span
from autobatch.vm.code import Code

Env = tuple[tuple[str, Type], ...]
"""Variables, and the types of what they hold."""
Key = tuple[Label, Env]
"""A block, and the variables that it is entered with."""


@dataclass(slots=True, eq=False, repr=False)
class Version:
    """A function for arguments of some types; ``results`` are the types that it returns.

    ``callers`` are the blocks that call it, which are written anew when it returns another type;
    ``span`` is where it was called first, outside of what stands for Python's functions, ``site``
    the operation that did, where what makes lists there is compiled for itself.
    """

    name: str
    code: Code
    function: FunctionType
    params: tuple[tuple[str, Type], ...]
    is_main: bool
    constants: dict[str, tuple[Any]]
    returning: frozenset[Label]
    sure: frozenset[Label]
    written: frozenset[str]
    assigned_once: frozenset[str]
    settled: frozenset[str]
    writer: Writer = field(default_factory=Writer)
    results: list[Type] = field(default_factory=list)
    labels: dict[Key, str] = field(default_factory=dict)
    texts: dict[Key, list[str]] = field(default_factory=dict)
    slots: dict[tuple[str, Type], tuple[str, ...]] = field(default_factory=dict)
    callers: dict[tuple[Version, Key], None] = field(default_factory=dict)
    callees: list[Version] = field(default_factory=list)
    costs: dict[Key, int] = field(default_factory=dict)
    rooms: dict[Key, list[tuple[str, int]]] = field(default_factory=dict)
    span: Span | None = None
    site: int = 0

    @property
    def lowered(self) -> Function:
        return self.code.function

    def machine_result(self) -> str:
        """The name of the type of all that it returns, which grows until all is written."""
        return f"%r.{self.name}"

    def result_leaves(self) -> tuple[str, ...]:
        return tuple(leaf for type_ in self.results for leaf in by_value(type_))

    def area(self) -> int:
        """The bytes that the arrays of a result take, at most."""
        return max((sum(map(bytes_of, flat_types(type_))) for type_ in self.results), default=0)

    def result_text(self) -> str:
        """The definition of that type."""
        return f"{self.machine_result()} = type {{{', '.join(('i8', *self.result_leaves()))}}}"

    def first_leaf(self, way: int) -> int:
        """Where the leaves of a result of the ``way``-th type begin, behind the mark."""
        return 1 + sum(len(by_value(type_)) for type_ in self.results[:way])

    def first_output(self, way: int) -> int:
        """Which of the host's tensors the first leaf of a result of that type goes to."""
        return sum(len(flat_types(type_)) for type_ in self.results[:way])

    def places(self, name: str, type_: Type) -> tuple[str, ...]:
        """The slots on the stack of a variable that holds values of a type."""
        found = self.slots.get((name, type_))
        if found is None:
            machines = machine_of(type_)
            found = tuple(f"%v{len(self.slots)}.{at}" for at in range(len(machines)))
            self.slots[name, type_] = found
            for slot, machine, leaf in zip(found, machines, flat_types(type_), strict=True):
                size = bytes_of(leaf)
                self.writer.slots.append(
                    roomy(slot, size) if size else f"  {slot} = alloca {machine}"
                )
        return found

    def frame(self) -> int:
        """The bytes that its arrays take on the stack."""
        held = sum(bytes_of(leaf) for _, type_ in self.slots for leaf in flat_types(type_))
        return held + sum(size for rooms in self.rooms.values() for _, size in rooms)


def by_value(type_: Type) -> tuple[str, ...]:
    """The LLVM types of the leaves of a result that are handed back as they are; arrays are not."""
    pairs = zip(machine_of(type_), flat_types(type_), strict=True)
    return tuple(machine for machine, leaf in pairs if not isinstance(leaf, Array))


def roomy(name: str, size: int) -> str:
    return f"  {name} = alloca [{size} x i8], align 64"


def reached(version: Version) -> list[Version]:
    """The functions that calls lead to."""
    found: list[Version] = []
    todo = list(version.callees)
    while todo:
        callee = todo.pop()
        if callee not in found:
            found.append(callee)
            todo.extend(callee.callees)
    return found


def returning(function: Function) -> frozenset[Label]:
    """The blocks from which a return can be reached."""
    ends = {pc for pc, block in enumerate(function.blocks) if type(block.terminator) is Return}
    return leading_to(ends, [block.successors() for block in function.blocks])


def leading_to(ends: set[Label], edges: Sequence[Sequence[Label]]) -> frozenset[Label]:
    """The blocks from which some can be reached, and these."""
    found, size = set(ends), -1
    while size != len(found):
        size = len(found)
        found |= {pc for pc, ways in enumerate(edges) if found.intersection(ways)}
    return frozenset(found)


def without_failing(function: Function) -> frozenset[Label]:
    """The blocks that run though nothing is raised or printed, and from which one may return."""
    silent = silent_blocks(function)
    edges = [block.targets() if pc in silent else () for pc, block in enumerate(function.blocks)]
    runs = {0} | led_to(0, set(range(len(edges))), edges)
    ends = {pc for pc in silent if type(function.blocks[pc].terminator) is Return}
    return leading_to(ends, edges) & runs


def silent_blocks(function: Function) -> frozenset[Label]:
    """The blocks that do not call ``print``, by that name: where they do, threads give up."""
    ops = [op for block in function.blocks for op in block.ops]
    names = {op.outs[0] for op in ops if op.name == "global" and op.attr == "print"}

    def callees(block: Block) -> set[str]:
        ends = {block.terminator.callee} if isinstance(block.terminator, Call) else set()
        return ends | {op.args[0] for op in block.ops if op.name == "call"}

    return frozenset(
        pc for pc, block in enumerate(function.blocks) if names.isdisjoint(callees(block))
    )


def written_in(function: Function) -> frozenset[str]:
    """The variables that an operation writes in place."""
    return frozenset(
        op.args[0]
        for block in function.blocks
        for op in block.ops
        if op.name in INPLACE or op.name == "setitem"
    )


def assigned_once(function: Function) -> frozenset[str]:
    """The variables that one operation assigns, and nothing else."""
    many = Counter(out for block in function.blocks for op in block.ops for out in op.outs)
    many.update(param.name for param in function.params)
    stores = [op.args[0] for b in function.blocks for op in b.ops if op.name == "store_box"]
    many.update(stores)
    many.update(
        block.terminator.out for block in function.blocks if isinstance(block.terminator, Call)
    )
    return frozenset(name for name, count in many.items() if count == 1)


def constants(function: Function) -> dict[str, tuple[Any]]:
    """Temporaries to which nothing but one number is ever assigned."""
    found: dict[str, tuple[Any] | None] = {}
    for block in function.blocks:
        for op in block.ops:
            for out in op.outs:
                obj = op.attr if op.name == "const" and out.startswith("%") else None
                kept = type(obj) in (int, float, bool)
                found[out] = (obj,) if kept and out not in found else None
        if isinstance(block.terminator, Call):
            found[block.terminator.out] = None
    return {name: obj for name, obj in found.items() if obj is not None}


def entry_store(param: str, place: str, leaf: Type) -> str:
    """Where an argument goes when its function begins; an array is copied."""
    size = bytes_of(leaf)
    if not size:
        return f"  store {param}, ptr {place}"
    given = f"ptr {place}, {param}, i64 {size}, i1 false"
    return f"  call void @llvm.memmove.p0.p0.i64({given})"


def text_of(version: Version) -> str:
    """A function that is all written, as LLVM reads it."""
    kind, leaves = version.machine_result(), version.result_leaves()
    rest = "".join(f", {leaf} undef" for leaf in leaves)
    params: list[str] = []
    stores: list[str] = []
    for name, type_ in version.params:
        each = zip(version.places(name, type_), machine_of(type_), flat_types(type_), strict=True)
        for place, machine, leaf in each:
            params.append(f"{machine} %p{len(params)}")
            stores.append(entry_store(params[-1], place, leaf))
    w = version.writer
    w.lines = []
    w.emit("%mark = alloca i8")
    w.emit("%deeper = sub i64 %depth, 1")
    w.give_up_if(w.made("icmp slt i64 %deeper, 0"))
    if version in reached(version):
        w.burn()
    unwritten = [key for key in version.labels if key not in version.texts]
    for key in unwritten:  # what it calls never returns
        version.texts[key] = [f"{version.labels[key]}:", "  br label %given_up"]
    body = [line for key in version.labels for line in version.texts[key]]
    return "\n".join(
        [
            f"define internal {kind} @{version.name}"
            f"({', '.join([*params, 'ptr %area', 'ptr %fuel', 'i64 %depth'])}) {{",
            "entry:",
            *w.slots,
            *(roomy(*each) for rooms in version.rooms.values() for each in rooms),
            *w.lines,
            *stores,
            f"  br label %{version.labels[0, version.params]}",
            *body,
            f"given_up:\n  ret {kind} {{i8 {GIVEN_UP}{rest}}}",
            f"spent:\n  ret {kind} {{i8 {SPENT}{rest}}}",
            "failed:\n  %why = load i8, ptr %mark",
            f"  %reason = insertvalue {kind} {{i8 {GIVEN_UP}{rest}}}, i8 %why, 0",
            f"  ret {kind} %reason",
            "}",
        ]
    )
