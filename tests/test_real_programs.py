"""Programs of the kind public code has, written without a thought of batching.

Each runs three times on each executor, against a plain loop.
"""

from __future__ import annotations

import collections
import copy
import functools
import heapq
import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import autobatch
from autobatch import objects

EXECUTORS = pytest.mark.parametrize("executor", ["traced", "vmap"])


def rows_of(args, in_dims, index):
    for arg, dim in zip(args, in_dims, strict=True):
        if isinstance(arg, objects):
            yield copy.deepcopy(arg.items[index])
        else:
            yield arg if dim is None else arg[index].clone()


def same(expected, found):
    """One loop's result against one row of the batch's."""
    if isinstance(expected, torch.Tensor):
        assert expected.dtype == found.dtype and expected.shape == found.shape
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    elif isinstance(expected, bool | int):
        assert found.item() == expected
    elif isinstance(expected, float):
        assert found.dtype == torch.float64
        assert math.isclose(found.item(), expected, rel_tol=1e-4, abs_tol=1e-5)
    elif isinstance(expected, tuple):
        for left, right in zip(expected, found, strict=True):
            same(left, right)
    elif isinstance(expected, dict):
        assert list(expected) == list(found)
        for key in expected:
            same(expected[key], found[key])
    else:
        assert expected == found


def row(result, index):
    if isinstance(result, tuple):
        return tuple(row(part, index) for part in result)
    if isinstance(result, dict):
        return {key: row(part, index) for key, part in result.items()}
    return result[index]


def check(function, *args, executor, in_dims=None, size=6, **options):
    in_dims = in_dims or (0,) * len(args)
    wanted = [function(*rows_of(args, in_dims, index)) for index in range(size)]
    mapped = autobatch.vmap(function, in_dims=in_dims, executor=executor, **options)
    for _ in range(3):
        found = mapped(*args)
        for index, expected in enumerate(wanted):
            same(expected, row(found, index))


