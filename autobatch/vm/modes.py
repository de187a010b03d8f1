"""What ``with`` does: torch's modes around each block execution, other managers for each thread.

Torch's modes are entered and left around every execution of the blocks inside, so they never leak
to other groups. Any other manager works where the blocks of the ``with`` body run one after the
other, each once; they run within one another, so that it is entered and left once. A thread's own
manager is entered for that thread, lowest first, and left in the opposite order, as nested ``with``
statements are; one whose class is a program's own runs its methods as any method; another object
that all threads share is entered once. ``__exit__`` gets the failure of the thread that fails; an
exception that it swallows is refused, and so is such a manager with a ``try`` statement around.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch

from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import effect_of
from autobatch.batching.operations import ENTERED
from autobatch.batching.rows import run_rows
from autobatch.batching.stretches.signature import ambient_key
from autobatch.errors import AutobatchError
from autobatch.ir.program import Block
from autobatch.vm.failing import Failures
from autobatch.vm.groups import Group
from autobatch.vm.managers import Body, Each, Once, Program, refused, span_of
from autobatch.vm.state import Frame, RunState
from autobatch.vm.values import Cell, Container, Objects, Uniform, read, uniform

REPEATABLE = (
    torch.no_grad,
    torch.enable_grad,
    torch.set_grad_enabled,
    torch.inference_mode,
    torch.autocast,
    torch.device,
    torch.autograd.set_detect_anomaly,
    torch.autograd.detect_anomaly,
)


def repeatable_modes(block: Block, env: dict[str, Cell]) -> tuple[AbstractContextManager[Any], ...]:
    """The managers of a block that calls a function whose blocks are to run in them too."""
    values = [read(env[name]) for name in block.modes]
    managers = tuple(value.obj for value in values if type(value) is Uniform)
    if len(managers) < len(values) or not all(isinstance(m, REPEATABLE) for m in managers):
        raise refused(block, "its body calls a function, so it runs in several parts")
    return managers


def ambient() -> Hashable:
    """What the modes in force amount to, by which calls under them are alike."""
    return (
        ambient_key(),
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
        torch.get_default_device(),
    )


@contextmanager
def entered_modes(
    run: RunState, failures: Failures, frame: Frame, block: Block, group: Group, context: Context
) -> Iterator[Body]:
    """The block's managers entered, outermost first, for the rows that get past that."""
    body = Body(run, failures, frame, block, group, context, failures.errors)
    with body.stack:
        try:
            enter(body)
            yield body
        except AutobatchError:
            body.refused = True
            raise


def enter(body: Body) -> None:
    """Enter the managers; rows for which one fails, or that come after those, are dropped."""
    body.frame.span = body.context.span = span_of(body.block)
    for name in body.block.modes[len(body.frame.open) :]:
        cell = body.group.env[name]
        value = read(cell)
        manager = value.obj if type(value) is Uniform else None
        if isinstance(manager, REPEATABLE):
            given = body.attempt(
                partial(given_by, body.context, partial(body.stack.enter_context, manager))
            )
        else:
            given = enter_own(body, name, cell)
        if not body.group.k and body.run.settings.batch:
            return
        body.group.env[ENTERED + name] = given


def enter_own(body: Body, name: str, cell: Cell) -> Cell:
    """A manager that is entered once for each thread."""
    if body.frame.catches:
        why = "what fails in it is for a `try` statement around it"
        hint = "put the `with` statement into a function marked autobatch.per_thread."
        raise refused(body.block, why, hint)
    if not is_chain(body.frame.code.blocks, name):
        raise refused(body.block, "its body branches, so it runs in several parts")
    body.is_own = True
    body.context.eager = True
    body.attempt(body.context.flush)
    kind = kind_of(cell)
    method = getattr(kind, "__enter__", None)
    if kind is not None and (method is None or not hasattr(kind, "__exit__")):
        error = RowsFail(body.context.lowest(), not_a_manager(kind, method is None))
        return body.attempt(partial(fail, error))
    cell = body.group.env[name]
    if kind is not None and effect_of(method) == "program":
        given = body.attempt(lambda: body.context.invoke(body.context, method, [cell], {}))
        leave_by(body, Program(body, name, body.group.env[name], kind))
        return given
    value = read(cell)
    if type(value) is Uniform:
        given = body.attempt(partial(given_by, body.context, partial(kind.__enter__, value.obj)))
        if body.group.k:
            leave_by(body, Once(body, value.obj))
        return given
    managers = Each(body, body.context)
    leave_by(body, managers)
    return body.attempt(
        lambda: run_rows(
            *(body.context, managers.enter, [cell], {}, "a manager"), fresh=False, effect=True
        )
    )


def is_chain(blocks: Sequence[Block], name: str) -> bool:
    """Whether the blocks within a manager run one after the other, each once."""
    inside = [pc for pc, block in enumerate(blocks) if name in block.modes]
    ways = [target for pc in inside for target in blocks[pc].successors() if target in inside]
    straight = all(len(blocks[pc].successors()) <= 1 for pc in inside)
    return straight and len(set(ways)) == len(ways) == len(inside) - 1


def fail(failure: RowsFail) -> Cell:
    raise failure


def leave_by(body: Body, way: Program | Once | Each) -> None:
    body.stack.callback(way.leave)


def kind_of(cell: Cell) -> Any:
    """The class of a manager; None where threads have managers of several classes."""
    value = read(cell)
    if type(value) is Uniform:
        return type(value.obj)
    if type(value) is Container:
        return value.type
    kinds = {type(item) for item in value.items} if type(value) is Objects else set()
    return kinds.pop() if len(kinds) == 1 else None


def not_a_manager(kind: Any, lacks_enter: bool) -> TypeError:
    lacks = "" if lacks_enter else " (missed __exit__ method)"
    name = getattr(kind, "__name__", str(kind))
    return TypeError(f"{name!r} object does not support the context manager protocol{lacks}")


def given_by(context: Context, enter: Callable[[], Any]) -> Cell:
    """What entering a manager gives to all threads; a failure is everyone's."""
    try:
        return uniform(enter(), shared=True)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
