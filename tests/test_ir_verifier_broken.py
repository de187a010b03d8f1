"""Programs that are broken at random places: whatever is wrong, the verifier tells of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch import lower
from autobatch.ir.printer import HEADER
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    CallShape,
    Converted,
    Function,
    Handler,
    Join,
    Jump,
    Op,
    Param,
    Program,
    Raise,
    Return,
    UnpackShape,
)
from autobatch.ir.verifier import explain, verify
from programs.collatz import collatz
from programs.fibonacci import fibonacci

ODD = [None, 7, "x", ["y"], {"a": 1}, CallShape((True,), ("k", None, "k")), UnpackShape(-1, True)]
NAMES = ["add", "call", "delete", "function", "load_free", "free_box", "box", "unpack", "defer"]
KINDS = ["positional", "keyword_only", "var_positional", "starred"]
VARS = ["x", "n", "%1", "%2", "%99", "a b", None, 3]


def closures(x, n=2):
    def step(h, by):
        nonlocal n
        n += 1
        return h * by if h > 0 else -h

    while x < 10:
        x = step(x, 2)
        if n > 5:
            return step(x)
    last = lambda y: y + n  # noqa: E731
    return last(x)


PROGRAMS = [lower(each, passes=p) for each in (closures, collatz, fibonacci) for p in (None, [])]


def other_op(r: Random, op: Op) -> Op:
    change = r.choice(["name", "attr", "args", "outs", "span"])
    if change == "name":
        return replace(op, name=r.choice([*NAMES, "getattr", "const", "square"]))
    if change in ("args", "outs"):
        names = tuple(r.choice(VARS) for _ in range(r.randrange(4)))
        return replace(op, **{change: names})
    return replace(op, **{change: r.choice(ODD) if change == "attr" else None})


def other_end(r: Random, end: object, count: int) -> object:
    span, var, to = getattr(end, "span", None), r.choice(VARS), r.choice([0, 1, -1, count, 99])
    shape = r.choice([CallShape((False,)), CallShape((False, False), ("k",))])
    called = Call(var, r.choice(VARS), (var,), shape, to, span)
    branch = Branch(var, to, r.choice([0, count + 2]), span)
    left = [Return(var, span), Raise(var, var, span), None, "jump"]
    return r.choice([Jump(to, span), branch, called, Join(to, span), *left])


def other_block(r: Random, block: Block, count: int) -> Block:
    change = r.choice(["op", "less", "end", "handler", "modes", "converted"])
    if change == "end":
        return replace(block, terminator=other_end(r, block.terminator, count))
    if change == "handler":
        return replace(block, handler=Handler(r.choice([0, -1, 99]), r.choice(VARS)))
    if change == "modes":
        return replace(block, modes=(r.choice(VARS),))
    if change == "converted":
        made = Converted(block.ops, block.terminator, r.choice([0, 99]))
        return replace(block, converted=made)
    if not block.ops:
        return block
    ops, at = list(block.ops), r.randrange(len(block.ops))
    ops[at : at + 1] = [other_op(r, ops[at])] if change == "op" else []
    return replace(block, ops=tuple(ops))


def other(r: Random, function: Function) -> Function:
    blocks = list(function.blocks)
    for _ in range(r.randrange(1, 4)):
        at = r.randrange(len(blocks))
        blocks[at] = other_block(r, blocks[at], len(blocks))
    if r.random() < 0.2:
        del blocks[r.randrange(len(blocks))]
    params = function.params
    if r.random() < 0.3:
        params = (*params, Param(r.choice(["x", "z", "a b"]), r.choice(KINDS), r.random() < 0.5))
    nested = function.nested if r.random() < 0.8 else function.nested[1:]
    return replace(function, blocks=tuple(blocks), params=params, nested=nested)


@settings(max_examples=150)
@given(st.randoms(use_true_random=False))
def test_whatever_is_wrong_is_told(r):
    program = r.choice(PROGRAMS)
    name = r.choice(list(program.functions))
    made = other(r, program.functions[name])
    broken = replace(program, functions={**program.functions, name: made})
    if r.random() < 0.5:
        broken = replace(broken, callable=None)
    found = verify(broken, r.choice([None, program]))
    text = explain(found)
    assert all(str(fault) in text for fault in found)
    assert all(within(fault.function, fault.place, broken) for fault in found)


def within(function: Function | None, place: tuple[int, int], program: Program) -> bool:
    """Whether a fault is of a function that is there, at a place that it has."""
    if function is None or place == HEADER:
        return True
    known = any(each is function for f in program.functions.values() for each in f.walk())
    return known and 0 <= place[0] < len(function.blocks)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.entry)
def test_what_is_not_broken_is_right(program):
    assert verify(program) == []
