"""Writing the text of one LLVM function: instructions, labels, and the ways out of it.

A function gives ``{i8, …}``: a mark, then the leaves of its results, one for each type that it
returns. The mark says which of them it is (``mark_of``; ``DONE`` is the first); or ``GIVEN_UP``,
where the thread is to go the general way, whatever the reason; or ``SPENT``, where the fuel of the
launch is used up. Every round of a loop and every recursive call burns a unit of
fuel, so that the host can look around now and then.

``held`` are tensors that the machine code reads; ``cost`` is by how much one round of the block is
slower, in nanoseconds, than for many threads at once; ``widest`` is the most elements of a tensor.
``seeded``: threads may draw, ``draws``: they do; ``unfused``: it does what fused kernels do not.
``handled`` gives the label where an exception of a class goes on, within a ``try``.
``lists`` are those in memory (``listing``), ``user`` is the block at work, ``site`` the operation;
``of_library``: the text stands for a function of Python's.
Addresses of arrays have a *root*: the room, the variable's slot or the argument that they point
into. What has one root may overlap. A root is *exclusive* if all that lives of its memory has it,
so that a write to it is seen by whoever should see it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DONE, GIVEN_UP, SPENT = 0, 1, 2


def mark_of(way: int) -> int:
    """The mark of a result of the ``way``-th type that a function returns."""
    return SPENT + way if way else DONE


@dataclass(slots=True, eq=False, repr=False)
class Writer:
    """Instructions in the order in which they were written; ``label`` is the block at work."""

    result: str = "{i8}"
    lines: list[str] = field(default_factory=list)
    taken: int = 0
    declared: set[str] = field(default_factory=set)
    slots: list[str] = field(default_factory=list)
    rooms: list[tuple[str, int]] = field(default_factory=list)
    roots: dict[str, str] = field(default_factory=dict)
    exclusive: set[str] = field(default_factory=set)
    held: list[Any] = field(default_factory=list)
    cost: int = 0
    widest: int = 0
    seeded: bool = False
    draws: bool = False
    unfused: bool = False
    handled: Callable[[type[BaseException]], str] | None = None
    lists: Any = None
    user: Any = None
    site: int = 0
    is_main: bool = False
    of_library: bool = False
    shares_lists: bool = False

    def fresh(self) -> str:
        self.taken += 1
        return f"t{self.taken}"

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def made(self, instruction: str) -> str:
        """The name of what an instruction gives."""
        name = f"%{self.fresh()}"
        self.emit(f"{name} = {instruction}")
        return name

    def slot(self, machine: str) -> str:
        """Room for a number on the stack, made once at the entry of the function."""
        name = f"%{self.fresh()}"
        self.slots.append(f"  {name} = alloca {machine}")
        return name

    def room(self, size: int) -> str:
        """The address of ``size`` bytes on the stack, of the block at work."""
        name = f"%{self.fresh()}.room"
        self.rooms.append((name, size))
        self.exclusive.add(name)
        return name

    def root(self, leaf: str) -> str:
        """What an address points into."""
        return self.roots.get(leaf, leaf)

    def move(self, target: str, source: str, size: int | str) -> None:
        """Copy bytes, which may overlap."""
        name = "llvm.memmove.p0.p0.i64"
        self.declared.add(f"declare void @{name}(ptr, ptr, i64, i1)")
        self.emit(f"call void @{name}(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def give_up_if(self, condition: str) -> None:
        """Leave the thread to the general way where a bit is set."""
        going = self.fresh()
        self.emit(f"br i1 {condition}, label %given_up, label %{going}")
        self.begin(going)

    def raise_if(self, condition: str, kind: type[BaseException]) -> None:
        """Raise an exception where a bit is set: to the block's handler, if it has one."""
        if self.handled is None:
            self.give_up_if(condition)
            return
        going = self.fresh()
        self.emit(f"br i1 {condition}, label %{self.handled(kind)}, label %{going}")
        self.begin(going)

    def raise_always(self, kind: type[BaseException]) -> None:
        """Raise an exception: nothing more is written on this way."""
        label = "given_up" if self.handled is None else self.handled(kind)
        self.emit(f"br label %{label}")

    def call(self, name: str, result: str, *operands: tuple[str, str]) -> str:
        """A call of a function that is defined elsewhere: an intrinsic, or the C library's."""
        kinds = ", ".join(kind for kind, _ in operands)
        self.declared.add(f"declare {result} @{name}({kinds})")
        given = ", ".join(f"{kind} {operand}" for kind, operand in operands)
        return self.made(f"call {result} @{name}({given})")

    def checked(self, name: str, a: str, b: str) -> str:
        """Signed 64-bit arithmetic that gives up where the result does not fit."""
        pair = self.call(f"llvm.{name}.with.overflow.i64", "{i64, i1}", ("i64", a), ("i64", b))
        self.give_up_if(self.made(f"extractvalue {{i64, i1}} {pair}, 1"))
        return self.made(f"extractvalue {{i64, i1}} {pair}, 0")

    def either(self, *conditions: str) -> str:
        first, *others = conditions
        for other in others:
            first = self.made(f"or i1 {first}, {other}")
        return first

    def select(self, condition: str, kind: str, a: str, b: str) -> str:
        return self.made(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def burn(self) -> None:
        """One unit of fuel; with none left the launch ends."""
        left = self.made("load i64, ptr %fuel")
        less = self.made(f"sub i64 {left}, 1")
        self.emit(f"store i64 {less}, ptr %fuel")
        self.leave_if(self.made(f"icmp slt i64 {less}, 0"))

    def leave_if(self, condition: str) -> None:
        going = self.fresh()
        self.emit(f"br i1 {condition}, label %spent, label %{going}")
        self.begin(going)
