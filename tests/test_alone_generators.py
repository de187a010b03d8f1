"""Functions that yield, called by programs that may run as plain Python."""

import functools

import pytest
import torch

import autobatch
from autobatch import UnsupportedError
from tests.test_alone_fields import proved

TEXTS = ["ab", "c", "", "dda", "b"]
NUMBERS = [3, 1, 0, 4, 2]
X = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
SHARED = [[1], [2]]
WEIGHT = torch.ones(3)


class Words:
    def __init__(self, text):
        self.text, self.place = text, 0
        self.going = self.letters()

    def letters(self):
        while self.place < len(self.text):
            self.place += 1
            yield self.text[self.place - 1]

    def taken(self):
        return next(self.going, "")


class Channel:
    """Has methods by the names of a generator's."""

    def __init__(self):
        self.sent = []

    def send(self, value):
        self.sent.append(value)

    def close(self):
        self.sent.clear()


class Rows:
    def __init__(self, word):
        self.word = word

    def __reversed__(self):
        yield from self.word[::-1]


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def steps(self, x):
        for scale in range(3):
            yield self.linear(x) * scale

    def forward(self, x):
        return sum(self.steps(x)) + next(self.steps(x))


class Kept:
    @functools.cached_property
    def words(self):
        yield from ["a", "b", "c"] * 9


KEPT = Kept()


def squares(n):
    for i in range(n):
        yield i * i


def filled(found, n):
    for i in range(n):
        found.append(i)
        yield len(found)


def nodes(tree):
    if isinstance(tree, list):
        for each in tree:
            yield from nodes(each)
        return len(tree)
    yield tree
    return 1


def averages():
    total, count = 0.0, 0
    while True:
        value = yield total / max(count, 1)
        if value is None:
            return count
        total += value
        count += 1


def tidied(found, n):
    try:
        yield from range(n)
    finally:
        found.append("end")


def multiples(x, n):
    for i in range(n):
        yield x * i


def failing(n):
    for i in range(n):
        yield 12 // (3 - i)


def of_all():
    yield from SHARED


def given_back():
    yield 1
    return SHARED[0]


def sent_one():
    given = yield
    given.append(1)
    yield len(given)


def handed_on(table):
    yield from ()
    return (yield from given_back())


def prints_at_its_end(n):
    try:
        yield from range(n)
    finally:
        print(n)


def without_gradients(x):
    with torch.no_grad():
        yield x * 2


@torch.no_grad()
def decorated(x):
    yield x * 2


@functools.lru_cache
def kept():
    yield from range(1000)


@functools.lru_cache
def keeps(n):
    return squares(1000)


def sums(n):
    return sum(squares(n)) + sum(v for v in squares(n) if v % 2) + max(squares(n), default=0)


def words(text):
    found = Words(text)
    first = found.taken()
    return first + found.taken() + str(found.place) + "".join(found.going)


def fills(n):
    found = []
    for length in filled(found, n):
        if length > 2:
            break
    return found + list(filled(found, 1))


def goes_through(tree):
    made = nodes(tree)
    found = []
    while True:
        try:
            found.append(next(made))
        except StopIteration as error:
            return found, error.value


def sends(n):
    made = averages()
    found = [next(made)]
    for i in range(n):
        found.append(made.send(i))
    try:
        made.send(None)
    except StopIteration as error:
        found.append(error.value)
    channel = Channel()
    channel.send(n)
    channel.close()
    return found, channel.sent


def ends(n):
    found = []
    made = tidied(found, n)
    first = next(made, -1)
    made.close()
    return first, found


def reverses(text):
    return "".join(reversed(Rows(text)))


def multiplied(x):
    total = torch.zeros(3)
    for each in multiples(x, 3):
        total += each
    return total + torch.stack(list(multiples(x, 2))).sum()


def given_away(tree):
    return nodes(tree)


def of_one(n):
    return list(failing(n))


def writes_what_is_yielded(n):
    for each in of_all():
        each.append(n)
    return n


def writes_what_is_returned(n):
    made = given_back()
    next(made)
    try:
        next(made)
    except StopIteration as error:
        error.value.append(n)
    return n


def writes_what_is_handed_on(n):
    try:
        next(handed_on(n))
        next(handed_on(n))
    except StopIteration as error:
        error.value.append(n)
    return n


def writes_what_is_sent(n):
    made = sent_one()
    next(made)
    return made.send(SHARED[0])


def sends_by_name(n):
    made = sent_one()
    next(made)
    Channel().send(n)
    sending = made.send
    return sending(SHARED[0])


def takes_what_is_kept(n):
    return next(kept())


def takes_of_what_is_kept(n):
    return next(keeps(1))


def takes_of_a_property(n):
    return next(KEPT.words)


