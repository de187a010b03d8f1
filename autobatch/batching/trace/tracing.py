"""``record``: from a function to its ``Trace``; which sizes and numbers the recordings use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from autobatch.batching.trace.bindings import Example
from autobatch.batching.trace.codegen import Replay, compile_graph
from autobatch.batching.trace.graph import Graph, Untraceable, text
from autobatch.batching.trace.guarding import is_bare
from autobatch.batching.trace.narrow import Spread, narrowed
from autobatch.batching.trace.over import over
from autobatch.batching.trace.recorder import Ambient, Recording, outside, run_fake
from autobatch.batching.trace.reuse import NOTHING, spends
from autobatch.batching.trace.rewrite import simplify
from autobatch.batching.trace.riding import row_cost
from autobatch.batching.trace.sure import sure
from autobatch.batching.trace.unify import unify
from autobatch.compat import fake_mode
from autobatch.values.layouts import carried, gaps_of

# Prime and uncommon, so that no event size divides or equals one.
_PRIMES = (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283, 293)
_LARGEST_STEP = 1000
_FREE = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::lift_fresh")


@dataclass(frozen=True, slots=True)
class Input:
    """An example of one value: a column ``[k, *E]``, a uniform tensor, or a uniform number.

    A ``table`` ``[n, *E]`` is a tensor whose first size is free: the trace may not depend on it.
    """

    kind: Literal["column", "table", "tensor", "int", "float"]
    value: Any


@dataclass(frozen=True, slots=True)
class Printing:
    """What a graph is printed for: see ``compile_graph``."""

    example: Example
    autocast: tuple[str, ...]
    grad: bool
    within: bool
    heeded: bool = False

    def trace(self, graph: Graph) -> Trace:
        printed = graph if self.grad else narrowed(graph)
        replay, source = self.compiled(printed)
        owner = {graph.metas[i].storage: i for i in range(graph.inputs) if i in graph.metas}
        storages = tuple(graph.metas[out].storage for out in graph.outputs)
        aliases = tuple(map(owner.get, storages))
        cost = None if self.grad or self.within else row_cost(graph)
        return Trace(graph, replay, source, aliases, storages, kernels_of(printed), self, cost)

    def compiled(self, printed: Graph, spent: Set[int] = NOTHING) -> tuple[Replay, str]:
        """Its replay, which may write over these inputs, and the source of that."""
        return compile_graph(
            printed, self.example, self.autocast, self.grad, self.within, spent, self.heeded
        )

    def spending(self, graph: Graph, spent: Set[int]) -> Replay | None:
        """A replay that may write over inputs which nobody else holds; None if it would not."""
        if self.grad or self.within:
            return None
        printed = narrowed(graph)
        if not spends(printed, spent):
            return None
        return self.compiled(printed, spent)[0]

    def over(self, graph: Graph, given: int, result: int) -> Replay | None:
        """A replay that writes a result over an input of which the graph's copies all."""
        if self.grad or self.within:
            return None
        changed = over(narrowed(graph), given, result)
        if changed is None:
            return None
        return self.compiled(changed)[0]


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded stretch. ``trace(k, *values)`` runs it and returns its results.

    ``aliases`` has for each result the position of the input it shares storage with, or None;
    results with equal entries in ``storages`` share storage with each other. ``printing`` makes a
    trace of another graph of the same kind of values. ``row_cost``: see ``riding``.
    """

    graph: Graph
    replay: Replay
    source: str
    aliases: tuple[int | None, ...]
    storages: tuple[int, ...]
    kernels: int
    printing: Printing
    row_cost: float | None

    def __call__(self, k: int, *values: Any) -> tuple[Tensor, ...]:
        return self.replay(k, *values)

    @property
    def launches(self) -> int:
        """How many kernels a run launches; views are free."""
        return self.kernels

    @property
    def is_safe(self) -> bool:
        """Whether it may run for rows of threads that are not there."""
        return self.row_cost is not None

    def graph_text(self) -> str:
        """The operations as text, one a line."""
        return text(self.graph)

    def spending(self, results: Mapping[int, int]) -> Replay | None:
        """A replay for inputs that are results of the last one, by their places among those.

        Nobody else may hold them: they are written over where that spares memory. None where that
        is of no use.
        """
        spent = {
            place
            for place, result in results.items()
            if self.aliases[result] is None
            and self.storages.count(self.storages[result]) == 1
            and list(results.values()).count(result) == 1
        }
        return self.printing.spending(self.graph, spent)

    def over(self, given: int, result: int) -> Replay | None:
        """A replay whose result takes the place of an input, which nobody else may hold.

        None where the trace does not copy that input to write to it.
        """
        return self.printing.over(self.graph, given, result)

    @property
    def is_bare(self) -> bool:
        """Whether gradients flow through a replay, as through its operations by themselves, and
        through memory of its own.
        """
        apart = set(self.aliases) <= {None} and len(set(self.storages)) == len(self.storages)
        printing = self.printing
        return printing.grad and not printing.within and apart and is_bare(self.graph)

    @property
    def quiet(self) -> Trace:
        """The same where no gradient flows, but one may be wanted later."""
        return replace(self.printing, grad=False, heeded=True).trace(self.graph)

    def sure(self, masks: int) -> Trace:
        """The same where its last results, so many, are known to be false: they are no results."""
        return self.printing.trace(sure(self.graph, masks))


def record(
    fn: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Input],
    *,
    allow_random: bool = False,
    fast_math: bool = False,
) -> Trace:
    """Record ``fn(k, *values)`` for any thread count, or raise ``Untraceable``.

    ``fn`` gets the thread count and values like the inputs' (columns ``[k, *E]``) and returns a
    tuple of tensors. It runs at least twice, on fake tensors in another host thread, so it must
    be pure. ``allow_random``: whether it may draw random numbers. ``fast_math``: whether floats may
    come out rounded otherwise (see ``arithmetic``).
    """
    ambient = Ambient.current()
    likes = [_Like.of(each) for each in inputs]
    return outside(carried(lambda: _record(fn, likes, ambient, allow_random, fast_math)))


@dataclass(frozen=True, slots=True)
class _Like:
    """What a recording needs to know of an input: metadata, or the number."""

    kind: str
    number: int | float = 0
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    device: torch.device | None = None
    requires_grad: bool = False
    has_gaps: bool = False

    @staticmethod
    def of(given: Input) -> _Like:
        value = given.value
        if given.kind in ("int", "float"):
            return _Like(given.kind, number=value)
        if value.layout is not torch.strided or value.is_quantized:
            raise Untraceable("an input is not a dense tensor")
        if value.is_conj() or value.is_neg():
            raise Untraceable("an input is a lazy conjugate or negative")
        return _Like(
            given.kind, 0, tuple(value.shape), value.stride(), value.dtype, value.device,
            value.requires_grad, given.kind != "tensor" and gaps_of(value) is not None,
        )  # fmt: skip

    def fake(self, k: int) -> Tensor:
        """A tensor like this; a column has ``k`` rows and is dense in the same stride order, or has
        the same gaps.
        """
        shape, stride = self.shape, self.stride
        if self.kind == "column":
            shape = (k, *shape[1:])
        elif self.kind == "table":
            shape = (3 * k + 1, *shape[1:])  # no multiple of k, so a use of it does not unify
        if self.kind != "tensor" and not self.has_gaps:
            stride = _dense(shape, stride)
        made = torch.empty_strided(shape, stride, dtype=self.dtype, device=self.device)
        return made.requires_grad_(self.requires_grad and torch.is_grad_enabled())


def _dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps, ordered as these; expanded dimensions (stride 0) stay so."""
    result = [0] * len(shape)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda d: (stride[d], -d)):
        if stride[dim] != 0 or dim == 0:
            result[dim] = step
            step *= max(shape[dim], 1)
    return tuple(result)


