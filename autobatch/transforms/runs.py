"""One run of a function for a group, on columns that stand for its differentiated arguments.

``Run`` is what the functorch transforms take: a function of columns ``[k, *E]`` that gives the
columns of the output. What else the run has returned it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import run_rows
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import refuse_python_gradients
from autobatch.compat import next_node, on_device
from autobatch.errors import AutobatchError
from autobatch.presence.record import may_spoil, record_at_work
from autobatch.random.again import drawing_from
from autobatch.transforms import levels, parts
from autobatch.transforms.captured import held
from autobatch.values import packs
from autobatch.values.cells import Cell, Column, Container, Objects, View, read, uniform
from autobatch.values.heap import copying, selecting, walks

Pullback = Callable[..., tuple[Tensor, ...]]
Work = Callable[["Run", tuple[Tensor, ...]], Cell]
"""Takes the derivative of a run at some columns."""


class Unfit(Exception):
    """What the function has returned cannot be differentiated as it is."""


class Misfit(Exception):
    """The arguments do not fit the function: one example says it best."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a transform: ``callee(function, *args, **kwargs)``, for the group of a context."""

    context: Context
    callee: Callable[..., Any]
    function: Cell
    args: list[Cell]
    kwargs: dict[str, Cell]

    def cells(self) -> list[Cell]:
        return [self.function, *self.args, *self.kwargs.values()]

    def of_rows(self, rows: np.ndarray) -> Call:
        """The same call for some of the rows."""
        return self.on(selecting.select(self.cells(), rows), self.context.restricted(rows.tolist()))

    def copied(self) -> Call:
        """The same call on what its cells hold now, whatever becomes of them."""
        return self.on(copying.duplicated(self.cells()), self.context)

    def on(self, cells: list[Cell], context: Context) -> Call:
        """The same call on other cells, in the order of ``cells``."""
        function, *rest = cells
        count = len(self.args)
        kwargs = dict(zip(self.kwargs, rest[count:], strict=True))
        return Call(context, self.callee, function, rest[:count], kwargs)

    def by_thread(self, why: str) -> Cell:
        """The call as it is for one example, thread by thread."""
        given = [self.function, *self.args]
        return run_rows(
            self.context, self.callee, given, self.kwargs, why, keep=True, fresh=False, effect=True
        )


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """``inputs`` is the tree that is differentiated; ``place`` gives the arguments with another
    tree for it.

    ``output``, ``aux`` and ``result``, which is both, are there once it has run; ``again`` is the
    call as it was before, in case it is to run once more without effect. Where threads
    fail, ``failure`` says so and ``rows`` are those that the results are of, else None.
    ``places`` are where its threads begin to draw: keys and numbers. ``first`` is the number of the
    first of autograd's nodes that it, or what differentiates it, has made. ``stand_ins`` are what
    the function had for the leaves of ``inputs``: cells and their values.
    """

    call: Call
    inputs: Cell
    place: Callable[[Cell], list[Cell]]
    kwargs: dict[str, Cell]
    has_aux: bool = False
    result: Cell | None = None
    output: Cell = field(default_factory=lambda: uniform(None))
    aux: Cell | None = None
    failure: RowsFail | None = None
    rows: np.ndarray | None = None
    stand_ins: list[tuple[Cell, Any]] = field(default_factory=list)
    again: Call = field(init=False)
    first: int = 0
    places: tuple[np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        self.again = self.call.copied()
        paths = self.call.context.paths
        self.places = None if paths is None else paths.here()

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        context = self.call.context
        tree = parts.tree_of(self.inputs, given)
        self.stand_ins = [(leaf, leaf.value) for leaf in parts.leaves(tree)]
        args = self.place(tree)
        if self.is_recorded:
            return self.recorded(args)
        try:
            with unopened(context), unwritten(context):
                self.result = context.invoke(context, self.call.function, args, self.kwargs)
        except RowsFail as failure:
            if failure.partial is None or failure.kept is None:
                raise
            self.result, self.failure, self.rows = failure.partial, failure, failure.kept
        return tuple(map(self.apart, self.outputs()))

    def recorded(self, args: list[Cell]) -> tuple[Tensor, ...]:
        """The run as part of a recording, by the operations of a function of a single block."""
        context = self.call.context
        before = pending(context)
        self.result = context.inline(context, self.call.function, args, self.kwargs)
        if pending(context) != before:
            raise Untraceable("it checks within a function that it differentiates")
        if any(map(packs.is_packed, map(read, parts.leaves(parts.opened(self.result))))):
            raise Untraceable("what it differentiates has a length of each thread's own")
        found = self.outputs()
        refuse_python_gradients(found)
        return tuple(found)

    @property
    def is_recorded(self) -> bool:
        return self.call.context.forecasts is not None

    def outputs(self) -> list[Tensor]:
        """The columns of what has been returned, padded where lengths are the threads' own."""
        assert self.result is not None
        self.result = parts.opened(self.result)
        self.split(self.result)
        found = parts.padded_columns(self.output, self.k)
        if not found or not any(map(is_smooth, found)):
            raise Unfit
        self.output = self.given_back(self.output)
        self.aux = None if self.aux is None else self.given_back(self.aux)
        return found

    def given_back(self, tree: Cell) -> Cell:
        """A result with the arguments' own cells where the function has returned them unwritten, or
        views of them.
        """
        own = {
            id(cell): leaf
            for (cell, value), leaf in zip(self.stand_ins, parts.leaves(self.inputs), strict=True)
            if cell.value is value and type(read(leaf)) is not Objects
        }

        def back(leaf: Cell) -> Cell:
            value = leaf.value
            if type(value) is not View:
                return own.get(id(leaf), leaf)
            base = back(value.base)
            return leaf if base is value.base else Cell(View(base, value.recipe, value.args))

        return parts.rebuilt(tree, map(back, parts.leaves(tree)))

    def apart(self, out: Tensor) -> Tensor:
        """An output in which rows of threads that have failed, copies of others, are constant."""
        context = self.call.context
        if not context.lost:
            return out
        lost = np.isin(context.threads, list(context.lost))
        mask = on_device(lost, out.device).reshape(-1, *[1] * (out.dim() - 1))
        return torch.where(mask, out.detach(), out)

    def redrawing(self, context: Context, rows: list[int]) -> AbstractContextManager[None]:
        """Within, some of its rows draw what they have drawn."""
        if self.places is None:
            return nullcontext()
        assert context.paths is not None
        keys, numbers = self.places
        return drawing_from(context.paths, keys[rows], numbers[rows])

    @property
    def k(self) -> int:
        """How many rows the results are of."""
        return self.call.context.k if self.rows is None else len(self.rows)

    def split(self, result: Cell) -> None:
        self.output, self.aux = result, None
        if not self.has_aux:
            return
        value = read(result)
        if type(value) is not Container or value.type is not tuple or len(value.cells) != 2:
            raise Unfit
        self.output, self.aux = value.children()
        if not parts.are_tensors(self.aux, self.k):
            raise Unfit

    def columns(self) -> tuple[Tensor, ...] | None:
        """The differentiated arguments as columns, padded where lengths are the threads' own.

        None if one is no tensor.
        """
        found = parts.padded_columns(self.inputs, self.call.context.k)
        return None if not found else tuple(found)

    def kept_inputs(self) -> Cell:
        """The differentiated arguments of the rows that the results are of."""
        return self.inputs if self.rows is None else selecting.select([self.inputs], self.rows)[0]

    def kept(self, tensor: Tensor) -> Tensor:
        """Of a column over all rows those that the results are of."""
        if self.rows is None:
            return tensor
        return tensor.index_select(0, on_device(self.rows, tensor.device))


def unwritten(context: Context) -> AbstractContextManager[None]:
    """Shared tensors are not written inside: torch refuses that in a function it differentiates."""
    given = context.contributions
    return nullcontext() if given is None else given.refused()


def is_own(leaf: Cell) -> bool:
    """Whether each thread has a tensor of its own."""
    value = read(leaf)
    return type(value) is Column and value.tag == "tensor"


def pending(context: Context) -> tuple[int, ...]:
    """How much is left to be looked at, which would not outlive the level of a transform."""
    return (len(context.checks), len(context.escapes), len(context.forecasts or ()))


@contextmanager
def unopened(context: Context) -> Iterator[None]:
    """No call opens a path inside: for one example it is Python itself that makes them."""
    paths = context.paths
    context.paths = None if paths is None else paths.flattened()
    try:
        yield
    finally:
        context.paths = paths


def differentiated(run: Run, work: Work) -> Cell:
    """What ``work`` makes of a run, or the exception of the lowest thread."""
    call = run.call
    given = run.columns()
    if run.is_recorded and not all(map(is_own, parts.leaves(run.inputs))):
        raise Untraceable("it differentiates what all threads share")
    if given is None:
        return call.by_thread("it differentiates what is no tensor")
    if may_spoil() and not run.is_recorded:
        parts.without_others(call.cells())  # whose rows the derivative would need with its own
    cell, error = attempted(run, work, given)
    if cell is None:
        if isinstance(error, Unfit):
            return unlike(run)
        if isinstance(error, Misfit):
            return call.by_thread("its arguments do not fit")
        if run.result is not None:
            told(run, str(error))
        raise RowsFail(call.context.lowest(), error) from error
    if run.failure is not None:
        failure = run.failure
        raise RowsFail(failure.row, failure.error, cell, failure.span, failure.kept)
    return cell


def attempted(
    run: Run, work: Work, given: tuple[Tensor, ...]
) -> tuple[Cell, Exception] | tuple[None, Exception]:
    """What ``work`` makes of a run, or what is wrong with that for all threads."""
    run.first = next_node()
    given_to_it = list(walks.reached(run.call.cells()))  # cells that become objects lose their way
    try:
        return work(run, given), Unfit()
    except (RowsFail, AutobatchError, Untraceable):
        raise
    except Exception as error:
        return None, error
    finally:
        made = [] if run.result is None else [run.result]
        levels.revived([*given_to_it, *run.call.cells(), *made])


def vjp(run: Run, given: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Pullback]:
    """The output's columns at some inputs, and how cotangents of them are pulled back."""
    record = record_at_work()

    def pulled(*columns: Tensor) -> tuple[Tensor, ...]:
        outs = run(*columns)
        return outs if record is None else tuple(map(record.given, outs))

    outs, pull, *_ = torch.func.vjp(pulled, *given)
    return outs, pull


def jvp(
    run: Run, given: tuple[Tensor, ...], along: tuple[Tensor, ...], strict: bool = False
) -> tuple[Tensor, ...]:
    """The derivatives of the output's columns along some directions.

    A dual's value and tangent have one layout in memory, so what repeats a tensor is copied.
    """
    whole = tuple(tensor.contiguous() for tensor in given)
    found: tuple[Tensor, ...] = torch.func.jvp(run, whole, along, strict=strict)[1]
    return found


def unlike(run: Run) -> Cell:
    """Outputs, or what is beside them, that are no columns: threads whose are alike go together."""
    call = run.call
    if run.failure is not None:
        raise RowsFail(run.failure.row, run.failure.error)
    assert run.result is not None
    outputs = Rower(call.context).rows(run.result)
    classes: dict[Any, list[int]] = {}
    for row, output in enumerate(outputs):
        classes.setdefault(signature(output), []).append(row)
    if None in classes or len(classes) < 2:
        return without_gradients(run, outputs)
    results: list[Any] = [None] * call.context.k
    for rows in classes.values():
        part = run.again.of_rows(np.array(rows))
        callee, given = uniform(part.callee), [part.function, *part.args]
        with held(part.context, part.cells()), run.redrawing(part.context, rows):
            # what it has written is written, what it has drawn is drawn
            done = part.context.invoke(part.context, callee, given, part.kwargs)
        part.context.flush()
        for row, item in zip(rows, Rower(part.context).rows(done), strict=True):
            results[row] = item
    return from_rows(call.context, results)


def without_gradients(run: Run, outputs: list[Any]) -> Cell:
    """Outputs without a floating-point tensor: what ``torch.func`` says to each example.

    It would take one that has them for a constant.
    """
    done = told(run, "its function returns no floating-point tensor")
    if any(isinstance(leaf, Tensor) and is_smooth(leaf) for leaf in tree_leaves(outputs)):
        raise AssertionError("torch.func takes an output that autobatch does not")
    return done


def told(run: Run, why: str) -> Cell:
    """What ``torch.func`` says to each example's output."""
    call = run.call
    assert run.result is not None
    if run.failure is not None:
        raise RowsFail(run.failure.row, run.failure.error)

    def alone(result: Any, *args: Any, **kwargs: Any) -> Any:
        return call.callee(lambda *_, **__: result, *args, **kwargs)

    return run_rows(call.context, alone, [run.result, *call.args], call.kwargs, why)


def is_smooth(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def signature(output: Any) -> Any:
    """What must be equal for outputs to stack; None if they never do."""
    if isinstance(output, Tensor):
        return (output.dtype, output.shape, output.device)
    if isinstance(output, tuple | list):
        inner = tuple(map(signature, output))
        return None if None in inner else (type(output), inner)
    if type(output) is dict:
        inner = tuple(map(signature, output.values()))
        return None if None in inner else (dict, tuple(output), inner)
    return None
