"""Plans: a stretch told apart into host and batched operations, and made for a signature.

A ``Skeleton`` says which operations run how and what goes in and out; a ``Plan`` is a skeleton's
replay for one signature. A plan with number columns follows their bounds at each replay.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from torch import Tensor

from autobatch.batching import numbers
from autobatch.batching.numbers import Operation, Outlook
from autobatch.batching.numbers.records import Scalar
from autobatch.batching.operations import Env
from autobatch.batching.stretches.contents import content_key
from autobatch.batching.stretches.executors import Run
from autobatch.batching.stretches.outputs import Template
from autobatch.ir.program import Op
from autobatch.values.cells import Bounds, Cell, Column, Uniform, are_inside, read
from autobatch.values.heap.likeness import identity

LARGEST_SHARED = 2**31
"""Uniform ints up to this size meet number columns by the same kernels."""


@dataclass(slots=True, eq=False, repr=False)
class Plan:
    """A stretch ready to replay for one signature.

    The last of what it returns are ``checks`` masks of rows that fail and, where rows may leave
    their dtype, the mask of those (``loose`` are then the nodes of the ints in question). Nothing
    else may reach the tensors of the variables in ``lone``. ``bounded`` are nodes of ints with the
    number of their outlook, ``fixed`` those whose bounds are the same each time. ``inside`` are the
    indices that the checks are of, each with what it is into, where they are of nothing else.
    """

    run: Run
    template: Template
    names: tuple[tuple[str, int], ...]
    written: tuple[tuple[int, int], ...]
    checks: int
    loose: tuple[int, ...] | None
    forecasts: tuple[tuple[Any, tuple[Any, ...], bool], ...]
    bounded: tuple[tuple[int, int], ...]
    inputs: int
    assumed: tuple[tuple[Callable[[], Any], Any], ...] = ()
    held: tuple[Any, ...] = ()
    lone: tuple[str, ...] = ()
    verified: bool = False
    fixed: tuple[tuple[int, Bounds], ...] = ()
    inside: tuple[tuple[Any, int], ...] = ()
    runs: int = 0
    makes_ints: bool = field(init=False)

    def __post_init__(self) -> None:
        self.makes_ints = any(node.tag == "int" for node in self.template.nodes)

    @property
    def kernels(self) -> int:
        """How many a replay launches, which may be fewer from some replay on."""
        return getattr(self.run, "kernels", 1)

    def row_cost(self, largest: int) -> float:
        """What a replay costs for a row more, in elements of one cheap kernel (``ir.costs``).

        ``largest``: how many elements a row has at most, for what knows its kernels only.
        """
        cost: float | None = getattr(self.run, "row_cost", None)
        return getattr(self.run, "price", self.kernels) * largest if cost is None else cost

    @property
    def is_safe(self) -> bool:
        """Whether a replay fails on no row, whatever it holds."""
        return not self.checks and getattr(self.run, "is_safe", False)

    def is_sure(self, leaves: Sequence[Cell | None], looks: Sequence[Any]) -> bool:
        """Whether bounds say that no row fails, whatever the masks do."""
        return bool(self.inside) and are_in_range(self.inside, leaves, looks)

    def failed(self, outs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of what a replay returns, the rows that fail, check by check."""
        end = len(outs) - (self.loose is not None)
        return outs[end - self.checks : end]

    @property
    def is_stale(self) -> bool:
        """Whether something that its inlined functions read has changed."""
        return any(content_key(again()) != before for again, before in self.assumed)


class Nothing:
    """The replay of a stretch without batched operations."""

    kernels = 0

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        return ()


def host_only() -> Plan:
    """The plan of a stretch that has host operations only."""
    return Plan(Nothing(), Template(), (), (), 0, None, (), (), 0)


