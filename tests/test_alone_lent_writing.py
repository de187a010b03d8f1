"""Methods that write to a container, as values: those of what a program makes are its own."""

import functools
import itertools
from collections import defaultdict, deque

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_alone import outcome, same
from tests.test_alone_beginning import by_the_clock, ways  # noqa: F401

WORDS = ["b", "aBc", "", "ccc", "a b", "7"]
SEEN: list = []
TABLE: dict = {"a": ["x"]}


def two(word):
    stack = []
    push, pop = stack.append, stack.pop
    for letter in word:
        push(letter * 2)
    return pop() if stack else ""


def mapped(word):
    found, numbers = set(), deque()
    list(map(found.add, word))
    any(map(numbers.appendleft, range(len(word))))
    return "".join(sorted(found)) + str(numbers)


def visited(emit, word):
    if word:
        emit(word)
        visited(emit, word[1:])


def emitted(word):
    found = []
    visited(found.append, word)
    visited(found.extend, word)
    return found


def until(word):
    letters = [None, *word]
    return "".join(iter(letters.pop, None))


def partly(word):
    groups = defaultdict(list)
    functools.partial(groups["all"].append, word)()
    return groups["all"]


class Machine:
    """Some of its operations are called as a container's methods are."""

    def __init__(self, code):
        self.code, self.stack = code, []
        self.push = self.stack.append
        self.table = {"+": self.add, "*": self.double, "p": self.stack.pop, "!": self.clear}

    def add(self):
        self.push(len(self.stack) + 1)

    def double(self):
        self.push(self.stack[-1] * 2 if self.stack else 0)

    def clear(self):
        self.stack.clear()

    def run(self):
        for sign in self.code:
            if sign in self.table and (sign != "p" or self.stack):
                self.table[sign]()
        return str(self.stack)


def dispatched(word):
    return Machine(word + "++*p!+*").run()


@pytest.mark.parametrize("function", [two, mapped, emitted, until, partly, dispatched])
def test_those_of_a_programs_own_run_as_plain_python(function):
    found = same(function, WORDS)
    assert found == [function(word) for word in WORDS]


def of_tensors(x):
    """Beside tensors, of which some go through such a method."""
    stack, table = [], {}
    push, pop = stack.append, stack.pop
    for value in x:
        push(value * 2 if value > 0 else value)
        if len(stack) > 2:
            push(pop() + pop())
    keep = [table.setdefault, push]
    return keep[0]("a", pop()) + sum(stack), len(stack)


def test_those_of_tensors_run_as_plain_python(ways):  # noqa: F811
    xs = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    assert_matches_loop(of_tensors, (xs,), batch_sizes=(1, 7), configurations=[{}])
    assert all(ways)


# What somebody may see.


def of_one_that_existed(word):
    for append in [SEEN.append]:
        append(word)


def of_one_within(word):
    push, pop = TABLE["a"].append, TABLE["a"].pop
    push(word), pop()


def of_a_class(word):
    for kind in (list, deque):
        for append in [kind.append]:
            if kind is list:
                append(SEEN, word)


def of_a_class_by_map(word):
    for kind in (list, deque):
        append = [kind.append][0]
        list(map(append, [SEEN] if kind is list else [], [word]))


def of_a_class_later(word):
    for kind in (list, deque):
        append = [kind.append][0]
        if kind is list:
            functools.partial(append, SEEN)(word)


def of_a_class_as_key(word):
    for kind in (list, deque):
        pop = [kind.pop][0]
        if kind is list:
            sorted([TABLE["a"]], key=pop)


def into_its_own(word):
    """What comes out again existed before."""
    found = []
    push, pop = found.append, found.pop
    push(SEEN)
    pop().append(word)


def into_its_own_by_items(word):
    found = []
    extend, pop = found.extend, found.pop
    extend([SEEN])
    pop().append(word)


def into_its_own_by_map(word):
    found = []
    list(map(found.extend, [[SEEN]]))
    found[0].append(word)


def into_its_own_by_iter(word):
    found = [SEEN]
    for each in iter(found.pop, None):
        each.append(word)
        break


@functools.cache
def remembered(n):
    found = []
    return found.append, found


def of_what_is_kept(word):
    push, found = remembered(1)
    push(word)
    return len(found)


HIDDEN = [
    *(of_one_that_existed, of_one_within, of_a_class, of_a_class_by_map, of_a_class_later),
    *(of_a_class_as_key, into_its_own, into_its_own_by_items, into_its_own_by_map),
    *(into_its_own_by_iter, of_what_is_kept),
]


@pytest.mark.filterwarnings("ignore::autobatch.FallbackWarning")
@pytest.mark.parametrize("function", HIDDEN)
def test_those_of_what_existed_do_not(function):
    try:
        try:
            ran = outcome(function, ["a", "bb"])[1]
        except autobatch.AutobatchError:
            ran = 0
    finally:
        SEEN.clear()
        TABLE["a"] = ["x"]
        remembered.cache_clear()
    assert ran == 0


def in_a_part(x, word):
    """What a part has made is written by such a method afterwards, and read."""
    found = []
    for letter in word:
        push = found.append
        push(letter)
        if letter in found[:-1]:
            found.pop()
    y = torch.tanh(x @ torch.ones(3, 3))
    for letter in itertools.chain("a", word):
        push(letter)
    return y * len(found), "".join(found)


def test_a_part_leaves_none():
    xs, words = torch.randn(4, 3), ["abc", "aab", "cbaab", "a"]
    for _ in range(4):
        y, texts = autobatch.vmap(in_a_part)(xs, autobatch.objects(words))
        expected = [in_a_part(x, word) for x, word in zip(xs, words, strict=True)]
        assert texts == [text for _, text in expected]
        torch.testing.assert_close(y, torch.stack([row for row, _ in expected]))