def _record(
    fn: Callable[..., Sequence[Tensor]],
    likes: list[_Like],
    ambient: Ambient,
    allow_random: bool,
    fast_math: bool,
) -> Trace:
    counts = _pick_counts(likes)
    mode = fake_mode()

    def run(k: int, numbers: Sequence[int | float]) -> Recording:
        def make() -> list[Any]:
            return [
                number if like.kind in ("int", "float") else like.fake(k)
                for like, number in zip(likes, numbers, strict=True)
            ]

        try:
            return run_fake(fn, k, make, mode, ambient, allow_random)
        except Untraceable:
            raise
        except Exception as failure:  # the stretch runs untraced and meets it there, if it is real
            raise Untraceable(f"{type(failure).__name__}: {failure}") from failure

    first = run(counts[0], [like.number for like in likes])
    graph = _unify_with_any(first, run, likes, counts, ambient.grad)
    numbers = {i: like.number for i, like in enumerate(likes) if like.kind in ("int", "float")}
    grad = ambient.hides or (ambient.grad and any(like.requires_grad for like in likes))
    graph = simplify(graph, ambient.grad, fast_math, bool(grad))
    autocast = tuple(kind for kind, _ in ambient.autocast)
    return Printing(Example(counts[0], numbers), autocast, grad, ambient.hides).trace(graph)


