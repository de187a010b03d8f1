"""Closures of one function, several of them in one program: each is looked into by itself."""

import torch
from torch import nn

import autobatch
from tests.test_alone import outcome, same

SEEN = []


def joined(end):
    return lambda word: end(word) + "."


def with_inner(end):
    def outer(word):
        def inner(part):
            return end(part) + "."

        return inner(word)

    return outer


def noted(word):
    SEEN.append(word)
    return word


UPPER, STRIPPED, NOTED = joined(str.upper), joined(str.strip), joined(noted)
NESTED, NESTED_TOO = with_inner(str.upper), with_inner(noted)
TABLE = {"upper": UPPER, "stripped": STRIPPED}


def both(word):
    return UPPER(word) + STRIPPED(word)


def by_table(word):
    return "".join(TABLE[name](word) for name in ("stripped", "upper"))


def one_that_writes(word):
    return UPPER(word) + NOTED(word)


def one_that_writes_within(word):
    return NESTED(word) + NESTED_TOO(word)


def test_each_is_looked_into():
    assert same(both, [" a", "b "]) == [" A.a.", "B .b."]
    assert same(by_table, [" a", "b "]) == ["a. A.", "b.B ."]


def test_what_one_of_them_writes_is_seen():
    for function in (one_that_writes, one_that_writes_within):
        found, alone = outcome(function, ["a", "b"])
        assert alone == 0
        assert found[0] is autobatch.errors.SharedWriteError
    assert SEEN == []


class Block(nn.Module):
    """As in minGPT: what it computes is a lambda of its own."""

    def __init__(self):
        super().__init__()
        self.mlp = nn.ModuleDict({"first": nn.Linear(4, 4), "act": nn.Tanh()})
        mlp = self.mlp
        self.apply_mlp = lambda x: mlp["act"](mlp["first"](x))

    def forward(self, x):
        return x + self.apply_mlp(x)


def test_modules_that_hold_closures(plain_is_better):
    torch.manual_seed(0)
    blocks = nn.Sequential(Block(), Block())
    xs = torch.randn(5, 4)

    def program(x):
        names = {"sum": x.sum(), "none": 0}
        for block in blocks:
            x = block(x)
        return x + names["sum" if x[0] > 0 else "none"]

    batched = autobatch.vmap(program)
    for change in (lambda: None, blocks[1].mlp["first"].weight.data.zero_):
        change()
        expected = torch.stack([program(x) for x in xs])
        for _ in range(4):
            with autobatch.counts() as counts:
                torch.testing.assert_close(batched(xs), expected)
        assert counts.plain == len(xs)
    blocks[1].apply_mlp = lambda x: x * 2
    expected = torch.stack([program(x) for x in xs])
    for _ in range(4):
        torch.testing.assert_close(batched(xs), expected)
