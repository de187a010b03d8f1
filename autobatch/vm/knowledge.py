"""What lowering knows of a function's calls: which may run out of turn, which are quiet.

In: a lowered function with what its names mean, and the purity of what it is sure to call. Out: the
answers that ``passes.fork_calls`` and ``vm.settled`` ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from autobatch.batching.effects import effect_of
from autobatch.frontend import MISSING
from autobatch.ir.program import Call, Op
from autobatch.passes.origins import Fate
from autobatch.random.python import is_python_draw
from autobatch.vm.purity import Known, Purity, fate, written_by

BUILTIN_TYPES = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset)
OPAQUE_METHODS = frozenset(
    name for kind in (Tensor, *BUILTIN_TYPES) for name in dir(kind) if not name.startswith("__")
)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of a function's calls when it is lowered; see ``passes.fork_calls``."""

    known: Known
    own: Purity
    purity_of: Callable[[object], Purity | None]
    seeded: bool
    methods: frozenset[str] = OPAQUE_METHODS

    def may_fork(self, call: Call) -> bool:
        found = self.known.value(call.callee)
        if found is MISSING:
            return self.own.may_fork(self.seeded) and self.is_own(call.callee)
        purity = self.purity_of(found)
        return purity is not None and purity.may_fork(self.seeded)

    def is_own(self, callee: str) -> bool:
        """Whether an unknown callee has the function's own name: a method, a nested function."""
        definition = self.known.definitions.get(callee)
        own = self.known.function.name.rpartition(".")[2]
        return (
            definition is not None
            and definition.name in ("getattr", "load_free")
            and definition.attr == own
        )

    def is_quiet(self, op: Op | Call) -> bool:
        callee = op.callee if isinstance(op, Call) else op.args[0]
        found = self.known.value(callee)
        if found is not MISSING:
            purity = self.purity_of(found)
            if purity is not None:
                return purity.may_fork(self.seeded)
            return effect_of(found) != "unknown" or (self.seeded and is_python_draw(found))
        method = self.known.method(callee)
        return not isinstance(op, Call) and method is not None and method[1] in self.methods

    def gives_value(self, op: Op) -> bool:
        found = self.known.value(op.args[0])
        known = found is not MISSING and effect_of(found) in ("torch", "host")
        return known and "out" not in op.attr.keywords and found is not next

    def fate(self, call: Op | Call) -> Fate:
        return fate(self.known, self.purity_of, call)

    def method(self, op: Op) -> tuple[str, str] | None:
        return self.known.method(op.args[0]) if self.known.value(op.args[0]) is MISSING else None

    def written_by(self, call: Op | Call) -> tuple[str, ...]:
        if isinstance(call, Call):
            return written_by(self.known, self.purity_of, call.callee, call.args, call.shape)
        callee, *args = call.args
        return written_by(self.known, self.purity_of, callee, tuple(args), call.attr)
