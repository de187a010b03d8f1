"""Sites: the places in a block where stretches begin, and how a step goes through one."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from time import perf_counter
from typing import Any

from torch import Tensor

from autobatch.batching import operations, writes
from autobatch.batching.ambient import ambient_key
from autobatch.batching.context import Context
from autobatch.batching.contributions import Contributions
from autobatch.batching.late_reads import written_in
from autobatch.batching.operations import Env, Scope
from autobatch.batching.selects import are_lone
from autobatch.batching.stretches.budget import Budget
from autobatch.batching.stretches.checking import agrees, note_checks, note_loose
from autobatch.batching.stretches.drivers import Driver, driver_of
from autobatch.batching.stretches.outline import (
    Outline,
    is_pure_call,
    is_unsafe_read,
    kind_of,
    kinds_of,
    may_begin,
)
from autobatch.batching.stretches.plans import (
    Otherwise,
    Plan,
    Skeleton,
    Unforeseen,
    host_only,
    outlooks,
)
from autobatch.batching.stretches.rounds import Round
from autobatch.batching.stretches.signature import Gathered
from autobatch.batching.stretches.stores import are_stored, put
from autobatch.batching.stretches.stretch import Stretch, is_seen_through, refuse, unseen
from autobatch.batching.stretches.work import Work
from autobatch.batching.trace import Untraceable
from autobatch.errors import ExecutorError
from autobatch.ir.ops import LAUNCHES
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, read

MOST_DRIVERS = 3
ASKS_CONTEXT = attrgetter("asks_context")
LOG = logging.getLogger("autobatch")


@dataclass(slots=True, eq=False, repr=False)
class Site:
    """A place in a block where stretches begin.

    ``needed`` are the variables that are still wanted when the block is done, ``turn`` is the
    block in its loop, if it is in one. What ``literals`` hold is the same
    at every run: tuples and slices, as of indices. ``weight``: how many operations launch kernels.
    """

    ops: Sequence[Op]
    start: int
    needed: frozenset[str]
    turn: Round | None = None
    literals: frozenset[str] = frozenset()
    exposed: tuple[str, ...] = ()
    begins: bool = True
    weight: int = 1
    budget: Budget = field(default_factory=Budget)
    skeletons: dict[Hashable, Skeleton] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)

    def __post_init__(self) -> None:
        defined: set[str] = set()
        exposed: list[str] = []
        for op in self.ops[self.start :]:
            exposed += [arg for arg in op.args if arg not in defined and arg not in exposed]
            defined.update(op.outs)
        self.exposed = tuple(exposed)
        self.begins = may_begin(self.ops[self.start])
        self.weight = sum(op.name in LAUNCHES for op in self.ops[self.start :])

    def advance(self, work: Work, context: Context, scope: Scope, env: Env) -> int:
        """Run a stretch if there is one here.

        The position after it; ``start`` where the next operation runs by itself, and ``~p`` (less
        than zero) where all before position ``p`` do.
        """
        given = context.contributions
        for driver in self.drivers:
            if driver.reads_written(env, scope, given):
                continue
            if driver.fits(env, scope, context.k, context):
                self.prefer(driver)
                context.counter.launch(driver.kernels)
                return driver.end
        kinds = self.kinds(env) if self.begins else None
        if kinds is None or (context.checkpoint is not None and "o" in kinds):
            return self.start
        skeleton = self.skeletons.get(kinds)
        if skeleton is None:
            if work.is_cold(self.budget, self.weight):
                context.counter.cold()
                return ~len(self.ops)
            if work.waits(self.weight):
                context.counter.waits(self.weight)
                return ~len(self.ops)
            skeleton = self.added(kinds, scope, context, env)
        if skeleton.end == skeleton.start:
            return self.start
        before = work.env = dict(env)
        work.granted = False
        while True:
            try:
                found = self.replay(skeleton, work, context, scope, env)
            except Unforeseen:
                found = None
            except Otherwise as otherwise:
                found = self.otherwise(skeleton, otherwise.kinds, scope, context, before)
            except ExecutorError:
                raise
            except Exception:  # what is wrong comes out, with its thread, when it runs untraced
                LOG.debug("a stretch did not run", exc_info=True)
                found = None
            if found is not skeleton and context.lost:
                context.lost.clear()
            if found is skeleton:
                self.drive(skeleton, work, context, scope, before)
                work.written = []
                return skeleton.end
            env.clear()
            env.update(before)
            if found is None:
                return ~skeleton.end
            if found.key is None:
                found.key = skeleton.key
            if found.key == skeleton.key and found.end < skeleton.end:
                self.skeletons[skeleton.key] = found  # so that the next time begins with it
            if found.end == found.start:
                return self.start
            skeleton = found

    def added(self, key: Hashable, scope: Scope, context: Context, env: Env) -> Skeleton:
        """The skeleton for what an environment holds, under a new key."""
        made = self.outlined(scope, context, env, len(self.ops))
        made.key = key
        self.skeletons[key] = made
        return made

    def otherwise(
        self, skeleton: Skeleton, kinds: tuple[str, ...], scope: Scope, context: Context, env: Env
    ) -> Skeleton:
        """The skeleton where host operations give other kinds of things, from the first on."""
        key = (skeleton.key, kinds)
        return self.skeletons.get(key) or self.added(key, scope, context, env)

    @property
    def asks_context(self) -> bool:
        """Whether a driver needs the context of the block execution."""
        return any(map(ASKS_CONTEXT, self.drivers))

    def by_driver(
        self,
        env: Env,
        scope: Scope,
        k: int,
        context: Context | None,
        given: Contributions | None = None,
        whole: bool = True,
    ) -> Driver | None:
        """Run operations by a driver, if one fits: the ``whole`` block, with nothing left open
        then, or at least the first of them.
        """
        for driver in self.drivers:
            if whole and (driver.end != len(self.ops) or driver.leaves_open):
                continue
            if driver.plan.loose is not None or driver.reads_written(env, scope, given):
                continue
            if driver.fits(env, scope, k, context):
                self.prefer(driver)
                return driver
        return None

    def prefer(self, driver: Driver) -> None:
        """Try a driver first the next time: the same signature comes again and again."""
        if self.drivers[0] is not driver:
            self.drivers = [driver, *(other for other in self.drivers if other is not driver)]

    def kinds(self, env: Env) -> tuple[str, ...] | None:
        """The rough kinds of what the block reads from here on; None where none can begin."""
        kinds: list[str] = []
        op = self.ops[self.start]
        first, unfit = len(op.args), "O-" if op.name == "getattr" else "oO-"
        for name in self.exposed:
            kind = kind_of(env.get(name))
            if len(kinds) < first and kind in unfit:
                return None
            kinds.append(kind)
        return tuple(kinds)

    def drive(
        self, skeleton: Skeleton, work: Work, context: Context, scope: Scope, before: Env
    ) -> None:
        """A driver for the plan that has just run, from the second time on that it has.

        Others may have taken its place since it was printed.
        """
        plan = work.last
        if plan is None:
            return
        plan.runs += 1
        if plan.runs < 2:
            return
        if (plan, work.sure) not in skeleton.drivers:
            context.counter.cold()
            env = {**before, **work.settled}
            with work.unwritten():
                driver = driver_of(skeleton, plan, env, before, scope, self.turn, work.sure)
            skeleton.drivers[plan, work.sure] = driver
        driver = skeleton.drivers[plan, work.sure]
        if driver is not None and driver not in self.drivers:
            self.drivers = [driver, *self.drivers[: MOST_DRIVERS - 1]]

    def replay(
        self, skeleton: Skeleton, work: Work, context: Context, scope: Scope, env: Env
    ) -> Skeleton | None:
        """Run the stretch; another skeleton to try instead, or None where none will do."""
        if skeleton.constants:
            env.update(skeleton.constants)
        if skeleton.host and not self.run_host(skeleton, context, scope, env):
            return None
        if context.lost:
            raise Unforeseen  # what comes first in a thread, the order of the operations tells
        if skeleton.stores and not are_stored(skeleton.stores, skeleton.reads, env):
            raise Unforeseen
        work.last, work.written, work.sure = None, [], False
        if not skeleton.batched:
            work.last = skeleton.plans.setdefault(None, host_only())  # type: ignore[assignment]
            work.settle(skeleton, env)
            put(skeleton.stores, env)
            return skeleton
        roots = [env[name] for name in skeleton.reads]
        gathered = Gathered(roots, skeleton.baked, skeleton.picks)
        if reads_late(context, gathered):
            return None
        key = (ambient_key(), gathered.key)
        plan = skeleton.plans.get(key)
        if type(plan) is Plan and plan.assumed and plan.is_stale:
            plan = None
        if plan is None:
            plan = self.planned(skeleton, work, context, scope, roots, gathered)
            if plan is None:
                return None
            skeleton.plans[key] = plan
        if type(plan) is Skeleton:
            return plan
        assert type(plan) is Plan
        if plan.lone and not are_lone(work.env, plan.lone):
            return None
        if any(is_seen_through(gathered.leaves[leaf], gathered) for leaf, _ in plan.written):
            return None  # the signature does not say what views go by
        looks = outlooks(plan.forecasts, gathered.leaves) if plan.forecasts else ()
        outs = plan.run(context.k, *gathered.values)
        context.counter.launch(plan.kernels)
        if not plan.verified:
            if not agrees(skeleton, plan, context, scope, roots, gathered, outs):
                skeleton.plans[key] = self.nothing()
                return None
            plan.verified = True
        work.last = plan
        work.settle(skeleton, env)
        self.leave(skeleton, plan, work, context, scope, env, roots, gathered, outs, looks)
        return skeleton

    def run_host(self, skeleton: Skeleton, context: Context, scope: Scope, env: Env) -> bool:
        """Run the host operations, which may run twice; whether they still are without effect."""
        invoke, context.invoke = context.invoke, refuse
        try:
            for place, op in enumerate(skeleton.host):
                if op.name == "call" and not is_pure_call(read(env[op.args[0]])):
                    return False
                if op.name == "getattr" and is_unsafe_read(env[op.args[0]], op.attr):
                    return False
                operations.execute(context, scope, op, env)
                planned = skeleton.kinds[place]
                if planned and planned != (found := kinds_of(op, env)):
                    raise Otherwise((*skeleton.kinds[:place], found))
        finally:
            context.invoke = invoke
        return True

    def leave(
        self,
        skeleton: Skeleton,
        plan: Plan,
        work: Work,
        context: Context,
        scope: Scope,
        env: Env,
        roots: list[Cell],
        gathered: Gathered,
        outs: Sequence[Tensor],
        looks: Sequence[Any],
    ) -> None:
        """Put what a replay has made into the environment."""
        made = plan.template.make(outs, gathered.leaves, gathered.cells)
        if plan.loose is not None:
            ints: Any = tuple(made[node].value for node in plan.loose)
            note_loose(context, skeleton.first, work.env, outs[-1], ints)
        work.sure = plan.is_sure(gathered.leaves, looks)
        if plan.checks and not work.sure:
            note_checks(context, scope, (skeleton, plan), roots, outs)
        for node, outlook in plan.bounded:
            made[node].value.bounds = looks[outlook].bounds  # type: ignore[union-attr]
        for node, bounds in plan.fixed:
            made[node].value.bounds = bounds  # type: ignore[union-attr]
        for name, node in plan.names:
            env[name] = made[node]
        work.written = []
        for leaf, node in plan.written:
            cell = gathered.leaves[leaf]
            assert cell is not None
            work.written.append((cell, cell.value))
            writes.set_content(cell, made[node].value)
        put(skeleton.stores, env)

    def outlined(self, scope: Scope, context: Context, env: Env, stop: int) -> Skeleton:
        """Tell host from batched operations, up to what a stretch cannot hold."""
        outline = Outline(scope, unseen(context), dict(env))
        position = self.start
        while position < stop and outline.take(self.ops[position]):
            position += 1
        return self.skeleton(outline, position)

    def skeleton(self, outline: Outline, end: int) -> Skeleton:
        stores = tuple(outline.stores.ops)
        wanted = {*self.needed, *(arg for op in stores for arg in op.args)}
        for op in self.ops[end:]:
            wanted.update(op.args if op.name != "delete" else (op.attr,))
        defined = {name for op in outline.batched for name in op.outs}
        constants = {
            name: cell
            for name, cell in outline.constants.items()
            if name in wanted or any(name in op.args for op in (*outline.host, *outline.batched))
        }
        return Skeleton(
            self.ops[self.start],
            self.start,
            end,
            tuple(outline.host),
            tuple(outline.batched),
            tuple(outline.reads),
            tuple(sorted(defined & wanted)),
            constants,
            frozenset(wanted),
            stores,
            frozenset(i for i, name in enumerate(outline.reads) if name in self.literals),
            picks=indices_in(outline),
            kinds=tuple(outline.kinds),
        )

    def nothing(self) -> Skeleton:
        """The next operation runs by itself."""
        return Skeleton(self.ops[self.start], self.start, self.start, (), (), (), (), {})

    def planned(
        self,
        skeleton: Skeleton,
        work: Work,
        context: Context,
        scope: Scope,
        roots: list[Cell],
        gathered: Gathered,
    ) -> Plan | Skeleton | None:
        """A plan for a new signature, or what to try instead; None where it may not be made."""
        ambient = ambient_key()
        kept = (skeleton.recorded, ambient, gathered.key)
        known = work.cache.get(kept)
        if known is not None and not known.is_stale:
            return known
        if not work.granted:  # what a recording leads to is part of it
            signature = (skeleton.end, ambient, *gathered.key)
            work.granted = self.budget.grants(signature, work.trace_after)
        if not work.granted:
            return None
        stretch = Stretch(skeleton, scope, context, roots)
        begun = perf_counter()
        try:
            run = work.executor.compile(stretch, gathered.inputs())
            plan = work.cache[kept] = stretch.plan(run, gathered)
            return plan
        except Untraceable:
            if stretch.failed is not None and not stretch.depends:
                place = self.ops.index(stretch.failed)
                return self.outlined(scope, context, work.env, place)
            numbers_of = stretch.depends or stretch.shared
            if not numbers_of <= skeleton.baked:
                return replace(skeleton, baked=skeleton.baked | numbers_of, plans={})
            return self.nothing()
        finally:
            context.counter.trace(perf_counter() - begun)


def indices_in(outline: Outline) -> frozenset[int]:
    """The places of the indices among what a stretch reads."""
    indices = {op.args[1] for op in outline.batched if op.name in ("getitem", "setitem")}
    return frozenset(place for place, name in enumerate(outline.reads) if name in indices)


def reads_late(context: Context, gathered: Gathered) -> bool:
    """Whether an input is a shared tensor that the threads have written: that is to be told."""
    given = context.contributions
    if given is None or not given.written:
        return False
    tensors = [value for value in gathered.values if isinstance(value, Tensor)]
    if given.has_written(context.threads, tensors) is not None:
        return True
    leaves = [cell for cell in gathered.leaves if cell is not None]
    return bool(written_in(context, leaves))
