"""Inlining of short functions, and tail calls as loops: the same results, in fewer executions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.api import LIBRARY
from autobatch.ir.program import Call, Function, Program
from autobatch.ir.verifier import verify
from autobatch.passes import run_passes
from autobatch.passes.inlining import LONGEST, Callee, bound, inline_calls, is_short
from autobatch.passes.tail_calls import loop_tail_calls
from autobatch.vm.purity import Names
from programs.ackermann import ackermann
from tests.building import Lines, block, function
from tests.goldens import assert_golden
from tests.oracle import assert_matches_loop
from tests.through_text import same

XS = torch.tensor([-2.0, -0.5, 0.5, 1.0, 3.0, 9.0])
NS = torch.tensor([3, 0, 6, 1, 5, 2])


def made(func: Callable[..., Any]) -> Function:
    """What runs in the place of a function."""
    return LIBRARY.with_forks(LIBRARY.code_of(func), Names.of(func)).function


def calls_in(func: Callable[..., Any]) -> int:
    return sum(isinstance(each.terminator, Call) for each in made(func).blocks)


def counted(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
    with autobatch.counts() as counts:
        autobatch.vmap(func, **options)(*args)
    return counts


# By hand.


def magnitude() -> Function:
    at = Lines()
    return function(
        "magnitude",
        "a",
        block(at.op("%1 = lt a, a"), at.branch("%1", 1, 2)),
        block(at.op("%return = neg a"), at.jump(3)),
        block(at.op("%return = copy a"), at.jump(3)),
        block(at.give("%return")),
    )


def calling(args: str = "x") -> Function:
    at = Lines()
    return function(
        "f",
        "x, g",
        block(at.op("y = copy x"), at.jump(1)),
        block(at.call("y", "g", args, 2)),
        block(at.op("%return = copy y"), at.give("%return")),
    )


def test_the_example_of_the_docstring():
    inlined = inline_calls(calling(), lambda call: Callee(magnitude()))
    assert verify(inlined) == []
    assert_golden("inlining", f"{calling()}\n\n{magnitude()}\n\n== inlined\n\n{inlined}\n")


def test_places_keep_the_way_there():
    inner = inline_calls(calling(), lambda call: Callee(magnitude()))
    outer = inline_calls(calling("x, g"), lambda call: Callee(inner))
    chains = {len(op.span.chain()) for each in outer.blocks for op in each.ops}
    assert chains == {1, 2, 3} and verify(outer) == []
    assert same(Program({"f": outer}, "f", None, ("out",))).main == outer


def test_what_is_not_known_stays_a_call():
    given = calling()
    assert inline_calls(given, lambda call: None) is given
    assert inline_calls(calling("x, x"), lambda call: Callee(magnitude())) == calling("x, x")


@pytest.mark.parametrize("count, short", [(LONGEST, True), (LONGEST + 1, False)])
def test_only_short_ones(count: int, short: bool):
    at = Lines()
    ops = (at.op("a = copy a") for _ in range(count))
    assert is_short(Callee(function("f", "a", block(*ops, at.give("a"))))) is short


def test_a_parameter_may_be_the_result():
    at = Lines()
    identity = function("identity", "a", block(at.give("a")))
    inlined = run_passes(inline_calls(calling(), lambda call: Callee(identity)))
    assert [len(inlined.blocks), inlined.blocks[0].ops[-1].outs] == [1, ("%return",)]


@pytest.mark.parametrize(
    "lines",
    [
        lambda at: block(at.op("b = box a"), at.give("a")),
        lambda at: block(at.op("%1 = load_free", "c"), at.give("%1")),
        lambda at: block(at.op("= delete", "a"), at.give("a")),
        lambda at: block(at.op("%1 = copy unset"), at.give("%1")),
    ],
)
def test_what_needs_a_frame_of_its_own(lines):
    assert not is_short(Callee(function("f", "a", lines(Lines()))))


# On programs.


def clip(x, low=-1.0, *, high=2.0):
    if x < low:
        return low - x
    return torch.exp(-x) if x > high else x * 1.5


def by_place_and_name(x):
    n = 0
    while n < 4:
        x = clip(x, low=-1.0, high=x) + 0.25
        n += 1
    return x


def with_defaults(x):
    return clip(x) + 1


def twice(x, low):
    return clip(clip(x, low, high=1.0), low, high=0.5)


def nested(x):
    y = twice(x, -1.0)
    return y if y > 0.75 else twice(y, 0.0)


def strict(x):
    if x > 5:
        raise ValueError(f"too large: {x.item()}")
    return x + 1


def failing(x):
    for _ in range(3):
        x = strict(x) * 1.5
    return x


def push(xs, x):
    if x > 0:
        xs.append(x)
        return xs
    return [x]


def aliased(x):
    xs = [x * 2]
    ys = push(xs, x)
    ys[0] = ys[0] + 1
    return xs[0], len(xs), ys[-1]


def in_place(t, x):
    if x > 1:
        t += x
    else:
        t.mul_(2)
    return t


def written(x):
    t = torch.ones(2)
    u = in_place(t, x)
    return t.sum() + u[0], t is u


def shadowing(x):
    x = clip(x, x, high=x)
    a = clip(x, x - 1, high=x + 1)
    return a, x


class Bounded:
    def __init__(self, low):
        self.low = low

    def clipped(self, x):
        return x if x > self.low else self.low + x * 0


BOUNDED = Bounded(0.75)


def with_a_method(x):
    n = 0
    while n < 3:
        x = BOUNDED.clipped(x) - 0.5
        n += 1
    return x


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def mixed_returns(x):
    if x > 2:
        return 1
    return 2.5 if x > 0 else None


def of_unlike_kinds(x):
    y = mixed_returns(x)
    return -1.0 if y is None else y * 2.0


def doubled_unless_large(x):
    with torch.no_grad():
        if x > 2:
            return x
    return x * 2


def under_modes(x):
    return doubled_unless_large(x) + 1


TAKEN_IN = (by_place_and_name, nested, failing, aliased, written, shadowing, with_a_method)
TAKEN_IN += (of_unlike_kinds,)
LEFT = (with_defaults, under_modes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("func", [*TAKEN_IN, *LEFT], ids=lambda func: func.__name__)
def test_programs_give_what_the_loop_gives(func):
    assert calls_in(func) == (func in LEFT)
    assert_matches_loop(func, (XS,), batch_sizes=(None, 1, 0 if func is written else 2))


def test_mutual_recursion():
    assert_matches_loop(even, (NS,))
    assert calls_in(even) and calls_in(odd)


def test_a_short_branch_of_a_helper_is_converted():
    """One execution a round; a call takes the blocks of both functions, apart."""

    def rounds(x):
        n = 0
        while n < 30:
            x = clip(x, -1.0, high=2.0) + 0.1
            n += 1
        return x

    for _ in range(3):
        counts = counted(rounds, XS, trace_after=0)
    assert counts.block_executions == 32 and not counts.host_reads
    assert counted(rounds, XS, fork="off").block_executions == 199


def test_gradients():
    xs = XS.clone().requires_grad_()
    (autobatch.vmap(nested)(xs)).sum().backward()
    rows = XS.clone().requires_grad_()
    sum(nested(row) for row in rows).backward()
    torch.testing.assert_close(xs.grad, rows.grad)


def test_errors_tell_of_the_same_calls():
    """The call, then the place in what it calls, as if that had run in a frame of its own."""
    notes = []
    for fork in ("auto", "off"):
        with pytest.raises(ValueError, match="too large") as caught:
            autobatch.vmap(failing, fork=fork)(XS)
        notes.append(caught.value.__notes__)
    assert notes[0] == notes[1] and "called here" in notes[0][0]
    for fork in ("auto", "off"):
        (result,) = autobatch.vmap(failing, on_error="isolate", fork=fork)(XS[-1:])
        notes.append(result.exception.__notes__)
    assert notes[2] == notes[3]


def kinds_of(x):
    if x > 0:
        return x
    return x, x


def passes_on(x):
    return kinds_of(x)


def test_unlike_results_name_each_return():
    texts = []
    for fork in ("auto", "off"):
        with pytest.raises(autobatch.AutobatchError) as caught:
            autobatch.vmap(passes_on, fork=fork)(XS)
        texts.append(str(caught.value))
    assert texts[0] == texts[1] and "return x, x" in texts[0]


def helper_one(x):
    return x + 1 if x > 0 else x


def helper_two(x):
    return x + 10 if x > 0 else x


current = helper_one


def calls_current(x):
    return current(x) * 2


@autobatch.per_thread
def change_current() -> None:
    global current
    current = helper_two


def changes_on_the_way(x):
    first = current(x)
    change_current()
    return first + current(x)


def test_names_that_come_to_mean_something_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "current", helper_one)
    before = autobatch.vmap(calls_current)(XS)
    monkeypatch.setitem(globals(), "current", helper_two)
    after = autobatch.vmap(calls_current)(XS)
    assert (after - before).tolist() == [0, 0, 18, 18, 18, 18]


def test_names_that_change_while_the_caller_is_at_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "current", helper_one)
    assert calls_in(changes_on_the_way) == 2
    result = autobatch.vmap(changes_on_the_way)(XS[2:])
    assert result.tolist() == (XS[2:] * 2 + 11).tolist()


def test_names_that_change_while_a_stream_is_at_work(monkeypatch: pytest.MonkeyPatch):
    """What gives the examples runs between them, in the midst of a frame."""
    monkeypatch.setitem(globals(), "current", helper_one)

    def examples():
        for index in range(6):
            globals()["current"] = helper_one if index < 3 else helper_two
            yield torch.tensor(1.0)

    found = autobatch.stream(calls_current, examples(), 1, order="input")
    assert [float(result) for _, result in found] == [4.0] * 3 + [22.0] * 3


def noisy(x):
    return x + torch.rand(()) if x > 0 else x - torch.rand(())


def draws(x):
    return noisy(x) * 2


def test_what_draws_stays_a_call():
    assert calls_in(draws) == 1
    one = autobatch.vmap(draws, randomness="different", seed=3)(XS)
    rest = autobatch.vmap(draws, randomness="different", seed=3, fork="off")(XS)
    assert torch.equal(one, rest)


def test_explain_tells_of_each_function(capsys: pytest.CaptureFixture[str]):
    autobatch.explain(autobatch.vmap(nested), XS)
    text = capsys.readouterr().out
    assert "def twice" in text and "def clip" in text


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def gate(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else x

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.gate(x) * 0.5
        return x


def test_methods_of_modules_see_new_parameters():
    model, xs = Gated(), torch.randn(5, 3)
    mapped = autobatch.vmap(model, trace_after=0)
    for _ in range(3):
        assert_matches_loop(model, (xs,), configurations=({"trace_after": 0},))
        with torch.no_grad():
            model.linear.weight.mul_(2)
    assert ("Gated.gate", 0) not in counted(model, xs).by_block
    torch.testing.assert_close(mapped(xs), torch.stack([model(x) for x in xs]))


# Tail calls.


def test_tail_calls_by_hand():
    at = Lines()
    swaps = function(
        "f",
        "a, b, f",
        block(at.branch("a", 1, 2)),
        block(at.call("%return", "f", "b, a, f", 3)),
        block(at.op("%return = copy b"), at.jump(3)),
        block(at.give("%return")),
    )
    looped = loop_tail_calls(swaps, lambda call: Callee(swaps))
    assert verify(looped) == []
    assert_golden("tail_calls", f"{swaps}\n\n== looped\n\n{looped}\n")
    assert loop_tail_calls(swaps, lambda call: None) is swaps


def gcd(a, b):
    if b == 0:
        return a
    return gcd(b, a % b)


def count_down(n, total):
    if n <= 0:
        return total
    return count_down(n - 1, total=total + n)


def not_last(n):
    if n <= 0:
        return n
    return not_last(n - 1) + 1


def left_over(n, first=True):
    if first:
        y = n + 1
    if n > 0:
        return left_over(n - 1, False)
    return y


def with_loop(n, xs):
    for _ in range(2):
        if n <= 0:
            return xs
        n = n - 1
    return with_loop(n, [*xs, n])


def in_a_loop(n):
    xs = with_loop(n, [n])
    return sum(xs)


class Chain:
    def __init__(self, size, rest):
        self.size, self.rest = size, rest

    def walked(self, x, other):
        if self.rest is None:
            return x + self.size
        return self.rest.walked(x * 2, other) if x > other.size else self.walked(x + 1, other)


CHAIN = Chain(1, Chain(2, Chain(3, None)))


def along(chain, x):
    if chain.rest is None:
        return x * chain.size
    return along(chain.rest, x + chain.size)


def test_the_first_argument_may_change():
    """It is known in the first round only."""
    assert_matches_loop(along, (CHAIN, XS), in_dims=(None, 0))


def test_methods_that_call_themselves():
    def walk(x):
        return CHAIN.walked(x, CHAIN)

    assert_matches_loop(walk, (XS,))


TAIL_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (gcd, (torch.tensor([12, 7, 9, 0]), torch.tensor([18, 21, 6, 5]))),
    (count_down, (NS, NS * 0)),
    (not_last, (NS,)),
    (left_over, (NS * 0,)),
    (left_over, (NS,)),
    (in_a_loop, (NS,)),
    (ackermann, (NS % 3, NS % 4)),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("func, args", TAIL_CALLS)
def test_tail_calls_give_what_the_loop_gives(func, args):
    assert_matches_loop(func, args)
    assert_matches_loop(func, args, scalars="python")


@pytest.mark.parametrize(
    "func, calls", [(gcd, 0), (count_down, 0), (not_last, 1), (left_over, 1), (with_loop, 0)]
)
def test_which_tail_calls_are_loops(func, calls):
    assert calls_in(func) == calls


def test_a_tail_call_takes_no_depth():
    n = torch.tensor([50, 20])
    counts = counted(count_down, n, n * 0, max_depth=2)
    assert counts.block_executions <= 2 * 51
    with pytest.raises(autobatch.AutobatchError, match="max_depth"):
        autobatch.vmap(not_last, max_depth=2)(n)


def test_what_binds_an_argument_to_each_parameter():
    at = Lines()
    call = at.call("y", "g", "x", 1)
    taken = bound(Callee(magnitude()), call)
    assert taken == {"a": "x"} and bound(Callee(magnitude(), "self"), call) is None


def test_the_steps_of_ackermann():
    """Two of its three calls are its result: 247 executions, were each a frame."""
    draw = torch.Generator().manual_seed(0)
    m = torch.randint(0, 3, (64,), generator=draw)
    n = torch.randint(0, 4, (64,), generator=draw)
    assert counted(ackermann, m, n, executor="vmap").block_executions == 146