def floats(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def ints(low, high, *shape, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


# Newton's method with a line search.


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def newton(x, tol=1e-6, max_iter=30):
    for it in range(max_iter):  # noqa: B007
        inner = x[1] - x[0] ** 2
        g = torch.stack([-2 * (1 - x[0]) - 400 * x[0] * inner, 200 * inner])
        if g.norm() < tol:
            break
        rows = [
            torch.stack([2 - 400 * x[1] + 1200 * x[0] ** 2, -400 * x[0]]),
            torch.stack([-400 * x[0], torch.tensor(200.0, dtype=x.dtype)]),
        ]
        step = torch.linalg.solve(torch.stack(rows), -g)
        if torch.dot(step, g) >= 0:
            step = -g
        t = 1.0
        fx = rosenbrock(x)
        while rosenbrock(x + t * step) > fx + 1e-4 * t * torch.dot(g, step) and t > 1e-10:
            t *= 0.5
        x = x + t * step
    else:
        it = -1
    return x, it, rosenbrock(x)


@EXECUTORS
def test_newton(executor):
    check(newton, floats(6, 2, dtype=torch.float64) * 2, executor=executor)


# Levenshtein distance: on strings, and with a tensor as the table.


def levenshtein(a, b):
    prev = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        cur = [i]
        for j, cb in enumerate(b, 1):
            cur.append(min(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (0 if ca == cb else 1)))
        prev = cur
    return prev[-1]


def edit_table(a, b, la, lb):
    n, m = int(la), int(lb)
    d = torch.zeros(len(a) + 1, len(b) + 1, dtype=torch.long)
    d[:, 0] = torch.arange(len(a) + 1)
    d[0, :] = torch.arange(len(b) + 1)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            if a[i - 1] == b[j - 1]:
                d[i, j] = d[i - 1, j - 1]
            else:
                d[i, j] = 1 + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d[n, m], d


@EXECUTORS
def test_levenshtein(executor):
    left = objects(["", "abc", "kitten", "flaw", "a", "same"])
    right = objects(["", "", "sitting", "lawn", "b", "same"])
    check(levenshtein, left, right, executor=executor)
    args = ints(0, 3, 6, 4), ints(0, 3, 6, 3, seed=1), ints(0, 5, 6), ints(0, 4, 6, seed=1)
    check(edit_table, *args, executor=executor)


# Dijkstra.


def dijkstra(graph, src, dst):
    dist = {src: 0.0}
    prev = {}
    queue = [(0.0, src)]
    done = set()
    while queue:
        d, u = heapq.heappop(queue)
        if u in done:
            continue
        done.add(u)
        if u == dst:
            break
        for v, w in graph.get(u, []):
            if v not in dist or d + w < dist[v]:
                dist[v] = d + w
                prev[v] = u
                heapq.heappush(queue, (d + w, v))
    if dst not in dist:
        return float("inf"), ""
    path = [dst]
    while path[-1] != src:
        path.append(prev[path[-1]])
    return dist[dst], "->".join(str(p) for p in reversed(path))


@EXECUTORS
def test_dijkstra(executor):
    graphs = [
        {u: [((u + k) % 6, float((u * s + k) % 5 + 1)) for k in range(1, 3)] for u in range(6)}
        for s in range(5)
    ]
    check(dijkstra, objects([*graphs, {}]), 0, 4, in_dims=(0, None, None), executor=executor)


# A Metropolis sampler.


def metropolis(x, steps):
    accepted = 0
    logp = -0.5 * (x * x).sum()
    total = torch.zeros_like(x)
    for _ in range(steps):
        proposal = x + 1.5 * torch.randn_like(x)
        lp = -0.5 * (proposal * proposal).sum()
        if torch.log(torch.rand(())) < lp - logp:
            x, logp = proposal, lp
            accepted += 1
        total += x
    return total / steps, accepted / steps


@EXECUTORS
def test_metropolis(executor):
    torch.manual_seed(0)
    sampler = autobatch.vmap(
        metropolis, in_dims=(0, None), randomness="different", executor=executor
    )
    for _ in range(3):
        mean, rate = sampler(torch.zeros(64, 2), 60)
        assert mean.abs().mean() < 0.5 and len(set(mean[:, 0].tolist())) > 60
        assert rate.dtype == torch.float64 and 0.3 < rate.mean() < 0.7


# Beam search.


def beam_search(logits, transitions, k, max_len):
    beams = [(0.0, [int(logits.argmax())])]
    finished = []
    for _ in range(max_len):
        candidates = []
        for score, seq in beams:
            lp = F.log_softmax(transitions[seq[-1]] + logits, dim=-1)
            top, idx = lp.topk(k)
            for s, i in zip(top.tolist(), idx.tolist()):  # noqa: B905
                candidates.append((score + s, [*seq, i]))
        candidates.sort(key=lambda c: c[0], reverse=True)
        beams = []
        for candidate in candidates[:k]:
            if candidate[1][-1] == 0:
                finished.append(candidate)
            else:
                beams.append(candidate)
        if not beams:
            break
    best = max(finished + beams, key=lambda c: c[0] / len(c[1]))
    return best[0], str(best[1]), len(finished)


@EXECUTORS
def test_beam_search(executor):
    args = floats(6, 5), floats(5, 5, seed=1), 2, 3
    check(beam_search, *args, in_dims=(0, None, None, None), executor=executor)


# A recursive-descent parser.


def expression(s, i):
    v, i = term(s, i)
    while i < len(s) and s[i] in "+-":
        op = s[i]
        r, i = term(s, i + 1)
        v = v + r if op == "+" else v - r
    return v, i


def term(s, i):
    v, i = factor(s, i)
    while i < len(s) and s[i] in "*/":
        op = s[i]
        r, i = factor(s, i + 1)
        if op == "*":
            v *= r
        else:
            v /= r
    return v, i


def factor(s, i):
    if s[i : i + 1] == "-":
        v, i = factor(s, i + 1)
        return -v, i
    if s[i : i + 1] == "(":
        v, i = expression(s, i + 1)
        if s[i : i + 1] != ")":
            raise SyntaxError(f"expected ) at {i} in {s!r}")
        return v, i + 1
    j = i
    while j < len(s) and (s[j].isdigit() or s[j] == "."):
        j += 1
    if j == i:
        raise SyntaxError(f"unexpected {s[i : i + 1]!r} at {i}")
    return float(s[i:j]), j


def calculate(s):
    v, i = expression(s, 0)
    if i != len(s):
        raise SyntaxError(f"trailing {s[i:]!r}")
    return v


@EXECUTORS
def test_calculator(executor):
    good = objects(["1", "2*(3+4)", "-(1-2)/4", "1.5*-2", "((7))", "8/2/2-1"])
    check(calculate, good, executor=executor)
    with pytest.raises(SyntaxError, match=r"expected \) at 4 in '\(1\+2'"):
        autobatch.vmap(calculate, executor=executor)(objects(["1", "(1+2", "1+*"]))


# k-means until it converges.


def kmeans(points, k=3, max_iter=20):
    centers = points[:k].clone()
    assign = None
    for it in range(max_iter):  # noqa: B007
        new = torch.cdist(points, centers).argmin(dim=1)
        if assign is not None and torch.equal(new, assign):
            break
        assign = new
        for c in range(k):
            mask = assign == c
            if mask.any():
                centers[c] = points[mask].mean(dim=0)
    return centers, assign, it


@EXECUTORS
def test_kmeans(executor):
    check(kmeans, floats(6, 12, 2), executor=executor)


# Conjugate gradients.


@dataclass
class Solved:
    iterations: int
    residual: float
    converged: bool


def conjugate_gradient(A, b, x0=None, tol=1e-6, max_iter=None):
    x = torch.zeros_like(b) if x0 is None else x0.clone()
    max_iter = max_iter or 10 * b.shape[0]
    r = b - A @ x
    p = r.clone()
    rs = r @ r
    for k in range(max_iter):
        if rs.sqrt() < tol:
            return x, Solved(k, rs.sqrt().item(), True)
        Ap = A @ p
        alpha = rs / (p @ Ap)
        x += alpha * p
        r -= alpha * Ap
        rs_new = r @ r
        p = r + (rs_new / rs) * p
        rs = rs_new
    return x, Solved(max_iter, float(rs.sqrt()), False)


def solved(A, b):
    x, info = conjugate_gradient(A, b)
    return x, info.iterations, info.converged


@EXECUTORS
def test_conjugate_gradient(executor):
    m = floats(6, 4, 4, dtype=torch.float64)
    args = m @ m.mT + torch.eye(4, dtype=torch.float64), floats(6, 4, dtype=torch.float64)
    check(solved, *args, executor=executor)
    found = autobatch.vmap(conjugate_gradient, executor=executor)(*args)[1]
    assert type(found) is Solved
    assert found.converged.tolist() == [True] * 6


# Quicksort, in place and by masks.


def quicksort(a, lo=0, hi=None):
    if hi is None:
        hi = len(a) - 1
    if lo < hi:
        p = a[hi].clone()
        i = lo - 1
        for j in range(lo, hi):
            if a[j] <= p:
                i += 1
                a[i], a[j] = a[j].clone(), a[i].clone()
        a[i + 1], a[hi] = a[hi].clone(), a[i + 1].clone()
        quicksort(a, lo, i)
        quicksort(a, i + 2, hi)
    return a


def sort_by_masks(xs):
    if len(xs) <= 1:
        return xs
    pivot, rest = xs[0], xs[1:]
    left, right = sort_by_masks(rest[rest < pivot]), sort_by_masks(rest[rest >= pivot])
    return torch.cat([left, pivot[None], right])


@EXECUTORS
def test_quicksort(executor):
    check(quicksort, ints(0, 9, 6, 7), executor=executor)
    check(sort_by_masks, floats(6, 7), executor=executor)


# A decoder with attention, states in a dict, and an early stop.


class Attention(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.W = nn.Linear(h, h, bias=False)
        self.v = nn.Parameter(torch.randn(h))

    def forward(self, q, keys, mask):
        s = torch.tanh(self.W(keys) + q) @ self.v
        w = F.softmax(s.masked_fill(~mask, float("-inf")), dim=-1)
        return w @ keys, w


class Decoder(nn.Module):
    EOS = 0

    def __init__(self, V=5, h=4):
        super().__init__()
        self.emb, self.cell = nn.Embedding(V, h), nn.GRUCell(2 * h, h)
        self.att, self.out, self.drop = Attention(h), nn.Linear(h, V), nn.Dropout(0.5)

    def step(self, tok, state, enc, mask):
        h = self.cell(torch.cat([self.emb(tok), state["ctx"]]), state["h"])
        ctx, w = self.att(h, enc, mask)
        state = dict(state, h=h, ctx=ctx)
        state["hist"].append(w)
        return self.out(self.drop(h)), state

    def forward(self, enc, length, max_len=6):
        mask = torch.arange(enc.shape[0]) < length
        state = {"h": torch.tanh(enc.mean(0)), "ctx": torch.zeros(enc.shape[-1]), "hist": []}
        tok = torch.tensor(1)
        toks, logp = [], 0.0
        for _ in range(max_len):
            logits, state = self.step(tok, state, enc, mask)
            lp = logits.log_softmax(-1)
            tok = lp.argmax(-1)
            logp = logp + lp[tok]
            toks.append(tok)
            if tok.item() == self.EOS:
                break
        n = len(toks)
        while len(toks) < max_len:
            toks.append(torch.tensor(self.EOS))
        return torch.stack(toks), logp, n, torch.stack(state["hist"]).sum(0)


@EXECUTORS
def test_decoder(executor):
    torch.manual_seed(0)
    decoder = Decoder().eval()
    check(decoder, floats(6, 3, 4), ints(1, 4, 6), executor=executor)


# Nim: negamax on a list that calls change and change back.


def negamax(piles, alpha, beta):
    if all(p == 0 for p in piles):
        return -1, None
    best, move = -math.inf, None
    for i in range(len(piles)):
        for k in range(1, piles[i] + 1):
            piles[i] -= k
            score, _ = negamax(piles, -beta, -alpha)
            piles[i] += k
            if -score > best:
                best, move = -score, (i, k)
            alpha = max(alpha, best)
            if alpha >= beta:
                return best, move
    return best, move


def nim(piles):
    score, move = negamax(piles.tolist(), -2, 2)
    return (score, *(move or (-1, -1)))


@pytest.mark.sampled(2)
@EXECUTORS
def test_nim(executor):
    piles = torch.tensor([[0, 2, 2], [1, 2, 2], [2, 2, 1], [2, 2, 2], [0, 0, 0], [1, 0, 2]])
    check(nim, piles, executor=executor, trace_after=0)


def at(x, a, b, i):
    made = [x[0], x[1], x[2]]
    if made[0] > 100:
        made[0] = made[1]
    y = made[0] * a * b
    return y + made[i]


@EXECUTORS
def test_a_shared_index_picks_its_own_element_of_a_list(executor):
    x = torch.arange(12.0).reshape(4, 3)
    mapped = autobatch.vmap(at, (0, None, None, None), executor=executor, trace_after=0)
    for index in (1, 0, 2, -1, -3):  # 1 and -2 are one element: a recording with both tells no more
        assert mapped(x, 1, 1, index).tolist() == [at(r, 1, 1, index).item() for r in x]


# Bisection, with its error.


def bisect(f, lo, hi, tol=1e-6):
    flo, fhi = f(lo), f(hi)
    if flo * fhi > 0:
        raise ValueError(f"no sign change on [{lo:.3f}, {hi:.3f}]")
    n = 0
    while hi - lo > tol:
        mid = (lo + hi) / 2
        fm = f(mid)
        if fm == 0:
            return mid, n
        elif (fm > 0) == (fhi > 0):
            hi, fhi = mid, fm
        else:
            lo, flo = mid, fm
        n += 1
    return (lo + hi) / 2, n


def square_root(c, hi):
    return bisect(lambda x: x * x - c, 0.0 * hi, hi)


@EXECUTORS
def test_bisection(executor):
    c = torch.tensor([0.5, 1.0, 2.0, 3.5], dtype=torch.float64)
    check(square_root, c, c + 1, size=4, executor=executor)
    with pytest.raises(ValueError, match=r"no sign change on \[0.000, 1.000\]"):
        autobatch.vmap(square_root, executor=executor)(c, torch.ones_like(c))


# Run-length encoding.


def run_lengths(x):
    vals, counts = [], []
    prev = None
    for v in x:
        if prev is not None and v == prev:
            counts[-1] += 1
        else:
            vals.append(v)
            counts.append(1)
        prev = v
    pad = len(x) - len(vals)
    return torch.stack(vals + [torch.zeros_like(x[0])] * pad), torch.tensor(counts + [0] * pad)


@EXECUTORS
def test_run_lengths(executor):
    check(run_lengths, ints(0, 2, 6, 7), executor=executor)


# A bouncing ball: a dataclass with methods, events and a log.


@dataclass
class Ball:
    pos: torch.Tensor
    vel: torch.Tensor
    bounces: int = 0
    resting: bool = False
    log: list[float] = field(default_factory=list)

    @property
    def energy(self):
        return 0.5 * (self.vel**2).sum() + 9.81 * self.pos[1]

    def step(self, dt):
        if self.resting:
            return
        self.vel = self.vel + dt * torch.tensor([0.0, -9.81])
        self.pos = self.pos + dt * self.vel
        if self.pos[1] < 0:
            self.pos[1] = -self.pos[1]
            self.vel[1] *= -0.7
            self.bounces += 1
            self.log.append(self.vel[1].item())
            if self.vel[1].abs() < 0.8:
                self.resting = True


def simulate(pos, vel, T=0.8, dt=0.05):
    ball = Ball(pos, vel)
    t = 0.0
    while t < T and not ball.resting:
        ball.step(dt)
        t += dt
    return ball.pos, ball.vel, ball.bounces, ball.energy, t, float(sum(ball.log)), ball.resting


@EXECUTORS
def test_bouncing_ball(executor):
    check(simulate, floats(6, 2).abs() * 0.3, floats(6, 2, seed=1), executor=executor)


# Decision trees: objects with __call__, alone and as a forest.


class Node:
    __slots__ = ("feature", "left", "right", "threshold", "value")

    def __init__(self, feature=None, threshold=None, left=None, right=None, *, value=None):
        self.feature, self.threshold, self.value = feature, threshold, value
        self.left, self.right = left, right

    @property
    def is_leaf(self):
        return self.value is not None


class Tree:
    def __init__(self, root):
        self.root = root

    def __call__(self, x):
        node, depth = self.root, 0
        while not node.is_leaf:
            node = node.left if x[node.feature] < node.threshold else node.right
            depth += 1
        return node.value, depth


def grown(depth, seed):
    if depth == 0 or (seed + depth) % 5 == 0:
        return Node(value=float(seed % 3))
    threshold = (seed % 7 - 3) / 3
    return Node(seed % 3, threshold, grown(depth - 1, seed + 1), grown(depth - 1, seed + 2))


FOREST = [Tree(grown(3, seed)) for seed in (1, 2, 3)]


def vote(x):
    votes = collections.Counter()
    for tree in FOREST:
        votes[tree(x)[0]] += 1
    return votes.most_common(1)[0][0], sum(votes.values())


@EXECUTORS
def test_decision_trees(executor):
    check(FOREST[0], floats(6, 3), executor=executor)
    check(vote, floats(6, 3), executor=executor)


# Gaussian elimination with pivoting.


def gauss(A, b):
    n = len(b)
    M = torch.cat([A, b.unsqueeze(1)], dim=1)
    for c in range(n):
        p = c + M[c:, c].abs().argmax().item()
        if M[p, c].abs() < 1e-12:
            raise ZeroDivisionError("singular matrix")
        if p != c:
            M[[c, p]] = M[[p, c]]
        for r in range(c + 1, n):
            M[r] -= M[r, c] / M[c, c] * M[c]
    x = torch.zeros(n, dtype=A.dtype)
    for i in range(n - 1, -1, -1):
        x[i] = (M[i, n] - M[i, i + 1 : n] @ x[i + 1 :]) / M[i, i]
    return x


@EXECUTORS
def test_gauss(executor):
    A, b = floats(6, 3, 3, dtype=torch.float64), floats(6, 3, dtype=torch.float64)
    check(gauss, A, b, executor=executor)
    A[2] = 0
    with pytest.raises(ZeroDivisionError, match="singular matrix"):
        autobatch.vmap(gauss, executor=executor)(A, b)


# A stack machine: enum, named tuple, match.


class Code(Enum):
    PUSH = 0
    ADD = 1
    MUL = 2
    NEG = 3


class Instruction(NamedTuple):
    code: Code
    arg: float = 0.0


def interpret(program, x):
    stack = [x]
    for instruction in program:
        match instruction:
            case Instruction(Code.PUSH, v):
                stack.append(torch.tensor(v))
            case Instruction(Code.ADD):
                stack.append(stack.pop() + stack.pop())
            case Instruction(Code.MUL):
                a, b = stack.pop(), stack.pop()
                stack.append(a * b)
            case Instruction(code=Code.NEG):
                stack[-1] = -stack[-1]
    return stack[-1], len(stack)


@EXECUTORS
def test_stack_machine(executor):
    push = [Instruction(Code.PUSH, float(n)) for n in range(4)]
    add, mul, neg = Instruction(Code.ADD), Instruction(Code.MUL), Instruction(Code.NEG)
    programs = [[push[1], add], [], [neg], [push[2], push[3], mul, add], [push[1]], [neg, push[2]]]
    check(interpret, objects(programs), floats(6), executor=executor)


# Adam until the loss stops moving, as a class with its state in dicts.


class Adam:
    def __init__(self, lr=0.1, betas=(0.9, 0.999), eps=1e-8):
        self.lr, (self.b1, self.b2), self.eps = lr, betas, eps
        self.state = {}
        self.t = 0

    def step(self, params, grads):
        self.t += 1
        for name, p in params.items():
            zero = {"m": torch.zeros_like(p), "v": torch.zeros_like(p)}
            st = self.state.setdefault(name, zero)
            st["m"] = self.b1 * st["m"] + (1 - self.b1) * grads[name]
            st["v"] = self.b2 * st["v"] + (1 - self.b2) * grads[name] ** 2
            m, v = st["m"] / (1 - self.b1**self.t), st["v"] / (1 - self.b2**self.t)
            params[name] = p - self.lr * m / (v.sqrt() + self.eps)


def fit(X, y):
    params = {"w": torch.zeros(X.shape[1]), "b": torch.zeros(())}
    adam = Adam()
    last = float("inf")
    for it in range(12):  # noqa: B007
        err = X @ params["w"] + params["b"] - y
        loss = (err**2).mean()
        if abs(last - loss) < 0.03:
            break
        last = loss
        adam.step(params, {"w": 2 * X.T @ err / len(y), "b": 2 * err.mean()})
    return {**params, "loss": loss, "it": it}


@EXECUTORS
def test_adam(executor):
    check(fit, floats(6, 8, 2), floats(6, 8, seed=1), executor=executor)


# What is mapped need not be a function with source, and maps nest.


@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@autobatch.per_thread
def inverse(x):
    try:
        return 1 / x.item()
    except ZeroDivisionError:
        return 0.0


@autobatch.primitive
def rectified(x):
    return torch.relu(x)


def between(x, low, high=9.0, *, step=0.0):
    return x + step if low < x < high else x * 0


CALLABLES: list[Any] = [
    abs,
    functools.partial(between, low=-5.0),
    functools.partial(functools.partial(between, low=0.0, high=2.0), step=1.0, high=5.0),
    torch.relu,
    torch.Tensor.sin,
    functools.partial(torch.clamp, min=0.0),
    nn.ReLU(),
    nn.Sequential(nn.Tanh(), nn.ReLU()),
    inverse,
    rectified,
]


@pytest.mark.sampled(4)
@EXECUTORS
@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("function", CALLABLES, ids=[f"callable{i}" for i in range(len(CALLABLES))])
def test_any_callable_maps(function, engine, executor):
    check(function, torch.tensor([0.0, -2.0, 3.0]), size=3, engine=engine, executor=executor)


def test_c_callables_on_objects():
    assert autobatch.vmap(str.upper)(objects(["a", "b"])) == ["A", "B"]
    found = autobatch.vmap(fibonacci, scalars="python")(torch.tensor([5, 7]))
    assert found.tolist() == [5, 13]


def scaled_sum(a, w):
    return a.sin().sum() * w if a.sum() > 0 else a.sum()


def total(xs):
    if xs.sum() > 0:
        return autobatch.vmap(scaled_sum, in_dims=(0, None))(xs, 2.0).sum()
    return autobatch.vmap(lambda a: scaled_sum(a, xs.sum()))(xs).sum()


decorated = autobatch.function(scaled_sum)


def total_of_batch(xs):
    return decorated.batch(xs, w=2.0).sum() if xs[0, 0] > 0 else decorated(xs[0], 1.0)


@EXECUTORS
def test_maps_nest(executor):
    check(total, floats(6, 3, 2), executor=executor)
    check(total_of_batch, floats(6, 3, 2), executor=executor)


def test_explain_looks_into_what_vmap_returns(capsys):
    mapped = autobatch.vmap(scaled_sum, in_dims=(0, None))
    autobatch.explain(mapped, torch.tensor([[1.0, 2.0], [-1.0, 0.0]]), 2.0)
    assert capsys.readouterr().out.startswith("scaled_sum: 2 threads")
