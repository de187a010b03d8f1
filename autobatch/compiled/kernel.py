"""From the text of functions to machine code that runs a range of threads.

``Kernel.run`` is one launch: for each thread from ``begin`` on it reads the thread's arguments,
calls the program and writes what that returns, and its mark; it ends
early where the fuel does. Needs ``llvmlite`` (the extra ``compiled``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.compiled import drawing, listing
from autobatch.compiled.heap import HEAP
from autobatch.compiled.returned import has_lists
from autobatch.compiled.types import Array, Rows, Type, bytes_of, flat_types, machine_of, refuse
from autobatch.compiled.versions import Version, roomy, text_of
from autobatch.compiled.writer import GIVEN_UP, SPENT, mark_of
from autobatch.llvm import NotAssembled, assembled

MANY = 1024
"""Threads from which on a number of all is given to each: LLVM's vectors want one for each."""
MOST_FRAME = 2**18
"""Bytes of the tensors of one function, which lie on the stack."""
KEPT = 16
"""Threads whose memory lies side by side, at least, where they return lists."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seeds:
    """Where threads begin to draw: the key of their paths, and their indices, int64."""

    key: int
    threads: np.ndarray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kernel:
    """``engine`` owns the machine code that ``entry`` calls, ``held`` are tensors that it reads.

    ``frame`` is what a call of one of its functions takes on the stack, at most, in bytes; ``heap``
    are the bytes that its threads take otherwise, one after the other. If it ``keeps`` what threads
    leave there, since they return lists, they lie side by side, and ``run`` ends early where there
    is no room for one more. ``numbers`` says of each input whether it is one, not a tensor.
    """

    engine: Any
    entry: Any
    text: str
    held: tuple[Tensor, ...]
    frame: int
    heap: int
    numbers: tuple[bool, ...]
    keeps: bool = False

    def run(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        marks: Tensor,
        depth: int,
        seeds: Seeds | None,
        begin: int,
        end: int,
        fuel: int,
    ) -> tuple[int, int, np.ndarray]:
        """The threads from ``begin`` to ``end``; which is next, and what is left of the fuel.

        And the memory that they had. An input of one row goes for all threads.
        """
        if end - begin >= MANY:
            inputs = [
                data.expand(end).contiguous() if is_number and len(data) == 1 else data
                for data, is_number in zip(inputs, self.numbers, strict=True)
            ]
        table = np.empty((max(len(inputs), 1), 2), dtype=np.int64)
        for at, data in enumerate(inputs):
            table[at] = data.data_ptr(), data.stride(0) if len(data) > 1 else 0
        places = np.array([data.data_ptr() for data in outputs] or [0], dtype=np.int64)
        left = ctypes.c_int64(fuel)
        threads, key = (0, 0) if seeds is None else (seeds.threads.ctypes.data, seeds.key)
        heap = np.empty(self.heap, dtype=np.uint8)
        memory = (heap.ctypes.data, self.heap)
        ends = (marks.data_ptr(), begin, end, ctypes.addressof(left), depth, threads, key, *memory)
        reached = self.entry(table.ctypes.data, places.ctypes.data, *ends)
        return reached, left.value, heap


def compiled(main: Version, everyone: Iterable[Version], heap: bool) -> Kernel:
    """Machine code for all functions, and for the loop over threads; ``heap``: they take memory."""
    keeps = any(map(has_lists, main.results))
    versions = list(everyone)
    declared = sorted({line for version in versions for line in version.writer.declared})
    functions = [text_of(version) for version in versions]
    declared = sorted(
        {*declared, *(d for v in versions for d in v.writer.declared)}
        | {"declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"}
    )
    types = [version.result_text() for version in versions]
    draws = any(version.writer.draws for version in versions)
    shared = [drawing.TEXT] if draws else []
    shared += [listing.TEXT] if any(version.writer.shares_lists for version in versions) else []
    text = "\n".join([*types, *declared, *shared, *functions, rows_text(main, draws, keeps)])
    try:
        engine = assembled(text, [c_function(line) for line in declared if "@llvm." not in line])
    except NotAssembled as error:
        refuse(str(error))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 8)
    held = tuple(tensor for version in versions for tensor in version.writer.held)
    frame = max(version.frame() for version in versions)
    if frame > MOST_FRAME:
        refuse("its tensors take too much room")
    entry = kind(engine.get_function_address("kernel"))
    most = (KEPT if keeps else 1) * HEAP if heap else 0
    leaves = [leaf for _, type_ in main.params for leaf in flat_types(type_)]
    numbers = tuple(not isinstance(leaf, Rows | Array) for leaf in leaves)
    return Kernel(engine, entry, text, held, frame, most, numbers, keeps)


def c_function(declaration: str) -> str:
    return declaration.partition("@")[2].partition("(")[0]


def rows_text(main: Version, draws: bool, keeps: bool) -> str:
    """The loop over threads: ``inputs`` holds an address and a step in elements for each leaf.

    Where the program has no control flow of its own, LLVM makes vectors of the loop if the steps
    are 1, which it asks when it runs; steps in bytes never were. ``outputs`` has an address for
    each leaf of each result, of which a thread writes one.
    """
    lines, loads, operands = inputs_of(main)
    done: list[str] = []
    for at in range(main.first_output(len(main.results))):
        lines += [
            f"  %oa{at} = getelementptr i64, ptr %outputs, i64 {at}",
            f"  %out{at} = load ptr, ptr %oa{at}",
        ]
    for way, type_ in enumerate(main.results):
        done += [f"done{way}:", *leaf_stores(main, way, type_), f"  br label %{marking(way)}"]
    ways = [f"i8 {mark_of(way)}, label %done{way}" for way in range(len(main.results))]
    given = ", ".join([*operands, "ptr %area", "ptr %fuel", "i64 %depth"])
    return "\n".join(
        [
            "define i64 @kernel(ptr %inputs, ptr %outputs, ptr %marks, "
            "i64 %begin, i64 %end, ptr %meter, i64 %depth, ptr %threads, i64 %key, "
            "i64 %first, i64 %heap) {",
            "entry:",
            f"  %fuel = alloca [{drawing.STATE} x i64]",  # objects' next place and last, then draws
            "  %last = add i64 %first, %heap",
            "  %nextobject = getelementptr i64, ptr %fuel, i64 1",
            "  %lastobject = getelementptr i64, ptr %fuel, i64 2",
            "  store i64 %last, ptr %lastobject",
            "  store i64 %first, ptr %nextobject",
            roomy("%area", max(main.area(), 1)),
            "  %fueled = load i64, ptr %meter",
            "  store i64 %fueled, ptr %fuel",
            *lines,
            "  br label %test",
            "test:",
            "  %i = phi i64 [%begin, %entry], [%next, %on]",
            "  %more = icmp slt i64 %i, %end",
            "  br i1 %more, label %thread, label %leave",
            "thread:",
            "  %before = load i64, ptr %fuel",
            *(kept_lines() if keeps else ("  store i64 %first, ptr %nextobject",)),
            *(path_lines() if draws else ()),
            *loads,
            f"  %r = call {main.machine_result()} @{main.name}({given})",
            f"  %mark = extractvalue {main.machine_result()} %r, 0",
            "  switch i8 %mark, label %spent "
            f"[{' '.join(ways)} i8 {GIVEN_UP}, label %marked i8 {SPENT}, label %spent]",
            *done,
            "marked:",
            "  %flag = getelementptr i8, ptr %marks, i64 %i",
            "  store i8 %mark, ptr %flag",
            "  br label %on",
            "on:",
            "  %next = add i64 %i, 1",
            "  br label %test",
            "spent:",  # what this thread has burnt does not count: it is to begin again
            "  store i64 %before, ptr %fuel",
            "  br label %leave",
            "leave:",
            "  %left = load i64, ptr %fuel",
            "  store i64 %left, ptr %meter",
            "  ret i64 %i",
            "}",
        ]
    )


def inputs_of(main: Version) -> tuple[list[str], list[str], list[str]]:
    """What is done once and for each thread to read the leaves of arguments, and these."""
    lines: list[str] = []
    loads: list[str] = []
    operands: list[str] = []
    for type_ in [type_ for _, type_ in main.params]:
        for machine, leaf_type in zip(machine_of(type_), flat_types(type_), strict=True):
            at = len(operands)
            lines += [
                f"  %ia{at} = getelementptr i64, ptr %inputs, i64 {2 * at}",
                f"  %base{at} = load ptr, ptr %ia{at}",
                f"  %is{at} = getelementptr i64, ptr %inputs, i64 {2 * at + 1}",
                f"  %step{at} = load i64, ptr %is{at}",
            ]
            loads += [
                f"  %offset{at} = mul i64 %i, %step{at}",
                f"  %at{at} = getelementptr {unit_of(leaf_type)}, ptr %base{at}, i64 %offset{at}",
                *leaf_load(at, machine, isinstance(leaf_type, Rows | Array)),
            ]
            operands.append(f"{machine} %x{at}")
    return lines, loads, operands


def kept_lines() -> list[str]:
    """Where a thread's memory begins and ends, behind that of the last."""
    return [
        "  %mine = load i64, ptr %nextobject",
        f"  %ends = add i64 %mine, {HEAP}",
        "  store i64 %ends, ptr %lastobject",
        "  %full = icmp ugt i64 %ends, %last",
        "  br i1 %full, label %leave, label %begins",
        "begins:",
    ]


