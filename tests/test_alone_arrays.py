"""Plain Python works on numpy's arrays that it makes, and writes none that existed before."""

import contextlib
import functools
import inspect
from decimal import Decimal

import numpy as np
import pytest
import torch

import autobatch
from autobatch.alone import running
from autobatch.batching import known_arrays

WORDS = ["ab", "abc", "xyzzy"]
W = np.arange(12.0).reshape(3, 4)
PAIR = (np.arange(3.0), 5)
RNG = np.random.default_rng(3)
SHARED = torch.arange(6.0).reshape(2, 3)
NUMBERS = np.arange(3.0)
SEEN = []


class Node:
    def __init__(self, word):
        self.word = word
        self.counts = np.zeros(3)


class Loud:
    def sum(self, **options):
        SEEN.append("sum")
        return 1

    def sqrt(self):
        SEEN.append("sqrt")
        return 2.0


def is_one(found, want):
    """Whether a value of an example is that of the loop, to the kind of its numbers."""
    if isinstance(want, tuple | list):
        return len(found) == len(want) and all(map(is_one, found, want))
    kind = type(found) is type(want)
    if isinstance(want, np.ndarray):
        return kind and found.dtype == want.dtype and np.array_equal(found, want)
    return kind and found == want


def runs(function, items):
    """What a program gives for each example, in a list, as plain Python and as the loop does."""
    with autobatch.counts() as counts:
        found = autobatch.vmap(function)(autobatch.objects(items))
    assert counts.plain == len(items)
    want = [function(item).values for item in items]
    assert is_one([each.values for each in found], want)


class Given:
    """Keeps what an example gives from being stacked."""

    def __init__(self, *values):
        self.values = values


def pairs(word):
    n = len(word)
    best = np.zeros((n, n), dtype=int)
    for i in range(n):
        for j in range(i, n):
            best[i, j] = best[i - 1, j] + (word[i] == word[j])
    return Given(best, best.sum(), best.max(axis=0), int(best[0, n - 1]))


def draws(word):
    rng = np.random.default_rng(len(word))
    row = [1, 2, 3]
    rng.shuffle(row)
    old = np.random.RandomState(7)
    drawn = rng.integers(0, 10, size=3), rng.choice([4, 5]), rng.normal(), old.rand(2)
    return Given(row, drawn, rng.permutation(4), rng.random())


def reads(word):
    left, scale = PAIR
    return Given(
        (W[1] * 2).sum() + len(word), W.shape, W.T @ W, left * scale, W[len(word) % 3].max()
    )


def copies(word):
    grid, whole = W.copy(), W.astype(int)
    grid[0, 0] = whole[1] = len(word)
    grid += 1
    return Given(grid, whole)


def solves(word):
    square = np.eye(3) * (1 + len(word))
    try:
        np.linalg.inv(np.zeros((2, 2)))
    except np.linalg.LinAlgError:
        return Given(
            np.linalg.solve(square, np.ones(3)), np.linalg.norm(square), np.linalg.eigh(square)
        )


def sorts(word):
    codes = np.array([ord(letter) for letter in word])
    order = np.argsort(codes)
    return Given(
        codes[order], np.unique(codes), np.where(codes > 98)[0], np.searchsorted(codes, 99)
    )


def reduces(word):
    sums = np.zeros(4)
    np.add.at(sums, [0, 0, 1], len(word))
    steps = np.maximum.accumulate(np.array([1, 3, 2]))
    return Given(sums, np.add.reduce(steps), steps, np.subtract.outer(steps, steps))


def writes_own(word):
    row = np.zeros(3)
    np.add(row, len(word), out=row)
    np.cumsum(row, out=row)
    row.clip(0, 5, out=row)
    square = np.zeros((2, 3))
    part = square[1]
    part[:] = 5
    square.reshape(-1)[0] = 1
    square.T[2, 0] = 9
    node = Node(word)
    node.counts[1] += 2
    return Given(row, square, node.counts)


def holds_objects(word):
    held = np.array([word, None], dtype=object)
    return Given(held[0] + "!", np.array([Decimal(1), Decimal(2)]).sum())


def asks_kinds(word):
    row, eps = np.zeros(2, dtype=np.float32), np.finfo(float).eps
    most = np.iinfo(np.int8).max
    return Given(
        isinstance(row, np.ndarray), isinstance(row[0], np.floating), row.dtype == "f", eps, most
    )


def divides(word):
    with np.errstate(divide="ignore"):
        return Given(np.log(np.zeros(len(word))))


def lives(word):
    grid = np.zeros((5, 5), dtype=np.int8)
    grid[1, 1 : 1 + len(word)] = 1
    ways = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    for _ in range(2):
        near = sum(np.roll(np.roll(grid, i, 0), j, 1) for i, j in ways)
        grid = ((near == 3) | ((grid == 1) & (near == 2))).astype(np.int8)
    return Given(grid)


