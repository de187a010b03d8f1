"""What is found of functions that call themselves or each other: the least that agrees with itself.

Where a look at a function comes back to one that is being looked at, what that one does is supposed
to be what was last found of it: the least there is, at first. Once all have been looked at with
nothing new found of any that others had suppositions of, these are right, by induction over the
depth of calls (Kleene 1952). Each function is looked at once a round, however many ways lead to it.

In: a function, and a look at it that asks the same of what it calls. Out: what is found, and
whether that may be kept: it rests on no open supposition. Invariant: a look finds the more the more
it is told of what is called.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
Key = tuple[int, Hashable]
"""A code, by its id, and what its names mean: closures of one code are several functions."""
MOST = 4
"""Functions of one code that are looked at one within another, as methods of a tree's nodes are:
what lies deeper is taken to be as the last of them.
"""


class Subject(Protocol):
    """A function with what its names mean; ``place`` is equal where these are the same."""

    @property
    def place(self) -> Hashable: ...


@dataclass(slots=True, eq=False, repr=False)
class Induction(Generic[T]):
    """``least`` is the least that can be found; of a function at work, ``supposing`` gives what is
    supposed by what was found. ``joins``: what is found of a function has all that is found of what
    it calls, and no more of its own for it, so that one round does.

    ``at_work`` are the keys of what is being looked at, ``seen`` of what has been in this round,
    with what they identify, ``found`` what was last found of each; ``leaned`` are those of which
    something was supposed, ``times`` how often; ``changed`` says that it was too little.
    """

    least: T
    joins: bool = False
    supposing: Callable[[T], T] = lambda found: found
    at_work: list[Key] = field(default_factory=list)
    seen: dict[Key, object] = field(default_factory=dict)
    found: dict[Key, T] = field(default_factory=dict)
    leaned: set[Key] = field(default_factory=set)
    times: int = 0
    changed: bool = False

    def judged(self, code: object, subject: Subject, look: Callable[[], T]) -> tuple[T, bool]:
        """What a look at a ``subject`` of some code finds, and whether to keep it."""
        key = (id(code), subject.place)
        same = [working for working in self.at_work if working[0] == id(code)]
        if key in same or len(same) >= MOST:
            return self.supposing(self.leant_on(key if key in same else same[-1])), False
        if key in self.seen:
            return self.leant_on(key), False
        if not self.at_work:
            return self.outermost(key, (code, subject), look), True
        before = self.times
        found = self.looked(key, (code, subject), look)
        return found, self.times == before

    def leant_on(self, key: Key) -> T:
        """What has been found of something so far."""
        self.leaned.add(key)
        self.times += 1
        return self.found.get(key, self.least)

    def outermost(self, key: Key, held: object, look: Callable[[], T]) -> T:
        """What is found in the end of the function that was first asked for."""
        try:
            while True:
                self.seen.clear()
                self.changed = False
                found = self.looked(key, held, look)
                if not self.changed or self.joins:
                    return found
        finally:
            self.seen.clear()
            self.found.clear()
            self.leaned.clear()

    def looked(self, key: Key, held: object, look: Callable[[], T]) -> T:
        """What one look finds; ``held`` is what the key identifies."""
        self.at_work.append(key)
        try:
            found = look()
        finally:
            self.at_work.pop()
        self.seen[key] = held
        if found != self.found.get(key, self.least):
            self.found[key] = found
            self.changed = self.changed or key in self.leaned
        return found
