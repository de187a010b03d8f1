"""Several laps of a loop to one launch give what single laps give, which threads leave when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.fused import LAPS, Hot, Loop, laps
from autobatch.batching.fused.inductor import in_whole, missing
from autobatch.batching.fused.replays import FusedReplay
from autobatch.batching.fused.unrolling import one_by_one, refusal, unrolled
from autobatch.batching.stretches import driver_names
from autobatch.batching.stretches.executors import CompiledExecutor
from autobatch.batching.trace import Input, record
from autobatch.batching.trace.graph import Graph
from programs import runge_kutta
from tests.oracle import assert_matches_loop

needs_compiler = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def graph_of(lap: Callable[..., Any], *given: Tensor) -> Graph:
    def run(k: int, *values: Tensor) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = torch.vmap(lap)(*values)
        return out

    return record(run, [Input("column", each) for each in given]).graph


def spiral(z: Tensor, size: Tensor, turn: Tensor) -> tuple[Tensor, ...]:
    z = torch.stack((z[0] * turn - z[1], z[0] + z[1] * turn)) * 0.9
    norm = z.square().sum(0)
    return z, norm, norm > size, size * 1.01


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("stays", [True, False])
def test_an_unrolled_lap_is_so_many_laps(count: int, stays: bool) -> None:
    z, size, turn = torch.randn(50, 2), torch.rand(50), torch.rand(50)
    graph = graph_of(spiral, z, size, turn)
    loop = Loop(((0, 0), (1, 3)), 2, stays)
    assert refusal(graph, loop) == ""

    def lap(k: int, *values: Tensor) -> list[Tensor]:
        return in_whole(graph, k, {**dict(enumerate(values)), **graph.literals})

    several = unrolled(graph, loop, count)
    assert len(set(several.outputs)) == len(graph.outputs) + 1
    found = in_whole(several, 50, {0: z, 1: size, 2: turn, **graph.literals})
    wanted = one_by_one(lap, loop, count)(50, z, size, turn)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    for row in range(50):  # what each thread would have come to by itself
        state, back = [z[row], size[row]], 0
        for number in range(count):
            new, norm, decision, grown = spiral(*state, turn[row])
            state = [new, grown]
            if bool(decision) != stays or number == count - 1:
                break
            back += 1
        torch.testing.assert_close([one[row] for one in found[:4]], [new, norm, decision, grown])
        assert found[4][row] == back


def test_what_several_laps_cannot_be() -> None:
    x = torch.rand(4)
    widened = graph_of(lambda x: (x.double() * 2.0, x > 1.0), x)
    assert refusal(widened, Loop(((0, 0),), 1, True)) == "a variable changes in kind"
    shown = graph_of(lambda x: (x * 2.0, x > 1.0, x), x)
    assert refusal(shown, Loop(((0, 0),), 1, True)) == "results share their memory"
    number = graph_of(lambda x: (x * 2.0, x + 1.0), x)
    assert refusal(number, Loop(((0, 0),), 1, True)) == "its end is not a bool"


def shrunk(x: Tensor, rate: Tensor) -> Tensor:
    while x > 1.0:
        x = x * rate - (x * 0.001).sin()
    return x


def kept(x: Tensor, rate: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    last = x * 0.5
    gone = x > 1e6
    while True:
        last = x * 2.0
        x = x * rate - (x * 0.001).sin()
        gone = x < 1.0
        if gone:
            return x, last, gone


PROGRAMS = (shrunk, kept)


def rows(size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(size, generator=draw) * 1000.0
    return x, torch.rand(size, generator=draw) * 0.2 + 0.75


def laps_of(executor: CompiledExecutor) -> list[str]:
    """What has become of the loops."""
    return [
        each.why if each.made is None else "made"
        for hot in executor.made
        for each in hot.loops.values()
    ]


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("program", PROGRAMS)
def test_loops_run_several_laps_to_a_launch(program: Callable[..., Any]) -> None:
    executor = CompiledExecutor(0)
    run = autobatch.vmap(program, executor=executor)
    single = autobatch.vmap(program)
    for _ in range(3):
        run(*rows(64))
        single(*rows(64))
    assert laps_of(executor) == ["made"]
    for size, seed in ((2, 1), (3, 2), (64, 3), (500, 4)):
        given = rows(size, seed)
        assert_matches_loop(
            program, given, configurations=({"executor": executor},), rtol=1e-4, atol=1e-4
        )
        with autobatch.counts() as many:
            run(*given)
        with autobatch.counts() as one:
            single(*given)
        assert (many.compilations, many.reloaded) == (0, 0)
        assert one.iterations == 0
        assert sum(many.threads_by_block.values()) + many.iterations == sum(
            one.threads_by_block.values()
        )
    assert many.block_executions < one.block_executions / 2
    assert many.host_reads < one.host_reads / 2


@needs_compiler
def test_a_solver_goes_several_laps_at_once() -> None:
    executor = CompiledExecutor(0)
    given = runge_kutta.example(64)
    solve = autobatch.vmap(given.function, executor=executor)
    for _ in range(3):
        solve(*given.args)
    assert laps_of(executor) == ["made"]
    with autobatch.counts() as found:
        solve(*given.args)
    slowest = found.by_block[("runge_kutta", 1)]
    assert slowest * LAPS > 90 and slowest < 40
    (hot,) = (each for each in executor.made if each.loops)
    assert type(hot) is Hot and hot.told.endswith(f"in 1 kernel, {LAPS} laps to a launch")


@needs_compiler
def test_a_limit_of_block_executions_is_one_of_laps() -> None:
    executor = CompiledExecutor(0)
    run = autobatch.vmap(shrunk, executor=executor)
    for _ in range(3):
        run(*rows(64))
    assert laps_of(executor) == ["made"]
    with autobatch.counts() as one:
        autobatch.vmap(shrunk)(*rows(64))
    enough = autobatch.vmap(shrunk, executor=executor, max_steps=one.block_executions)
    torch.testing.assert_close(enough(*rows(64)), run(*rows(64)))
    with pytest.raises(autobatch.StepLimitError):
        autobatch.vmap(shrunk, executor=executor, max_steps=one.block_executions - 1)(*rows(64))


def counting(x: Tensor) -> tuple[Tensor, int]:
    steps = 0
    while x > 1.0:
        x = x * 0.9 - (x * 0.001).sin().cos()
        steps += 1
    return x, steps


def changing(x: Tensor, y: Tensor) -> Tensor:
    while x > 1.0:
        x, y = (x - y.exp().tanh()) * 0.9, x
    return x - y


def widening(x: Tensor) -> Tensor:
    y = x.half()
    while x > 1.0:
        y = (x * 0.001).sin().cos() + y
        x = x * 0.9
    return y


def given_back(xs: list[Tensor], x: Tensor) -> Tensor:
    while x > 1.0:
        x = x * 0.9 - (x * 0.001).sin().cos()
        xs[0] = x
    return xs[0]


@needs_compiler
@pytest.mark.parametrize("size", [2, 7, 64])
def test_loops_of_other_kinds_stay_right(size: int) -> None:
    executor = CompiledExecutor(0)
    x, y = rows(size, 5)
    for program, given in (
        (counting, (x,)),
        (changing, (x, y)),
        (widening, (x,)),
        (lambda x: given_back([x], x), (x,)),
    ):
        assert_matches_loop(
            program, given, configurations=({"executor": executor},) * 4, rtol=1e-4, atol=1e-4
        )


@needs_compiler
def test_a_kernel_of_several_laps_that_gives_something_else_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = CompiledExecutor(0)
    run = autobatch.vmap(shrunk, executor=executor)
    wanted = autobatch.vmap(shrunk)(*rows(64))

    def wrong(graph: Graph, slow: Any, numbers: Any) -> Any:
        def replay(k: int, *values: Any) -> tuple[Tensor, ...]:
            return tuple(out + 1 if out.is_floating_point() else out for out in slow(k, *values))

        return FusedReplay(replay, "", 1, 1, 9, 1, frozenset(), True)

    monkeypatch.setattr(laps, "fused", wrong)
    for _ in range(3):
        torch.testing.assert_close(run(*rows(64)), wanted)
    assert laps_of(executor) == ["several laps in one kernel gave another result than torch"]


@needs_compiler
def test_guards_are_paid_once_for_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for all rounds is asked once for each run of a loop, however long that is."""
    asked: list[int] = []
    monkeypatch.setitem(driver_names.NAMES, "any_autocast", lambda: bool(asked.append(0)))
    executor = CompiledExecutor(0)
    run = autobatch.vmap(shrunk, executor=executor)
    rate = torch.full((8,), 0.9)
    for _ in range(4):
        run(torch.linspace(2.0, 1000.0, 8), rate)
    assert laps_of(executor) == ["made"]
    found = []
    for start in (50.0, 1e3, 1e8):
        asked.clear()
        with autobatch.counts() as count:
            run(torch.linspace(2.0, start, 8), rate)
        found.append((len(asked), count.block_executions + count.iterations))
    guards, executions = zip(*found, strict=True)
    assert 0 < guards[1] == guards[2] <= 6
    assert executions[0] < executions[1] < executions[2]


