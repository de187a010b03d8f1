"""Executors of the user's own, held to the protocol.

In: the object that the option ``executor`` has, and stretches to compile. Out: what it makes of
them; where it fails, or gives what is not the stretch's result, an ``ExecutorError``. Where the
stretch itself raises on the same rows, that is the program's exception, and goes on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from autobatch.batching.stretches.rounding import same_values
from autobatch.batching.trace import Input, Untraceable
from autobatch.errors import Diagnostic, ExecutorError
from autobatch.structure import own_attribute

if TYPE_CHECKING:
    from autobatch.batching.stretches.executors import Run

SIZES = 2
"""Of how many numbers of rows results are held to the stretch's: one may be written into them.

So are those of more rows than before; of fewer there are many, as threads leave a loop.
"""


@dataclass(frozen=True, slots=True)
class Guest:
    """An executor of the user's own."""

    executor: Any

    def __eq__(self, other: object) -> bool:
        return type(other) is Guest and other.executor is self.executor

    def __hash__(self) -> int:
        return id(self.executor)

    def compile(self, stretch: Any, inputs: Sequence[Input]) -> Run:
        try:
            run = self.executor.compile(stretch, inputs)
        except Untraceable:
            raise
        except Exception as error:
            k = next((len(each.value) for each in inputs if each.kind == "column"), 1)
            stretch(k, *(each.value for each in inputs))
            raise self.fault(stretch, f"compile raised {told(error)}") from error
        if is_ours(run):
            return run  # type: ignore[no-any-return]
        if not callable(run):
            raise self.fault(stretch, f"compile gave {run!r}, which is not callable")
        return GuestRun(self, stretch, run)

    def fault(self, stretch: Any, what: str) -> ExecutorError:
        executor = self.executor
        name = own_attribute(executor, "__name__") or type(executor).__name__
        return ExecutorError(
            Diagnostic(
                f"The executor {name} is wrong: {what}.",
                stretch.span,
                "the stretch begins here",
                hints=(
                    "compile(stretch, inputs) gives a callable of the stretch's own arguments and "
                    "results, for any number of rows; where there is none for a stretch, it raises "
                    "autobatch.Untraceable.",
                ),
                code="executor",
            )
        )


@dataclass(slots=True, eq=False, repr=False)
class GuestRun:
    """What a guest has made of a stretch; ``sizes`` are those that have been looked at.

    ``earlier`` is what it gave for the first number of rows and the latest one, until it gives
    something else for as many: other threads may still have that, so it must not be written over.
    """

    guest: Guest
    stretch: Any
    run: Run
    sizes: set[int] = field(default_factory=set)
    earlier: dict[int, Sequence[Tensor]] | None = field(default_factory=dict)

    def __call__(self, k: int, *values: Any) -> Sequence[Tensor]:
        looked_at = k not in self.sizes and (len(self.sizes) < SIZES or k > max(self.sizes))
        given = tensors(values) if looked_at else []
        held = [*given, *(self.earlier or {}).get(k, ())]
        copies = [each.detach().clone() for each in held]
        try:
            outs = self.run(k, *values)
        except Exception as error:
            self.stretch(k, *values)
            raise self.fault(f"what it made of the stretch raised {told(error)}") from error
        for place, (each, copy) in enumerate(zip(held, copies, strict=True)):
            if not same_values(each.detach(), copy):
                what = "its inputs" if place < len(given) else "the results that it gave before"
                raise self.fault(f"what it made of the stretch writes to {what}")
        if looked_at:
            self.check(outs, k, values)
            self.sizes.add(k)
        if self.earlier is not None and isinstance(outs, tuple | list):
            self.keep(k, tensors(outs))
        return outs

    def keep(self, k: int, outs: Sequence[Tensor]) -> None:
        assert self.earlier is not None
        before = self.earlier.get(k)
        if before is None:
            if len(self.earlier) == 2:
                self.earlier.popitem()
            self.earlier[k] = outs
        elif any(map(difference, outs, before)):
            self.earlier = None

    def fault(self, what: str) -> ExecutorError:
        return self.guest.fault(self.stretch, what)

    def check(self, outs: Any, k: int, values: tuple[Any, ...]) -> None:
        try:
            wanted = self.stretch(k, *values)
        except Exception:  # the program's own: it comes out when it runs untraced
            return
        if not isinstance(outs, tuple | list) or len(outs) != len(wanted):
            given = f"{len(outs)}" if isinstance(outs, tuple | list) else f"a {type(outs).__name__}"
            raise self.fault(f"of {len(wanted)} results of a stretch it gives {given}")
        for place, what in enumerate(map(difference, outs, wanted)):
            if what is not None:
                which = f"result {place} of {len(wanted)}, of {k} rows,"
                raise self.fault(f"{which} {what}")


def difference(given: Any, wanted: Tensor) -> str | None:
    """In what a result is not the stretch's; None where it is the same but for rounding."""
    if not isinstance(given, Tensor):
        return f"is a {type(given).__name__}, not a tensor"
    if (given.dtype, given.shape, given.device) != (wanted.dtype, wanted.shape, wanted.device):
        return f"is {looks(given)}; the stretch gives {looks(wanted)}"
    same = same_values(given.detach(), wanted.detach())
    return None if same else "has other values than the stretch gives"


def looks(tensor: Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind} {list(tensor.shape)} on {tensor.device}"


def tensors(values: Sequence[Any]) -> list[Tensor]:
    return [each for each in values if isinstance(each, Tensor)]


def is_ours(run: Any) -> bool:
    """Whether one of autobatch's own executors made it, on a guest's behalf."""
    return type(run).__module__.startswith("autobatch.batching.")


def told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