def path_lines() -> list[str]:
    """Where a thread begins to draw."""
    lines = [
        "  %indexat = getelementptr i64, ptr %threads, i64 %i",
        "  %index = load i64, ptr %indexat",
    ]
    begins = {drawing.THREAD: "%index", drawing.KEY: "%key", drawing.NUMBER: "0"}
    for place, value in begins.items():
        lines += [
            f"  %path{place} = getelementptr i64, ptr %fuel, i64 {place}",
            f"  store i64 {value}, ptr %path{place}",
        ]
    return lines


def marking(way: int) -> str:
    """Where a thread that is done goes on: marks are zeros, so the first way's needs no store."""
    return "marked" if way else "on"


def leaf_stores(main: Version, way: int, type_: Type) -> list[str]:
    stores: list[str] = []
    at, out, far = main.first_leaf(way), main.first_output(way), 0
    for leaf_type, machine in zip(flat_types(type_), machine_of(type_), strict=True):
        size = bytes_of(leaf_type)
        if size:
            stores += array_store(out, far, size)
            far += size
        else:
            stores += leaf_store(main, at, out, machine)
            at += 1
        out += 1
    return stores


def array_store(out: int, far: int, size: int) -> list[str]:
    return [
        f"  %src{out} = getelementptr i8, ptr %area, i64 {far}",
        f"  %far{out} = mul i64 %i, {size}",
        f"  %to{out} = getelementptr i8, ptr %out{out}, i64 %far{out}",
        f"  call void @llvm.memmove.p0.p0.i64(ptr %to{out}, ptr %src{out}, i64 {size}, i1 false)",
    ]


