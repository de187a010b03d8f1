"""`with`, `match`, tensors, modules, strings."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

from typing import Any

import torch

from tests.language.common import Node, Point, Resource, case, seen


@case((1.0,))
def grad_modes(x):
    t = torch.tensor(x, requires_grad=True)
    with torch.no_grad():
        a = t * 2
        seen(torch.is_grad_enabled())
        with torch.enable_grad():
            b = t * 3
            seen(torch.is_grad_enabled())
        seen(torch.is_grad_enabled())
    c = t * 4
    return a.requires_grad, b.requires_grad, c.requires_grad


@case((0,), (1,), (2,), (3,))
def resources(n):
    for i in range(3):
        with Resource("a") as a, Resource("b") as b:
            seen((a, b, i))
            if i == n:
                if n == 2:
                    break
                continue
            if n == 1:
                return "returned"
            seen(1 // (2 - n + i))
        seen("after")
    return n


@case(
    (1,),
    ("a",),
    ((1, 2),),
    ([1, 2, 3],),
    (Point(0, 5),),
    ({"k": 1, "z": 2},),
    (None,),
    (Node(3),),
    (9,),
)
def matching(value):
    match value:
        case 1 | 2:
            return "small"
        case "a":
            return "letter"
        case None:
            return "none"
        case Point(x=0, y=y):
            return "point", y
        case [a, b]:
            return "pair", a, b
        case [first, *rest]:
            return "many", first, rest
        case {"k": k, **others}:
            return "mapping", k, others
        case Node(value=v) if v == 3:
            return "node"
        case other:
            return "other", other


@case((torch.tensor([1.0, -2.0, 3.0]),), (torch.zeros(0),), (torch.tensor(5),))
def tensors(t):
    total = 0.0
    if t.dim() == 0:
        return t.item() + 1, int(t), float(t)
    for row in t:
        if row > 0:
            total = total + row * 2
        elif row.item() < -1:
            total -= row
    y = t
    y += 1
    z = t[:2]
    z *= 2
    return total, t, y, z, [len(t), t.shape[0], t.sum()]


@case((3,))
def tensor_errors(n):
    return torch.ones(n) @ torch.ones(n + 1)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.inner = torch.nn.Identity()

    def forward(self, x: Any, times: int = 2) -> Any:
        for _ in range(times):
            x = self.inner(x) * self.scale
        return x


LAYER = Layer()


@case((1.5,))
def modules(x):
    return LAYER(torch.tensor(x)).item(), LAYER(torch.tensor(x), times=0).item()


@case(("abc", 2), ("", 1))
def strings(text, n):
    out = ""
    counts = {}
    for c in text * n:
        out = c + out
        counts[c] = counts.get(c, 0) + 1
    return out.upper(), counts, out[:1], "%s-%d" % (text, n), sorted(counts.items())


@case((5,), (0,))
def only_effects(n):
    """A docstring."""
    seen(n)
    "an expression"
    for _ in range(n):
        seen(_)


square = case((3,))(lambda x: x * x)
cube = case((3,))(lambda x: x * square(x))
cube = lambda x: x * square(x)


@case((0,), (2,))
def empty_with(n):
    with Resource("a"):
        pass
    for _ in range(n):
        with Resource("b") as name:
            continue
    with Resource("c"), Resource("d"):
        if n:
            pass
    return n


@case((0,), (1,), (3,))
def with_calls(n):
    def inner(k):
        with Resource(f"inner {k}"):
            if k == 0:
                return 1 // (n - 1)
            return inner(k - 1)

    with Resource("outer"):
        return inner(n)
