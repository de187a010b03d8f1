"""The operator sweep: cases of torch's operator database held to the plain loop, and a table.

In: operators (``tests.operators``). Out: for each case a ``Found``: what is wrong, if anything
(values, dtypes, structure, exceptions, gradients), and why it ran thread by thread, if it did.
``python -m tests.operator_sweep`` writes ``OPERATORS.md``, the table of those that do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves

import autobatch
from autobatch.batching.fallbacks import reason
from tests.batched_loop import close
from tests.operators import FLAGS, SAMPLES, Case, cases, is_real, operators

TABLE = Path(__file__).parent.parent / "OPERATORS.md"
HALVES = (torch.float16, torch.bfloat16)
HEAD = """# Operators that run thread by thread

Made by `python -m tests.operator_sweep` under torch {version}. Of the {number} operators of torch's
own database that have float32 samples and draw nothing, these run thread by thread in some of
their cases: {samples} samples each, under a branch, with every choice of the operands that differ
by example. All other cases run batched. Values, dtypes, exceptions and gradients of all are held to
the plain loop by `tests/test_operators.py`.

| operator | cases | why |
| --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Found:
    """``wrong`` is empty where all equals the loop; ``reasons`` are those of fallbacks.

    ``slopes``: there were gradients to compare.
    """

    wrong: str
    reasons: frozenset[str] = frozenset()
    slopes: bool = False


def sweep(op: Any, **options: Any) -> Iterator[tuple[Case, Found]]:
    """An operator's cases with what was found, but for those that draw."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases(op):
            before = torch.get_rng_state()
            wanted = looped(case)
            if torch.equal(before, torch.get_rng_state()):
                yield case, held(case, wanted, **options)


def looped(case: Case) -> list[Any] | Exception:
    """Each thread's result, or the exception of the first that fails."""
    results = []
    for thread, flag in enumerate(FLAGS):
        try:
            results.append(case.program(flag, *case.rows(thread)))
        except Exception as error:
            return error
    return results


def held(case: Case, wanted: list[Any] | Exception, **options: Any) -> Found:
    """A case's run as a batch, held to what the loop gives."""
    batched = autobatch.vmap(case.program, in_dims=case.in_dims, **options)
    got: Any
    with autobatch.counts() as counts:
        try:
            got = batched(FLAGS, *case.tensors)
        except Exception as error:
            got = error
    reasons = frozenset(reason(what, why) for _, _, what, why in counts.fallbacks_by_place)
    if isinstance(wanted, Exception) or isinstance(got, Exception):
        return Found(failures(got, wanted), reasons)
    if wrong := values(got, wanted):
        return Found(wrong, reasons)
    try:
        slopes = gradients(case, wanted)
    except RuntimeError:  # torch has no derivative, or not for this sum
        return Found("", reasons)
    try:
        wrong = slopes_differ(slopes, gradients(case, [got]), wanted)
    except RuntimeError as error:
        wrong = f"the gradient fails: {error}"
    return Found(wrong, reasons, bool(slopes))


def failures(got: Any, wanted: list[Any] | Exception) -> str:
    """What is wrong where one of the two has failed."""
    if isinstance(wanted, Exception):
        same = isinstance(got, Exception)
        return "" if same else f"no {type(wanted).__name__}: {wanted}"
    if isinstance(got, autobatch.AutobatchError) and not stacks(wanted):
        return ""
    return f"{type(got).__name__}: {got}"


def stacks(results: list[Any]) -> bool:
    """Whether the threads' results are one structure of tensors of the same kinds."""
    forms = []
    for result in results:
        leaves, spec = tree_flatten(result)
        forms.append((spec, [form(leaf) for leaf in leaves]))
    return all(each == forms[0] for each in forms)


def form(leaf: Any) -> Any:
    return (leaf.dtype, leaf.shape, leaf.layout) if isinstance(leaf, Tensor) else type(leaf)


