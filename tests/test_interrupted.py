"""A run that is interrupted anywhere leaves nothing behind: the next is as if it had not been."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import autobatch

X = torch.linspace(-1.0, 1.0, 16)


def straight(x, rounds):
    n = 0
    while n < rounds:
        x = x * 0.5 + 0.1
        n += 1
    return x


def without_gradients(x, rounds):
    n = 0
    with torch.no_grad():
        while n < rounds:
            x = torch.sin(x) + 0.1
            n += 1
    return x


def parting(x, rounds):
    n = 0
    while n < rounds + x.abs() * 3:
        x = torch.sin(x) + 0.1
        if x > 0.5:
            x = x * 0.9
        n += 1
    return x


def in_place(x, rounds):
    n = 0
    while n < rounds:
        x += 0.1
        x *= 0.5
        n += 1
    return x


def of_words(word, rounds):
    found = {}
    n = 0
    while n < rounds:
        found[word + str(n % 7)] = n
        n += 1
    return len(found)


AGAIN = 5.0
"""Seconds after which an interrupt comes again that has been lost."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    def raise_(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_)
    # Again where Python had nobody to raise it to: in a finaliser, it tells of it and goes on.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


CASES = [
    *((each, {}) for each in (straight, without_gradients, parting, in_place, of_words)),
    *((each, {"engine": "program_counter"}) for each in (straight, parting)),
    *((each, {"engine": "sequential"}) for each in (parting, of_words)),
    (straight, {"executor": "vmap"}),
    *((each, {"executor": "compiled"}) for each in (straight, parting, in_place)),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seconds", [0.01, 0.12])
@pytest.mark.parametrize(("program", "options"), CASES)
def test_the_next_call_is_right(program, options, seconds):
    words = ["a", "b", "c"]
    given = autobatch.objects(words) if program is of_words else X.clone()
    mapped = autobatch.vmap(program, in_dims=(0, None), **options)
    limit = sys.getrecursionlimit()
    with interrupted(seconds):
        mapped(given, 10**9)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert sys.getrecursionlimit() == limit
    want = [program(x, 4) for x in (words if program is of_words else X.clone())]
    found = []
    other = threading.Thread(target=lambda: found.append(mapped(given, 4)), daemon=True)
    other.start()  # which would wait for a lock that has stayed
    other.join(60)
    found.append(mapped(given, 4))
    for result in found:
        assert torch.allclose(torch.as_tensor(result), torch.as_tensor(want))
    assert len(found) == 2
    assert program is of_words or torch.equal(given, X)


def collatz(x):
    n = 0
    while x != 1:
        x, n = x // 2 if x % 2 == 0 else 3 * x + 1, n + 1
    return n


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options", [{}, {"executor": "compiled"}, {"engine": "program_counter"}, {"order": "input"}]
)
def test_a_stream_gives_what_it_has_and_ends(options):
    """As a generator does; the stream after it is as if there had been none."""
    found: dict[int, int] = {}
    stream = autobatch.stream(collatz, itertools.count(1), 16, **options)
    with interrupted(0.15):
        found.update(stream)
    assert list(stream) == []
    assert all(n == collatz(place + 1) for place, n in found.items())
    after = dict(autobatch.stream(collatz, range(1, 30), 4, **options))
    assert after == {place: collatz(place + 1) for place in range(29)}
