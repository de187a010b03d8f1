"""Programs that a run stops, one for each diagnostic that is told while threads run."""

# ruff: noqa
# What is refused is written here on purpose, and line numbers are in the golden file.

from __future__ import annotations

import contextlib
from unittest import mock

import torch

import autobatch

ITEMS = iter(range(100))
KEPT = ValueError("kept")
GENERATOR = torch.Generator()
SEEN: list = []
STACK = contextlib.ExitStack()


def draws_from_a_generator(x):
    return x + torch.randn((), generator=GENERATOR)


def maps_what_captures(x):
    seen = []
    return torch.vmap(lambda y: (seen.append(1), y)[1])(torch.stack([x, x]))


def pulls_back_through_draws(x):
    _, pull = autobatch.vjp(lambda y: y * torch.randn(()), x)
    return pull(x)


def loops_no_rounds(x):
    return autobatch.pfor(lambda i: x + i, 0)


def branches(x):
    return x if x > 0 else -x


def counts_down(x):
    while x > -1e9:
        x = x - 1
    return x


def goes_down(n):
    return 0 if n <= 0 else 1 + goes_down(n - 1)


def goes_through_an_iterator(x):
    for item in ITEMS:
        x = x + item
    return x


def squeezes_what_has_a_part(x):
    y = torch.stack([x, x]).reshape(1, 2)
    part = y[0]
    y.squeeze_()
    return y, part


def writes_to_either(x):
    y, z = x + 1, x * 2
    least = min(y, z)
    least.add_(1)
    return y, z


def takes_the_memory_of_another(x):
    y = torch.zeros(())
    y.set_(x.clone())
    return y


def enters_a_mode_by_hand(x):
    torch.no_grad().__enter__()
    return x


def gives_another_size(x):
    y = torch.zeros(5)
    torch.stack([x, x], out=y[:3])
    return y


def replaced(x):
    mock.patch("torch.relu", torch.sin).start()
    return x


def replaces(x):
    return autobatch.per_thread(replaced)(x)


def switched(x):
    torch.set_grad_enabled(False)
    return x


def switches(x):
    return autobatch.per_thread(switched)(x)


def finds_what_is_unique(x):
    return torch.unique(x)


def gives_another_cause(x):
    raise KEPT from KeyError(1)


class Finalized:
    def __del__(self):
        SEEN.append(1)


def makes_what_has_a_finalizer(x):
    Finalized()
    return x


def sets_an_attribute(x):
    x.name = "x"
    return x


def changes_keys(x):
    found = {"a": x}
    for key in found:
        del found[key]
        found["b"] = x
    return x


def runs_the_backward(x):
    y = x.clone().requires_grad_()
    (y * y).backward()
    return y.grad


def makes_an_optimizer(x):
    y = x.clone().requires_grad_()
    return torch.optim.SGD([y], lr=0.1)


def asks_for_memory(x):
    return x.data_ptr()


def asks_for_an_identity(x):
    return id(x)


def asks_which_is_least(x):
    least = min(x, x * 2)
    return x if least is x else x + 1


def enters_what_exists(x):
    with STACK:
        return x * 2
