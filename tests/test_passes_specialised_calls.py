"""Calls that pass literals run copies of what they call: fewer blocks, the same results."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from autobatch.api import LIBRARY
from autobatch.ir.program import Call, Function, Program
from autobatch.ir.verifier import verify
from autobatch.passes.facts import Literal
from autobatch.passes.inlining import Callee
from autobatch.passes.specialised_calls import copied, deciding, specialise_calls
from autobatch.vm.library import MOST_COPIES
from autobatch.vm.purity import Names
from tests.building import Lines, block, function
from tests.goldens import assert_golden
from tests.oracle import assert_matches_loop
from tests.through_text import same

XS = torch.tensor([-2.0, -0.5, 0.5, 1.0, 3.0, 9.0])


def made(func: Callable[..., Any]) -> Function:
    """What runs in the place of a function."""
    return LIBRARY.with_forks(LIBRARY.code_of(func), Names.of(func)).function


def copies_of(func: Callable[..., Any]) -> list[dict[str, Any]]:
    """The constants that a function has copies for."""
    found = LIBRARY.code_of(func).copies
    return [{name: literal.value for name, literal in constants} for constants in found]


def executions(func: Callable[..., Any], *args: Any, **options: Any) -> int:
    for _ in range(3):
        with autobatch.counts() as counts:
            autobatch.vmap(func, trace_after=0, **options)(*args)
    return counts.block_executions


# By hand.


def flipping() -> Function:
    at = Lines()
    return function(
        "flipping",
        "a, quiet, scale",
        block(at.branch("quiet", 2, 1)),
        block(at.op("a = add a, scale"), at.jump(2)),
        block(at.op("%1 = gt a, scale"), at.branch("%1", 0, 3)),
        block(at.give("a")),
    )


def calling() -> Function:
    at = Lines()
    return function(
        "f",
        "x, g",
        block(at.op("%1 = const", True), at.op("%2 = const", 2), at.jump(1)),
        block(at.call("y", "g", "x, %1, %2", 2)),
        block(at.give("y")),
    )


class Copy:
    __name__ = "flipping"


def test_the_example_of_the_docstring():
    asked: list[Any] = []

    def copy(call: Call, constants: Any) -> object:
        asked.append(constants)
        return Copy()

    found = specialise_calls(calling(), lambda call: Callee(flipping()), copy)
    assert asked == [(("quiet", Literal("bool", "True")),)]  # the scale decides nothing
    twin = copied(flipping(), asked[0])
    assert verify(found) == verify(twin) == []
    assert_golden("specialised_calls", f"{calling()}\n\n== called\n\n{found}\n\n{twin}\n")
    chains = [op.span for each in (*found.blocks, *twin.blocks) for op in each.ops]
    assert all(span.line for span in chains)


def test_what_is_not_known_stays_as_it_is():
    given = calling()
    assert specialise_calls(given, lambda call: None, lambda *_: Copy()) is given
    assert specialise_calls(given, lambda call: Callee(flipping()), lambda *_: None) is given


def test_only_what_decides():
    literal = Literal.of
    constants = {"quiet": literal(None), "scale": literal(1.5)}
    assert deciding(flipping(), constants) == (("quiet", literal(None)),)
    assert deciding(flipping(), {"scale": literal(1.5)}) == ()


# On programs.


def relax(x, rounds, quiet, scale=1.0):
    n = 0
    while n < rounds:
        if not quiet:
            x = x + 100.0
        if scale != 1.0:
            x = x * scale
        x = x * 0.5 + 1
        n += 1
        if x > 50:
            break
    return x


def of_two_kinds(x):
    y = relax(x, 3, True, 1.0)
    if y > 1.2:
        y = relax(y, 5, True, 1.0)
    return relax(y, 2, False, 3.0)


def settle(x, rounds, quiet):
    while rounds > 0:
        x = x * 0.5 if quiet else x - 1
        rounds -= 1
    return x


def one_by_one(x):
    y = settle(x, 4, True)
    z = settle(y, 3, True)
    return settle(z * y, 2, False)


def countdown(x, n, verbose):
    if verbose is None:
        x = x + 0.5
    if n == 0 or x > 6:
        return x
    return countdown(x * 1.5, n - 1, verbose) * 2


def recursive(x):
    return countdown(x, 3, None)


def tree(x, n, both):
    if n <= 0:
        return x
    if both:
        return tree(x - 1, n - 1, both) + tree(x + 1, n - 2, both)
    return tree(x, n - 1, both)


def forking(x):
    return tree(x, 4, True) - 1


def mixed_forks(x):
    return settle(x, 2, True) + settle(x, 3, False)


def alike_forks(x):
    return settle(x, 2, True) + settle(x + 1, 3, True)


def strict(x, limit, check):
    n = 0
    while n < 2:
        if check and x > limit:
            raise ValueError(f"too large: {x.item()}")
        x = x * 2
        n += 1
    return x


def failing(x):
    return strict(x, 5.0, True)


def lenient(x):
    return strict(x, 5.0, False)


def filled(xs, x, again):
    n = 0
    while n < 2:
        xs.append(x)
        if again:
            xs.append(x * 2)
        n += 1
    return xs


def aliased(x):
    xs = [x]
    ys = filled(xs, x, True)
    ys[0] = ys[0] + 1
    return xs[0], len(xs), xs is ys


def kinds(x, flag):
    n = 0
    while n < 1:
        n += 1
        if flag is True:
            x = x + 1
        elif flag == 1:
            x = x + 2
        elif flag == 0.0:
            x = x + 3
    return x, flag, 1 / (flag + 2)


def with_kinds(x):
    a = kinds(x, True)
    b = kinds(a[0], 1)
    c = kinds(b[0], 1.0)
    d = kinds(c[0], -0.0)
    return a, b, c, d, kinds(d[0], 0)


def reassigned(x, n, flag):
    while n > 0:
        if flag:
            x = x + 1
            flag = x < 2
        n -= 1
    return x, flag


def with_reassigned(x):
    return reassigned(x, 3, True)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def run(self, x, rounds, quiet=True):
        while rounds > 0:
            x = x * self.scale if quiet else x - self.scale
            rounds = rounds - 1
        return x


SCALED = Scaled(0.75)


def with_a_method(x):
    y = SCALED.run(x, 2, True)
    return SCALED.run(y, 3, quiet=False)


CHANGED = (of_two_kinds, one_by_one, recursive, forking, alike_forks, failing, lenient)
CHANGED += (aliased, with_kinds, with_a_method)
LEFT = (mixed_forks, with_reassigned)
RAISES = (failing, aliased)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", [*CHANGED, *LEFT], ids=lambda func: func.__name__)
def test_programs_give_what_the_loop_gives(func):
    assert calls_copies(func) == (func in CHANGED)
    assert_matches_loop(func, (XS,), batch_sizes=(0, 1, 2, 6) if func not in RAISES else (1, 2, 6))


def calls_copies(func: Callable[..., Any]) -> bool:
    blocks = made(func).blocks
    looks = {op.outs[0] for each in blocks for op in each.ops if callable(op.attr)}
    called = {each.terminator.callee for each in blocks if isinstance(each.terminator, Call)}
    called |= {op.args[0] for each in blocks for op in each.ops if op.name in ("fork", "defer")}
    return bool(looks & called)


def test_equal_calls_share_a_copy():
    made(of_two_kinds)
    assert copies_of(relax)[0] == {"quiet": True, "scale": 1.0}
    made(one_by_one)
    assert copies_of(settle)[0] == {"quiet": True}


def test_a_recursion_goes_on_in_its_copy():
    """The copy's call of itself is of the copy, too."""
    made(recursive)
    (inner,) = LIBRARY.code_of(countdown).copies.values()
    body = LIBRARY.codes[inner.co_filename, inner]
    assert not any(op.name == "is" for each in body.blocks for op in each.ops)
    within = LIBRARY.with_forks(body, Names(globals())).function
    looks = {op.outs[0]: op.attr for each in within.blocks for op in each.ops if op.name == "const"}
    (call,) = (b.terminator for b in within.blocks if isinstance(b.terminator, Call))
    assert looks[call.callee].__code__ == inner


