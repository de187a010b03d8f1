"""Programs whose work is on lists of numbers, dicts and small objects, near a tensor or a number.

Textbook code, pasted: an argument is read to the host, or to numbers one at a time, and from there
on there are lists. ``PROGRAMS`` has, like ``mixed_programs``, the arguments of one example.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

INF = float("inf")


def assignment(cost: list[list[float]]) -> float:
    """The least cost of an assignment (the Hungarian algorithm, with potentials)."""
    n, m = len(cost), len(cost[0])
    u = [0.0] * (n + 1)
    v = [0.0] * (m + 1)
    p = [0] * (m + 1)
    way = [0] * (m + 1)
    for i in range(1, n + 1):
        p[0] = i
        j0 = 0
        minv = [INF] * (m + 1)
        used = [False] * (m + 1)
        while True:
            used[j0] = True
            i0 = p[j0]
            delta = INF
            j1 = 0
            for j in range(1, m + 1):
                if not used[j]:
                    cur = cost[i0 - 1][j - 1] - u[i0] - v[j]
                    if cur < minv[j]:
                        minv[j] = cur
                        way[j] = j0
                    if minv[j] < delta:
                        delta = minv[j]
                        j1 = j
            for j in range(m + 1):
                if used[j]:
                    u[p[j]] += delta
                    v[j] -= delta
                else:
                    minv[j] -= delta
            j0 = j1
            if p[j0] == 0:
                break
        while True:
            j1 = way[j0]
            p[j0] = p[j1]
            j0 = j1
            if j0 == 0:
                break
    return -v[0]


def assignment_of_tensor(cost: Tensor) -> float:
    return assignment(cost.tolist())


def assignment_inline(cost: Tensor) -> float:
    """The same in one function, of a tensor that is read at once."""
    rows = cost.tolist()
    n = len(rows)
    u = [0.0] * (n + 1)
    v = [0.0] * (n + 1)
    p = [0] * (n + 1)
    way = [0] * (n + 1)
    for i in range(1, n + 1):
        p[0] = i
        j0 = 0
        minv = [INF] * (n + 1)
        used = [False] * (n + 1)
        while True:
            used[j0] = True
            i0, delta, j1 = p[j0], INF, 0
            for j in range(1, n + 1):
                if not used[j]:
                    cur = rows[i0 - 1][j - 1] - u[i0] - v[j]
                    if cur < minv[j]:
                        minv[j], way[j] = cur, j0
                    if minv[j] < delta:
                        delta, j1 = minv[j], j
            for j in range(n + 1):
                if used[j]:
                    u[p[j]] += delta
                    v[j] -= delta
                else:
                    minv[j] -= delta
            j0 = j1
            if p[j0] == 0:
                break
        while j0:
            j1 = way[j0]
            p[j0] = p[j1]
            j0 = j1
    return -v[0]


def assignment_by_entries(cost: Tensor) -> float:
    """The same of a tensor that is read entry by entry."""
    n = cost.shape[0]
    u = [0.0] * (n + 1)
    v = [0.0] * (n + 1)
    p = [0] * (n + 1)
    way = [0] * (n + 1)
    for i in range(1, n + 1):
        p[0] = i
        j0 = 0
        minv = [INF] * (n + 1)
        used = [False] * (n + 1)
        while True:
            used[j0] = True
            i0, delta, j1 = p[j0], INF, 0
            for j in range(1, n + 1):
                if not used[j]:
                    cur = float(cost[i0 - 1, j - 1]) - u[i0] - v[j]
                    if cur < minv[j]:
                        minv[j], way[j] = cur, j0
                    if minv[j] < delta:
                        delta, j1 = minv[j], j
            for j in range(n + 1):
                if used[j]:
                    u[p[j]] += delta
                    v[j] -= delta
                else:
                    minv[j] -= delta
            j0 = j1
            if p[j0] == 0:
                break
        while j0:
            j1 = way[j0]
            p[j0] = p[j1]
            j0 = j1
    return -v[0]


PUSH, ADD, SUB, MUL, DUP, SWAP, JNZ, HALT = range(8)


def machine(code: Tensor, start: Tensor) -> int:
    """A stack machine: instructions ``[N, 2]``, each an operation and a number, read as it goes."""
    stack = [int(start)]
    pc = 0
    steps = 0
    while steps < 500:
        steps += 1
        op, arg = code[pc].tolist()
        pc += 1
        if op == PUSH:
            stack.append(arg)
        elif op == ADD:
            b, a = stack.pop(), stack.pop()
            stack.append(a + b)
        elif op == SUB:
            b, a = stack.pop(), stack.pop()
            stack.append(a - b)
        elif op == MUL:
            b, a = stack.pop(), stack.pop()
            stack.append(a * b % 1_000_003)
        elif op == DUP:
            stack.append(stack[-1])
        elif op == SWAP:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif op == JNZ:
            if stack[-1] != 0:
                pc = arg
        elif op == HALT:
            break
    return stack[0]


def machine_of_list(code: Tensor, start: Tensor) -> int:
    """The same with all instructions read at once, and its memory in a dict."""
    program = [tuple(each) for each in code.tolist()]
    stack: list[int] = [start.item()]  # type: ignore[list-item]
    counts: dict[int, int] = {}
    pc = 0
    for _ in range(500):
        op, arg = program[pc]
        counts[op] = counts.get(op, 0) + 1
        pc += 1
        if op == PUSH:
            stack.append(arg)
        elif op == ADD:
            stack.append(stack.pop() + stack.pop())
        elif op == SUB:
            b = stack.pop()
            stack.append(stack.pop() - b)
        elif op == MUL:
            stack.append(stack.pop() * stack.pop() % 1_000_003)
        elif op == DUP:
            stack.append(stack[-1])
        elif op == SWAP:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif op == JNZ:
            if stack[-1] != 0:
                pc = arg
        elif op == HALT:
            break
    return stack[0] + counts[op]


class Node:
    """Of a search tree: a game of taking 1 to 3 of ``left``; who takes the last wins."""

    def __init__(self, left: int, parent: Node | None = None) -> None:
        self.left, self.parent = left, parent
        self.children: dict[int, Node] = {}
        self.visits, self.wins = 0, 0.0

    def untried(self) -> list[int]:
        return [m for m in (1, 2, 3) if m <= self.left and m not in self.children]

    def best(self) -> Node:
        def value(child: Node) -> float:
            explored = math.sqrt(2.0 * math.log(self.visits) / child.visits)
            return child.wins / child.visits + explored

        return max(self.children.values(), key=value)


def playout(left: int, draw: random.Random) -> float:
    """1 if who has just moved wins."""
    wins = True
    while left > 0:
        left -= draw.randint(1, min(3, left))
        wins = not wins
    return 1.0 if wins else 0.0


def search(left: int, draw: random.Random, rounds: int) -> int:
    root = Node(left)
    for _ in range(rounds):
        node = root
        while node.children and not node.untried():
            node = node.best()
        moves = node.untried()
        if moves:
            move = draw.choice(moves)
            node.children[move] = Node(node.left - move, node)
            node = node.children[move]
        result = playout(node.left, draw)
        back: Node | None = node
        while back is not None:
            back.visits += 1
            back.wins += result
            result = 1.0 - result
            back = back.parent
    return max(root.children, key=lambda move: root.children[move].visits)


def tree_search(left: Tensor, seed: Tensor) -> int:
    """Monte Carlo tree search, with draws of a generator of the example's own."""
    return search(int(left), random.Random(int(seed)), 60)


