"""Jacobians of a group's run: a pullback for each element of the output, or a tangent of the input.

Each direction is a one-hot row for every thread at once, ``[m, k, *E]``, and ``torch.vmap`` runs
the directions together: backwards through the tape of one run, or forward along one run, whose
values are the same for all directions, so its branches have one way for each thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autobatch.presence.guards import derived
from autobatch.presence.record import deriving
from autobatch.transforms import parts
from autobatch.transforms.derivatives import pair, run_of
from autobatch.transforms.records import transform_of
from autobatch.transforms.runs import Call, Misfit, Run, differentiated, jvp, vjp
from autobatch.values.cells import METHOD, Cell, Container


def reverse(call: Call, options: dict[str, Any]) -> Cell:
    """``jacrev``."""
    run = run_of(call, options["argnums"], options["has_aux"])
    if run is None:
        return call.by_thread("its argnums do not fit")

    def work(run: Run, given: tuple[Tensor, ...]) -> Cell:
        of_one_length(run)
        real(*parts.tensors(call.args))
        outs, pull = vjp(run, given)
        real(*outs)
        basis = one_hot(outs)
        with deriving() as backwards:
            found = torch.vmap(pull, chunk_size=options["chunk_size"])(basis)
        # found[j] is [all outputs' elements, k, *E_j]
        rows: list[list[Tensor]] = [[] for _ in outs]
        for whole, like in zip(found, given, strict=True):
            for row, part, out in zip(rows, pieces(whole, outs), outs, strict=True):
                block = run.kept(derived(part.movedim(0, 1), backwards, run.first))
                row.append(block.reshape(len(block), *out.shape[1:], *like.shape[1:]))
        return with_aux(run, nested(run, rows))

    return differentiated(run, work)


def forward(call: Call, options: dict[str, Any]) -> Cell:
    """``jacfwd``."""
    run = run_of(call, options["argnums"], options["has_aux"])
    if run is None:
        return call.by_thread("its argnums do not fit")

    def work(run: Run, given: tuple[Tensor, ...]) -> Cell:
        of_one_length(run)
        real(*parts.tensors(call.args))

        def push(*tangents: Tensor) -> tuple[Tensor, ...]:
            return real(*jvp(run, given, tangents))

        found = torch.vmap(push, randomness="same")(*one_hot(given))
        # found[i] is [all inputs' elements, k, *O_i]
        rows: list[list[Tensor]] = []
        for whole in found:
            row = []
            for part, like in zip(pieces(whole, given), given, strict=True):
                block = part.movedim(0, -1)
                row.append(block.reshape(*block.shape[:-1], *like.shape[1:]))
            rows.append(row)
        return with_aux(run, nested(run, rows))

    return differentiated(run, work)


def second(call: Call, options: dict[str, Any]) -> Cell:
    """``hessian``: the forward Jacobian of the reverse one."""
    given = {"argnums": options["argnums"], "has_aux": False, "chunk_size": None}
    inner = transform_of(torch.func.jacrev, (options["argnums"],), {})
    outer = transform_of(torch.func.jacfwd, (options["argnums"],), {})
    function = Cell(Container(METHOD, [call.function], inner))
    return forward(replace(call, callee=outer, function=function), given)


def of_one_length(run: Run) -> None:
    """``Misfit`` where an input has a length of each thread's own: a Jacobian's columns have it."""
    if any(parts.own_lengths(leaf) is not None for leaf in parts.leaves(run.inputs)):
        raise Misfit


def real(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors; ``Misfit`` if one is complex: torch has no Jacobian of or by such."""
    if any(map(torch.is_complex, tensors)):
        raise Misfit
    return tensors


def one_hot(likes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """For columns ``[k, *E]`` the directions of all their elements, ``[m, k, *E]`` for each."""
    counts = [elements(like) for like in likes]
    found = []
    for place, like in enumerate(likes):
        before, after = sum(counts[:place]), sum(counts[place + 1 :])
        eye = torch.eye(counts[place], dtype=like.dtype, device=like.device)
        rows = torch.nn.functional.pad(eye, (0, 0, before, after))
        event = like.shape[1:]
        found.append(rows.reshape(sum(counts), 1, *event).expand(-1, like.shape[0], *event))
    return tuple(found)


def elements(like: Tensor) -> int:
    return math.prod(like.shape[1:])


def pieces(whole: Tensor, likes: Sequence[Tensor]) -> Iterator[Tensor]:
    """The directions ``[m, …]`` apart again, column by column."""
    return iter(torch.split(whole, [elements(like) for like in likes]))


def nested(run: Run, rows: list[list[Tensor]]) -> Cell:
    """In the structure of the output, and within that of the input."""
    outs = parts.leaves(run.output)
    cells = (
        parts.rebuilt(run.inputs, (parts.leaf_like(out, block) for block in row))
        for out, row in zip(outs, rows, strict=True)
    )
    return parts.rebuilt(run.output, cells)


def with_aux(run: Run, done: Cell) -> Cell:
    return done if run.aux is None else pair(done, run.aux)
