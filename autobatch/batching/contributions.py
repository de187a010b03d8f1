"""What the threads of a call write to tensors that all of them share, until it is applied.

A write that may be reduced over the threads is only noted: a ``Contribution`` holds what each
thread gives, with its index. When the call is over, those of the threads that the plain loop would
have come to are reduced and applied, once (``reducing``). Until then all threads read what was
there before the call; a thread that has written to a tensor may not read it any more.

Invariant: what is written to the memory of one tensor is of one rule, and all of it in place or
none, so no order matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import Tensor

from autobatch.compat import storage_id
from autobatch.source import Span

Rule = Literal["sum", "prod", "amin", "amax", "assign"]
SIGNS: dict[Rule, str] = {
    "sum": "added to",
    "prod": "multiplied",
    "amin": "made a minimum",
    "amax": "made a maximum",
    "assign": "assigned",
}
"""How messages say it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Target:
    """A tensor that is written in place or, with an ``owner``, the attribute that names it."""

    tensor: Tensor
    owner: Any = None
    name: str = ""

    @property
    def is_anew(self) -> bool:
        """Whether another tensor takes its place."""
        return self.owner is not None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for what is written in one go: the same attribute, the same elements."""
        tensor = self.tensor
        if self.is_anew:
            return (id(self.owner), self.name)
        place = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        return (storage_id(tensor), *place)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contribution:
    """What ``threads`` ``[k]`` give: ``rows`` ``[k, *E]``, or what all of them assign.

    ``positions``, if any, are where in the flattened target they go, ``[k, n]`` (``[n]`` if they
    assign); ``rows`` are ``[k, n]`` then. ``distinct``: of equal positions of a thread the last one
    counts. ``grad`` is whether gradients are to flow.
    """

    target: Target
    rule: Rule
    rows: Any
    threads: np.ndarray
    positions: Tensor | None = None
    distinct: bool = False
    grad: bool = False
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class Written:
    """How the memory of a tensor is written, first where, and by which threads.

    ``anew``: it is not, since an attribute is to name another tensor.
    """

    tensor: Tensor
    rule: Rule
    span: Span | None
    anew: bool
    threads: set[int] = field(default_factory=set)
    last: np.ndarray | None = None

    def by(self, threads: np.ndarray) -> None:
        """Some threads write it; mostly those that have done so just before."""
        if threads is not self.last:
            self.threads.update(threads.tolist())
            self.last = threads


@dataclass(slots=True, eq=False, repr=False)
class Contributions:
    """Those of a call. ``last`` is the thread that has failed, after which none counts.

    From ``limit`` on they are put together (``compacting``), but where they are ``held``: somebody
    may take some back. They are ``barred`` while derivatives are computed, as torch has it.
    """

    noted: list[Contribution] = field(default_factory=list)
    written: dict[int, Written] = field(default_factory=dict)
    last: int | None = None
    limit: int = 256
    held: int = 0
    barred: int = 0

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Nothing may be noted within."""
        self.barred += 1
        try:
            yield
        finally:
            self.barred -= 1

    @contextmanager
    def tried(self) -> Iterator[None]:
        """What is noted within is forgotten."""
        count = len(self.noted)
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
            self.take_back(count)

    def note(self, contribution: Contribution) -> None:
        if not len(contribution.threads):
            return
        self.noted.append(contribution)
        self.touch(contribution)

    def touch(self, contribution: Contribution) -> None:
        tensor, key = contribution.target.tensor, storage_id(contribution.target.tensor)
        anew = contribution.target.is_anew
        first = Written(tensor, contribution.rule, contribution.span, anew)
        self.written.setdefault(key, first).by(contribution.threads)

    def of(self, tensor: Tensor) -> Written | None:
        """How a tensor's memory has been written so far."""
        return self.written.get(storage_id(tensor)) if self.written else None

    def has_written(self, threads: np.ndarray, tensors: Iterable[Tensor]) -> Written | None:
        """How some of the threads have written one of the tensors; None if they have not."""
        for tensor in tensors:
            known = self.of(tensor)
            if known is not None and not known.threads.isdisjoint(threads.tolist()):
                return known
        return None

    def may_show(self, outside: np.ndarray | int) -> bool:
        """Whether some rows may show memory that has been written; see ``Column.outside``."""
        return outside is not False and any(bool(np.any(outside == key)) for key in self.written)

    def shown_by(self, threads: np.ndarray, outside: np.ndarray | int) -> Iterator[Tensor]:
        """The tensors written of which rows of those threads show memory: ``Column.outside``."""
        for key, known in self.written.items():
            rows = threads[outside == key] if type(outside) is np.ndarray else threads
            if np.any(outside == key) and not known.threads.isdisjoint(rows.tolist()):
                yield known.tensor

    def fail(self, thread: int) -> None:
        """A thread has failed: the loop would not have come to those after it."""
        self.last = thread

    def take_back(self, count: int) -> None:
        """Forget all but the first ``count``: what has noted the others is to run again."""
        if len(self.noted) == count:
            return
        del self.noted[count:]
        self.written = {}
        for contribution in self.noted:
            self.touch(contribution)