def _unify_with_any(
    first: Recording,
    run: Callable[[int, Sequence[int | float]], Recording],
    likes: list[_Like],
    counts: tuple[int, int],
    grad: bool,
) -> Graph:
    """Unify with a second recording; other second numbers are tried where some do not fit."""
    failure: Untraceable | None = None
    for numbers in _second_numbers(likes):
        try:
            second = run(counts[1], numbers)
        except Untraceable as refused:
            failure = refused
            continue
        return unify(first, second, counts, grad)
    assert failure is not None
    raise failure


def _second_numbers(likes: list[_Like]) -> Iterator[list[int | float]]:
    """Other values for the uniform numbers, each changed by an amount of its own."""
    if not any(like.kind in ("int", "float") for like in likes):
        yield [0 for _ in likes]
        return
    for signs, scale in (((-1, 1), 1.5), ((1, -1), 0.5), ((-1,), 1.5), ((1,), 0.5)):
        steps: set[int] = set()
        taken = {like.number for like in likes if like.kind == "float"}
        yield [_another(like, signs, scale, steps, taken) for like in likes]


def _another(
    like: _Like, signs: tuple[int, ...], scale: float, steps: set[int], taken: set[int | float]
) -> int | float:
    """Another number for one input; ``steps`` and ``taken`` are those that no other may have."""
    if like.kind == "float":
        number = next(each for each in _other_floats(like.number, scale) if each not in taken)
        taken.add(number)
        return number
    return _another_int(like.number, signs, steps) if like.kind == "int" else 0


def _another_int(value: int | float, signs: tuple[int, ...], used: set[int]) -> int | float:
    """An index stays on its side of zero if it can."""
    steps = [sign * size for size in range(1, _LARGEST_STEP) for sign in signs]
    free = [step for step in steps if step not in used]
    step = next((step for step in free if (value < 0) == (value + step < 0)), free[0])
    used.add(step)
    return value + step


def _other_floats(value: float, scale: float) -> Iterator[float]:
    """Floats of about this size. None is an integer, which an int might become, unless it is huge.

    A recording holds no trace of an input whose second value is the first: it would be a
    constant. Two that change alike would be taken for each other.
    """
    for size in (value * scale, scale):
        for place in range(1, _LARGEST_STEP):
            other = size * (1 + place / 1024) + 0.171875
            if math.isfinite(other) and (not other.is_integer() or abs(other) > 2**40):
                yield other


def _pick_counts(likes: list[_Like]) -> tuple[int, int]:
    """Two primes of which no size, stride or number among the inputs is a multiple."""
    seen = {abs(n) for like in likes for n in (*like.shape[1:], *like.stride, like.number)}
    seen |= {n for like in likes if like.kind == "tensor" for n in like.shape}
    fits = [p for p in _PRIMES if not any(n and n % p == 0 for n in seen)]
    if len(fits) < 2:
        raise Untraceable("every prime divides a size of the inputs")
    return fits[0], fits[1]


def kernels_of(graph: Graph) -> int:
    """How many kernels a run of a graph launches; views are free, spread elements are not."""
    return sum(
        type(node) is Spread or not (node.is_view or node.op._schema.name.startswith(_FREE))
        for node in graph.nodes
    )
