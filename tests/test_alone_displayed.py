"""What a program returns within a tuple, list or dict comes out of none that it looks into."""

import pytest
import torch

import autobatch
from autobatch import objects
from tests.test_alone_fields import proved

SIZE = 7
X = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
TEXTS = ["a,bb", "ccc,", "d,e,f", "g", "hh,i,", "jj", ",k"]


class Scanner:
    def __init__(self, text):
        self.text, self.at = text, 0

    def word(self):
        end = self.text.find(",", self.at)
        end = len(self.text) if end < 0 else self.text.index(",", self.at)
        found, self.at = self.text[self.at : end], end + 1
        return found

    def ends(self):
        return self.at >= len(self.text)


def words(text):
    scanner, found = Scanner(text), []
    while not scanner.ends():
        found.append(scanner.word())
    return found


def in_a_tuple(x, text):
    return x * 2, len(words(text))


def in_a_dict(x, text):
    return {"x": x * 2, "words": (len(words(text)), [x + 1, x])}


def by_a_name(x, text):
    result = [x * 2, len(words(text))]
    return result


def on_two_ways(x, text):
    if len(text) > 3:
        first, *_ = words(text)
        result = (x * 2, first)
    else:
        result = (x + 1, "short")
    return result


def calls_itself(x, text, depth=0):
    if depth < 2:
        part, rest = calls_itself(x, text, depth + 1)
        return part + x, rest + words(text)[:1]
    return x * 2, words(text)[:1]


def looks_into_it(x, text):
    result = (x * 2, words(text))
    return result[0], len(result[1])


def writes_into_it(x, text):
    result = [x * 2]
    result.append(len(words(text)))
    return result


class Pair:
    def both(self, x, text):
        return x * 2, len(words(text))

    def twice(self, x, text):
        one, n = self.both(x, text)
        other, _ = Pair().both(x + 1, text)
        return one + other, n


def by_a_method(x, text):
    return Pair().twice(x, text)


def row(found, index):
    if isinstance(found, dict):
        return {key: row(part, index) for key, part in found.items()}
    if isinstance(found, tuple):
        return tuple(row(part, index) for part in found)
    if isinstance(found, list) and len(found) != SIZE:
        return [row(part, index) for part in found]
    return found[index]


PROGRAMS = [in_a_tuple, in_a_dict, by_a_name, on_two_ways]
OTHERS = [looks_into_it, writes_into_it, by_a_method, Pair().both]


@pytest.mark.parametrize("plain", ["auto", "never"])
@pytest.mark.parametrize("function", PROGRAMS + OTHERS)
def test_the_result_is_the_loops(function, plain):
    batched = autobatch.vmap(function, plain=plain)
    for call in range(5):
        x = X + call
        found = batched(x, objects(TEXTS))
        for index, text in enumerate(TEXTS):
            assert row(found, index) == function(x[index], text)


@pytest.mark.parametrize("function", PROGRAMS)
def test_tensors_in_what_is_returned_are_not_in_the_programs_objects(function):
    assert proved(function, True, X, objects(TEXTS))


def test_what_a_function_calls_itself_for_is_looked_into():
    batched = autobatch.vmap(calls_itself, ragged_out=(None, "list"))
    for call in range(4):
        found, lists = batched(X + call, objects(TEXTS))
        for index, text in enumerate(TEXTS):
            assert (found[index], lists[index]) == calls_itself(X[index] + call, text)


def keeps(x, table):
    return x * 2, table, [table]


def test_containers_of_an_example_come_back_as_copies():
    tables = [{"n": n} for n in range(SIZE)]
    for _ in range(3):
        found = autobatch.vmap(keeps)(X, objects(tables))
        found[1]["n"] += 1
        assert tables == [{"n": n} for n in range(SIZE)]
