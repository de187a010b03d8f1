"""Methods of tensors and functions of torch's as values, in programs that may run plainly."""

import functools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.errors import AutobatchError

pytestmark = pytest.mark.usefixtures("plain_is_better")

W = torch.arange(4.0) - 1
X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


@dataclass
class Belief:
    """Its fields are called as methods of tensors are."""

    mean: Tensor
    cov: Tensor
    name: str = "prior"


def filtered(x):
    belief, seen = Belief(torch.zeros(2), torch.eye(2)), []
    for z in x:
        belief = Belief(0.9 * belief.mean, belief.cov + 0.1)
        if z < 0:
            continue
        belief = Belief(belief.mean + belief.cov @ torch.ones(2) * z, belief.cov / 2, "seen")
        seen.append(belief.name)
    return belief.mean, belief.cov, len(seen)


def by_table(x):
    operations = {"max": torch.maximum, "add": torch.add, "own": lambda a, b: a * b}
    stack = [x[0]]
    for name in ("max", "own", "add"):
        stack.append(operations[name](stack[-1], x[len(stack)]))
    return stack[-1], functools.reduce(torch.minimum, list(x)), len(stack)


def bound(x):
    rules = [x.sum, x.mean, x.tolist]
    return rules[0]() + rules[1](), len(rules[2]()), max([x[0], x[1]], key=x[2].mul)


def by_items(x):
    values = [row.item() for row in x]
    order = sorted(range(len(x)), key=values.__getitem__)
    rows = [x[place] for place in order]
    rows = list(map(rows.__getitem__, (0, -1)))
    return rows[0] - rows[1], list(map(x.__getitem__, order))[1] * 2, order[0]


def starred(x):
    shape, rows = (2, 2), [x[0], x[1]]
    operations = {"max": torch.maximum, "own": lambda a, b: a - b}
    found = [operations[name](*rows) for name in ("own", "max")]
    return x.view(*shape).permute(*[1, 0])[0], torch.zeros(*shape) + x[2], len(found), found[0]


@pytest.mark.parametrize("function", [filtered, by_table, bound, by_items, starred])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_they_run_plainly(function, engine):
    batched = autobatch.vmap(function, engine=engine)
    for rows in (X, X.flip(0), X, -X):
        expected = [function(row.clone()) for row in rows]
        with autobatch.counts() as counts:
            found = batched(rows)
        for mine, theirs in zip(found, zip(*expected, strict=True), strict=True):
            torch.testing.assert_close(mine, torch.stack(list(map(torch.as_tensor, theirs))))
    assert counts.plain == 5


def of_a_view(x):
    view = W.view
    return view(2, 2).fill_(x[0])


def of_a_list(x):
    return [W.select][0](0, 1).fill_(x[0])


def of_a_field(x):
    return Belief(W.t, x).mean().copy_(x)


def by_a_map(x):
    return next(map(W.select, [0], [1])).fill_(x[0])


def by_function(x):
    return {"part": torch.squeeze}["part"](W).copy_(x)


def by_name(x):
    return getattr(W, "narrow")(0, 0, 2).fill_(x[0])  # noqa: B009


def of_data(x):
    return W.data.copy_(x)


def starred_parts(x):
    return W.view(*[2, 2])[0].copy_(x[:2])


def starred_in_place(x):
    operations = {"relu": torch.nn.functional.relu}
    return operations["relu"](*[W, True])


def in_place(x):
    return [W.copy_][0](x)


WRITING = (of_a_view, of_a_list, of_a_field, by_a_map, by_function, by_name, in_place, of_data)


@pytest.mark.parametrize("function", [*WRITING, starred_parts, starred_in_place])
def test_what_they_give_of_what_existed_before_is_not_written_plainly(function):
    before = W.clone()
    batched = autobatch.vmap(function)
    for _ in range(4):
        with autobatch.counts() as counts, pytest.raises(AutobatchError):
            batched(X)
        assert counts.plain == 0
        assert torch.equal(W, before)


def weighted(text, x):
    def total(value, depth):
        if isinstance(value, list):
            return sum(total(each, depth + 1) for each in value)
        if isinstance(value, dict):
            return sum((total(each, depth + 1) for each in value.values()), torch.zeros(()))
        return value * x[0] ** depth

    values = {"a": [1.5, {"b": 2.0}], "c": 0.5} if text == "dict" else [1.0, [2.0, [3.0]]]
    return total(values, 0)


def test_values_of_dicts_beside_tensors():
    texts = ["dict", "list", "dict", "list", "list"]
    batched = autobatch.vmap(weighted)
    for _ in range(4):
        with autobatch.counts() as counts:
            found = batched(autobatch.objects(texts), X)
        expected = torch.stack([weighted(text, x) for text, x in zip(texts, X, strict=True)])
        torch.testing.assert_close(found, expected)
    assert counts.plain == 5
