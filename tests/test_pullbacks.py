"""``torch.autograd.grad`` inside a program, of what all examples share: as under ``torch.vmap``."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import autobatch

SETTINGS = [
    {},
    {"plain": "never", "trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"executor": "vmap"},
    {"engine": "sequential"},
]


def ends():
    torch.manual_seed(0)
    x = torch.randn(3, requires_grad=True)
    w = torch.randn(3, requires_grad=True)
    return x, w, x.sin() * w


def of_before(x, w, y):
    return lambda v: torch.autograd.grad(y, (x, w), v, retain_graph=True)


def of_its_own(x, w, y):
    return lambda v: torch.autograd.grad([x * w], [x], grad_outputs=[v])[0]


def by_a_branch(x, w, y):
    def program(v):
        if v.sum() > 0.5:
            (slope,) = torch.autograd.grad(y, x, v, retain_graph=True)
        else:
            (slope,) = torch.autograd.grad(y * 2, w, v, retain_graph=True)
        return slope + v

    return program


def unused(x, w, y):
    other = torch.ones(2, requires_grad=True)

    def program(v):
        found, slope = torch.autograd.grad(y, (other, x), v, True, allow_unused=True)
        return slope if found is None else found

    return program


def for_zeros(x, w, y):
    other = torch.ones(2, requires_grad=True)
    return lambda v: torch.autograd.grad(y, other, v, True, materialize_grads=True)


def twice(x, w, y):
    def program(v):
        (slope,) = torch.autograd.grad((x.sin() * w).sum(), x, create_graph=True)
        return torch.autograd.grad(slope, x, v)[0]

    return program


def several(x, w, y):
    def program(v):
        total = (x * x).sum()
        return torch.autograd.grad([total, y], [x, w], [v.sum(), v], True)

    return program


def of_numbers(x, w, y):
    def program(v):
        at = torch.zeros(3)
        at[int(v.argmax())] = 1.0
        return torch.autograd.grad(y, x, at, retain_graph=True)[0]

    return program


def of_sequences(x, w, y):
    outputs, inputs = (y, x * 2), [x, w, 3.0]

    def program(v):
        wanted = tuple(each for each in inputs if isinstance(each, torch.Tensor))
        return torch.autograd.grad(outputs, wanted, (v, v * 2), retain_graph=True)

    return program


PROGRAMS = [
    of_before,
    of_sequences,
    of_its_own,
    by_a_branch,
    unused,
    for_zeros,
    twice,
    several,
    of_numbers,
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gives_what_the_loop_gives(program, settings):
    x, w, y = ends()
    fn = program(x, w, y)
    mapped = autobatch.vmap(fn, **settings)
    for vectors in (torch.eye(3), torch.tensor([[0.2, 0.1, 0.0]]), torch.randn(7, 3), torch.eye(3)):
        wanted = pytree.tree_map(lambda *rows: torch.stack(rows), *map(fn, vectors))
        torch.testing.assert_close(mapped(vectors), wanted, rtol=1e-5, atol=1e-6)
    assert x.grad is None
    assert w.grad is None


def test_a_graph_of_before_is_gone_through_once():
    x = torch.randn(4, 5, requires_grad=True)
    y = nn.Linear(5, 2)(x).tanh()
    asked = []
    y.register_hook(asked.append)
    vectors = torch.randn(6, 4, 2)
    mapped = autobatch.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])
    found = mapped(vectors)
    assert len(asked) == 1
    assert torch.allclose(
        found, torch.stack([torch.autograd.grad(y, x, v, True)[0] for v in vectors])
    )
    torch.autograd.grad(y, x, vectors[0])  # the graph is still there


def test_what_torch_cannot_batch_goes_thread_by_thread():
    x = torch.randn(5, 3, requires_grad=True)
    y, _ = nn.LSTM(3, 3)(x)

    def program(v):
        return torch.autograd.grad(y, x, v, retain_graph=True)[0]

    vectors = torch.randn(3, 5, 3)
    with autobatch.counts() as counts:
        found = autobatch.vmap(program)(vectors)
    torch.testing.assert_close(found, torch.stack(list(map(program, vectors))))
    assert counts.fallbacks == 1


def test_derivatives_go_on_through_it():
    x, w, y = ends()

    def program(v):
        return torch.autograd.grad(y, x, v, create_graph=True)[0] * v

    vectors = torch.randn(4, 3, requires_grad=True)
    found = torch.autograd.grad(autobatch.vmap(program)(vectors).sum(), (vectors, w, x))
    wanted = torch.autograd.grad(torch.stack(list(map(program, vectors))).sum(), (vectors, w, x))
    torch.testing.assert_close(found, wanted)
    slopes = autobatch.vmap(autobatch.grad(lambda v: program(v).sum()))(vectors.detach())
    torch.testing.assert_close(slopes, wanted[0])


def test_within_maps():
    x, w, y = ends()
    fn, vectors = of_before(x, w, y), torch.randn(2, 4, 3)
    wanted = torch.vmap(torch.vmap(fn))(vectors)
    for mapped in (
        autobatch.vmap(autobatch.vmap(fn)),
        torch.vmap(autobatch.vmap(fn)),
        autobatch.vmap(lambda rows: torch.vmap(fn)(rows)),
    ):
        torch.testing.assert_close(mapped(vectors), wanted)


def test_no_threads():
    x, w, y = ends()
    assert [part.shape for part in autobatch.vmap(of_before(x, w, y))(torch.empty(0, 3))] == [
        (0, 3),
        (0, 3),
    ]


def test_gradients_are_memory_of_their_own():
    x = torch.randn(3, requires_grad=True)

    def program(v):
        (slope,) = torch.autograd.grad(x.view(3), x, v)
        slope += 1
        return slope, v

    vectors = torch.eye(3)
    slopes, kept = autobatch.vmap(program, plain="never")(vectors)
    assert torch.equal(slopes, torch.eye(3) + 1)
    assert torch.equal(kept, torch.eye(3))
    assert torch.equal(vectors, torch.eye(3))


@pytest.mark.parametrize("settings", SETTINGS[:4], ids=str)
def test_errors_are_those_of_one_example(settings):
    x, _, y = ends()
    short = autobatch.vmap(lambda v: torch.autograd.grad(y, x, v[:2], True), **settings)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        short(torch.eye(3))
    other = torch.ones(2, requires_grad=True)
    unused = autobatch.vmap(lambda v: torch.autograd.grad(y, other, v, True), **settings)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        unused(torch.eye(3))


@pytest.mark.parametrize("settings", SETTINGS[:4], ids=str)
def test_of_what_differs_by_thread_it_is_refused(settings):
    mapped = autobatch.vmap(lambda x: torch.autograd.grad(x.sin().sum(), x)[0], **settings)
    with pytest.raises(autobatch.UnsupportedError, match="backward pass of its own operations"):
        mapped(torch.ones(2, 3, requires_grad=True))
