"""Programs that read tensors to the host and go on with lists run plainly, and nobody can tell."""

import contextlib
import math
import random

import pytest
import torch

import autobatch
from benchmarks.number_programs import PROGRAMS, examples
from tests.test_alone_parts import as_plain, stacked

ENGINES = ("stackless", "program_counter")
EXECUTORS = ("traced", "auto")
IN_PARTS = {"tree_search_of_priors", "ctc_rows"}
"""A tensor is computed with before the lists: that part is batched."""
MACHINE_CODE = {"assignment_by_entries", "machine", "sum_of_halves"}
MACHINE_CODE |= {"quantiles", "tree_search_of_priors"}
"""What ``auto`` makes machine code of."""
FOUND_OUT = {"ctc_rows"}
"""It does more on objects all the same: how it runs depends on whether a run has found that out."""


def stack(results):
    """What a batch gives of numbers, strings and tuples of them, as lists."""
    if isinstance(results[0], tuple | list):
        columns = zip(*results, strict=True)
        return [stack(list(column)) for column in columns]
    return list(results)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_program_is_the_loop(name, size):
    function, rows = PROGRAMS[name][0], examples(name, size)
    expected = stack([function(*row) for row in rows])
    for engine in ENGINES:
        for executor in EXECUTORS:
            batched = autobatch.vmap(function, engine=engine, executor=executor)
            with autobatch.counts() as counts:
                found = batched(*stacked(rows))
            assert as_plain(found) == expected
            is_machine_code = executor == "auto" and name in MACHINE_CODE
            assert (counts.iterations > 0) == is_machine_code
            if name not in FOUND_OUT and not is_machine_code:
                assert (counts.plain == size) == (name not in IN_PARTS)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_64_threads_take_one_block_execution(name):
    function, rows = PROGRAMS[name][0], examples(name, 64)
    with autobatch.counts() as counts:
        found = autobatch.vmap(function)(*stacked(rows))
    assert as_plain(found) == stack([function(*row) for row in rows])
    assert counts.block_executions <= (26 if name in IN_PARTS else 1)


@pytest.mark.parametrize("name", ["machine_of_list", "quantiles", "clusters_of_numbers"])
def test_kept_together_it_is_the_same(name):
    function, rows = PROGRAMS[name][0], examples(name, 3)
    with autobatch.counts() as counts:
        found = autobatch.vmap(function, plain="never")(*stacked(rows))
    assert counts.plain == 0
    assert as_plain(found) == stack([function(*row) for row in rows])


def plain(function, *args, **options):
    """The result, and how many threads plain Python ran."""
    with autobatch.counts() as counts:
        found = autobatch.vmap(function, **options)(*args)
    return found, counts.plain


def sums(x):
    x = x.tolist()
    parts = [0.0]
    for v in x:
        parts.append(parts[-1] + v)
    return parts[-1]


def test_a_name_may_be_a_tensors_and_then_a_lists():
    x = torch.randn(5, 4, dtype=torch.float64)
    found, count = plain(sums, x)
    assert count == 5
    assert found.tolist() == [sums(row) for row in x]


def test_lists_of_numbers_are_kept_together_for_many_threads():
    x = torch.randn(1_000, 4, dtype=torch.float64)
    found, count = plain(sums, x)
    assert count == 0
    torch.testing.assert_close(found, x.sum(1))


def numbers(n):
    steps, n = 0, n.item()
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def test_numbers_alone_are_kept_together():
    found, count = plain(numbers, torch.arange(1, 9))
    assert count == 0
    assert found.tolist() == [numbers(torch.tensor(n)) for n in range(1, 9)]


def computes(x):
    found = []
    for v in x:
        found.append(v * 2)
    return {"sum": sum(found)}


def writes(x):
    x[0] = 3.0
    return {"first": x[0].item(), "all": str(x.tolist())}


def test_a_tensor_that_is_computed_with_or_written_to_is_not_for_plain_python():
    x = torch.ones(3, 2)
    for function in (computes, writes):
        found, count = plain(function, x)
        assert count == 0
    assert found["first"].tolist() == [3.0] * 3
    assert x.tolist() == [[1.0] * 2] * 3


def hands_back(x, key):
    found = {}
    for at, row in enumerate(x):
        found[at] = row
    return found[int(key)]


def test_a_tensor_that_is_handed_back_is_no_view_and_has_its_gradient():
    x, keys = torch.randn(3, 2, 4), torch.tensor([0, 1, 1])
    found, count = plain(hands_back, x, keys)
    assert count == 3
    assert torch.equal(found, x[torch.arange(3), keys])
    found, _ = plain(hands_back, x, keys, on_error="isolate")
    found[0].value.zero_()
    assert x[0, 0].count_nonzero() == 4
    leaf = x.clone().requires_grad_()
    found, count = plain(hands_back, leaf, keys)
    found.sum().backward()
    assert count == 0
    assert leaf.grad.sum().item() == 12


def test_numbers_have_no_gradient():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    found, count = plain(sums, x)
    assert count == 3 and not found.requires_grad


