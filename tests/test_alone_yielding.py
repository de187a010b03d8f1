"""Classes that yield their items (``__iter__``), in programs that may run as plain Python."""

import functools

import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError
from tests.test_alone_fields import proved

TEXTS = ["ab", "c", "", "dda", "b"]
X = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
NOTED = []


class Vector:
    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y, self.z + other.z)

    def __iter__(self):
        yield self.x
        yield self.y
        if self.z is not None:
            sent = yield self.z
            assert sent is None


class Words:
    def __init__(self, text):
        self.text, self.taken = text, []

    def __iter__(self):
        try:
            for at, letter in enumerate(self.text):
                self.taken.append(letter)
                yield letter, at
            yield from self.ends()
        finally:
            self.taken.append(".")

    def ends(self):
        return [("end", len(self.text))]


class Noting(Words):
    def __iter__(self):
        NOTED.append(self.text)
        yield self.text


class Telling(Words):
    def __iter__(self):
        try:
            yield from self.text
        finally:
            print(self.text)


class Lists:
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from self.rows
        return len(self.rows)


def adds(x):
    total = Vector(*x) + Vector(x[0], x[1], x[2])
    a, b, c = total
    return a + sum(total) * b - max(total), torch.stack([*total, c])


def only_adds(x):
    return (Vector(*x.tolist()) + Vector(1.0, 2.0, 3.0)).z


def reads(text):
    words = Words(text)
    pairs = list(words)
    for letter, at in words:
        if letter == "d" and at > 0:
            words.taken.append(letter)
    return len(pairs), len(words.taken), "".join(letter for letter, _ in pairs)


def notes(text):
    return len(list(Noting(text)))


def writes_what_it_yields(rows):
    for row in Lists(rows):
        row.append(1)
    return sum(map(len, rows))


SHARED = [[1], [2]]


def writes_what_existed(text):
    for row in Lists(SHARED):
        row.append(text)
    return len(text)


def first_of_what_tells(text):
    if len(text) < 3:
        return text
    for letter in Telling(text):
        return letter


def walks(text):
    return len(list(Words(text).__iter__()))


def frames(text):
    return len(iter(Words(text)).gi_frame.f_locals)


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_the_result_is_the_loops(plain):
    for change in range(4):
        x = X + change / 4
        one, three = autobatch.vmap(adds, plain=plain)(x)
        for row in range(5):
            wanted = adds(x[row])
            assert torch.allclose(one[row], wanted[0]) and torch.allclose(three[row], wanted[1])
        found = autobatch.vmap(only_adds, plain=plain)(x)
        assert found.tolist() == list(map(only_adds, x))
        texts = [text + "d" * change for text in TEXTS]
        found = autobatch.vmap(reads, plain=plain)(autobatch.objects(texts))
        assert [tuple(part) for part in zip(*map(list, found), strict=True)] == (
            list(map(reads, texts))
        )
        rows = [[[1], [change]], [], [[]], [[2, 3]], [[1]] * 2]
        wanted = [writes_what_it_yields([*map(list, each)]) for each in rows[:4]]
        found = autobatch.vmap(writes_what_it_yields, plain=plain)(autobatch.objects(rows[:4]))
        assert found.tolist() == wanted and rows[0] == [[1], [change]]


def test_such_programs_are_plain():
    assert proved(adds, True, X)
    assert proved(only_adds, False, X)
    assert proved(reads, False, autobatch.objects(TEXTS))


@pytest.mark.parametrize(
    "function", [notes, writes_what_existed, first_of_what_tells, walks, frames]
)
def test_what_others_see_is_not(function):
    assert not proved(function, False, autobatch.objects(TEXTS))


def test_what_existed_is_not_written():
    for _ in range(2):
        with pytest.raises(AutobatchError):
            autobatch.vmap(writes_what_existed)(autobatch.objects(TEXTS))
        assert SHARED == [[1], [2]]


# Functions that yield, which the program calls.