@needs_compiler
def test_recompilations_are_bounded_and_counted() -> None:
    executor = CompiledExecutor(0)

    def waves(x: Tensor) -> Tensor:
        return x.sin().cos().exp() * 0.5

    run = autobatch.vmap(waves, executor=executor, trace_after=0)
    for size in range(2, 14):
        with autobatch.counts() as count:
            for k in (2, 5, 9):
                run(torch.randn(k, size))
        made = count.compilations + count.reloaded
        assert made == (size < 6)  # past four shapes nothing is recorded, nor compiled


TABLE = torch.linspace(0.5, 0.9, 12)


def divided(x: Tensor, n: Tensor) -> Tensor:
    while x > 1.0:
        x = x * 0.5 - (x * 0.001).sin().cos() * 0.1
        x = x + 100 // n
        n = n - 1
    return x


def looked_up(x: Tensor, n: Tensor) -> Tensor:
    while x > 1.0:
        x = x * TABLE[n] + (x * 0.001).sin().exp().cos() * 0.1
        n = n + 1
    return x


def raised(x: Tensor, n: Tensor) -> Tensor:
    while x > 1.0:
        x = x * 0.9 - (x * 0.001).sin().cos()
        if x > 80.0 and n == 2:
            raise ValueError(f"too large: {int(n)}")
    return x