def frames(n):
    return len(squares(n).gi_frame.f_locals)


def leaves_one_that_prints(n):
    for value in prints_at_its_end(n):
        return value
    return n


def writes_weights(x):
    for each in [WEIGHT, x]:
        for part in multiples(each, 1):
            part += 1
    for each in (w for w in weights()):
        each += 1
    return x


def weights():
    yield WEIGHT


def in_a_mode(x):
    return sum(without_gradients(x))


def decorated_by_a_mode(x):
    return sum(decorated(x))


PLAIN = {
    sums: NUMBERS,
    words: TEXTS,
    fills: NUMBERS,
    goes_through: [[1, [2, 3]], [], [[4], 5], [6], [[[7]]]],
    sends: NUMBERS,
    ends: NUMBERS,
    reverses: TEXTS,
}


@pytest.mark.parametrize("function", PLAIN, ids=lambda function: function.__name__)
def test_the_result_is_the_loops_and_plain(function):
    rows = PLAIN[function]
    batched = autobatch.vmap(function, ragged_out="list")
    assert proved(function, False, autobatch.objects(rows))
    for _ in range(4):
        with autobatch.counts() as seen:
            found = batched(autobatch.objects(rows))
        expected = autobatch.vmap(autobatch.per_thread(function), ragged_out="list")
        assert str(found) == str(expected(autobatch.objects(rows)))
        assert seen.plain == len(rows)


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_tensors_are_the_loops(plain):
    assert proved(multiplied, True, X)
    for change in range(4):
        x = (X + change).requires_grad_()
        found = autobatch.vmap(multiplied, plain=plain)(x)
        expected = torch.stack(list(map(multiplied, x)))
        torch.testing.assert_close(found, expected)
        (slopes,) = torch.autograd.grad(expected.sum(), x)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], slopes)


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_methods_of_modules_are_the_loops(plain):
    model = Scaled()
    assert proved(model, True, X)
    for change in range(4):
        found = autobatch.vmap(model, plain=plain)(X + change)
        torch.testing.assert_close(found, torch.stack(list(map(model, X + change))))


def test_one_that_is_given_back_is_over_a_copy():
    rows = [[[1], 2], [[3]]]
    for made in autobatch.vmap(given_away)(autobatch.objects(rows)):
        assert next(made)
        rows[0][0].append(5)
        assert 5 not in list(made)


@pytest.mark.parametrize(
    "function",
    [
        writes_what_is_yielded,
        writes_what_is_returned,
        writes_what_is_handed_on,
        writes_what_is_sent,
        sends_by_name,
        takes_what_is_kept,
        takes_of_what_is_kept,
        takes_of_a_property,
        frames,
        leaves_one_that_prints,
    ],
)
def test_what_others_see_is_not_plain(function):
    assert not proved(function, False, autobatch.objects(NUMBERS))
    assert SHARED == [[1], [2]]


@pytest.mark.parametrize("function", [writes_weights, in_a_mode, decorated_by_a_mode])
def test_what_others_see_of_tensors_is_not_plain(function):
    assert not proved(function, True, X)
    assert WEIGHT.eq(1).all()


def test_exceptions_are_the_loops():
    numbers = autobatch.objects([2, 3, 4, 5])
    for _ in range(4):
        with pytest.raises(ZeroDivisionError, match="integer division or modulo by zero"):
            autobatch.vmap(of_one)(numbers)
        found = autobatch.vmap(of_one, on_error="isolate")(numbers)
        assert [type(each.exception) for each in found[2:]] == [ZeroDivisionError] * 2
        assert [each.value for each in found[:2]] == [[4, 6], [4, 6, 12]]


def test_so_they_are_where_a_batch_is_refused():
    def program(n):
        found = []
        return [10 // (length - 3) for length in filled(found, n)]

    numbers = autobatch.objects([1, 2, 4, 5])
    for _ in range(4):
        with pytest.raises(ZeroDivisionError, match="integer division or modulo by zero"):
            autobatch.vmap(program)(numbers)
        found = autobatch.vmap(program, on_error="isolate")(numbers)
        assert [type(each.exception) for each in found[2:]] == [ZeroDivisionError] * 2
        assert [each.value for each in found[:2]] == [[-5], [-5, -10]]
    with pytest.raises(UnsupportedError, match="this may write what the function is given"):
        autobatch.vmap(program, plain="never")(numbers)


def test_no_first_call_runs_what_others_are_refused():
    """Of a program that computes with tensors, which goes the general way later."""

    def program(x):
        found = []
        return sum(x * length for length in filled(found, 2))

    for _ in range(4):
        with pytest.raises(UnsupportedError, match="this may write what the function is given"):
            autobatch.vmap(program)(X)
