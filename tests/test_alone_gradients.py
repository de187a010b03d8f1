"""Programs that need gradients run plainly, too, and nobody can tell."""

import pytest
import torch

import autobatch

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4).clone().requires_grad_()


pytestmark = pytest.mark.usefixtures("plain_is_better")


def settled(x, other):
    steps = 0
    while steps < 3 or (steps < 6 and x.sum() > 0):
        x = torch.tanh(WEIGHT @ x) + other
        steps += 1
    return x, steps


def writes_its_row(x, other):
    x *= 2.0
    if x.sum() > 0:
        x[0] = (x + other)[1]
    return x, 0


@pytest.mark.parametrize("function", [settled, writes_its_row])
@pytest.mark.parametrize("size", [1, 3, 9])
@pytest.mark.parametrize("mapped", [False, True])
def test_gradients_are_the_loops(function, size, mapped):
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    other = torch.randn(4).requires_grad_()
    if mapped:
        other = torch.randn(size, 4).requires_grad_()
    leaves = (x, other) if function is writes_its_row else (x, other, WEIGHT)
    others = other if mapped else [other] * size
    rows = [function(*(v.clone() for v in row)) for row in zip(x, others, strict=True)]
    expected = torch.stack([row[0] for row in rows])
    wanted = torch.autograd.grad(expected.square().sum(), leaves)
    batched = autobatch.vmap(function, in_dims=(0, 0 if mapped else None))
    for _ in range(4):
        with autobatch.counts() as counts:
            found, _ = batched(x, other)
        assert found.requires_grad
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), leaves), wanted)
    assert counts.plain == size


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradients_are_taken_where_none_are_wanted(mode):
    x = torch.randn(1, 4).requires_grad_()
    batched = autobatch.vmap(settled, in_dims=(0, None))
    with mode():
        for _ in range(4):
            with autobatch.counts() as counts:
                found, _ = batched(x, torch.ones(4))
    assert counts.plain == 1
    assert not found.requires_grad
    found, _ = batched(x, torch.ones(4))
    assert found.requires_grad


def test_what_autograd_saves_is_as_it_was_asked_for():
    batched = autobatch.vmap(settled, in_dims=(0, None), save="recompute")
    for _ in range(4):
        with autobatch.counts() as counts:
            batched(torch.randn(1, 4), torch.ones(4))
    assert counts.plain == 0


def test_a_shared_tensor_that_is_given_back_is_nobody_elses():
    def own(x, weight):
        return weight if x.sum() > 0 else x

    weight = torch.ones(4).requires_grad_()
    batched = autobatch.vmap(own, in_dims=(0, None), on_error="isolate")
    for _ in range(4):
        with autobatch.counts() as counts:
            found = batched(torch.ones(1, 4), weight)[0].value
    assert counts.plain == 1
    (wanted,) = torch.autograd.grad(found.sum(), weight)
    assert found is not weight and torch.equal(wanted, torch.ones(4))


def named(x, other):
    for row in x:
        text = f"{other}" if len(x) > 4 else f"{row.sum() > 0}"
        x = x + len(text) if row.sum() > 0 else x
    return x


@pytest.mark.parametrize("size", [3, 12])
def test_the_text_of_a_number_or_of_what_needs_no_gradients_is_the_loops(size):
    """That of others names a function of a graph, that of a batch or of an example."""
    rows, other = torch.randn(size, 4), torch.ones(4)
    expected = torch.stack([named(row, other) for row in rows])
    batched = autobatch.vmap(named, in_dims=(0, None))
    for needs in (False, True, False):
        given = rows.clone().requires_grad_(needs)
        for _ in range(4):
            with autobatch.counts() as counts:
                torch.testing.assert_close(batched(given, other).detach(), expected)
        assert counts.plain == size


def test_the_text_of_a_tensor_that_is_read_before_weights_are():
    weight = torch.ones(4)

    def own(x):
        for row in x:
            x = x + len(f"{row > 0}") if row > 0 else x
        return x * weight

    rows = torch.randn(3, 4)
    for needs in (False, True, False):
        weight.requires_grad_(needs)
        for _ in range(4):
            with autobatch.counts() as counts:
                found = autobatch.vmap(own)(rows)
        assert counts.plain == 3
        torch.testing.assert_close(found, torch.stack([own(row) for row in rows]))
