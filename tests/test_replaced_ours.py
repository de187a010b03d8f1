"""What autobatch itself computes with is replaced: examples go one by one, by torch's own.

The programs here call nothing of what is replaced, so nobody may: what is put there raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching import replaced
from tests.expected import check
from tests.test_replaced_torch import X, trebled, ways

XS = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
NS = torch.tensor([1, -2])
PARTS = [torch.ones(2, 2), torch.zeros(3, 2)]
SCALE = torch.tensor([1.0, 2.0, 3.0])
ROWS = list(XS)
TURNED, NUMBERS = XS.T, NS.numpy()


def scaled(x: Tensor, n: int, by: Tensor) -> dict[str, Any]:
    y = x * n if n > 0 else x - by
    return {"y": y, "n": n + 1, "mixed": [1.5, y], "word": "up" if n > 0 else "down"}


def same(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x, SCALE, x + 1


def of_object(entry: Any) -> Any:
    return entry["x"] * 2, len(entry["words"])


def twice(x: Tensor) -> Tensor:
    return x * 2


def fails(x: Tensor, n: int) -> Tensor:
    if n < 0:
        raise ValueError("negative")
    return x * n


def calls() -> list[Any]:
    entries = [{"x": row, "words": ["a"] * n} for n, row in enumerate(ROWS)]
    isolated = autobatch.vmap(fails, scalars="python", on_error="isolate")(XS, NS)
    return [
        autobatch.vmap(scaled, in_dims=(0, 0, None), scalars="python")(XS, NS, SCALE),
        autobatch.vmap(scaled, in_dims=(1, None, None), engine="program_counter")(TURNED, 2, SCALE),
        autobatch.vmap(same, out_dims=(1, None, 0))(XS),
        autobatch.vmap(of_object, chunk_size=1)(autobatch.objects(entries)),
        autobatch.vmap(twice, ragged_out="list")(autobatch.ragged(PARTS)),
        autobatch.vmap(lambda n: n + 1)(NUMBERS),
        dict(autobatch.stream(twice, ROWS, width=2)),
        [(result.value, repr(result.exception)) for result in isolated],
        autobatch.execute(autobatch.lower(twice), XS),
    ]


def used() -> Iterator[tuple[Any, str]]:
    """What autobatch's code reads: torch's functions, and methods that operators do not call."""
    read = replaced.read_by("autobatch.")
    for at, owner in enumerate((*replaced._HOMES, *replaced._OF_TENSORS[:1])):
        for name, found in replaced._NOTED[at].items():
            own = getattr(owner, name)
            is_method = owner is not Tensor or (callable(own) and not name.startswith("__"))
            if name in read and is_method and found is not None:
                yield owner, name


# Not ``__getitem__``: Python takes tensors for sequences for good once that has been replaced, and
# ``torch.tensor([x, x])`` is an error.
FEW = [
    *((torch, name) for name in ("where", "cat", "stack", "tensor", "is_grad_enabled")),
    *((Tensor, name) for name in ("clone", "dim", "movedim", "reshape", "to")),
]


def none_calls_it(owner: Any, name: str, expected: list[Any]) -> None:
    def called(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{owner.__name__}.{name} is called")

    with mock.patch.object(owner, name, called):
        found = calls()
    check(found, expected)


def test_nobody_calls_what_is_in_the_place_of_what_results_are_made_with() -> None:
    expected = calls()
    for owner, name in FEW:
        none_calls_it(owner, name, expected)


@pytest.mark.slow
def test_nobody_calls_what_is_in_the_place_of_what_engines_compute_with() -> None:
    expected = calls()
    for owner, name in used():
        none_calls_it(owner, name, expected)


def joining(x: Tensor) -> Tensor:
    while x.sum() < 4:
        x = torch.where(x > 0, x, -x) + torch.cat([x[:2], x[:2] + 1])
    return torch.stack([x, x * 2]) if x[0] > 1 else torch.stack([x, x])


@pytest.mark.sampled(4)
@ways
def test_a_program_that_calls_them_gets_what_is_there(engine: str, executor: str) -> None:
    batched = autobatch.vmap(joining, engine=engine, executor=executor, trace_after=0)
    others = {
        "where": lambda condition, x, y: x * x + 1,
        "cat": lambda parts: parts[0].new_full((4,), 2.5),
        "stack": lambda parts: parts[0] + parts[1],
    }
    for name, new in others.items():
        before = [joining(row.clone()) for row in X]
        with mock.patch.object(torch, name, new):
            rows = [joining(row.clone()) for row in X]
            found = [batched(X) for _ in range(2)]
        for out in found:
            torch.testing.assert_close(out, torch.stack(rows))
        torch.testing.assert_close(batched(X), torch.stack(before))


def test_numbers_of_a_seed_are_refused() -> None:
    batched = autobatch.vmap(lambda x: x * torch.rand(()), seed=0)
    for name in ("view", "to"):
        with (
            mock.patch.object(Tensor, name, trebled),
            pytest.raises(autobatch.AutobatchError, match=f"Torch's {name} has been replaced"),
        ):
            batched(XS)