GOOD = [pairs, draws, reads, copies, solves, sorts, reduces, writes_own, holds_objects]
GOOD += [asks_kinds, divides, lives]


@pytest.mark.parametrize("function", GOOD)
def test_arrays_of_the_programs_own_are_plain_python(function):
    runs(function, WORDS)


def test_arrays_among_objects_are_read():
    def walks(grid):
        rows, columns = grid.shape
        cost = np.full((rows, columns), np.inf)
        seen = [[False] * columns for _ in range(rows)]
        for i in range(rows):
            for j in range(columns):
                cost[i, j] = grid[i, j] + (cost[i - 1, j] if i else 0)
                seen[i][j] = True
        return Given(cost, seen, grid.sum())

    grids = [np.arange(6).reshape(2, 3), np.ones((3, 2))]
    runs(walks, grids)
    runs(lambda pair: Given(pair[0] * pair[1], len(pair)), [(grid, 2) for grid in grids])


# What must not pass: each writes what existed before, draws, or calls what does.


def views(word):
    W[1:][0] = 9


def adds_a_number(word):
    row = W[0]
    row += 1


def adds_to_rows(word):
    for row in W:
        row += 1


def out_by_name(word):
    np.add(W, 1, out=W)


def out_by_place(word):
    np.add(W, 1, W)


def out_by_star(word):
    given = [W, 1, W]
    np.add(*given)


def out_by_dict(word):
    given = {"out": W}
    np.add(W, 1, **given)


def out_of_method(word):
    W.cumsum(0, None, W)


def out_of_reduce(word):
    np.add.reduce(np.ones((3, 4)), 0, None, W[0])


def adds_at(word):
    np.add.at(W, 0, 1)


def sorts_it(word):
    np.asarray(W).sort()


def transposed(word):
    W.T[0, 0] = 1


def reshaped(word):
    np.reshape(W, -1)[0] = 1


def as_number(word):
    np.float64(W)[0] = 1


def flat(word):
    W.flat[0] = 3


def flagged(word):
    W.flags.writeable = True


def copied_to(word):
    np.copyto(src=np.ones((3, 4)), dst=W)


def of_nan(word):
    np.nan_to_num(W, copy=False)


def median(word):
    np.median(W, overwrite_input=True)


def fills_later(word):
    fill = W[0].fill
    fill(0)


def sums_later(word):
    total = W[0].sum
    total(0, None, W[1, :1])


def adds_by_map(word):
    list(map(np.add, [W], [W], [W]))


def fills_by_numpy(word):
    np.apply_along_axis(lambda row: row.fill(0), 1, W)


def held_by_node(word):
    node = Node(word)
    node.counts = W
    node.counts += 1


def out_of_list(word):
    both = [W] + [1]  # noqa: RUF005
    both[0][0] = 3


def out_of_tuple(word):
    both = (*PAIR, 1)
    both[0][0] = 3


def shuffles(word):
    np.random.default_rng(3).shuffle(W)


def draws_into(word):
    np.random.default_rng(3).random(None, np.float64, W)


def swaps(word):
    W.byteswap(True)


def draws_for_all(word):
    return np.random.rand()


def seeds(word):
    np.random.seed(0)


def draws_on(word):
    return RNG.random()


def calls_by_name(word):
    np.sum(Loud())


def calls_elements(word):
    np.sqrt(np.array([Loud()], dtype=object))


def handles_errors(word):
    with np.errstate(call=SEEN.append):
        return word


@functools.cache
def kept_row(size):
    return np.zeros(size)


def writes_kept(word):
    row = kept_row(3)
    row += 1


def takes_kept(word):
    kept_row(3)[0] = 1


BAD = [views, adds_a_number, adds_to_rows, out_by_name, out_by_place, out_by_star, out_by_dict]
BAD += [out_of_method, out_of_reduce, adds_at, sorts_it, transposed, reshaped, as_number, flat]
BAD += [flagged, copied_to, of_nan, median, fills_later, sums_later, adds_by_map, fills_by_numpy]
BAD += [held_by_node, out_of_list, out_of_tuple, shuffles, draws_into, swaps, draws_for_all]
BAD += [seeds, draws_on, calls_by_name, calls_elements, handles_errors, writes_kept, takes_kept]


def proofs(function, *args, monkeypatch, **options):
    """How often a call has been proved to be plain Python, or measured."""
    made, before = [], running.proved

    def noting(*given, **named):
        proof = before(*given, **named)
        made.append(proof)
        return proof

    monkeypatch.setattr(running, "proved", noting)
    with autobatch.counts() as counts:
        try:
            autobatch.vmap(function, **options)(*args)
        except Exception:
            assert counts.plain == 0
    return len(made) + counts.plain