def quotient(x: float, n: int) -> float:
    while x > 1.0:
        x = x * 0.9 - 0.1 / (n - 2)
    return x


@needs_compiler
@pytest.mark.parametrize("program", [divided, looked_up, raised])
def test_what_fails_in_a_loop_fails_as_in_the_loop(program: Callable[..., Any]) -> None:
    executor = CompiledExecutor(0)
    ways = ({"executor": executor, "trace_after": 0}, {"executor": "compiled"})
    for n in ([9, 9, 9, 9], [9, 5, 2, 4], [3, 2, 0, 1], [9, 0, 12, 2]):
        given = torch.tensor([3.0, 60.0, 90.0, 70.0]), torch.tensor(n)
        assert_matches_loop(program, given, configurations=ways, rtol=1e-4, atol=1e-4)


@needs_compiler
def test_a_number_divided_by_zero_fails_as_in_the_loop() -> None:
    ways = ({"executor": CompiledExecutor(0), "trace_after": 0}, {"executor": "compiled"})
    given = torch.tensor([3.0, 60.0, 90.0]), torch.tensor([5, 2, 0])
    assert_matches_loop(quotient, given, configurations=ways, scalars="python")


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_laps_keep_the_dtype(dtype: torch.dtype) -> None:
    executor = CompiledExecutor(0)
    x, rate = (each.to(dtype) for each in rows(16))
    close = 1e-4 if dtype in (torch.float32, torch.float64) else 0.05
    for program in PROGRAMS:
        ways = ({"executor": executor, "trace_after": 0},)
        assert_matches_loop(program, (x, rate), configurations=ways, rtol=close, atol=close)
    assert laps_of(executor) == ["made"] * (2 * (close < 0.01))


@needs_compiler
def test_laps_know_what_is_no_number() -> None:
    executor = CompiledExecutor(0)
    ways = ({"executor": executor, "trace_after": 0},)
    x = torch.tensor([5.0, float("nan"), -float("inf"), 1e3, -0.0, 800.0])
    rate = torch.tensor([0.9, 0.9, 0.9, float("nan"), 0.9, 0.8])
    for program in PROGRAMS[:1]:
        for _ in range(2):
            assert_matches_loop(program, (x, rate), configurations=ways, rtol=1e-4, atol=1e-4)
    assert laps_of(executor) == ["made"]
