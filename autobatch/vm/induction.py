"""What is found of functions that call themselves or each other: the least that agrees with itself.

Where a look at a function comes back to one that is being looked at, what that one does is supposed
to be what was last found of it: the least there is, at first. Once all have been looked at with
nothing new found of any that others had suppositions of, these are right, by induction over the
depth of calls (Kleene 1952). Each function is looked at once a round, however many ways lead to it.

In: a function's code, and a look at it that asks the same of what it calls. Out: what is found, and
whether that may be kept: it rests on no open supposition. Invariant: a look finds the more the more
it is told of what is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class Induction(Generic[T]):
    """``least`` is the least that can be found; of a function at work, ``supposing`` gives what is
    supposed by what was found. ``joins``: what is found of a function has all that is found of what
    it calls, and no more of its own for it, so that one round does.

    ``at_work`` are the codes that are being looked at, by their ids, ``seen`` those that have been
    in this round, ``found`` what was last found of each; ``leaned`` are those of which something
    was supposed, ``times`` how often; ``changed`` says that it was too little.
    """

    least: T
    joins: bool = False
    supposing: Callable[[T], T] = lambda found: found
    at_work: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    found: dict[int, T] = field(default_factory=dict)
    leaned: set[int] = field(default_factory=set)
    times: int = 0
    changed: bool = False

    def judged(self, code: object, look: Callable[[], T]) -> tuple[T, bool]:
        """What a look finds, and whether to keep it; ``code`` stays while others are at work."""
        key = id(code)
        if key in self.at_work or key in self.seen:
            self.leaned.add(key)
            self.times += 1
            found = self.found.get(key, self.least)
            return self.supposing(found) if key in self.at_work else found, False
        if not self.at_work:
            return self.outermost(key, look), True
        before = self.times
        found = self.looked(key, look)
        return found, self.times == before

    def outermost(self, key: int, look: Callable[[], T]) -> T:
        """What is found in the end of the function that was first asked for."""
        try:
            while True:
                self.seen.clear()
                self.changed = False
                found = self.looked(key, look)
                if not self.changed or self.joins:
                    return found
        finally:
            for each in (self.seen, self.found, self.leaned):
                each.clear()

    def looked(self, key: int, look: Callable[[], T]) -> T:
        """What one look finds."""
        self.at_work.add(key)
        try:
            found = look()
        finally:
            self.at_work.discard(key)
        self.seen.add(key)
        if found != self.found.get(key, self.least):
            self.found[key] = found
            self.changed = self.changed or key in self.leaned
        return found
