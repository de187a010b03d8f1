"""Torch's modes: entered around every execution of the blocks inside, so they never leak.

In: a block and its group's variables. Managers of other kinds among those that a block names are
entered and left by the program itself (``frontend.managers``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from autobatch.batching.managers import is_mode, ready
from autobatch.ir.program import Block
from autobatch.vm.values import Cell, Uniform, read


def modes_of(block: Block, env: dict[str, Cell]) -> tuple[AbstractContextManager[Any], ...]:
    """The modes that a block runs in, outermost first."""
    values = [read(env[name]) for name in block.modes]
    found = (value.obj for value in values if type(value) is Uniform)
    return tuple(ready(manager) for manager in found if is_mode(manager))


@contextmanager
def entered_modes(block: Block, env: dict[str, Cell]) -> Iterator[None]:
    with ExitStack() as stack:
        for manager in modes_of(block, env):
            stack.enter_context(manager)
        yield
