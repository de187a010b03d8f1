"""The site of a converted block, which is one recording that checks nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.context import Context
from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches.plans import Plan, Skeleton
from autobatch.batching.stretches.signature import Gathered
from autobatch.batching.stretches.sites import Site
from autobatch.batching.stretches.work import Work
from autobatch.compat import within_level
from autobatch.values.cells import Cell

PATIENCE = 32
"""How often a converted block is tried before that becomes rare."""


@dataclass(slots=True, eq=False, repr=False)
class WholeSite(Site):
    """The site of a converted block: all of it in one recording that checks nothing, or nothing.

    Where it does not come to that, it is tried ever more rarely.
    """

    misses: int = 0

    def rests(self) -> bool:
        """Whether it has failed so often that it is not to be tried now."""
        self.misses += 1
        return self.misses > PATIENCE and self.misses & (self.misses - 1) != 0

    def outlined(self, scope: Scope, context: Context, env: Env, stop: int) -> Skeleton:
        skeleton = Site.outlined(self, scope, context, env, stop)
        skeleton.chooses = True
        return skeleton if skeleton.end == len(self.ops) else self.nothing()

    def planned(
        self,
        skeleton: Skeleton,
        work: Work,
        context: Context,
        scope: Scope,
        roots: list[Cell],
        gathered: Gathered,
    ) -> Plan | Skeleton | None:
        if within_level() or (
            torch.is_grad_enabled() and any(map(wants_gradient, gathered.values))
        ):
            return self.nothing()  # that of a way not taken may be nan
        plan = Site.planned(self, skeleton, work, context, scope, roots, gathered)
        if type(plan) is Plan and (plan.checks or plan.loose is not None or plan.written):
            return self.nothing()
        return plan


def wants_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
