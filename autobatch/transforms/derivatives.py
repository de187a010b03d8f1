"""Gradients, pullbacks and tangents of a group's run, each thread's in its own row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.host.rower import Rower
from autobatch.compat import outside_everything
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.presence.guards import derived
from autobatch.presence.record import deriving
from autobatch.random.again import apart, drawing_from, places_of
from autobatch.random.repeating import generators_of
from autobatch.transforms import parts, plain, runs
from autobatch.transforms.records import Pull
from autobatch.transforms.runs import (
    Call,
    Misfit,
    Pullback,
    Run,
    Unfit,
    differentiated,
    jvp,
    vjp,
)
from autobatch.values.cells import METHOD, Cell, Container, Objects, read
from autobatch.values.heap import copying


def pair(*cells: Cell) -> Cell:
    return Cell(Container(tuple, list(cells)))


def run_of(call: Call, argnums: Any, has_aux: bool) -> Run | None:
    """The run of a call's function, by ``argnums``; None if these do not fit its arguments."""
    chosen = argnums if isinstance(argnums, tuple) else (argnums,)
    count = len(call.args)
    if not chosen or any(type(n) is not int or not -count <= n < count for n in chosen):
        return None
    places = [n % count for n in chosen]
    if len(set(places)) < len(places):
        return None
    picked = [parts.opened(call.args[place]) for place in places]

    def place(tree: Cell) -> list[Cell]:
        new = [tree] if type(argnums) is int else list(read(tree).children())  # type: ignore[union-attr]
        args = list(call.args)
        for at, cell in zip(places, new, strict=True):
            args[at] = cell
        return args

    inputs = picked[0] if type(argnums) is int else pair(*picked)
    return Run(call, inputs, place, call.kwargs, has_aux)


def gradient(call: Call, options: dict[str, Any], order: str) -> Cell:
    """``grad``, and with the value before or after it ``value_and_grad``, ``grad_and_value``."""
    run = run_of(call, options["argnums"], options["has_aux"])
    if run is None:
        return call.by_thread("its argnums do not fit")

    def work(run: Run, given: tuple[Tensor, ...]) -> Cell:
        alone = not run.is_recorded and plain.is_plain(run, given)
        outs, pull = (plain if alone else runs).vjp(run, given)
        if parts.is_tree(read(run.output)) or outs[0].dim() != 1:
            raise Unfit
        if outs[0].is_complex():
            raise Misfit
        done = gradients(run, pull, (torch.ones_like(outs[0]),))
        if order == "grad":
            return done if run.aux is None else pair(done, run.aux)
        value = run.output if run.aux is None else pair(run.output, run.aux)
        return pair(value, done) if order == "value_and_grad" else pair(done, value)

    return differentiated(run, work)


def gradients(run: Run, pull: Pullback, cotangents: tuple[Tensor, ...]) -> Cell:
    with deriving() as backwards:
        found = pull(cotangents)
    return parts.tree_of(
        run.kept_inputs(), (run.kept(derived(each, backwards, run.first)) for each in found)
    )


# vjp and jvp: functions that take the arguments at once.


def pullback(call: Call, has_aux: bool) -> Cell:
    """``vjp``: the output, and the pullback as a function of what the arguments are now."""
    copies, paths = copying.duplicated([call.function, *call.args]), call.context.paths
    if paths is not None:
        copies.append(Cell(Objects(places_of(paths))))
    pull = Cell(Container(METHOD, [pair(*copies)], Pull(has_aux, paths is not None)))
    run = Run(call, pair(*map(parts.opened, call.args)), children, {}, has_aux)

    def work(run: Run, given: tuple[Tensor, ...]) -> Cell:
        vjp(run, given)
        return pair(run.output, pull) if run.aux is None else pair(run.output, pull, run.aux)

    return differentiated(run, work)


def children(tree: Cell) -> list[Cell]:
    return list(read(tree).children())  # type: ignore[union-attr]


def pulled(call: Call, pull: Pull) -> Cell:
    """What the pullback of ``vjp`` gives; the last of the arguments are the cotangents.

    Its function runs again, and draws what it drew.
    """
    *primals, cotangents = call.args
    context, has_aux = call.context, pull.has_aux
    if pull.seeded:
        assert context.paths is not None
        places = Rower(context).rows(primals.pop())
        drawing: AbstractContextManager[None] = drawing_from(context.paths, *apart(places))
    else:
        drawing = nothing_drawn(context)
    run = Run(call, pair(*map(parts.opened, primals)), children, {}, has_aux)

    def work(run: Run, given: tuple[Tensor, ...]) -> Cell:
        outs, pull = vjp(run, given)
        return gradients(run, pull, aligned(run, run.output, cotangents, outs))

    with drawing:
        return differentiated(run, work)


@contextmanager
def nothing_drawn(context: Context) -> Iterator[None]:
    """Refuse what draws from torch's generators, where what it gives could not be had again."""
    before = drawn(context)
    yield
    if not all(map(np.array_equal, before, drawn(context))):
        raise UnsupportedError(
            Diagnostic(
                "A program pulls back through a function that draws random numbers.",
                context.span,
                "pulled back here",
                ("the pullback of `vjp` runs its function again, which would draw others.",),
                (
                    "give the call a `seed`, by which it draws the same again; or draw before "
                    "`vjp`, and pass what has been drawn; or use `autobatch.value_and_grad`.",
                ),
                "draws-again",
            )
        )


def drawn(context: Context) -> list[np.ndarray]:
    """How far the threads have drawn: where each is, or where the generators are for all."""
    alike = context.services.alike
    if alike is not None:
        alike.begin(context.threads)
        return [alike.places[context.threads]]
    with outside_everything():  # a level of a transform would wrap the states
        return [each.get_state().numpy() for each in generators_of(context.device)]


def pushed(call: Call, strict: bool, has_aux: bool) -> Cell:
    """``jvp``: the output and its derivative along the tangents."""
    primals, tangents = call.args
    run = Run(call, parts.opened(primals), children, {}, has_aux)

    def work(run: Run, given: tuple[Tensor, ...]) -> Cell:
        along = aligned(run, run.inputs, tangents, given)
        found = jvp(run, given, along, strict)  # which tells the output
        done = parts.tree_of(run.output, found)
        return pair(run.output, done) if run.aux is None else pair(run.output, done, run.aux)

    given = read(run.inputs)
    if not isinstance(given, Container) or not is_tuple(given):
        return call.by_thread("its primals are no tuple")
    return differentiated(run, work)


def is_tuple(value: Container) -> bool:
    return isinstance(value.type, type) and issubclass(value.type, tuple)


def aligned(run: Run, tree: Cell, along: Cell, likes: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Directions as columns; ``Misfit`` if they are not of what they belong to."""
    opened = parts.opened(along)
    found = parts.padded_columns(opened, run.call.context.k)
    if found is None or outline(opened) != outline(tree):
        raise Misfit
    if any(one.shape[1:] != like.shape[1:] for one, like in zip(found, likes, strict=True)):
        raise Misfit
    return tuple(map(run.kept, found))


def outline(tree: Cell) -> Any:
    """The structure of a tree without its leaves, but for lengths of the threads' own."""
    value = read(tree)
    if not parts.is_tree(value):
        order = parts.own_lengths(tree)
        return None if order is None else tuple(order.sizes)
    assert type(value) is Container
    keys = tuple(value.cells) if isinstance(value.cells, dict) else None
    return (value.type, keys, tuple(map(outline, value.children())))