def leaf_store(main: Version, at: int, out: int, machine: str) -> list[str]:
    kind = "i8" if machine == "i1" else machine
    stores = [f"  %y{out} = extractvalue {main.machine_result()} %r, {at}"]
    if machine == "i1":
        stores.append(f"  %z{out} = zext i1 %y{out} to i8")
    return [
        *stores,
        f"  %to{out} = getelementptr {kind}, ptr %out{out}, i64 %i",
        f"  store {kind} %{'z' if machine == 'i1' else 'y'}{out}, ptr %to{out}",
    ]


def unit_of(leaf: Type) -> str:
    """What a step goes over: a number, or an element of a tensor with dimensions."""
    if isinstance(leaf, Rows | Array):
        return f"i{8 * leaf.dtype.itemsize}"
    (machine,) = machine_of(leaf)
    return "i8" if machine == "i1" else machine


def leaf_load(at: int, machine: str, is_address: bool) -> list[str]:
    """A thread's argument; of a tensor with dimensions its address, of a bool its byte."""
    if is_address:
        return [f"  %x{at} = getelementptr i8, ptr %at{at}, i64 0"]
    if machine == "i1":
        return [f"  %byte{at} = load i8, ptr %at{at}", f"  %x{at} = icmp ne i8 %byte{at}, 0"]
    return [f"  %x{at} = load {machine}, ptr %at{at}"]