@dataclass(slots=True, eq=False, repr=False)
class Skeleton:
    """Operations from ``start`` to ``end``: which are host, which batched, what goes in and out.

    ``first`` is the one that it begins with, ``stores`` are those that write attributes, which is
    done last. ``kinds`` are of what each host operation gives, where
    that tells it apart from another; the site knows the skeleton by ``key``. What it reads at the
    places ``picks`` are indices. ``chooses``: some operations are of ways that not all threads
    take. ``drivers`` are those that have been printed of its plans, for
    when their checks are known to hold and for when not; None where there is none.
    """

    first: Op
    start: int
    end: int
    host: tuple[Op, ...]
    batched: tuple[Op, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    constants: dict[str, Cell]
    wanted: frozenset[str] = frozenset()
    stores: tuple[Op, ...] = ()
    baked: frozenset[int] = frozenset()
    picks: frozenset[int] = frozenset()
    kinds: tuple[str, ...] = ()
    chooses: bool = False
    key: Hashable = None
    plans: dict[Hashable, Plan | Skeleton] = field(default_factory=dict)
    drivers: dict[tuple[Plan, bool], Any] = field(default_factory=dict)

    @property
    def recorded(self) -> Hashable:
        """Equal for stretches that one recording does: the same from the same to the same.

        Copies of a function have the same operations, with other constants, of which less may be
        wanted.
        """
        values = ((name, cell.value) for name, cell in self.constants.items())
        constants = (
            (name, identity(value.obj if type(value) is Uniform else value))
            for name, value in values
        )
        return self.batched, self.reads, self.makes, tuple(constants)

    def environment(self, roots: Sequence[Cell]) -> Env:
        """The variables that the batched operations begin with, over the given cells."""
        return {**self.constants, **dict(zip(self.reads, roots, strict=True))}


class Otherwise(Exception):
    """A host operation gives another kind of thing than when its stretch was told apart."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        super().__init__()
        self.kinds = kinds


class Unforeseen(Exception):
    """An int column may leave int64 this time: the operations run one by one, and look."""


def outlooks(forecasts: Sequence[Any], leaves: Sequence[Cell | None]) -> list[Any]:
    """The outlook of each number that a stretch computes.

    ``Unforeseen`` if one may escape for which the recording has no kernel that would say so.
    """
    looks: list[Any] = []
    for rule, operands, deferred in forecasts:
        given = [described(operand(part, leaves, looks)) for part in operands]
        if not any(type(part) is Outlook for part in given):
            raise Unforeseen
        found = foreseen(rule, *given)
        if found is None or (not deferred and any(outlook.may_escape for outlook in found)):
            raise Unforeseen
        looks += found
    return looks


@lru_cache(maxsize=4096, typed=True)
def foreseen(rule: str | Operation, *given: Outlook | Scalar) -> tuple[Outlook, ...] | None:
    """A forecast, made once for operands of the same bounds: in a loop they soon are."""
    return numbers.forecast(rule, *given)


def described(part: Any) -> Outlook | Scalar:
    """What a forecast goes by; ``Unforeseen`` where there is none."""
    if type(part) is Column:
        return Outlook(part.tag, part.bounds)
    if type(part) is not Outlook and type(part) not in (bool, int, float):
        raise Unforeseen
    known: Outlook | Scalar = part
    return known


def are_in_range(
    inside: Sequence[tuple[Any, int]], leaves: Sequence[Cell | None], looks: Sequence[Any]
) -> bool:
    """Whether indices are known to be in range of what they are into."""
    return all(
        are_inside(operand(part, leaves, looks).bounds, size)  # type: ignore[arg-type]
        for part, size in inside
    )


def operand(part: Any, leaves: Sequence[Cell | None], looks: list[Any]) -> Any:
    if type(part) is tuple:
        where, place = part
        if where == "result":
            return looks[place]
        cell = leaves[place]
        value = None if cell is None else read(cell)
        if type(value) is Column:
            return value
        obj = value.obj  # type: ignore[union-attr]
        if type(obj) is int and abs(obj) > LARGEST_SHARED:
            raise Unforeseen
        return obj
    return part
