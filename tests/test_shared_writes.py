"""Writes to what existed before the call are refused, also where each thread has its own object."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import autobatch


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.items: list[Any] = []
        self.table: dict[str, Any] = {}
        self.tensor = torch.zeros(2)
        self.queue: deque[Any] = deque()

    def bump(self) -> None:
        self.value += 1


def attribute(h):
    h.value = 1


def by_name(h):
    setattr(h, "value", 3)  # noqa: B010


def deleted(h):
    del h.value


def by_method(h):
    h.bump()


def appended(h):
    h.items.append(3)


def extended(h):
    h.items += [1]


def sorted_in_place(h):
    h.items.sort()


def keyed(h):
    h.table["a"] = 3


def updated(h):
    for each in [h, h]:
        each.table.update(a=1)


def queued(h):
    h.queue.append(2)


def tensor_added(h):
    h.tensor += 1


def tensor_method(h):
    h.tensor.add_(1)


def tensor_item(h):
    h.tensor[0] = 1


WRITES = [
    *(attribute, by_name, deleted, by_method, appended, extended, sorted_in_place, keyed),
    *(updated, queued, tensor_added, tensor_method, tensor_item),
]


@pytest.mark.parametrize(
    "options",
    [{"executor": "vmap"}, {"executor": "traced", "trace_after": 0}, {"engine": "sequential"}],
    ids=str,
)
@pytest.mark.parametrize("write", WRITES)
def test_writes_to_objects_of_the_caller(write: Callable[[Any], Any], options: Any) -> None:
    holders = [Holder(1), Holder(2)]
    before = [repr(vars(holder)) for holder in holders]
    with pytest.raises(autobatch.SharedWriteError, match=r"existed before the call[\s\S]*\^"):
        autobatch.vmap(write, **options)(autobatch.objects(holders))
    assert [repr(vars(holder)) for holder in holders] == before


def inside_a_list(holders):
    holders[0].value = 3


def test_a_list_of_objects_is_private_but_not_its_items() -> None:
    rows = [[Holder(1)], [Holder(2)]]
    with pytest.raises(autobatch.SharedWriteError, match="an attribute of a Holder"):
        autobatch.vmap(inside_a_list)(autobatch.objects(rows))


def copies(h):
    shallow, deep, made = copy.copy(h), copy.deepcopy(h), Holder(3)
    shallow.value = 9
    deep.items.append(4)
    deep.bump()
    made.value += h.value
    made.items.append(h)
    made.bump()
    return shallow.value + deep.value + len(deep.items) + made.value


def test_copies_and_new_objects_may_be_written() -> None:
    results = autobatch.vmap(copies)(autobatch.objects([Holder(1), Holder(2)]))
    assert results.tolist() == [copies(Holder(1)), copies(Holder(2))]


def own_containers(xs, d):
    xs.append(3)
    xs[0] = 7
    d["l"].append(len(xs))
    return sum(xs) + sum(d["l"])


def test_containers_of_objects_are_private_copies() -> None:
    lists, dicts = [[1, 2], [3]], [{"l": [1]}, {"l": []}]
    results = autobatch.vmap(own_containers)(autobatch.objects(lists), autobatch.objects(dicts))
    assert results.tolist() == [16, 12]
    assert (lists, dicts) == ([[1, 2], [3]], [{"l": [1]}, {"l": []}])


NORM = nn.BatchNorm1d(3)


def normed(x):
    return NORM(x)


def test_running_statistics() -> None:
    with pytest.raises(autobatch.SharedWriteError, match="BatchNorm"):
        autobatch.vmap(normed)(torch.randn(4, 5, 3))


def test_running_statistics_can_be_done_without() -> None:
    with pytest.raises(
        autobatch.SharedWriteError, match=r"Hint: call eval\(\) .*track_running_stats"
    ):
        autobatch.vmap(NORM)(torch.randn(4, 5, 3))


def backward_inside(x):
    y = (x.detach().requires_grad_() * 2).sum()
    y.backward()
    return y


def test_backward_is_refused() -> None:
    with pytest.raises(autobatch.UnsupportedError, match="backward pass"):
        autobatch.vmap(backward_inside)(torch.randn(4, 3))


def talkative(n):
    print("start", n)
    if n > 1:
        print("big", n)
    return n


def test_prints_thread_by_thread_within_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    autobatch.vmap(talkative, scalars="python")(torch.tensor([1, 2, 7]))
    assert capsys.readouterr().out.split("\n") == [
        *("start 1", "start 2", "start 7", "big 2", "big 7", "")
    ]
