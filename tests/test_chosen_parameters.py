"""Gradients of parameters that each thread chooses: by key, place, value, failure and recursion."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch

MODES = 22


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleDict({"ab": nn.Linear(3, 3), "c": nn.Linear(3, 3)})
        self.l = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.p = nn.ParameterList([nn.Parameter(torch.randn(3, 3)) for _ in range(2)])
        self.pd = nn.ParameterDict(
            {"ab": nn.Parameter(torch.randn(3)), "c": nn.Parameter(torch.randn(3))}
        )
        self.t = {"ab": nn.Parameter(torch.randn(3)), "c": nn.Parameter(torch.randn(3))}
        self.e = nn.Embedding(4, 3)
        self.mode = 0

    def forward(self, x, n, w):
        m = self.mode
        if m == 0:
            return self.d[w](x).sum()
        if m == 1:
            return self.l[n % 2](x).tanh().sum()
        if m == 2:
            return (self.p[n % 2] @ x).sum()
        if m == 3:
            return (self.pd[w] * x).sum()
        if m == 4:
            return (self.t[w] * x).sum()
        if m == 5:
            return (self.t.get(w) * x).sum()
        if m == 6:
            return self.e(torch.tensor(n % 4)).mul(x).sum()
        if m == 7:
            return self.e.weight[n % 4].mul(x).sum()
        if m == 8:
            h = x
            for k in range(n % 3):
                h = self.l[k % 2](h).relu()
            return h.sum()
        if m == 9:
            h = x
            while h.norm() > 0.5:
                h = self.d[w](h) * 0.2
            return h.sum()
        if m == 10:
            out = {}
            for k, lin in self.d.items():
                out[k] = lin(x)
            return out.get(w).sum() * (1 + n)
        if m == 11:
            f = {"ab": torch.sin, "c": self.l[0]}.get(w)
            return f(x).sum()
        if m == 12:
            hs = [x]
            for k in range(n % 3 + 1):
                hs.append(self.l[k % 2](hs[-1]))
            return torch.stack(hs).sum() + max(hs, key=lambda h: float(h.sum())).prod()
        if m == 13:
            best = max(self.p, key=lambda q: float((q @ x).sum()) * (1 if n % 2 else -1))
            return (best @ x).sum()
        if m == 14:
            try:
                return self.d[w + "z" * (n % 2)](x).sum()
            except KeyError:
                return (self.p[0] @ x).sum() * 2
        if m == 15:
            y = x.clone()
            y[n % 3] = (self.pd[w] * x).sum()
            y[1:] *= self.t.get(w)[1:]
            return y.pow(2).sum()
        if m == 16:
            ls = [self.pd["ab"].clone(), self.pd["c"].clone()]
            q = ls[n % 2]
            q += x
            ls[0][0] = 3.0
            return (ls[0] * ls[1]).sum()
        if m == 17:

            def rec(h, d):
                return h if d == 0 else rec(self.l[d % 2](h), d - 1)

            return rec(x, n % 4).sum()
        if m == 18:
            a, b = (self.p[0], self.p[1]) if n % 2 else (self.p[1], self.p[0])
            return (a @ (b @ x)).sum()
        if m == 19:
            return sum((q @ x).sum() * k for k, q in enumerate(self.p) if (k + n) % 2) + x.sum() * 0
        if m == 20:
            return functools.reduce(lambda h, lin: lin(h).tanh(), list(self.l)[: n % 3], x).sum()
        if m == 21:
            return operator.itemgetter(n % 2)(self.p).mul(x).sum()


XS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
CHOICES = list(zip([0, 1, 2, 3, 5, 4], ["ab", "c"] * 3, strict=True))
WEIGHTS = torch.arange(1.0, 7.0)


def gradients(parameters: list[nn.Parameter], loss: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


@pytest.mark.sampled(12)
@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("mode", range(MODES))
def test_they_are_the_loops(mode: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net()
    net.mode = mode
    parameters = [*net.parameters(), *net.t.values()]
    rows = [net(x, *choice) for x, choice in zip(XS, CHOICES, strict=True)]
    expected = torch.stack(rows) @ WEIGHTS
    slopes = gradients(parameters, expected)
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"plain": "never", "trace_after": 0},
        {"plain": "never", "engine": "program_counter"},
        {"engine": "sequential"},
        {"plain": "never", "save": "recompute"},
    )
    for way in ways:
        batched = autobatch.vmap(lambda x, choice: net(x, *choice), **way)
        for _ in range(3):
            loss = batched(XS, autobatch.objects(CHOICES)) @ WEIGHTS
            torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(gradients(parameters, loss), slopes, rtol=1e-4, atol=1e-4)
