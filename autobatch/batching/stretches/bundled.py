"""Rounds of a loop that is one replay, as one function of autograd's (see ``saving.bundles``).

In: a driver in a loop, under ``save="recompute"``. Out: a ``Bundled``, which runs its rounds as
``rounds`` does, and whose results are in autograd's graph. Only where nothing may be infinite: else
gradients are looked at in each round (``presence``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches.drivers import Driver, Rounds
from autobatch.batching.stretches.executors import Saved
from autobatch.compat import within_duals
from autobatch.presence.record import may_spoil
from autobatch.saving.bundles import Bundle
from autobatch.saving.savers import saver_at_work
from autobatch.saving.segments import Tape
from autobatch.values.cells import Column


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bundled:
    """``rounds`` replay ``bundle``; they make the variables ``makes``, each a column, of results of
    which those at ``slots`` are differentiated.
    """

    tape: Tape
    rounds: Rounds
    bundle: Bundle
    makes: frozenset[str]
    slots: tuple[int, ...]

    @classmethod
    def of(cls, driver: Driver, env: Env, scope: Scope) -> Bundled | None:
        """None where each round is a call by itself."""
        tape, run, carried = saver_at_work(), driver.run, driver.carried
        if not isinstance(tape, Tape) or type(run) is not Saved or not carried:
            return None
        nodes, slots = driver.plan.template.nodes, np.flatnonzero(run.differentiated)
        ways = run.ways(carried) if len(slots) else None
        if ways is None or any(nodes[number].kind != "column" for _, number in driver.plan.names):
            return None
        bundle = Bundle(ways)
        begun = driver.starts(env, scope, bundle)
        if begun is None or begun[2] is None:
            return None
        return cls(tape, begun[2], bundle, driver.makes, tuple(slots.tolist()))

    @property
    def most(self) -> int:
        """How many rounds may be one bundle now."""
        if not torch.is_grad_enabled() or may_spoil() or within_duals():
            return 0
        return self.tape.room

    def run(
        self, env: Env, k: int, most: float, before: bytes, sign: bool, step: int
    ) -> tuple[int, np.ndarray | None]:
        """What ``rounds`` does; where it ends otherwise, or one overflows, no round has run."""
        bundle, was = self.bundle, dict(env)
        bundle.begin()
        done, each = self.rounds(env, k, most, before, sign, step, None)
        if bundle.runs != done or may_spoil():  # or has written over what the last one had made
            env.clear()
            env.update(was)
            bundle.begin()
            return 0, None
        if done:
            self.attach(env)
            self.tape.bundled(done)
        return done, each

    def attach(self, env: Env) -> None:
        """Have what the last round has made be differentiated."""
        made = self.bundle.made
        known = {id(made[slot]): slot for slot in self.slots}
        results = self.bundle.attached(self.slots, self.tape.desk.note)
        new = dict(zip(self.slots, results, strict=True))
        for name in self.makes:
            column = env[name].value
            assert type(column) is Column
            slot = known.get(id(column.table))
            if slot is not None:
                column.table = new[slot]
