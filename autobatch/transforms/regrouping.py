"""What a function gives for threads x inner rows, by thread: the results of ``mapping``.

In: a result of ``k * n`` rows. Out: ``[k, n, *E]``, the inner dimension where ``out_dims`` says,
and where that is None what all inner rows of a thread have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils import _pytree as pytree

from autobatch import structure
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.host.rower import Rower
from autobatch.errors import OptionError
from autobatch.presence import kinds, moves
from autobatch.results.mismatch import Part
from autobatch.results.out_dims import agreed, bits, check, move, refusal, same_object
from autobatch.results.out_dims import dims_of as dims_of_results
from autobatch.results.own_lists import Holding, may_be_own
from autobatch.results.stacking import plain, stacked_rows
from autobatch.structure import is_record_type
from autobatch.transforms import parts
from autobatch.transforms.inner_rows import InnerRows
from autobatch.values.cells import Cell, Column, Container, Objects, Uniform, read
from autobatch.values.heap import selecting
from autobatch.values.numbers import fits_tensor, number_tensor


def regrouped(part: Context, result: Cell, rows: InnerRows, out_dims: Any) -> Cell:
    """Results of ``k * n`` rows as ``[k, n, *E]``, the inner dimension where ``out_dims`` says."""
    n = rows.common
    assert n is not None
    tree = closed(part, parts.opened(result), {})
    leaves = parts.leaves(tree)
    spec = pytree.tree_structure(parts.skeleton(tree))
    dims = dims_of_results(out_dims, spec)
    if dims is None:
        raise RowsFail(part.lowest() // n, ValueError(f"out_dims={out_dims!r} does not fit"))
    new = []
    for place, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is not None:
            new.append(grouped(part, leaf, rows, dim))
        elif type(read(leaf)) is Uniform:
            new.append(leaf)
        else:
            refused = partial(refusal, place, spec, "the mapped function")
            new.append(only(part, leaf, rows, refused))
    return parts.rebuilt(tree, iter(new))


def only(part: Context, leaf: Cell, rows: InnerRows, refused: Callable[[], str]) -> Cell:
    """What is the same for all inner rows of a thread; ``refused`` says that it is not.

    What they have captured is a copy for each of them here, so its bits tell.
    """
    k, n = len(rows.counts), rows.common
    assert n is not None
    firsts = np.arange(k) * n
    alike = are_alike(part, leaf, k, n) if n else [False] * k
    unlike = [row for row in range(k) if not alike[row]]
    if unlike:
        threads = part.threads[firsts] if n else np.arange(k)
        raise RowsFail(min(unlike, key=threads.__getitem__), OptionError(refused()))
    return selecting.select([leaf], firsts)[0]


def are_alike(part: Context, leaf: Cell, k: int, n: int) -> list[bool]:
    """Of each thread, whether its inner rows have the same at a leaf."""
    value = read(leaf)
    if type(value) is Column:
        data = bits(value.data).reshape(k, n, -1)
        alike: list[bool] = part.host((data == data[:, :1]).flatten(1).all(1), "out_dims")
        return alike
    items = list(map(same_object, Rower(part).rows(leaf)))
    return [agreed(items[row * n : row * n + n]) is not None for row in range(k)]


def closed(part: Context, tree: Cell, holding: Holding) -> Cell:
    """The tree with lists of each inner row's own (see ``own_lists``) as leaves."""
    value = read(tree)
    if not parts.is_tree(value):
        return tree
    assert type(value) is Container
    if value.type is list and may_be_own(value, holding):
        return Cell(Objects(Rower(part).rows(tree)))
    return Cell(value.rebuilt(iter([closed(part, child, holding) for child in value.children()])))


def grouped(part: Context, leaf: Cell, rows: InnerRows, dim: Any) -> Cell:
    """One leaf for all inner rows, as many for each thread."""
    k, n, value = len(rows.counts), rows.common, read(leaf)
    assert n is not None
    match value:
        case Uniform(obj=Tensor() as obj):
            return Cell(Uniform(move(obj.expand(n, *obj.shape), dim)))
        case Uniform(obj=obj) if fits_tensor(obj):
            return Cell(Uniform(number_tensor(obj, part.device).expand(n).clone()))
        case Column(data=data):
            check(dim, (n, *data.shape[1:]))
            whole = moves.noted(data.reshape(k, n, *data.shape[1:]), kinds.Grouped(n))
            return Cell(Column(whole.movedim(1, dim + 1 if dim >= 0 else dim)))
        case Container(type=kind) if is_record_type(kind):
            inner = [regrouped(part, child, rows, dim) for child in value.children()]
            return Cell(value.rebuilt(iter(inner)))
    items = Rower(part).rows(leaf)
    return Cell(Objects([stacked(part, items[i * n : (i + 1) * n], dim) for i in range(k)]))


def stacked(part: Context, rows: list[Any], dim: Any) -> Any:
    """What the inner rows of one thread give, as results of a batch stack."""
    whole = plain(stacked_rows(rows, part.device, Part()))
    return structure.mapped(lambda leaf: move(leaf, dim), whole)
