"""torch's operator database as programs: each operator under a branch.

In: an entry of ``op_db``, with its float32 samples on CPU. Out: for each sample, and each choice of
the operands that differ by thread, a ``Case``: a program with source, and its operands.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves

FLAGS = torch.tensor([1.0, -1.0, 2.0])
"""Which way each thread takes."""
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")
NOT_HERE = (*UNDEFINED, "new_empty_strided", "hash_tensor")
"""What they make has no values to compare, or (uint64) cannot be indexed on CPU."""
NO_SLOPES = ("as_strided_scatter",)
"""torch's derivative of it is wrong where the gradient that it gets is a part of a tensor."""
SAMPLES = 3
FEW = 3
"""Operands of which every choice is tried; of more, none, all, each one and all but each one."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A program of ``flag`` and an operator's tensors; those ``chosen`` have a row per thread."""

    program: Callable[..., Any]
    tensors: list[Tensor]
    chosen: tuple[int, ...]

    def rows(self, thread: int) -> list[Tensor]:
        """One thread's private copies."""
        given = enumerate(self.tensors)
        return [(t[thread] if n in self.chosen else t).clone() for n, t in given]

    @property
    def in_dims(self) -> tuple[int | None, ...]:
        return (0, *(0 if n in self.chosen else None for n in range(len(self.tensors))))


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def operators() -> dict[str, Any]:
    """All that have float32 samples and results that the loop has, too, by name."""
    ours = [op for op in op_db if torch.float32 in op.dtypes and op.name not in NOT_HERE]
    return {full_name(op): op for op in sorted(ours, key=full_name) if not seeds_itself(op.op)}


def seeds_itself(fn: Any) -> bool:
    """Whether an entry draws under a seed of its own, which is the loop's and not a thread's."""
    return "wrapper_set_seed" in getattr(getattr(fn, "__code__", None), "co_names", ())


def cases(op: Any, count: int = SAMPLES) -> Iterator[Case]:
    """Every choice of operands that differ by thread, for some samples of an operator."""
    torch.manual_seed(0)
    has_slopes = op.supports_autograd and op.name not in NO_SLOPES
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=has_slopes)
    plain = (sample for sample in samples if is_plain(sample))
    for sample in itertools.islice(plain, count):
        leaves, spec = tree_flatten((sample.input, *sample.args, sample.kwargs))
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        for chosen in choices(len(places)):
            tensors = [operand(leaves[at], n in chosen) for n, at in enumerate(places)]
            yield Case(program_of(op.op, leaves, spec, places, chosen), tensors, chosen)


def is_plain(sample: Any) -> bool:
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return bool(tensors) and all(t.layout == torch.strided for t in tensors)


def choices(number: int) -> Iterable[tuple[int, ...]]:
    every = tuple(range(number))
    if number <= FEW:
        return [c for size in range(number + 1) for c in itertools.combinations(every, size)]
    return [(), *((n,) for n in every), *itertools.combinations(every, number - 1), every]


def operand(tensor: Tensor, varies: bool) -> Tensor:
    """A sample's tensor as a leaf; slightly different values in each thread if it ``varies``."""
    wanted, tensor = tensor.requires_grad, tensor.detach()
    if varies:
        scales = [1 + 0.03 * n if is_real(tensor) else 1 for n in range(len(FLAGS))]
        tensor = torch.stack([(tensor * scale).to(tensor.dtype) for scale in scales])
    return tensor.clone().requires_grad_(wanted)


def is_real(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def program_of(
    fn: Callable[..., Any], leaves: list[Any], spec: Any, places: list[int], chosen: tuple[int, ...]
) -> Callable[..., Any]:
    """``fn`` of the leaves, those at ``places`` parameters; two ways, of which one copies first."""
    names = {at: f"t{n}" for n, at in enumerate(places)}
    known = {f"c{at}": leaf for at, leaf in enumerate(leaves) if at not in names}
    call = f"fn({arguments(spec, iter([names.get(at, f'c{at}') for at in range(len(leaves))]))})"
    copies = "; ".join(f"t{n} = t{n}.clone()" for n in chosen) or "pass"
    text = (
        f"def program(flag, {', '.join(names.values())}):\n"
        f"    if flag > 0:\n        return {call}\n    {copies}\n    return {call}\n"
    )
    file = f"<operator {next(NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {**known, "fn": fn}
    exec(compile(text, file, "exec"), space)
    made: Callable[..., Any] = space["program"]
    return made


NUMBERS = itertools.count()


def arguments(spec: Any, names: Iterator[str]) -> str:
    """The text of a call's arguments, whose last one is the dict of those by name."""
    *positional, named = spec.children()
    texts = [display(part, names) for part in positional]
    pairs = zip(named.context, named.children(), strict=True)
    return ", ".join([*texts, *(f"{name}={display(part, names)}" for name, part in pairs)])


def display(spec: Any, names: Iterator[str]) -> str:
    if spec.is_leaf():
        return next(names)
    parts = [display(part, names) for part in spec.children()]
    if spec.type is dict:
        pairs = zip(spec.context, parts, strict=True)
        return "{" + ", ".join(f"{key!r}: {part}" for key, part in pairs) + "}"
    if spec.type is list:
        return f"[{', '.join(parts)}]"
    return f"({''.join(f'{part}, ' for part in parts)})"
