"""Programs that are measured to be slower together than one by one run so, and nobody can tell."""

import math
import time
from abc import ABCMeta
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from time import perf_counter

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import autobatch
from autobatch.alone import measuring as alone_measuring
from autobatch.alone.contents import Contents
from autobatch.compat import within_level
from autobatch.runs import trial
from autobatch.runs.trial import measuring
from autobatch.runs.watch import SPARED, Watch
from autobatch.vm.invariants import checking
from tests.test_alone_computing import outcome, stack

SIZE = 8
X = torch.randn(SIZE, 6, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def by_the_clock():
    with measuring(True), checking(False):
        yield


@pytest.fixture
def whatever_it_takes(monkeypatch):
    """Plain Python is taken to be better, wherever it may run a program."""
    monkeypatch.setattr(trial, "BETTER", 0)
    monkeypatch.setattr(trial, "WORTH_MEASURING", 0)


def rows_of(function, *columns):
    return [function(*(value.clone() for value in row)) for row in zip(*columns, strict=True)]


def counted(function, *args, times=4, **options):
    """What the last of some calls gives, and how many threads plain Python has run in each."""
    batched, plain = autobatch.vmap(function, **options), []
    for _ in range(times):
        with autobatch.counts() as counts:
            found = batched(*args)
        plain.append(counts.plain)
    return found, plain


# When.


def joined(w):
    """The weights of a spanning tree; each example's own part of a tensor is read."""
    parent, total = torch.arange(6), torch.zeros(())

    def find(at):
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    for k in w[:, 0].argsort().tolist() * 2:
        a, b = find((k * 5) % 6), find((k * 3 + 1) % 6)
        if a != b:
            parent[a] = b
            total = total + w[k, 0]
    return total


def test_few_threads_that_part_are_alone_as_soon_as_that_is_measured():
    found, plain = counted(joined, X, times=12)
    torch.testing.assert_close(found, torch.stack(rows_of(joined, X)))
    assert plain[-1] == SIZE
    assert counted(joined, X[:3], times=1)[1] == [3]


def test_kernels_that_all_share_keep_threads_together():
    def own(x):
        for _ in range(60):
            x = torch.tanh(x * 1.01 + x.roll(1, 0))
        return x

    xs = torch.randn(256, 8, 8)
    found, plain = counted(own, xs)
    assert plain == [0] * 4
    torch.testing.assert_close(found[0], own(xs[0]))


@pytest.mark.parametrize(
    ("own", "taken", "plain"),
    [
        (lambda x: x * 2 if x.sum() > 0 else x, [0], 0),
        (lambda x: x * 3 if x.sum() > 0 else x, [0, 9, 0], 0),
        (lambda x: x * 4 if x.sum() > 0 else x, [0, 0], SIZE),
    ],
)
def test_one_measurement_of_a_short_run_decides_nothing(own, taken, plain, monkeypatch):
    """However little it says that plain Python takes."""
    measured = iter(taken)
    monkeypatch.setattr(alone_measuring.Kind, "in_all", lambda call, spent: 1.0)
    monkeypatch.setattr(alone_measuring, "seconds", lambda *args: next(measured, 9))
    assert counted(own, X, times=5)[1][-1] == plain


@pytest.mark.parametrize(
    ("size", "needed", "without", "times"),
    [(11, True, True, 1), (10, False, False, 1), (9, True, False, 2), (8, True, False, 1)],
)
def test_a_backward_counts_where_there_are_many(size, needed, without, times, monkeypatch):
    weight = torch.ones(5, requires_grad=needed)

    def own(x):
        return [weight * row if row.sum() > 0 else row * weight * 2 for row in x], 1

    taken = []
    run, seconds = alone_measuring.run, alone_measuring.seconds
    monkeypatch.setattr(alone_measuring.Kind, "in_all", lambda call, spent: 1.0)
    monkeypatch.setattr(alone_measuring, "timed", lambda *call: (1.0, run(*call)))
    monkeypatch.setattr(alone_measuring, "seconds", lambda *of: taken.append(seconds(*of)) or 1.0)
    counted(torch.no_grad()(own) if without else own, X[:1].repeat(size, 1, 1))
    assert taken and set(taken) == {times * size}


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_what_is_measured_within_a_derivative_is_the_call_without(engine, monkeypatch):
    """What a level of functorch makes is wrapped; the rows that are measured are not."""
    judged, judge = [], trial.Trial.judge

    def judge_within(run):
        if within_level():
            judged.append(run)
            judge(run)

    def grown(x):
        while x.norm() < 9:
            x = x * 1.5 + 0.1
        return x

    def own(x):
        return torch.func.jacrev(grown)(x[0]), torch.func.jvp(grown, (x[1],), (x[2],))

    monkeypatch.setattr(trial, "WORTH_MEASURING", 0)
    monkeypatch.setattr(trial.Trial, "judge", judge_within)
    found, _ = counted(own, X, engine=engine)
    assert judged
    torch.testing.assert_close(found, stack(rows_of(own, X)))


def test_a_process_that_waits_for_tracing_is_measured_but_for_what_that_spares():
    watch = Watch(0.0, since=perf_counter() - 1.0)
    watch.waiting = 1000
    watch.tick()
    assert watch.colds == 1
    assert watch.warm == pytest.approx(1.0 - 1000 * SPARED, abs=0.1)
    watch = Watch(0.0, since=perf_counter() - 1.0)
    watch.waiting, watch.is_cold = 1000, True
    watch.tick()
    assert watch.warm == 0 and watch.waiting == 0


@pytest.mark.parametrize(("size", "plain"), [(1, 1), (2, 0)])
def test_larger_tensors_of_one_thread(size, plain, whatever_it_takes):
    def own(x):
        return x.flip(-1) - x.mean() if x.sum() > 0 else x

    xs = torch.randn(size, 3, 40, 40)
    found, alone = counted(own, xs)
    assert alone[-1] == plain
    torch.testing.assert_close(found, torch.stack(rows_of(own, xs)))


def test_runs_that_are_to_be_the_same_each_time_are_not_measured():
    def own(x):
        return joined(x)

    torch.use_deterministic_algorithms(True)
    try:
        assert counted(own, X)[1] == [0] * 4
    finally:
        torch.use_deterministic_algorithms(False)
    assert counted(own, X)[1][-1] == SIZE


def test_nobody_sees_that_some_threads_are_measured(whatever_it_takes):
    """They fail, and those below them too."""

    def own(x, limit):
        y = joined(x)
        x.zero_()
        if y > limit:
            raise ValueError(f"{y.item():.6f}")
        return y

    before, sums = X.clone(), rows_of(joined, X)
    limit = sorted(sums)[SIZE // 2].item()
    expected = next(y for y in sums if y > limit)
    for _ in range(3):
        with pytest.raises(ValueError, match=f"{expected.item():.6f}"):
            autobatch.vmap(own, in_dims=(0, None))(X, limit)
    found, plain = counted(own, X, limit, in_dims=(0, None), on_error="isolate")
    assert [each.exception is None for each in found] == [y <= limit for y in sums]
    assert plain[-1] == sum(y <= limit for y in sums)
    assert torch.equal(X, before)


# What.


def joined_probabilities(*xs):
    most = max(xs)
    return most if most == -math.inf else most + math.log(sum(math.exp(x - most) for x in xs))


def prefixes(logits, beam=2):
    """A prefix beam search, strings made of lists."""
    scores = F.log_softmax(logits, -1)
    first = [k for k in scores.argmax(-1).tolist() if k]
    beams = [((), (0.0, -math.inf))]
    for t in range(scores.shape[0]):
        after = defaultdict(lambda: (-math.inf, -math.inf))
        for prefix, (blank, other) in beams:
            for s in range(scores.shape[1]):
                p = scores[t, s].item()
                new = prefix if s == 0 else (*prefix, s)
                b, o = after[new]
                after[new] = (
                    (joined_probabilities(b, blank + p, other + p), o)
                    if s == 0
                    else (b, joined_probabilities(o, blank + p, other + p))
                )
        beams = sorted(after.items(), key=lambda it: joined_probabilities(*it[1]), reverse=True)
        beams = beams[:beam]
    return str(first), str(list(beams[0][0])), joined_probabilities(*beams[0][1])


def test_a_prefix_beam_search(whatever_it_takes):
    found, plain = counted(prefixes, X)
    expected = rows_of(prefixes, X)
    assert plain[-1] == SIZE
    assert (found[0], found[1]) == tuple(map(list, list(zip(*expected, strict=True))[:2]))
    torch.testing.assert_close(found[2], torch.tensor([row[2] for row in expected]).double())


@dataclass(frozen=True)
class Push:
    value: Tensor


@dataclass(frozen=True)
class Times:
    number: int = 1


class Sign(Enum):
    UP, DOWN = 1, -1


class Node:
    def __init__(self, points, depth=0):
        middle = len(points) // 2
        self.axis, self.point = depth % 2, points[middle]
        self.left = Node(points[:middle], depth + 1) if middle else None
        self.right = Node(points[middle + 1 :], depth + 1) if middle + 1 < len(points) else None

    def __call__(self, q):
        found = ((self.point - q) ** 2).sum()
        near, far = self.left, self.right
        if q[self.axis] > self.point[self.axis]:
            near, far = far, near
        for node in (near, far):
            if node is not None:
                found = torch.minimum(found, node(q))
        return found


class Walker:
    def __init__(self, x, by=Sign.UP):
        self.x, self.by = x, by

    def step(self, sign):
        self.x = self.x + sign.value * self.by.value
        return self.x.sum()


TREE = Node(torch.rand(15, 2, generator=torch.Generator().manual_seed(1)))
SIGNS = list(Sign)
PROGRAM = [Push(torch.ones(5)), Times(2), Push(torch.zeros(5)), Times(3)] * 4


def executed(x, program):
    found = [x[0]]
    for instruction in program:
        match instruction:
            case Push(value=value):
                found.append(found[-1] + value)
            case Times(number=number) if number > 1:
                found[-1] = found[-1] * number
            case _:
                found.pop()
        if isinstance(instruction, Push) and len(found) > 3:
            del found[0]
    return found[-1]


def nearest(x):
    return sum(TREE(part[:2]) for part in x)


def walks(x):
    walker, total = Walker(x[0]), 0.0
    for k in x.flatten().gt(0).long().tolist():
        total = total + walker.step(SIGNS[k])
    return total


def moved(x):
    values, places = x.sort(dim=0)
    inverse = torch.linalg.inv(values[:5] + 3 * torch.eye(5))
    for _ in range(20):
        if inverse.sum() > x.kthvalue(2, 0).values.sum():
            inverse = F.normalize(inverse, dim=0)
        else:
            inverse = torch.meshgrid(inverse[0], inverse[1], indexing="ij")[0].clip(-1, 1)
    return inverse, places


@pytest.mark.parametrize("function", [nearest, walks, moved])
def test_objects_that_hold_tensors_and_more_of_torch(function, whatever_it_takes):
    found, plain = counted(function, X)
    torch.testing.assert_close(found, stack(rows_of(function, X)))
    assert plain[-1] == SIZE


def test_instructions_that_hold_tensors(whatever_it_takes):
    programs = [PROGRAM[at:] for at in range(SIZE)]
    found, plain = counted(executed, X, autobatch.objects(programs), times=6)
    expected = [executed(x.clone(), p) for x, p in zip(X, programs, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected))
    assert plain[-1] == SIZE


def test_tensors_of_lengths_of_their_own(whatever_it_takes):
    def own(x, y):
        table = torch.full((len(x) + 1, len(y) + 1), math.inf)
        table[0, 0] = 0.0
        for i in range(1, len(x) + 1):
            for j in range(1, len(y) + 1):
                least = min(table[i - 1, j], table[i, j - 1], table[i - 1, j - 1])
                table[i, j] = (x[i - 1] - y[j - 1]).abs() + least
        x.zero_()
        return table[-1, -1]

    xs, ys = ([torch.randn(n) for n in ns] for ns in ([3, 5, 2, 6, 4, 3], [4, 2, 6, 5, 3, 3]))
    before = [x.clone() for x in xs]
    found, plain = counted(own, autobatch.ragged(xs), autobatch.ragged(ys))
    torch.testing.assert_close(found, torch.stack(rows_of(own, xs, ys)))
    assert plain[-1] == 6
    assert all(map(torch.equal, xs, before))


# What may not.


def test_tensors_that_objects_hold_are_not_written(whatever_it_takes):
    def own(x, program):
        y = executed(x, program)
        program[0].value.add_(1.0)
        return y

    def of_a_tree(x):
        TREE.point.add_(0.0)
        return nearest(x)

    programs = autobatch.objects([PROGRAM[:] for _ in range(SIZE)])
    for function, args in ((own, (X, programs)), (of_a_tree, (X,))):
        for _ in range(3):
            with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
                autobatch.vmap(function)(*args)
            assert not counts.plain


def test_what_objects_hold_has_its_gradients(whatever_it_takes):
    weight = torch.ones(5, requires_grad=True)
    programs = [[Push(weight), *PROGRAM] for _ in range(2 * SIZE)]
    xs = X.repeat(2, 1, 1)
    found, plain = counted(executed, xs, autobatch.objects(programs), times=3)
    assert plain[-1] == 2 * SIZE and found.requires_grad
    expected = torch.stack(list(map(executed, xs, programs)))
    grads = [torch.autograd.grad(rows.square().sum(), weight)[0] for rows in (found, expected)]
    torch.testing.assert_close(*grads)
    assert outcome(executed, X, autobatch.objects([PROGRAM] * SIZE))[0].requires_grad is False


WEIGHTS = [torch.ones(2), torch.zeros(2)]


class Shown:
    def __init__(self):
        self.times = 1

    @property
    def shown(self):
        time.perf_counter()
        return self.times


@dataclass
class Held:
    function: object


class Asked(metaclass=ABCMeta):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, other):
        time.perf_counter()
        return NotImplemented


def moves(weight):
    return weight.add_(0.0).sum()


HELD, SHOWN = Held(moves), Shown()


def by_a_key(x):
    return sorted(WEIGHTS, key=lambda w: w.add_(0.0).sum())[0].sum() + x.sum()


def by_a_map(x):
    return sum(map(moves, WEIGHTS), x.sum())


def by_a_call(x):
    def applied(f, w):
        return f(w)

    return applied(lambda w: w.add_(0.0), WEIGHTS[0]).sum() + x.sum()


def by_a_field(x):
    return HELD.function(WEIGHTS[0]) + x.sum()


def by_a_pattern(x):
    match SHOWN:
        case Shown(shown=times):
            return x.sum() * times
    return x.sum()


def by_a_hook(x):
    return x.sum() if isinstance(SHOWN, Asked) else x.mean()


def by_a_part(x):
    part = torch.as_tensor(WEIGHTS[0])
    part += 0.0
    return x.sum() + part.sum()


@pytest.mark.parametrize(
    "function", [by_a_key, by_a_map, by_a_call, by_a_field, by_a_pattern, by_a_hook, by_a_part]
)
def test_effects_that_no_name_tells(function, whatever_it_takes):
    batched = autobatch.vmap(function)
    for _ in range(3):
        with autobatch.counts() as counts, suppress(autobatch.AutobatchError):
            batched(X)
        assert counts.plain == 0


class Node:
    def __init__(self, depth):
        self.below = [Node(depth - 1) for _ in range(2)] if depth else []


class Encoder(torch.nn.Module):
    """It asks objects where to go, and computes with tensors."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(3))

    def forward(self, node):
        h = self.weight[0] * 2
        for part in node.below:
            h = torch.tanh(self.weight @ (h + self(part)))
        return h


def test_only_what_is_measured_is_looked_through(monkeypatch):
    """Not all that many examples hold, to find out that they are kept together."""
    looked = []
    nature = Contents.nature
    monkeypatch.setattr(
        Contents, "nature", lambda self, part: looked.append(type(part)) or nature(self, part)
    )
    monkeypatch.setattr(trial, "WORTH_MEASURING", 0)
    monkeypatch.setattr(alone_measuring.Kind, "may_end", lambda call: False)
    nodes = [Node(3) for _ in range(200)]
    batched = autobatch.vmap(Encoder())
    with torch.no_grad():
        found = batched(autobatch.objects(nodes))
    assert found.shape == (200, 3)
    assert 0 < looked.count(Node) <= alone_measuring.MOST_MEASURED
