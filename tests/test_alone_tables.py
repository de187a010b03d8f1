"""Tables that existed before: what is in them is known to be flat, and is never written."""

# ruff: noqa: C416, C417, PLC3002, RUF005, RUF015, RUF017 (these are ways that users write)

import copy
import functools
import itertools
import operator
from collections import deque

import pytest

import autobatch
from tests.test_alone import outcome, same

TABLE = {"ab": [1, 2], "c": [3]}
PAIRS = {("a", "b"): {"x": 1.0}, ("b", "c"): {"x": 2.0, "y": 0.5}}
ROWS = [[1, 2], [3]]
EDGES = {"ab": [("c", 1), ("ab", 0)], "c": [("ab", 1)]}
NESTED = {"ab": [[1]], "c": [[2]]}
TUPLES = {"ab": ([1],), "c": ([2],)}
WORDS = ["ab", "c", "ab"]


def recognised(word):
    n = len(word)
    chart = [[set() for _ in range(n + 1)] for _ in range(n)]
    for i, letter in enumerate(word):
        chart[i][i + 1].update(TABLE.get(letter, ()))
        chart[i][i + 1].add(letter)
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            for k in range(i + 1, i + width):
                for left in chart[i][k]:
                    for right in chart[k][i + width]:
                        chart[i][i + width].update(PAIRS.get((left, right), ()))
    return str(sorted(map(str, chart[0][n])))


def distances(word):
    met = {key: [99] for key in TABLE}
    queue = deque([word])
    met[word][0] = 0
    while queue:
        at = queue.popleft()
        for step in TABLE[at]:
            found = ROWS[step % 2]
            for key in TABLE:
                if len(key) in found and met[key][0] == 99:
                    queue.append(key)
            for key in TABLE:
                met[key][0] = min(met[key][0], met[at][0] + step)
    return str([met[key][0] for key in TABLE])


def transposed(word):
    found = [[] for _ in range(2)]
    for row in ROWS:
        for place, item in enumerate(row):
            found[place].append(item)
    for row in found:
        row.extend(TABLE[word])
    return str(found)


def levels(word):
    found = [[] for _ in range(2)]
    for place, (name, cost) in enumerate(EDGES[word]):
        found[cost].append((name, place))
    return str(found)


@pytest.mark.parametrize("function", [recognised, distances, transposed, levels])
def test_own_containers_may_be_written(function):
    before = copy.deepcopy((TABLE, PAIRS, ROWS))
    assert same(function, WORDS) == [function(word) for word in WORDS]
    assert before == (TABLE, PAIRS, ROWS)


WAYS = [
    lambda word: TABLE[word].append(1),
    lambda word: TABLE.get(word, []).append(1),
    lambda word: TABLE.get("z", TABLE[word]).append(1),
    lambda word: next(iter(TABLE.values())).append(1),
    lambda word: list(TABLE.values())[0].append(1),
    lambda word: [row for row in TABLE.values()][0].append(1),
    lambda word: [row for _, row in TABLE.items()][0].append(1),
    lambda word: next(iter(TABLE.items()))[1].append(1),
    lambda word: dict(TABLE)[word].append(1),
    lambda word: TABLE.copy()[word].append(1),
    lambda word: copy.copy(TABLE)[word].append(1),
    lambda word: {**TABLE}[word].append(1),
    lambda word: (TABLE | {})[word].append(1),
    lambda word: operator.itemgetter(word)(TABLE).append(1),
    lambda word: operator.getitem(TABLE, word).append(1),
    lambda word: TABLE.__getitem__(word).append(1),
    lambda word: list(map(TABLE.get, [word]))[0].append(1),
    lambda word: (lambda table: table[word])(TABLE).append(1),
    lambda word: (TABLE, word)[0][word].append(1),
    lambda word: [TABLE][0][word].append(1),
    lambda word: (TABLE if word else {})[word].append(1),
    lambda word: TABLE[word].__iadd__([1]),
    lambda word: functools.reduce(operator.or_, [TABLE, {}])[word].append(1),
    lambda word: ROWS[0].append(1),
    lambda word: ROWS[-1:][0].append(1),
    lambda word: ROWS[0:2][1].append(1),
    lambda word: ROWS[slice(0, 2)][1].append(1),
    lambda word: [ROWS[part] for part in map(slice, [2])][0][0].append(1),
    lambda word: (ROWS + [])[0].append(1),
    lambda word: ([] + ROWS)[0].append(1),
    lambda word: (ROWS * 1)[0].append(1),
    lambda word: [*ROWS][0].append(1),
    lambda word: [row for row in ROWS][0].append(1),
    lambda word: max(ROWS).append(1),
    lambda word: sorted(ROWS)[0].append(1),
    lambda word: list(reversed(ROWS))[0].append(1),
    lambda word: list(enumerate(ROWS))[0][1].append(1),
    lambda word: list(zip(ROWS, word, strict=False))[0][0].append(1),
    lambda word: next(itertools.chain(ROWS)).append(1),
    lambda word: list(itertools.chain.from_iterable([ROWS]))[0].append(1),
    lambda word: sum([ROWS], [])[0].append(1),
    lambda word: deque(ROWS)[0].append(1),
    lambda word: [row.append(1) for row in ROWS],
    lambda word: list(map(lambda row: row.append(1), ROWS)),
    lambda word: (lambda first, *rest: rest)(*ROWS)[0].append(1),
    lambda word: NESTED[word][0].append(1),
    lambda word: TUPLES[word][0].append(1),
    lambda word: next(iter(TUPLES.values()))[0].append(1),
]


def unpacked(word):
    first, _ = ROWS
    first.append(1)


def extended(word):
    own = []
    own.extend(ROWS)
    own[0].append(1)


def updated(word):
    own = {}
    own.update(TABLE)
    own[word].append(1)


def updated_by_name(word):
    own = {}
    own.update(row=TABLE[word])
    own["row"].append(1)


def updated_by_pairs(word):
    own = {}
    own.update([(word, TABLE[word])])
    own[word].append(1)


def in_place(word):
    own = []
    own += ROWS
    own[0].append(1)


def matched(word):
    match TABLE:
        case {"ab": row}:
            row.append(1)


def by_slice_of_a_parameter(word):
    def taken(place):
        return ROWS[place]

    taken(slice(0, 1))[0].append(1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "way",
    [
        *WAYS,
        *(unpacked, extended, updated, updated_by_name, updated_by_pairs, in_place, matched),
        by_slice_of_a_parameter,
    ],
)
def test_what_is_within_is_never_written(way):
    before = copy.deepcopy((TABLE, PAIRS, ROWS, NESTED, TUPLES))
    try:
        alone = outcome(way, WORDS)[1]
        assert alone == 0
    finally:
        after = copy.deepcopy((TABLE, PAIRS, ROWS, NESTED, TUPLES))
        for table, was in zip((TABLE, NESTED, TUPLES), (before[0], *before[3:]), strict=True):
            table.clear()
            table.update(was)
        ROWS[:] = before[2]
    assert after == before


def test_a_table_that_has_become_deeper():
    table = {"ab": [1], "c": [2]}

    def taken(word):
        own = [[0]]
        own[0].extend(table[word])
        return str(own[0])

    batched = autobatch.vmap(taken)
    assert batched(autobatch.objects(WORDS)) == [taken(word) for word in WORDS]
    table["ab"] = [[1]]
    assert batched(autobatch.objects(WORDS)) == [taken(word) for word in WORDS]
    assert table == {"ab": [[1]], "c": [2]}