def tree_search_of_priors(priors: Tensor, left: Tensor) -> int:
    """The same with what a network guesses of the moves, in arrays of numbers (PUCT)."""
    prior = torch.softmax(priors, -1).tolist()
    states = [int(left)]
    parents = [-1]
    children: list[dict[int, int]] = [{}]
    visits = [0]
    wins = [0.0]
    for _ in range(60):
        node = 0
        while children[node]:
            best, chosen = -INF, -1
            for move, child in children[node].items():
                mean = wins[child] / visits[child] if visits[child] else 0.0
                bonus = prior[move - 1] * math.sqrt(visits[node]) / (1 + visits[child])
                if mean + bonus > best:
                    best, chosen = mean + bonus, child
            node = chosen
        for move in (1, 2, 3):
            if move <= states[node]:
                children[node][move] = len(states)
                states.append(states[node] - move)
                parents.append(node)
                children.append({})
                visits.append(0)
                wins.append(0.0)
        value = 1.0 if states[node] == 0 else 0.5 + 0.1 * prior[states[node] % 3]
        while node >= 0:
            visits[node] += 1
            wins[node] += value
            value = 1.0 - value
            node = parents[node]
    return max(children[0], key=lambda move: visits[children[0][move]])


def quantiles(stream: Tensor, eps: float = 0.1) -> tuple[float, float, float]:
    """Quartiles of a stream (the sketch of Greenwald and Khanna)."""
    summary: list[tuple[float, int, int]] = []
    n = 0
    for value in stream.tolist():
        if n % int(1 / (2 * eps)) == 0 and n > 0:
            at = len(summary) - 2
            while at >= 1:
                _v1, g1, _d1 = summary[at]
                v2, g2, d2 = summary[at + 1]
                if g1 + g2 + d2 <= math.floor(2 * eps * n):
                    summary[at : at + 2] = [(v2, g1 + g2, d2)]
                at -= 1
        place = 0
        while place < len(summary) and summary[place][0] < value:
            place += 1
        if place == 0 or place == len(summary):
            summary.insert(place, (value, 1, 0))
        else:
            summary.insert(place, (value, 1, max(0, math.floor(2 * eps * n) - 1)))
        n += 1

    def query(phi: float) -> float:
        rank = math.ceil(phi * n)
        least = 0
        for value, g, delta in summary:
            least += g
            if rank - least <= eps * n and least + delta - rank <= eps * n:
                return value
        return summary[-1][0]

    return query(0.25), query(0.5), query(0.75)


