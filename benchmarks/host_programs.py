"""Programs of Python objects alone, each with the arguments of one example made from a seed.

No tensor is anywhere in them: strings, lists, dicts, trees of a class, heaps.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PRECEDENCE = {"+": 1, "-": 1, "*": 2}


class Reader:
    """Reads a text a character at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self) -> str:
        found = self.peek()
        self.at += 1
        return found


def evaluate(text: str) -> int:
    """The value of ``2*(3+4)``, by recursive descent."""
    return climbed(Reader(text), 1)


def climbed(reader: Reader, least: int) -> int:
    value = atom(reader)
    while PRECEDENCE.get(reader.peek(), 0) >= least:
        sign = reader.take()
        right = climbed(reader, PRECEDENCE[sign] + 1)
        if sign == "+":
            value += right
        elif sign == "-":
            value -= right
        else:
            value *= right
    return value


def atom(reader: Reader) -> int:
    if reader.peek() == "(":
        reader.take()
        value = climbed(reader, 1)
        reader.take()
        return value
    digits = ""
    while reader.peek().isdigit():
        digits += reader.take()
    return int(digits)


def tokens(text: str) -> str:
    """The tokens of a text like JSON."""
    found: list[str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in "{}[]:,":
            found.append(sign)
            at += 1
        elif sign == '"':
            end = at + 1
            while text[end] != '"':
                end += 1
            found.append(text[at : end + 1])
            at = end + 1
        elif sign == " ":
            at += 1
        else:
            end = at
            while end < len(text) and text[end].isalnum():
                end += 1
            found.append(text[at:end])
            at = end
    return " ".join(found)


def components(graph: dict[str, list[str]]) -> int:
    """How many parts a graph has, by union and find."""
    parent = {node: node for node in graph}
    for node, others in graph.items():
        for other in others:
            left, right = root_of(parent, node), root_of(parent, other)
            if left != right:
                parent[left] = right
    return len({root_of(parent, node) for node in parent})


def root_of(parent: dict[str, str], node: str) -> str:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def prefixes(words: list[str]) -> int:
    """How many words begin another one, by a trie."""
    trie: dict[str, Any] = {}
    for word in words:
        node = trie
        for letter in word:
            node = node.setdefault(letter, {})
        node["end"] = True
    return sum(1 for word in words if is_longer(trie, word))


def is_longer(trie: dict[str, Any], word: str) -> bool:
    for letter in word:
        trie = trie[letter]
    return len(trie) > 1


def heap_sorted(words: list[str]) -> str:
    """The words in order, by a heap of one's own."""
    heap: list[str] = []
    for word in words:
        heap.append(word)
        at = len(heap) - 1
        while at and heap[at] < heap[(at - 1) // 2]:
            above = (at - 1) // 2
            heap[at], heap[above] = heap[above], heap[at]
            at = above
    found: list[str] = []
    while heap:
        found.append(heap[0])
        last = heap.pop()
        if heap:
            heap[0] = last
            sift(heap)
    return " ".join(found)


def sift(heap: list[str]) -> None:
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap) and heap[child] < heap[least]:
                least = child
        if least == at:
            return
        heap[at], heap[least] = heap[least], heap[at]
        at = least


def queens(board: str) -> int:
    """In how many ways queens can stand on the rows that are left of a board."""
    taken = [int(sign) for sign in board if sign != "."]
    return placed(taken, len(board))


def placed(columns: list[int], size: int) -> int:
    row = len(columns)
    if row == size:
        return 1
    ways = 0
    for column in range(size):
        if all(column != c and abs(column - c) != row - r for r, c in enumerate(columns)):
            ways += placed([*columns, column], size)
    return ways


def distance(pair: tuple[str, str]) -> int:
    """How many letters to change, take or put to make one word of the other."""
    left, right = pair
    row = list(range(len(right) + 1))
    for at, letter in enumerate(left):
        before, row[0] = row[0], at + 1
        for to, other in enumerate(right):
            cost = before if letter == other else 1 + min(before, row[to], row[to + 1])
            before, row[to + 1] = row[to + 1], cost
    return row[-1]


@dataclass
class Node:
    """A node of a search tree."""

    word: str
    left: Node | None = None
    right: Node | None = None


def inserted(root: Node | None, word: str) -> Node:
    if root is None:
        return Node(word)
    if word < root.word:
        root.left = inserted(root.left, word)
    else:
        root.right = inserted(root.right, word)
    return root


def depth(root: Node | None) -> int:
    return 0 if root is None else 1 + max(depth(root.left), depth(root.right))


def search_depth(words: list[str]) -> int:
    """How deep a search tree becomes that words are put into."""
    root: Node | None = None
    for word in words:
        root = inserted(root, word)
    return depth(root)


def counted(text: str) -> str:
    """How often each word of a text occurs, the commonest first."""
    found: dict[str, int] = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    order = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return " ".join(f"{word}={count}" for word, count in order)


def closed(text: str) -> bool:
    """Whether each bracket is closed by its own kind."""
    waiting: list[str] = []
    pairs = {")": "(", "]": "[", "}": "{"}
    for sign in text:
        if sign in "([{":
            waiting.append(sign)
        elif sign in pairs and (not waiting or waiting.pop() != pairs[sign]):
            return False
    return not waiting


def hops(graph: dict[str, list[str]]) -> int:
    """How far the farthest node is from the first, breadth first."""
    first = next(iter(graph))
    seen = {first: 0}
    waiting = deque([first])
    while waiting:
        node = waiting.popleft()
        for other in graph[node]:
            if other not in seen:
                seen[other] = seen[node] + 1
                waiting.append(other)
    return max(seen.values())


def merged(texts: list[str]) -> str:
    """Words of several lines, each in order, as one line in order, by ``heapq``."""
    lines = [line.split() for line in texts]
    heap = [(line[0], at, 0) for at, line in enumerate(lines) if line]
    heapq.heapify(heap)
    found: list[str] = []
    while heap:
        word, at, place = heapq.heappop(heap)
        found.append(word)
        if place + 1 < len(lines[at]):
            heapq.heappush(heap, (lines[at][place + 1], at, place + 1))
    return " ".join(found)


def pairs_merged(text: str) -> str:
    """A text in pieces: the commonest pair of neighbours becomes one, as long as there is one."""
    pieces = list(text)
    while True:
        found: dict[tuple[str, str], int] = {}
        for pair in itertools.pairwise(pieces):
            found[pair] = found.get(pair, 0) + 1
        best = max(found, key=lambda pair: (found[pair], pair), default=None)
        if best is None or found[best] < 2:
            return "|".join(pieces)
        joined: list[str] = []
        at = 0
        while at < len(pieces):
            if at + 1 < len(pieces) and (pieces[at], pieces[at + 1]) == best:
                joined.append(pieces[at] + pieces[at + 1])
                at += 2
            else:
                joined.append(pieces[at])
                at += 1
        pieces = joined


def in_order(graph: dict[str, list[str]]) -> str:
    """The nodes of a graph, each after those that lead to it, as far as there is no cycle."""
    waiting = dict.fromkeys(graph, 0)
    for others in graph.values():
        for other in others:
            waiting[other] += 1
    free = deque(node for node, count in waiting.items() if not count)
    found: list[str] = []
    while free:
        node = free.popleft()
        found.append(node)
        for other in graph[node]:
            waiting[other] -= 1
            if not waiting[other]:
                free.append(other)
    return " ".join(found)


def cached(requests: list[str]) -> int:
    """How often a cache of three has what is asked for, that lets go what was used longest ago."""
    cache: OrderedDict[str, bool] = OrderedDict()
    hits = 0
    for request in requests:
        if request in cache:
            cache.move_to_end(request)
            hits += 1
            continue
        cache[request] = True
        if len(cache) > 3:
            cache.popitem(last=False)
    return hits


def matches(pair: tuple[str, str]) -> bool:
    """Whether a text is what a pattern of letters, dots and stars says."""
    return matches_from(pair[0], pair[1])


def matches_from(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    first = bool(text) and pattern[0] in (text[0], ".")
    if len(pattern) > 1 and pattern[1] == "*":
        return matches_from(pattern[2:], text) or (first and matches_from(pattern, text[1:]))
    return first and matches_from(pattern[1:], text[1:])


def filled(board: list[list[int]]) -> str:
    """A square of four by four, filled by trying (sudoku)."""
    board = [list(row) for row in board]
    return str(board) if fill(board, 0) else "none"


def fill(board: list[list[int]], at: int) -> bool:
    if at == 16:
        return True
    row, column = divmod(at, 4)
    if board[row][column]:
        return fill(board, at + 1)
    for digit in range(1, 5):
        if fits(board, row, column, digit):
            board[row][column] = digit
            if fill(board, at + 1):
                return True
            board[row][column] = 0
    return False


def fits(board: list[list[int]], row: int, column: int, digit: int) -> bool:
    if digit in board[row] or any(other[column] == digit for other in board):
        return False
    top, left = row - row % 2, column - column % 2
    return all(board[top + y][left + x] != digit for y in range(2) for x in range(2))


# Examples.


def word(draw: random.Random, most: int = 8) -> str:
    return "".join(draw.choice("abcde") for _ in range(draw.randint(1, most)))


def words(draw: random.Random) -> list[str]:
    return [word(draw) for _ in range(draw.randint(5, 25))]


def expression(draw: random.Random, deep: int = 4) -> str:
    if not deep or draw.random() < 0.2:
        return str(draw.randint(0, 99))
    left, right = expression(draw, deep - 1), expression(draw, deep - 1)
    made = f"{left}{draw.choice('+-*')}{right}"
    return f"({made})" if draw.random() < 0.5 else made


def nested(draw: random.Random, deep: int = 3) -> str:
    if not deep or draw.random() < 0.3:
        return draw.choice([str(draw.randint(0, 999)), f'"{word(draw)}"', "true"])
    parts = [f'"{word(draw)}": {nested(draw, deep - 1)}' for _ in range(draw.randint(1, 4))]
    return "{" + ", ".join(parts) + "}"


def graph(draw: random.Random) -> dict[str, list[str]]:
    names = [f"n{at}" for at in range(draw.randint(5, 25))]
    return {name: draw.sample(names, min(2, draw.randint(0, 2))) for name in names}


def brackets(draw: random.Random) -> str:
    return "".join(draw.choice("()[]{}x") for _ in range(draw.randint(4, 60)))


PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[random.Random], Any]]] = {
    "parser": (evaluate, expression),
    "tokens": (tokens, nested),
    "union_find": (components, graph),
    "trie": (prefixes, words),
    "heap_sort": (heap_sorted, words),
    "queens": (queens, lambda draw: draw.choice(["0.....", "1.....", "03....", "......"])),
    "edit_distance": (distance, lambda draw: (word(draw, 12), word(draw, 12))),
    "search_tree": (search_depth, words),
    "word_count": (counted, lambda draw: " ".join(words(draw))),
    "brackets": (closed, brackets),
    "breadth_first": (hops, graph),
    "pairs_merged": (pairs_merged, lambda draw: "".join(words(draw))),
    "in_order": (in_order, graph),
    "cache": (cached, lambda draw: [draw.choice("abcdef") for _ in range(40)]),
    "pattern": (
        matches,
        lambda draw: (draw.choice(["a*b.*e", ".*c", "a.c*d*", "b*"]), word(draw, 10)),
    ),
    "square": (
        filled,
        lambda draw: [[draw.choice([0, 0, 0, 0, 0, 1, 2, 3]) for _ in range(4)] for _ in range(4)],
    ),
    "merge": (merged, lambda draw: [" ".join(sorted(words(draw))) for _ in range(3)]),
}
"""Each a function of one example, and what makes an example."""


def examples(name: str, size: int) -> list[Any]:
    draw = random.Random(7)
    make = PROGRAMS[name][1]
    return [make(draw) for _ in range(size)]
