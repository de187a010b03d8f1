"""Programs in which tensors and Python objects take turns, with the arguments of one example.

Textbook code: a network says something, then lists, dicts, heaps and closures go on with it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SYMBOLS, WIDTH, END = 12, 16, 0


class Model(nn.Module):
    """The next symbol's log-probabilities, after a state and the last symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, state: Tensor, symbol: Tensor) -> Tensor:
        hidden = torch.tanh(self.mix(state) + self.embedding(symbol))
        return self.out(hidden).log_softmax(-1)


torch.manual_seed(0)
MODEL = Model().double().requires_grad_(False)
STEPS, BEAMS = 6, 3


def beam_search(state: Tensor) -> str:
    """The best symbols after a state, by a beam of ``(score, symbols)``."""
    beams: list[tuple[float, list[int]]] = [(0.0, [1])]
    for _ in range(STEPS):
        candidates: list[tuple[float, list[int]]] = []
        for score, symbols in beams:
            if symbols[-1] == END:
                candidates.append((score, symbols))
                continue
            following = MODEL(state, torch.tensor(symbols[-1])).tolist()
            for symbol, more in enumerate(following):
                candidates.append((score + more, [*symbols, symbol]))
        candidates.sort(key=lambda candidate: -candidate[0])
        beams = candidates[:BEAMS]
    return " ".join(map(str, beams[0][1]))


def decode(state: Tensor) -> str:
    """Symbols after a state, each of a pair seen before made less likely: counts in dicts."""
    symbols = [1]
    pairs: dict[tuple[int, int], int] = {}
    while len(symbols) < 12 and symbols[-1] != END:
        scores = MODEL(state, torch.tensor(symbols[-1])).tolist()
        best, chosen = -math.inf, END
        for symbol, score in enumerate(scores):
            key = (symbols[-1], symbol)
            score -= 0.7 * pairs.get(key, 0)
            if score > best:
                best, chosen = score, symbol
        key = (symbols[-1], chosen)
        pairs[key] = pairs.get(key, 0) + 1
        symbols.append(chosen)
    return " ".join(map(str, symbols))


def parse(state: Tensor, words: list[str]) -> str:
    """A tree of words, as brackets: a network says whether to shift or to reduce."""
    stack: list[Any] = []
    at = 0
    while at < len(words) or len(stack) > 1:
        scores = MODEL(state, torch.tensor(min(len(stack), SYMBOLS - 1)))
        shifts = at < len(words) and (len(stack) < 2 or scores[0].item() > scores[1].item())
        if shifts:
            stack.append(words[at])
            at += 1
        else:
            right = stack.pop()
            left = stack.pop()
            stack.append((left, right))
        state = state + scores.mean()
    return brackets(stack[0])