def values(got: Any, wanted: list[Any]) -> str:
    """How the batch's results differ from the loop's; empty if they do not."""
    mine = tree_leaves(got)
    for thread, result in enumerate(wanted):
        theirs = tree_leaves(result)
        if len(mine) != len(theirs):
            return f"{len(mine)} results instead of {len(theirs)}"
        for left, right in zip(mine, theirs, strict=True):
            left = left[thread] if isinstance(left, Tensor | list) else left
            if found := difference(left, right):
                return f"thread {thread}: {found}"
    return ""


def difference(mine: Any, theirs: Any) -> str:
    if not isinstance(theirs, Tensor):
        mine = mine.item() if isinstance(mine, Tensor) else mine
        same = mine == theirs and type(mine) is type(theirs)
        return "" if same else f"{mine} instead of {theirs}"
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return f"{mine.dtype}{list(mine.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    mine, theirs = dense(mine), dense(theirs)
    return "" if close(mine, theirs) else f"{mine} instead of {theirs}"


def dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


# Gradients.


def gradients(case: Case, results: list[Any]) -> list[Tensor]:
    """Those of the operands, of a sum in which every element of a result has its own weight.

    ``results`` are those of the threads, or one of the batch, which has their elements in order.
    """
    leaves = [tensor for tensor in case.tensors if tensor.requires_grad]
    places = zip(*map(tree_leaves, results), strict=True)
    parts = [part for outs in places for part in weighted([*filter(has_slope, outs)])]
    if not leaves or not parts:
        return []
    found = torch.autograd.grad(torch.stack(parts).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, leaves, strict=True)]


def has_slope(leaf: Any) -> bool:
    if not isinstance(leaf, Tensor) or leaf.layout != torch.strided:
        return False
    return is_real(leaf) and leaf.dtype != torch.complex32 and leaf.requires_grad


def weighted(outs: list[Tensor]) -> Iterator[Tensor]:
    """The sum of each of some tensors, whose elements are numbered on from one to the next."""
    weights = torch.linspace(0.5, 1.5, sum(out.numel() for out in outs))
    at = 0
    for out in outs:
        own = weights[at : at + out.numel()].clone().to(out.dtype)
        at += out.numel()
        product = out.reshape(-1) * own
        yield (product.real + product.imag if out.is_complex() else product).double().sum()


def slopes_differ(theirs: list[Tensor], mine: list[Tensor], results: list[Any]) -> str:
    """How gradients differ from the loop's; sums of half floats by their rounding."""
    if len(mine) != len(theirs):
        return f"{len(mine)} gradients instead of {len(theirs)}"
    leaves = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
    tolerance = 2e-2 if any(leaf.dtype in HALVES for leaf in leaves) else 1e-3
    for left, right in zip(mine, theirs, strict=True):
        wide = torch.complex128 if right.is_complex() else torch.float64
        left, right = left.to(wide), right.to(wide)
        if not torch.allclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"gradient {left} instead of {right}"
    return ""


# The table.


def row(name: str, all_found: Iterable[Found]) -> str:
    """An operator's line of the table; empty if all its cases run batched."""
    found = list(all_found)
    slow = [each for each in found if each.reasons]
    if not slow:
        return ""
    reasons = sorted({short(why) for each in slow for why in each.reasons})
    return f"| `{name}` | {len(slow)} of {len(found)} | {'; '.join(reasons)} |\n"


def short(why: str) -> str:
    """A reason without the name of what it is about, which is the operator's."""
    return why.rpartition(": ")[2].replace("|", "\\|")


def rows_for(op: Any, name: str) -> str:
    return row(name, (found for _, found in sweep(op)))


def main() -> None:
    every = operators()
    head = HEAD.format(version=torch.__version__, number=len(every), samples=SAMPLES)
    TABLE.write_text(head + "".join(rows_for(op, name) for name, op in every.items()))


if __name__ == "__main__":
    main()
