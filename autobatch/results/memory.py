"""Results have memory of their own: what the caller writes to one reaches no argument.

In: a result, and the batch that it is of. A program that gives a row back as it is gives, for a
whole batch, the caller's own tensor, or rows that have been put together, by which way its threads
have gone. The loop gives a part of a private copy, so that is what comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch import firsthand
from autobatch.arguments.batch import Batch
from autobatch.arguments.mapped import Mapped, tree_leaves
from autobatch.compat import storage_id
from autobatch.ragged import Packed
from autobatch.results.nesting import rings, roomy, structures
from autobatch.results.stacking import Batchless, Result
from autobatch.structure import are_single, is_structure, leaves, mapped


def of_its_own(result: Any, batch: Batch) -> Any:
    """The result, without memory of what the caller has given to map."""
    args = batch.args
    if type(result) is Tensor and len(args) == 1 and type(args[0]) is Mapped and not batch.kwargs:
        given = args[0].data  # the commonest call, which is to cost little
        if type(given) is Tensor and result.layout is given.layout is torch.strided:
            return firsthand.clone(result) if storage_id(result) == storage_id(given) else result
    memory = set(places(mapped_leaves(batch)))
    return Copying(memory).part(result) if memory else result


def mapped_leaves(batch: Batch) -> Iterator[Any]:
    for arg in (*batch.args, *batch.kwargs.values()):
        if type(arg) is Mapped:
            yield arg.data
        else:
            yield from (leaf.data for leaf in tree_leaves(arg) if isinstance(leaf, Mapped))


def places(data: Iterable[Any]) -> Iterator[int]:
    """What tells the memory of tensors apart."""
    for each in data:
        tensor = each.table if isinstance(each, Packed) else each
        if isinstance(tensor, Tensor) and tensor.layout is torch.strided:
            try:
                yield storage_id(tensor)
            except (NotImplementedError, RuntimeError):  # one of torch.func's, which has none
                continue


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies tensors whose memory is ``given``, and what examples have that holds them, once."""

    given: set[int]
    made: dict[int, Any] = field(default_factory=dict)

    def part(self, part: Any) -> Any:
        if isinstance(part, Tensor) or is_whole(part):
            return self.leaf(part)
        same = all(self.leaf(leaf) is leaf for leaf in leaves(part, is_whole))
        return part if same else mapped(self.leaf, part, is_whole)

    def leaf(self, leaf: Any) -> Any:
        if type(leaf) is Result:
            return self.result(leaf)
        if type(leaf) is Batchless:
            items = list(map(self.own, leaf))
            same = all(map(lambda one, other: one is other, items, leaf))
            return leaf if same else Batchless(items)
        if not isinstance(leaf, Tensor) or self.given.isdisjoint(places((leaf,))):
            return leaf
        if id(leaf) not in self.made:
            self.made[id(leaf)] = firsthand.clone(leaf)
        made: Tensor = self.made[id(leaf)]
        return made

    def result(self, result: Result) -> Result:
        value = self.own(result.value)
        return result if value is result.value else replace(result, value=value)

    def own(self, value: Any) -> Any:
        """What one example has. What holds itself is an object of its own, and left as it is."""
        if isinstance(value, Tensor):
            return self.leaf(value)
        if not is_structure(value) or (type(value) is list and are_single(value)):
            return value
        if id(value) in self.made:
            return self.made[id(value)]
        held = (part for _, parts in structures([value]).values() for part in parts)
        tensors = (part for part in held if isinstance(part, Tensor))
        if self.given.isdisjoint(places(tensors)) or rings([value]):
            return value
        made = roomy(partial(self.part, value), lambda: len(structures([value])))
        self.made[id(value)] = made
        return made


def is_whole(part: Any) -> bool:
    return isinstance(part, Batchless | Result)
