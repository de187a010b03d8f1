"""Torch's modes: entered around every execution of the blocks inside, so they never leak.

In: a block and its group's variables. Managers of other kinds among those that a block names are
entered and left by the program itself (``frontend.managers``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from autobatch.batching.managers import is_mode, mode_key, ready
from autobatch.ir.program import Block
from autobatch.values.cells import Cell, Objects, Uniform, read
from autobatch.vm.groups import Group, restricted


def modes_of(block: Block, env: dict[str, Cell]) -> tuple[AbstractContextManager[Any], ...]:
    """The modes that a block runs in, outermost first."""
    values = [read(env[name]) for name in block.modes]
    found = (value.obj for value in values if type(value) is Uniform)
    return tuple(ready(manager) for manager in found if is_mode(manager))


def by_modes(block: Block, group: Group, known: dict[Hashable, Any]) -> list[Group]:
    """The group in parts that are to be in one mode each; ``known`` are the modes of a run."""
    for name in block.modes:
        value = read(group.env[name])
        if type(value) is not Objects or not all(map(is_mode, value.items)):
            continue
        rows: dict[Hashable, list[int]] = {}
        for row, manager in enumerate(value.items):
            key = mode_key(manager)
            known.setdefault(key, manager)
            rows.setdefault(key, []).append(row)
        parts: list[Group] = []
        for key, own in rows.items():
            part = restricted(group, np.array(own, dtype=np.int64), list(group.env))
            part.env[name].value = Uniform(known[key], shared=True)
            parts += by_modes(block, part, known)
        return parts
    return [group]


@contextmanager
def entered_modes(block: Block, env: dict[str, Cell]) -> Iterator[None]:
    with ExitStack() as stack:
        for manager in modes_of(block, env):
            stack.enter_context(manager)
        yield