class Sketch:
    """The same as a class, of entries that are lists."""

    def __init__(self, eps: float) -> None:
        self.eps, self.n = eps, 0
        self.entries: list[list[float]] = []

    def insert(self, value: float) -> None:
        place = 0
        while place < len(self.entries) and self.entries[place][0] < value:
            place += 1
        ends = place in (0, len(self.entries))
        delta = 0 if ends else max(0, math.floor(2 * self.eps * self.n) - 1)
        self.entries.insert(place, [value, 1, delta])
        self.n += 1
        if self.n % int(1 / (2 * self.eps)) == 0:
            self.compress()

    def compress(self) -> None:
        limit = math.floor(2 * self.eps * self.n)
        at = len(self.entries) - 2
        while at >= 1:
            one, other = self.entries[at], self.entries[at + 1]
            if one[1] + other[1] + other[2] <= limit:
                other[1] += one[1]
                del self.entries[at]
            at -= 1

    def query(self, phi: float) -> float:
        rank, least = math.ceil(phi * self.n), 0.0
        for value, g, delta in self.entries:
            least += g
            if least + delta - rank <= self.eps * self.n and rank - least <= self.eps * self.n:
                return value
        return self.entries[-1][0]


def median(stream: Tensor) -> float:
    """The median of a stream, item by item."""
    sketch = Sketch(0.1)
    for x in stream:
        sketch.insert(x.item())
    return sketch.query(0.5)


def clusters(points: Tensor) -> tuple[int, list[int]]:
    """How many clusters points ``[N, 2]`` have, and the one of each (DBSCAN; -1: none)."""
    pts = points.tolist()
    n = len(pts)
    labels: list[int | None] = [None] * n
    cluster = -1

    def neighbours(i: int) -> list[int]:
        return [j for j in range(n) if math.dist(pts[i], pts[j]) <= 0.5]

    for i in range(n):
        if labels[i] is not None:
            continue
        near = neighbours(i)
        if len(near) < 3:
            labels[i] = -1
            continue
        cluster += 1
        labels[i] = cluster
        seeds = list(near)
        while seeds:
            j = seeds.pop()
            if labels[j] == -1:
                labels[j] = cluster
            if labels[j] is not None:
                continue
            labels[j] = cluster
            more = neighbours(j)
            if len(more) >= 3:
                seeds.extend(more)
    return cluster + 1, [-1 if each is None else each for each in labels]


def near_ones(pts: list[list[float]], i: int, eps: float) -> list[int]:
    found = []
    for j in range(len(pts)):
        dx, dy = pts[i][0] - pts[j][0], pts[i][1] - pts[j][1]
        if dx * dx + dy * dy <= eps * eps:
            found.append(j)
    return found