def test_the_rows_are_those_of_in_dims_and_of_what_all_share():
    def nearest(points, query):
        rows = {tuple(row): at for at, row in enumerate(points.tolist())}
        return min(rows.values(), key=lambda at: abs(points[at, 0].item() - query.item()))

    points, queries = torch.randn(2, 5), torch.randn(4)
    found, count = plain(nearest, points.T, queries, in_dims=(None, 0))
    assert count == 4
    assert found.tolist() == [nearest(points.T, query) for query in queries]
    found, count = plain(nearest, points.T.expand(4, 5, 2).movedim(0, 2), queries, in_dims=(2, 0))
    assert count == 4
    assert found.tolist() == [nearest(points.T, query) for query in queries]


def fails(x):
    seen = {}
    for v in x.tolist():
        if v in seen:
            raise KeyError(v)
        seen[v] = 10 // v
    return len(seen)


@pytest.mark.parametrize("rows", [[[1, 2], [3, 3], [0, 1]], [[1, 2], [0, 1], [4, 4]]])
def test_the_first_thread_that_fails_is_the_one_that_is_told_of(rows):
    x = torch.tensor(rows)
    expected = None
    for row in x:
        try:
            fails(row)
        except Exception as error:
            expected = expected or error
    with pytest.raises(type(expected)) as caught:
        autobatch.vmap(fails)(x)
    assert caught.value.args == expected.args
    assert "Example index: 1" in caught.value.__notes__[0]
    found = autobatch.vmap(fails, on_error="isolate")(x)
    assert [type(each.exception) for each in found].count(type(None)) == 1


RNG = random.Random(5)


def own_draws(seed):
    draw = random.Random(int(seed))
    deck = list(range(6))
    draw.shuffle(deck)
    return tuple(deck), draw.choice(deck), draw.random(), draw.gauss(0, 1)


def test_draws_of_a_generator_of_its_own():
    seeds = torch.arange(7)
    found, count = plain(own_draws, seeds)
    assert count == 7
    assert as_plain(found) == stack([own_draws(seed) for seed in seeds])


def draws_of_all(seed):
    return {"a": RNG.random() + int(seed)}


def draws_of_module(seed):
    return {"a": random.random() + int(seed)}


def draws_of_argument(seed, draw=random):
    return {"a": draw.random() + int(seed)}


def shuffles_outside(seed):
    random.Random(int(seed)).shuffle(DECK)
    return {"a": DECK[0]}


DECK = [1, 2, 3, 4]


@pytest.mark.parametrize("function", [draws_of_all, draws_of_module, draws_of_argument])
def test_draws_that_others_see_are_not_for_plain_python(function):
    with autobatch.counts() as counts, contextlib.suppress(autobatch.AutobatchError):
        autobatch.vmap(function, randomness="different")(torch.arange(3))
    assert counts.plain == counts.plain_parts == 0


def test_what_existed_before_is_not_shuffled():
    with pytest.raises(autobatch.AutobatchError):
        autobatch.vmap(shuffles_outside)(torch.arange(3))
    assert DECK == [1, 2, 3, 4]


def test_a_product_of_tensors_is_a_tensor():
    def products(x):
        return math.prod(x.tolist()), math.prod(x)

    x = torch.rand(3, 4, requires_grad=True)
    _, found = autobatch.vmap(products)(x)
    assert found.requires_grad
    (wanted,) = torch.autograd.grad(sum(products(row)[1] for row in x), x)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), (wanted,))


def filled(x, order):
    made = torch.empty_like(x)
    for place in order.tolist():
        made[place] = x[place] if x[place].sum() > 0 else 0.0
    return made.fill_diagonal_(1.0)[0] + x.new_empty(2).copy_(x[0, :2]).sum()


def shrunk(x, order):
    x.lerp_(torch.zeros(()), 0.5).index_put_((order[:1],), torch.ones(())).clamp_min_(-1.0)
    while x.sum() > 0:
        x.addcmul_(x, x, value=-0.5).pow_(3).tril_()
    return x[0]


WEIGHTS = torch.ones(3, 3)


def shrinks_weights(x, order):
    WEIGHTS.lerp_(x, 0.0)
    return x[order[0]]


@pytest.mark.parametrize("function", [filled, shrunk])
def test_rows_are_written_in_place(function, plain_is_better):
    draw = torch.Generator().manual_seed(0)
    xs = torch.randn(5, 3, 3, generator=draw)
    orders = torch.stack([torch.randperm(3, generator=draw) for _ in range(5)])
    given = xs.clone()
    for _ in range(3):
        with autobatch.counts() as counts:
            found = autobatch.vmap(function)(given, orders)
    assert counts.plain == 5 and torch.equal(given, xs)
    rows = zip(xs, orders, strict=True)
    torch.testing.assert_close(found, torch.stack([function(*row) for row in rows]))


def test_what_existed_before_is_not_written_in_place(plain_is_better):
    for _ in range(3):
        with autobatch.counts() as counts, pytest.raises(autobatch.SharedWriteError):
            autobatch.vmap(shrinks_weights)(torch.ones(2, 3, 3), torch.zeros(2, 1).long())
    assert not counts.plain
