"""By which attributes something that existed before leads to what can be written to.

Most have numbers and texts by most names: ``rate = self.rate; rate *= 0.5`` writes nothing that
anybody sees, where a list by that name would be written to. In: all instances that a program may
come to, as ``contents`` has looked through them. Out: whether one has more by some name.
"""

from __future__ import annotations

import builtins
import collections
from types import MemberDescriptorType
from typing import Any

from autobatch.alone.contents import SCALARS
from autobatch.alone.world import World

VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


def is_compound(kind: object) -> bool:
    return isinstance(kind, type) and kind is not slice and kind not in SCALARS


def _names() -> frozenset[str]:
    kinds = (*vars(builtins).values(), *vars(collections).values(), *VIEWS)
    return frozenset(name for kind in kinds if is_compound(kind) for name in dir(kind))


PYTHONS = _names()
"""What Python's own have by name, and is not looked through: an exception's ``args``, say."""


def may_lead(world: World, name: str) -> bool:
    """Whether what existed before, and is no function or class, may have more than a number."""
    leading = world.shares.leading
    if leading is None or world.shares.has_any_instances or name in PYTHONS or name in leading:
        return True
    kinds = {*world.existing, *map(type, world.modules.values())}
    return any(is_more(kind, name) for kind in kinds)


def is_more(kind: type, name: str) -> bool:
    """Whether a class has more by some name than a number, a text or a place for something."""
    found: list[Any] = [vars(base)[name] for base in kind.__mro__ if name in vars(base)]
    return not all(is_place(each, name) or type(each) in SCALARS for each in found)


def is_place(member: Any, name: str) -> bool:
    """Whether it is the place of what instances have by this name, and no other."""
    return type(member) is MemberDescriptorType and member.__name__ == name