def clusters_of_numbers(points: Tensor) -> int:
    """The same by numbers alone: labels in one list, neighbours by a function of the module."""
    pts = points.tolist()
    labels = [-2] * len(pts)
    cluster = 0
    for i in range(len(pts)):
        if labels[i] != -2:
            continue
        seeds = near_ones(pts, i, 0.5)
        if len(seeds) < 3:
            labels[i] = -1
            continue
        labels[i] = cluster
        k = 0
        while k < len(seeds):
            j = seeds[k]
            if labels[j] == -1:
                labels[j] = cluster
            elif labels[j] == -2:
                labels[j] = cluster
                more = near_ones(pts, j, 0.5)
                if len(more) >= 3:
                    seeds = seeds + more
            k += 1
        cluster += 1
    return cluster


def logaddexp(a: float, b: float) -> float:
    if a == -INF:
        return b
    if b == -INF:
        return a
    top = max(a, b)
    return top + math.log(math.exp(a - top) + math.exp(b - top))


def ctc_beams(logp: Tensor, width: int = 4, blank: int = 0) -> tuple[str, float]:
    """The likeliest labels for log-probabilities ``[T, V]`` (prefix beam search)."""
    steps, symbols = logp.shape
    beams: list[tuple[tuple[int, ...], tuple[float, float]]] = [((), (0.0, -INF))]
    for t in range(steps):
        following: dict[tuple[int, ...], tuple[float, float]] = defaultdict(lambda: (-INF, -INF))
        for s in range(symbols):
            p = logp[t, s].item()
            for prefix, (ends, goes_on) in beams:
                if s == blank:
                    b, nb = following[prefix]
                    b = logaddexp(b, logaddexp(ends + p, goes_on + p))
                    following[prefix] = (b, nb)
                    continue
                last = prefix[-1] if prefix else None
                longer = (*prefix, s)
                b, nb = following[longer]
                if s != last:
                    nb = logaddexp(nb, logaddexp(ends + p, goes_on + p))
                else:
                    nb = logaddexp(nb, ends + p)
                following[longer] = (b, nb)
                if s == last:
                    b, nb = following[prefix]
                    following[prefix] = (b, logaddexp(nb, goes_on + p))
        ranked = sorted(following.items(), key=lambda each: logaddexp(*each[1]), reverse=True)
        beams = ranked[:width]
    best = beams[0]
    return " ".join(map(str, best[0])), -logaddexp(*best[1])


def ctc_rows(logp: Tensor) -> str:
    """The same by rows, with the two scores of a prefix in plain dicts."""
    ends: dict[tuple[int, ...], float] = {(): 1.0}
    goes_on: dict[tuple[int, ...], float] = {(): 0.0}
    kept: list[tuple[int, ...]] = [()]
    for row in logp.exp():
        probs = row.tolist()
        new_ends: dict[tuple[int, ...], float] = {}
        new_on: dict[tuple[int, ...], float] = {}
        for prefix in kept:
            e, o = ends.get(prefix, 0.0), goes_on.get(prefix, 0.0)
            new_ends[prefix] = new_ends.get(prefix, 0.0) + probs[0] * (e + o)
            if prefix:
                new_on[prefix] = new_on.get(prefix, 0.0) + probs[prefix[-1]] * o
            for s in range(1, len(probs)):
                longer = (*prefix, s)
                whole = e if prefix and prefix[-1] == s else e + o
                new_on[longer] = new_on.get(longer, 0.0) + probs[s] * whole
        ends, goes_on = new_ends, new_on
        every = set(ends) | set(goes_on)
        kept = sorted(every, key=lambda x: (-ends.get(x, 0.0) - goes_on.get(x, 0.0), x))[:4]
    return " ".join(map(str, kept[0]))


def build(points: list[list[float]], depth: int = 0) -> dict[str, Any] | None:
    if not points:
        return None
    axis = depth % 2
    points = sorted(points, key=lambda point: point[axis])
    middle = len(points) // 2
    return {
        "point": points[middle],
        "left": build(points[:middle], depth + 1),
        "right": build(points[middle + 1 :], depth + 1),
    }


def closest(node: dict[str, Any] | None, target: list[float], depth: int, best: float) -> float:
    if node is None:
        return best
    axis = depth % 2
    point = node["point"]
    best = min(best, sum((a - b) ** 2 for a, b in zip(point, target, strict=True)))
    gap = target[axis] - point[axis]
    first, second = ("left", "right") if gap < 0 else ("right", "left")
    best = closest(node[first], target, depth + 1, best)
    if gap * gap < best:
        best = closest(node[second], target, depth + 1, best)
    return best