class Tree:
    def __init__(self, value, *children):
        self.value, self.children = value, children

    def walk(self, depth=0):
        yield depth, self.value
        for child in self.children:
            yield from child.walk(depth + 1)

    @property
    def leaves(self):
        return (value for value in self.ends())

    def ends(self):
        if not self.children:
            yield self.value
        for child in self.children:
            yield from child.ends()


def grown(text):
    found = Tree(text[:1])
    for letter in text[1:]:
        found = Tree(letter, found, Tree(letter.upper()))
    return found


def split(text):
    word = ""
    for letter in text:
        if letter == "d":
            yield word
            word = ""
        else:
            word += letter
    if word:
        yield word


def walks_trees(text):
    tree = grown(text)
    words, depth = [], 0
    for at, value in tree.walk():
        depth = max(depth, at)
        words.append(value)
    first = next(split(text), None)
    return depth, "".join(words) + "".join(tree.leaves) + "+".join(split(text)), first


def powers(x, n):
    total = x
    for _ in range(n):
        total = total * x
        yield total


def sums_powers(x):
    total = x * 0
    for power in powers(x, 3):
        if power.sum() > 2:
            break
        total = total + power
    return total, sum(powers(x, 2))


def adding():
    total = []
    while True:
        row = yield total
        row.append(len(row))
        total = total + row


def sends(rows):
    going = adding()
    next(going)
    return sum(len(going.send(row)) for row in rows)


def first_of(rows):
    yield 0
    return rows[0]


def follows(rows):
    found = yield from first_of(rows)
    found.append(9)
    yield len(found)


def writes_what_it_returns(rows):
    return sum(follows(rows))


def raised_by(rows):
    going = first_of(rows)
    next(going)
    try:
        next(going)
    except StopIteration as end:
        end.value.append(7)
    return len(rows[0])


@functools.lru_cache
def kept(text):
    yield text


def goes_on(text):
    return len(list(kept(text)))


def tidied(text):
    try:
        yield text
    finally:
        if "d" in text:
            print(text)


def prints_as_it_is_left(text):
    return next(tidied(text))


def notes_as_it_yields(text):
    NOTED.append(text)
    yield text


def notes_once(text):
    return next(notes_as_it_yields(text))


ROWS = [[[1], [2]], [[], [4]], [[3, 4]], [[]]]


@pytest.mark.parametrize("function", [sends, writes_what_it_returns, raised_by])
def test_what_is_sent_and_returned_is_the_examples(function):
    wanted = [function([*map(list, rows)]) for rows in ROWS]
    for _ in range(4):
        found = autobatch.vmap(function)(autobatch.objects(ROWS))
        assert found.tolist() == wanted
        assert ROWS == [[[1], [2]], [[], [4]], [[3, 4]], [[]]]


def test_programs_that_call_functions_that_yield_are_plain():
    for change in range(4):
        texts = [text + "xdy" * change + "z" for text in TEXTS]
        with autobatch.counts() as counted:
            found = autobatch.vmap(walks_trees)(autobatch.objects(texts))
        assert counted.plain == len(texts) and not counted.fallbacks
        depths, words, first = found
        assert list(zip(depths.tolist(), words, first, strict=True)) == [*map(walks_trees, texts)]
    assert proved(sums_powers, True, X)
    for x in (X, X * 2):
        one, three = autobatch.vmap(sums_powers)(x)
        for row in range(5):
            torch.testing.assert_close((one[row], three[row]), sums_powers(x[row]))


def squares(n):
    for i in range(n):
        yield i * i


def test_so_are_those_of_numbers():
    for size in (7, 600):
        numbers = torch.arange(size) % 9
        batched = autobatch.vmap(lambda n: sum(squares(n)), scalars="python")
        with autobatch.counts() as counted:
            found = batched(numbers)
        assert counted.plain == size
        assert found.tolist() == [sum(squares(n)) for n in numbers.tolist()]


def test_those_that_others_see_are_not(capsys):
    texts = autobatch.objects(TEXTS)
    for function in (goes_on, prints_as_it_is_left, notes_once):
        assert not proved(function, False, texts)
    with pytest.raises(AutobatchError):
        autobatch.vmap(notes_once)(texts)
    assert not NOTED and not capsys.readouterr().out