@pytest.mark.parametrize("function", BAD)
def test_what_others_see_is_no_plain_python(function, monkeypatch):
    before = W.copy(), PAIR[0].copy()
    SEEN.clear()
    state = np.random.get_state()
    assert proofs(function, autobatch.objects(WORDS), monkeypatch=monkeypatch) == 0
    W[...], PAIR[0][...] = before
    W.flags.writeable = True
    np.random.set_state(state)


# Arrays of tensors, and tensors of arrays.


def asks(row):
    found = row.numpy()
    return {"most": found.max(), "list": [int(each) for each in found]}


def makes_tensor(row):
    made = np.zeros(3)
    torch.from_numpy(made).add_(1)
    return row * 2, made.tolist()


def test_arrays_of_tensors_are_read():
    rows = torch.arange(6.0).reshape(2, 3)
    with autobatch.counts() as counts:
        found = autobatch.vmap(asks)(rows)
    assert counts.plain == 2
    assert found["most"].tolist() == [2.0, 5.0] and found["most"].dtype == torch.float32
    assert [each.tolist() for each in found["list"]] == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(RuntimeError, match="requires grad"):
        autobatch.vmap(asks)(rows.requires_grad_())


def writes_memory(row):
    found = row.numpy()
    found[0] = 9
    return row


def writes_shared(row):
    np.asarray(SHARED)[0] = 9
    return row


def writes_by_tensor(row):
    torch.from_numpy(NUMBERS).add_(1)
    return row


def writes_as_tensor(row):
    made = torch.as_tensor(NUMBERS)
    made += 1
    return row


def shows_owner(row):
    return row.numpy().base


@pytest.mark.parametrize("computes", [False, True])
@pytest.mark.parametrize(
    "function", [writes_memory, writes_shared, writes_by_tensor, writes_as_tensor, shows_owner]
)
def test_memory_of_tensors_is_not_written(function, computes):
    if computes and function is writes_memory:
        pytest.skip("the memory is the program's own")
    target = running_of(function, torch.arange(6.0).reshape(2, 3))
    with pytest.raises(running.NotAlone):
        running.new_proof(target, computes)


def running_of(function, rows):
    """What a call asks of plain Python, without running it."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "worth_it", lambda asked, computes: found.append(asked))
        patch.setattr(running, "is_wanted", lambda options: True)
        with contextlib.suppress(Exception):
            autobatch.vmap(function)(rows)
    SHARED.copy_(torch.arange(6.0).reshape(2, 3))
    NUMBERS[:] = np.arange(3.0)
    return found[0]


# The tables.


def arrays_in(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from arrays_in(part)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("letter", ["abcd", "efgh", "ijkl", "mnop", "qrst", "uvwxyz"])
def test_what_is_said_to_be_new_shares_no_memory_and_writes_nothing(letter):
    given = [np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([1.0, 2.0, 3.0]), np.array([0, 1, 1])]
    given += [np.array([1, 0], dtype=np.uint8), np.array(3.0)]
    others = [*given, 0, 1, (0,)]
    ways = [(x,) for x in given] + [(x, y) for x in given for y in others]
    ways += [([x, x],) for x in given] + [(x, y, z) for x in given for y in given for z in (0, 1)]
    before = [each.copy() for each in given]
    for function in known_arrays.NEW:
        if function.__name__[0] not in letter:
            continue
        most = min(known_arrays.places_of(function).values(), default=9)
        for args in ways:
            if len(args) > most or function is np.pad:
                continue
            try:
                found = function(*args)
            except Exception:
                continue
            shared = [np.shares_memory(x, y) for x in arrays_in(found) for y in given]
            assert not any(shared), (function, args)
    assert all(map(np.array_equal, given, before))


def test_methods_that_are_said_to_be_new_share_no_memory():
    rows = [np.arange(6.0).reshape(2, 3), np.arange(3), np.array(["a", "b"])]
    for name in known_arrays.NEW_METHODS & set(dir(np.ndarray)):
        for row in rows:
            for args in [(), (0,), (0, 1), (float,)]:
                if len(args) > known_arrays.place_of_methods_out(name):
                    continue
                try:
                    found = getattr(row, name)(*args)
                except Exception:
                    continue
                assert not any(np.shares_memory(row, each) for each in arrays_in(found)), name


def test_all_that_writes_to_out_is_told():
    for function in known_arrays.NEW | known_arrays.PARTS:
        try:
            has = "out" in inspect.signature(function).parameters
        except (TypeError, ValueError):
            has = isinstance(function, np.ufunc)
        assert has == ("out" in known_arrays.places_of(function)), function
