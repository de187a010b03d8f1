"""Classes that yield their items (``__iter__``), in programs that may run as plain Python."""

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