def test_there_are_only_so_many():
    def settled(x, rounds, a, b, c):
        while rounds > 0:
            x = x * 0.5 if a else x - 1
            x = x * 0.25 if b else x - 2
            x = x * 2 if c else x + 1
            rounds -= 1
        return x

    def calls(x):
        x = settled(x, 2, True, True, True) + 1
        x = settled(x, 2, True, True, False) + 1
        x = settled(x, 2, True, False, True) + 1
        x = settled(x, 2, True, False, False) + 1
        x = settled(x, 2, False, True, True) + 1
        return settled(x, 2, False, True, False) + 1

    assert_matches_loop(calls, (XS,))
    assert len(copies_of(settled)) in (0, MOST_COPIES)  # a function of a closure is not known


def test_fewer_blocks_run():
    """What a literal decides is not asked again, in no round."""
    assert executions(one_by_one, XS, executor="vmap") < executions(
        one_by_one, XS, executor="vmap", fork="off"
    )


def test_a_name_that_changes_is_looked_up_again():
    global current
    mapped = autobatch.vmap(through_a_name)
    assert torch.equal(mapped(XS), torch.stack([through_a_name(x) for x in XS]))
    current, old = countdown_by, current
    try:
        assert torch.equal(mapped(XS), torch.stack([through_a_name(x) for x in XS]))
    finally:
        current = old


def countdown_by(x, n, flag):
    return x - n if flag else x


current = settle


def through_a_name(x):
    return current(x, 2, True) + 1


def test_gradients():
    xs = XS.clone().requires_grad_()
    autobatch.vmap(of_two_kinds)(xs).sum().backward()
    rows = XS.clone().requires_grad_()
    sum(of_two_kinds(row) for row in rows).backward()
    torch.testing.assert_close(xs.grad, rows.grad)


def test_errors_tell_of_the_same_calls():
    notes = []
    for fork in ("auto", "off"):
        with pytest.raises(ValueError, match="too large") as caught:
            autobatch.vmap(failing, fork=fork)(XS)
        notes.append(caught.value.__notes__)
    assert notes[0] == notes[1] and "called here" in notes[0][0]


def test_text_and_verifier():
    for func in CHANGED:
        found = made(func)
        assert verify(found) == []
        same(Program({found.name: found}, found.name, None, ("out",)))
    assert not re.search(r"0x[0-9a-f]", str(made(of_two_kinds)))