def brackets(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    return "(" + brackets(tree[0]) + " " + brackets(tree[1]) + ")"


STATES = ("noun", "verb", "other", "name")
MOVES = {(a, b): math.log(0.1 + (i * 7 + j * 3) % 5) for i, a in enumerate(STATES)
         for j, b in enumerate(STATES)}  # fmt: skip


def viterbi(emissions: Tensor) -> str:
    """The likeliest states for scores ``[T, 4]``, with dicts by their names."""
    best = dict.fromkeys(STATES, 0.0)
    back: list[dict[str, str]] = []
    for row in emissions.tolist():
        scores: dict[str, float] = {}
        pointers: dict[str, str] = {}
        for to, emitted in zip(STATES, row, strict=True):
            came = max(STATES, key=lambda state: best[state] + MOVES[state, to])
            scores[to] = best[came] + MOVES[came, to] + emitted
            pointers[to] = came
        best = scores
        back.append(pointers)
    state = max(STATES, key=lambda name: best[name])
    path = [state]
    for pointers in reversed(back):
        state = pointers[state]
        path.append(state)
    return " ".join(path)


GRAMMAR = {
    ("NP", "VP"): "S", ("D", "N"): "NP", ("V", "NP"): "VP", ("VP", "PP"): "VP",
    ("P", "NP"): "PP", ("NP", "PP"): "NP",
}  # fmt: skip
LEXICON = {
    "the": "D", "a": "D", "dog": "N", "park": "N", "man": "N", "saw": "V", "in": "P", "with": "P",
}  # fmt: skip


def chart(weights: Tensor, words: list[str]) -> float:
    """The best score of a sentence (Cocke, Kasami and Younger), of which a tensor has weights."""
    costs = torch.tanh(weights).tolist()
    table: dict[tuple[int, int], dict[str, float]] = {}
    for at, word in enumerate(words):
        table[at, at + 1] = {LEXICON[word]: costs[at % len(costs)]}
    for span in range(2, len(words) + 1):
        for start in range(len(words) - span + 1):
            cell: dict[str, float] = {}
            for middle in range(start + 1, start + span):
                for left, one in table[start, middle].items():
                    for right, other in table[middle, start + span].items():
                        made = GRAMMAR.get((left, right))
                        if made is not None and one + other > cell.get(made, -math.inf):
                            cell[made] = one + other
            table[start, start + span] = cell
    return max(table[0, len(words)].values(), default=-1.0)


def dijkstra(features: Tensor, edges: list[tuple[int, int]]) -> float:
    """The way from the first node to the last, by lengths that a network gives the edges."""
    lengths = torch.nn.functional.softplus(features @ MODEL.mix.weight[0, :4]).tolist()
    near: dict[int, list[tuple[int, float]]] = {}
    for (start, end), length in zip(edges, lengths, strict=True):
        near.setdefault(start, []).append((end, length))
        near.setdefault(end, []).append((start, length))
    found: dict[int, float] = {}
    heap = [(0.0, 0)]
    while heap:
        far, node = heapq.heappop(heap)
        if node in found:
            continue
        found[node] = far
        for other, length in near.get(node, []):
            if other not in found:
                heapq.heappush(heap, (far + length, other))
    return found.get(7, -1.0)


def a_star(goal: Tensor, walls: list[list[int]]) -> int:
    """How many steps to a cell of a grid, with a network's guess of what is left."""
    weight = torch.sigmoid(goal.sum()).item()
    size = len(walls)
    heap: list[tuple[float, int, tuple[int, int]]] = [(0.0, 0, (0, 0))]
    seen: set[tuple[int, int]] = set()
    while heap:
        _, steps, (row, column) = heapq.heappop(heap)
        if (row, column) in seen:
            continue
        seen.add((row, column))
        if row == size - 1 and column == size - 1:
            return steps
        for down, right in ((1, 0), (0, 1), (-1, 0), (0, -1)):
            y, x = row + down, column + right
            if 0 <= y < size and 0 <= x < size and not walls[y][x]:
                left = size - 1 - y + size - 1 - x
                heapq.heappush(heap, (steps + 1 + weight * left, steps + 1, (y, x)))
    return -1


def suppressed(boxes: Tensor, scores: Tensor) -> str:
    """Non-maximum suppression of boxes ``[N, 4]``: those that are kept, the best first."""
    order = scores.argsort(descending=True).tolist()
    corners = boxes.tolist()
    kept: list[int] = []
    for at in order:
        if all(overlap(corners[at], corners[other]) < 0.3 for other in kept):
            kept.append(at)
    return " ".join(map(str, kept))


def overlap(one: list[float], other: list[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    whole = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1])
    return common / (whole - common)


def nearest(points: Tensor, query: Tensor) -> float:
    """The distance to the nearest of some points ``[N, 2]``, by a k-d tree of closures."""
    wanted = query.tolist()

    def build(items: list[list[float]], axis: int) -> Any:
        if not items:
            return None
        items = sorted(items, key=lambda item: item[axis])
        middle = len(items) // 2
        below = build(items[:middle], 1 - axis)
        return items[middle], axis, below, build(items[middle + 1 :], 1 - axis)

    def search(node: Any, best: float) -> float:
        if node is None:
            return best
        point, axis, left, right = node
        best = min(best, (point[0] - wanted[0]) ** 2 + (point[1] - wanted[1]) ** 2)
        gap = wanted[axis] - point[axis]
        near, far = (left, right) if gap < 0 else (right, left)
        best = search(near, best)
        if gap**2 < best:
            best = search(far, best)
        return best

    return math.sqrt(search(build(points.tolist(), 0), math.inf))


def pieces(state: Tensor, text: str) -> str:
    """A text in pieces, merged in the order that a network ranks pairs of letters by."""
    ranks = (MODEL.mix.weight[:8, :8] + state[:8]).tolist()
    parts = list(text)
    while len(parts) > 1:
        best, place = math.inf, -1
        for at in range(len(parts) - 1):
            rank = ranks[ord(parts[at][-1]) % 8][ord(parts[at + 1][0]) % 8]
            if rank < best:
                best, place = rank, at
        if best > 0.3:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return "|".join(parts)


# Examples.


def tensor(draw: random.Random, *shape: int) -> Tensor:
    count = math.prod(shape)
    return torch.tensor([draw.gauss(0, 1) for _ in range(count)], dtype=torch.float64).view(shape)


def boxes(draw: random.Random) -> tuple[Tensor, Tensor]:
    corner = tensor(draw, 12, 2)
    return torch.cat([corner, corner + tensor(draw, 12, 2).abs() + 0.1], 1), tensor(draw, 12)


def edges(draw: random.Random) -> list[tuple[int, int]]:
    return [(draw.randrange(8), draw.randrange(8)) for _ in range(20)]


def grid(draw: random.Random) -> list[list[int]]:
    return [[int(draw.random() < 0.25 and (y or x)) for x in range(6)] for y in range(6)]


def sentence(draw: random.Random) -> list[str]:
    return [draw.choice(list(LEXICON)) for _ in range(draw.randint(3, 9))]


Make = Callable[[random.Random], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {
    "beam_search": (beam_search, lambda draw: (tensor(draw, WIDTH),)),
    "decode": (decode, lambda draw: (tensor(draw, WIDTH),)),
    "parse": (parse, lambda draw: (tensor(draw, WIDTH), sentence(draw))),
    "viterbi": (viterbi, lambda draw: (tensor(draw, 10, 4),)),
    "chart": (chart, lambda draw: (tensor(draw, 6), sentence(draw))),
    "dijkstra": (dijkstra, lambda draw: (tensor(draw, 20, 4), edges(draw))),
    "a_star": (a_star, lambda draw: (tensor(draw, 4), grid(draw))),
    "suppressed": (suppressed, boxes),
    "nearest": (nearest, lambda draw: (tensor(draw, 20, 2), tensor(draw, 2))),
    "pieces": (
        pieces,
        lambda draw: (tensor(draw, WIDTH), "".join(draw.choice("abcdef") for _ in range(14))),
    ),
}
"""Each a function of one example, and what makes an example's arguments."""


def examples(name: str, size: int) -> list[tuple[Any, ...]]:
    draw = random.Random(7)
    make = PROGRAMS[name][1]
    return [make(draw) for _ in range(size)]
