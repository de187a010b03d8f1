"""Attributes that a stretch writes: ``x.name = v`` on an instance that the program has made.

A store only gives a place in a container another cell. So it is put off to the end of its stretch,
where ``v`` is known, and a later read of the attribute in the stretch is ``v`` itself:

    %1 = getattr[at] self                %1 = getattr[at] self
    %3 = iadd %1, %2                     %3 = iadd %1, %2
    setattr[at] self, %3        ->       %5 = copy %3
    %5 = getattr[at] self                %7 = sub %5, %6
    %7 = sub %5, %6                      self.at: %3

In: the operations of an ``Outline``, one by one. Out: what each is in the stretch, None where it
ends there. Nothing between a store and the end of the stretch may see the instance in another way:
through another name, as an operand, within another container. What a recording has been given
before the first store must not lead to an instance either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from autobatch.batching.kinds import is_instance, named_cells
from autobatch.batching.objects.attributes import is_plainly_put
from autobatch.batching.operations import Env
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Column, Uniform
from autobatch.values.heap.walks import reached


@dataclass(slots=True, eq=False, repr=False)
class Stores:
    """The stores that a stretch has taken so far; ``latest`` is what each attribute holds."""

    ops: list[Op] = field(default_factory=list)
    latest: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, op: Op, env: Env, made: Set[str], reads: Sequence[str]) -> bool:
        """Whether a store fits into the stretch, whose recording makes ``made`` of ``reads``."""
        receiver, value = op.args
        if receiver in made or receiver not in env or not may_put(env[receiver], op.attr):
            return False
        if value not in made and (value not in env or not is_plain(env[value])):
            return False
        if any(shows_instance(env[name]) for name in reads if name in env):
            return False
        self.ops.append(op)
        self.latest[receiver, op.attr] = value
        return True

    def seen(self, op: Op, env: Env, made: Set[str]) -> Op | None:
        """What an operation after a store is; None where it may see the store in another way."""
        if not self.ops:
            return op
        if any(out in store.args for store in self.ops for out in op.outs):
            return None
        if op.name == "getattr" and op.args[0] in env and op.args[0] not in made:
            stored = self.latest.get((op.args[0], op.attr))
            if stored is not None:
                return Op("copy", op.outs, (stored,), None, op.span)
            hidden = any(op.attr == name for _, name in self.latest)
            return None if hidden else op
        given = [env[arg] for arg in op.args if arg in env and arg not in made]
        return None if any(map(shows_instance, given)) else op


def may_put(cell: Cell, name: str) -> bool:
    return is_plainly_put(cell.value, name)


def is_plain(cell: Cell) -> bool:
    return type(cell.value) in (Column, Uniform)


def shows_instance(cell: Cell) -> bool:
    """Whether a cell leads to an instance, whose attributes may be stored to."""
    return any(is_instance(part.value) for part in reached([cell]))


def are_stored(stores: Iterable[Op], reads: Iterable[str], env: Env) -> bool:
    """Whether stores may be put off in an environment like the one that they were taken in."""
    return all(may_put(env[op.args[0]], op.attr) for op in stores) and not any(
        shows_instance(env[name]) for name in reads if name in env
    )


def store(stores: Iterable[Op], env: Env) -> None:
    """The stores of a stretch that has run."""
    for op in stores:
        receiver, value = op.args
        named_cells(env[receiver].value)[op.attr] = env[value]  # type: ignore[arg-type]