def kd_tree(points: Tensor, query: Tensor) -> float:
    """The distance to the nearest of points ``[N, 2]``."""
    tree = build(points.tolist())
    return math.sqrt(closest(tree, query.tolist(), 0, INF))


def kd_tree_of_tuples(points: list[tuple[float, float]], query: tuple[float, float]) -> float:
    tree = build([list(point) for point in points])
    return math.sqrt(closest(tree, list(query), 0, INF))


def halving(values: list[float], low: int, high: int) -> float:
    """The sum of a list by halves: calls that work on a list of numbers and nothing else."""
    if high - low == 1:
        return values[low]
    middle = (low + high) // 2
    return halving(values, low, middle) + halving(values, middle, high)


def sum_of_halves(x: Tensor) -> float:
    return halving(x.tolist(), 0, len(x))


# Examples.


def tensor(draw: random.Random, *shape: int) -> Tensor:
    count = math.prod(shape)
    return torch.tensor([draw.gauss(0, 1) for _ in range(count)], dtype=torch.float64).view(shape)


def matrix(draw: random.Random) -> list[list[float]]:
    rows: list[list[float]] = tensor(draw, 6, 6).abs().tolist()
    return rows


def countdown(draw: random.Random) -> tuple[Tensor, Tensor]:
    """A product, then a sum, taken a number of times."""
    one, other = draw.randint(2, 9), draw.randint(1, 5)
    code = [(PUSH, one), (MUL, 0), (PUSH, draw.randint(3, 12)),
            (SWAP, 0), (PUSH, other), (ADD, 0), (SWAP, 0), (PUSH, 1), (SUB, 0), (JNZ, 3),
            (HALT, 0)]  # fmt: skip
    return torch.tensor(code), torch.tensor(draw.randint(1, 100))


def log_probabilities(draw: random.Random) -> Tensor:
    return tensor(draw, 8, 5).mul(2).log_softmax(-1)


def integer(draw: random.Random, low: int, high: int) -> Tensor:
    return torch.tensor(draw.randint(low, high))


Make = Callable[[random.Random], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {
    "assignment": (assignment, lambda draw: (matrix(draw),)),
    "assignment_of_tensor": (assignment_of_tensor, lambda draw: (tensor(draw, 6, 6).abs(),)),
    "assignment_inline": (assignment_inline, lambda draw: (tensor(draw, 6, 6).abs(),)),
    "assignment_by_entries": (assignment_by_entries, lambda draw: (tensor(draw, 6, 6).abs(),)),
    "machine": (machine, countdown),
    "machine_of_list": (machine_of_list, countdown),
    "tree_search": (tree_search, lambda d: (integer(d, 5, 15), integer(d, 0, 99))),
    "tree_search_of_priors": (
        tree_search_of_priors,
        lambda draw: (tensor(draw, 3), integer(draw, 5, 15)),
    ),
    "quantiles": (quantiles, lambda draw: (tensor(draw, 40),)),
    "median": (median, lambda draw: (tensor(draw, 40),)),
    "clusters": (clusters, lambda draw: (tensor(draw, 20, 2),)),
    "clusters_of_numbers": (clusters_of_numbers, lambda draw: (tensor(draw, 20, 2),)),
    "ctc_beams": (ctc_beams, lambda draw: (log_probabilities(draw),)),
    "ctc_rows": (ctc_rows, lambda draw: (log_probabilities(draw),)),
    "kd_tree": (kd_tree, lambda draw: (tensor(draw, 20, 2), tensor(draw, 2))),
    "kd_tree_of_tuples": (
        kd_tree_of_tuples,
        lambda draw: (
            [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(20)],
            (draw.gauss(0, 1), draw.gauss(0, 1)),
        ),
    ),
    "sum_of_halves": (sum_of_halves, lambda draw: (tensor(draw, 30),)),
}
"""Each a function of one example, and what makes an example's arguments."""


def examples(name: str, size: int) -> list[tuple[Any, ...]]:
    draw = random.Random(7)
    make = PROGRAMS[name][1]
    return [make(draw) for _ in range(size)]
