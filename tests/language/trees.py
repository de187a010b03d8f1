"""Trees of the user's own objects, recursion over them, tensors on the way; modules."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.language.common import case, seen


class Leaf:
    def __init__(self, value):
        self.value = value


class Branch:
    def __init__(self, left, right):
        self.left, self.right = left, right


@dataclass
class Num:
    value: float

    def eval(self, env):
        return self.value


@dataclass
class Name:
    name: str

    def eval(self, env):
        if self.name not in env:
            raise KeyError(self.name)
        return env[self.name]


@dataclass
class Bin:
    op: str
    a: Any
    b: Any

    def eval(self, env):
        x = self.a.eval(env)
        y = self.b.eval(env)
        if self.op == "+":
            return x + y
        if self.op == "*":
            return x * y
        return x / y


def depth(tree):
    if isinstance(tree, Leaf):
        return 1
    return 1 + max(depth(tree.left), depth(tree.right))


def leaves(tree):
    if isinstance(tree, Leaf):
        return [tree.value]
    return leaves(tree.left) + leaves(tree.right)


def mirrored(tree):
    if isinstance(tree, Leaf):
        return Leaf(tree.value)
    return Branch(mirrored(tree.right), mirrored(tree.left))


SMALL = Leaf(3)
LEFT = Branch(Branch(Leaf(1), Leaf(2)), Leaf(5))
RIGHT = Branch(Leaf(4), Branch(Leaf(2), Branch(Leaf(8), Leaf(1))))


@case((SMALL,), (LEFT,), (RIGHT,))
def walks(tree):
    return depth(tree), leaves(tree), leaves(mirrored(tree)), sum(leaves(tree))


@case((SMALL,), (LEFT,), (RIGHT,))
def matched(tree):
    def go(t):
        match t:
            case Leaf(value=v):
                return v
            case Branch(left=Leaf(value=v), right=r):
                return v * 100 + go(r)
            case Branch(left=l, right=r):
                return go(l) - go(r)

    return go(tree)


@case((SMALL,), (LEFT,), (RIGHT,))
def by_stack(tree):
    stack, total, visited = [tree], 0, 0
    while stack:
        node = stack.pop()
        visited += 1
        if isinstance(node, Leaf):
            total += node.value
        else:
            stack.append(node.left)
            stack.append(node.right)
    return total, visited


WEIGHT = torch.tensor([[0.5, -0.25], [0.125, 1.0]])


def encode(tree):
    if isinstance(tree, Leaf):
        return torch.full((2,), float(tree.value))
    left, right = encode(tree.left), encode(tree.right)
    return torch.tanh(left @ WEIGHT + right)


@case((SMALL,), (LEFT,), (RIGHT,))
def encoded(tree):
    return encode(tree)


@case(
    (Num(2.0), 1.0),
    (Bin("+", Num(1.0), Name("x")), 5.0),
    (Bin("*", Name("x"), Bin("+", Name("x"), Num(3.0))), 2.0),
    (Bin("/", Num(1.0), Name("x")), 0.0),
    (Name("y"), 1.0),
)
def interpreter(tree, x):
    return tree.eval({"x": x})


@case(({"v": 1, "kids": []},), ({"v": 2, "kids": [{"v": 5, "kids": []}, {"v": 1, "kids": []}]},))
def nested_dicts(tree):
    def total(t):
        return t["v"] + sum(total(k) for k in t["kids"])

    def paths(t, path=()):
        here = path + (t["v"],)
        return [here] + [p for k in t["kids"] for p in paths(k, here)]

    return total(tree), paths(tree)


@case(([1, [2, [3, 4]], 5],), ([],), ([[1], [2]],))
def flattened(xs):
    def flat(x):
        if isinstance(x, list):
            return [z for y in x for z in flat(y)]
        return [x]

    return flat(xs), len(flat(xs))


class Linked:
    def __init__(self, value, rest=None):
        self.value = value
        self.rest = rest

    def __len__(self):
        return 1 + (len(self.rest) if self.rest is not None else 0)


@case((3,), (1,), (5,))
def linked_lists(n):
    chain = None
    for i in range(n):
        chain = Linked(i * i, chain)
    values, node = [], chain
    while node is not None:
        values.append(node.value)
        node = node.rest
    previous, node = None, chain
    while node:
        node.rest, previous, node = previous, node, node.rest
    return values, previous.value, len(previous)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.first = nn.Linear(3, 4)
        self.rest = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 2)})
        self.register_buffer("scale", torch.tensor(2.0))
        self.act = nn.ReLU(inplace=True)
        self.steps = 3
        self.blocks = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=g)

    def hidden(self, x):
        return self.act(self.first(x))

    def forward(self, x, steps=None):
        h = self.hidden(x)
        for layer in self.rest:
            h = torch.tanh(layer(h)) * self.scale
        n = 0
        while h.norm() > 1.0 and n < (steps or self.steps):
            h = h / 2 + self.blocks(h) * 0.01
            n += 1
        return h, n


NET = Net()
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))


@case(*[(x,) for x in X])
def networks(x):
    h, n = NET(x)
    name = "a" if n > 1 else "b"
    return h, n, NET.heads["a"](h), len(NET.rest), NET(x, steps=1)[1]


@case(*[(x,) for x in X])
def inplace_modules(x):
    y = x * 1
    z = NET.act(y)
    w = nn.functional.relu(x - 1, inplace=True)
    return y, z, z is y, w


@case(*[(x,) for x in X])
def parameters(x):
    total = torch.zeros(())
    for name, p in NET.named_parameters():
        if p.dim() == 1 and name.startswith("rest"):
            total = total + p.sum() * x[0]
    return total.detach(), sum(p.numel() for p in NET.parameters()), NET.first.weight.shape


@case(*[(x,) for x in X])
def dispatch_on_values(x):
    layer = NET.rest[0] if x.sum() > 0 else NET.rest[1]
    return layer(NET.hidden(x))
