"""What a review of the issue's sentences found: arguments of unusual make."""

from __future__ import annotations

import warnings
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch

import autobatch


@pytest.mark.parametrize("executor", ["traced", "vmap"])
@pytest.mark.parametrize("kind", [OrderedDict, deque])
def test_other_pytree_containers_hold_each_threads_rows(kind, executor):
    rows = torch.arange(12.0).reshape(6, 2)

    def program(tree):
        parts = list(tree.values()) if isinstance(tree, dict) else list(tree)
        return parts[0].sum() + parts[1]

    given = OrderedDict(a=rows, b=rows[:, 0]) if kind is OrderedDict else deque([rows, rows[:, 0]])
    got = autobatch.vmap(program, executor=executor, trace_after=0)(given)
    assert torch.equal(got, rows.sum(1) + rows[:, 0])


def successor(n):
    return n + 1


def test_lists_of_ints_that_do_not_fit_a_tensor_stay_ints():
    assert autobatch.function(successor).batch([2**70, 1]) == [2**70 + 1, 2]
    assert autobatch.function(successor).batch([2**63, 1]) == [2**63 + 1, 2]
    assert autobatch.execute(autobatch.lower(successor), [2**70, 1]) == [[2**70 + 1, 2]]


def test_arrays_that_torch_cannot_share_are_accepted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backwards = np.arange(3.0)[::-1]
        assert autobatch.function(successor).batch(backwards).tolist() == [3.0, 2.0, 1.0]
        constant = np.broadcast_to(np.float32(3), (3,))
        assert autobatch.function(successor).batch(constant).tolist() == [4.0, 4.0, 4.0]
        assert autobatch.vmap(successor)(backwards).tolist() == [3.0, 2.0, 1.0]


class Holder:
    def __init__(self):
        self.tensor = torch.zeros(2, 2)


VIEWS = {
    "view": lambda tensor: tensor.view(4),
    "item": lambda tensor: tensor[0],
    "transposed": lambda tensor: tensor.T,
    "detached": lambda tensor: tensor.detach(),
    "chunk": lambda tensor: tensor.chunk(2)[0],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_of_the_callers_tensor_is_the_callers(view):
    def program(holder):
        part = view(holder.tensor)
        part += 1
        return holder.tensor.sum()

    holders = [Holder(), Holder()]
    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap(program)(autobatch.objects(holders))
    assert not any(holder.tensor.any() for holder in holders)


def test_a_program_may_write_views_of_what_it_made_from_the_callers_tensor():
    def program(holder):
        own = holder.tensor.clone()
        part = own[0]
        part += 1
        return own.sum()

    holders = [Holder(), Holder()]
    assert autobatch.vmap(program)(autobatch.objects(holders)).tolist() == [2.0, 2.0]
