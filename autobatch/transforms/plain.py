"""Gradients by autograd alone, where no other transform is at work.

``torch.func.vjp`` runs everything within a level, so that derivatives of derivatives stay apart.
Where a call is not within one, and nothing that it gets has a gradient of somebody else's, leaves
of its own do: autograd then adds up in place, products with shared parameters gather their
gradients (``vm.gathering``), and ``save=`` has its say. Whatever else the function may turn out to
read (a module's parameters) is differentiated through, as it would be.

What comes out of the run, by its result or into lists that were there before, is cut off from the
leaves, unless it hangs on such things too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import within_duals, within_level
from autobatch.presence.record import record_at_work
from autobatch.transforms import levels, parts
from autobatch.transforms.runs import Pullback, Run
from autobatch.values.cells import Cell
from autobatch.values.gathering import Gathering, gathering


def is_plain(run: Run, given: Sequence[Tensor]) -> bool:
    """Whether autograd alone will do."""
    if within_level() or not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return False
    if within_duals() or not all(map(torch.is_floating_point, given)):
        return False
    if any(tensor.requires_grad for tensor in given):
        return False
    with torch.no_grad(), run.call.context.services.moving():
        if not torch.is_grad_enabled():
            return False  # rows that move would lose theirs: the run is in inference mode
    return not any(tensor.requires_grad for tensor in parts.tensors(run.call.cells()))


def vjp(run: Run, given: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], Pullback]:
    """As ``runs.vjp``; the pullback can be called once."""
    leaves = tuple(tensor.detach().requires_grad_() for tensor in given)
    gathered, graph = Gathering.of(leaves), Graph(leaves)
    try:
        with gathering(gathered):
            outs = run(*leaves)
        record = record_at_work()
        if record is not None:
            outs = tuple(map(record.left, outs))
    finally:
        sever([*run.call.cells(), *([] if run.result is None else [run.result])], graph)
    wanted = [out for out in outs if out.requires_grad]
    again = not all(map(graph.is_own, wanted))

    def pull(cotangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        pairs = zip(outs, cotangents, strict=True)
        along = [cotangent for out, cotangent in pairs if out.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(leaves)
        if wanted:
            found = torch.autograd.grad(
                wanted, leaves, along, create_graph=again, allow_unused=True
            )
        totals = [each.total() for each in gathered.sums]
        return tuple(map(together, leaves, found, totals))

    return outs, pull


def together(leaf: Tensor, found: Tensor | None, total: Tensor | None) -> Tensor:
    """A leaf's gradient: what autograd has found, and what was gathered."""
    if found is None and total is None:
        return torch.zeros(leaf.shape, dtype=leaf.dtype, device=leaf.device)
    if found is None or total is None:
        return found if total is None else total  # type: ignore[return-value]
    return total.add_(found)


@dataclass(slots=True, eq=False, repr=False)
class Graph:
    """Autograd's graph over some leaves; ``own`` are nodes that lead to nothing else."""

    leaves: Sequence[Tensor]
    own: set[Any] = field(default_factory=set)

    def is_own(self, tensor: Tensor) -> bool:
        """Whether a tensor's derivatives are by the leaves only."""
        if tensor.grad_fn is None:
            return not tensor.requires_grad or any(tensor is leaf for leaf in self.leaves)
        waiting: list[Any] = [tensor.grad_fn]
        seen: set[Any] = set()
        while waiting:
            node = waiting.pop()
            if node in self.own or node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None and not any(variable is leaf for leaf in self.leaves):
                return False
            waiting += [before for before, _ in node.next_functions if before is not None]
        self.own |= seen
        return True


def sever(cells: Iterable[Cell], graph: Graph) -> None:
    """Cut what the cells reach off from the leaves, where it hangs on nothing else."""

    def cut(tensor: Tensor) -> Tensor:
        return tensor.detach() if tensor.requires_grad and graph.is_own(tensor) else tensor

    levels.changed(cells, cut)
