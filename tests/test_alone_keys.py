"""Functions of a module that are values (``key=score``), where programs may run plainly."""

import functools
import heapq
import itertools
import random

import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError
from tests.test_alone_fields import proved

TEXTS = ["ab", "c", "", "dda", "b"]
NUMBERS = list(range(3, 8))


class Node:
    def __init__(self, name, parent=None):
        self.name, self.parent, self.visits = name, parent, 0

    def score(self):
        return self.visits * 2 - len(self.name) / (1 + self.parent.visits)


def fewest(node):
    return node.visits, node.name


def later(one, other):
    return one if fewest(other) < fewest(one) else other


def searches(text):
    root = Node("")
    nodes = [Node(text + letter, root) for letter in "abcd"]
    for at in range(8):
        node = min(nodes, key=fewest) if at % 2 else max(nodes, key=Node.score)
        node.visits += 1
        sorted(nodes, key=Node.score)[0].name += "."
        heapq.nlargest(2, nodes, key=fewest)[-1].visits += 2
        heapq.nsmallest(2, nodes, fewest)[-1].parent.visits += 1
        nodes.sort(key=fewest)
        next(heapq.merge(nodes, key=fewest)).name += text[:1]
        functools.reduce(later, nodes).visits -= 1
    return [node.visits for node in nodes], " ".join(node.name for node in nodes)


def walks(seed):
    """A tree search, which chooses by a method of the nodes."""
    rng = random.Random(seed)
    root = Node("")
    children = [Node(str(rng.random()), root) for _ in range(3)]
    for _ in range(5):
        node = max(children, key=Node.score)
        while node is not None:
            node.visits += rng.randint(1, 3)
            node = node.parent
    return root.visits


SHARED = [[1], [2, 3], []]
TABLE = {"grow": lambda row: row.append(1)}


def grown(row, *others):
    row.append(1)
    return len(row)


def grown_pair(row, other):
    row.append(1)
    return row


def writes_by_key(text):
    return len(max(SHARED, key=grown)) + len(text)


def writes_by_sort(text):
    rows = [*SHARED]
    rows.sort(key=grown)
    return len(text)


def writes_by_map(text):
    return sum(map(grown, SHARED)) + len(text)


def writes_by_starmap(text):
    return len(list(itertools.starmap(grown, zip(SHARED, text, strict=False))))


def writes_by_reduce(text):
    return len(functools.reduce(grown_pair, SHARED)) + len(text)


def writes_by_hand(text):
    return applied(grown, SHARED[0]) + len(text)


def applied(function, row):
    return function(row)


def writes_by_table(text):
    return TABLE["grow"](SHARED[0]) or len(text)


def writes_by_field(text):
    holder = Node(text)
    holder.name = grown
    return holder.name(SHARED[1])


def writes_by_stars(text):
    names = {"key": grown}
    return len(max(*SHARED, **names)) + len(text)


def writes_by_partial(text):
    return functools.partial(grown, SHARED[0])() + len(text)


def writes_by_groups(text):
    return len([key for key, _ in itertools.groupby(SHARED, grown)]) + len(text)


def writes_what_it_chose(text):
    max(SHARED, key=len).append(text)
    return len(text)


WRITING = [each for name, each in list(globals().items()) if name.startswith("writes_")]


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_the_result_is_the_loops(plain):
    for _ in range(4):
        visits, names = autobatch.vmap(searches, plain=plain)(autobatch.objects(TEXTS))
        wanted = [searches(text) for text in TEXTS]
        assert torch.stack(visits, 1).tolist() == [each[0] for each in wanted]
        assert names == [each[1] for each in wanted]
        found = autobatch.vmap(walks, plain=plain)(autobatch.objects(NUMBERS))
        assert found.tolist() == [walks(number) for number in NUMBERS]


def test_such_programs_are_plain():
    assert proved(searches, False, autobatch.objects(TEXTS))
    with autobatch.counts() as counted:
        autobatch.vmap(walks)(autobatch.objects(NUMBERS))
    assert counted.plain == len(NUMBERS)


@pytest.mark.parametrize("function", WRITING)
def test_what_existed_is_not_written(function):
    assert not proved(function, False, autobatch.objects(TEXTS))
    for _ in range(2):
        with pytest.raises(AutobatchError):
            autobatch.vmap(function)(autobatch.objects(TEXTS))
        assert SHARED == [[1], [2, 3], []]
