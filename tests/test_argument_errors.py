"""Errors about the call say which argument, and point at the user's own line."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import autobatch
from autobatch.errors import OptionError
from tests.oracle import assert_matches_loop


def both(x, y, *, scale=1):
    return x + y


@pytest.mark.parametrize(
    ("args", "in_dims", "message"),
    [
        ((torch.ones(3), torch.ones(4)), 0, "same: 'x' has 3, 'y' has 4"),
        ((torch.ones(3), 2), 0, "the argument 'y' of both, of type int"),
        ((torch.ones(3), torch.ones(3)), (0, 1), "dimension 1 for the argument 'y' of both"),
        (({"a": torch.ones(3), "b": "c"}, 1), (0, None), r"the argument 'x'\['b'\] of both"),
        ((torch.ones(3), autobatch.objects([1])), 0, "'x' has 3, 'y' has 1"),
    ],
)
def test_vmap_names_the_argument(args: Any, in_dims: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        autobatch.vmap(both, in_dims=in_dims)(*args)


def test_batch_names_the_argument() -> None:
    with pytest.raises(OptionError, match="'x' has 3, 'scale' has 2"):
        autobatch.function(both).batch(torch.ones(3), 1, scale=[1, 2])


NORM = nn.BatchNorm1d(3)


def test_a_module_mapped_itself_is_refused_at_the_users_line() -> None:
    with pytest.raises(autobatch.SharedWriteError, match="running statistics") as caught:
        autobatch.vmap(NORM)(torch.randn(4, 5, 3))
    assert caught.value.span is not None
    assert caught.value.span.file == __file__
    assert "autobatch.vmap(NORM)(torch.randn(4, 5, 3))" in str(caught.value)


def test_a_function_of_torch_fails_at_the_users_line() -> None:
    with pytest.raises(RuntimeError) as caught:
        autobatch.vmap(torch.linalg.inv)(torch.zeros(2, 3, 3))
    (note,) = caught.value.__notes__
    assert f'File "{__file__}"' in note
    assert "entry.py" not in note


class Point(NamedTuple):
    x: torch.Tensor
    n: int


def moved(x):
    point = Point(x, 1)._replace(n=2)
    point = point._replace(x=point.x * point.n)
    return point, point._asdict()["x"], len(point._asdict())


def wrongly_moved(x):
    return Point(x, 1)._replace(z=2)


def test_named_tuples_are_replaced_for_all_threads_at_once() -> None:
    xs = torch.arange(3.0)
    assert_matches_loop(moved, [xs])
    assert_matches_loop(wrongly_moved, [xs])
    with autobatch.counts() as counts:
        autobatch.vmap(moved)(xs)
    assert counts.fallbacks == 0


def draws(x):
    return torch.func.grad(lambda w: (w * torch.rand(())).sum())(x)


@pytest.mark.parametrize("executor", ["vmap", "traced"])
def test_draws_of_a_function_that_is_differentiated(executor: str) -> None:
    xs = torch.ones(4)
    batched = {
        r: autobatch.vmap(draws, randomness=r, executor=executor)
        for r in ("error", "same", "different")
    }
    with pytest.raises(RuntimeError, match=r"randomness is 'error'.*'different'.*seed=0"):
        batched["error"](xs)
    assert len(set(batched["same"](xs).tolist())) == 1
    assert batched["same"](xs)[0] != batched["same"](xs)[0]
    assert len(set(batched["different"](xs).tolist())) == 4


def test_a_list_of_tensors_of_different_lengths_is_ragged() -> None:
    rows = [torch.ones(2), torch.ones(3)]
    for run in (autobatch.vmap(torch.sum), autobatch.function(torch.sum).batch):
        with pytest.raises(OptionError, match=r"autobatch.ragged\(\.\.\.\) takes a list"):
            run(rows)


@autobatch.function
def absolute(x):
    return x if x > 0 else -x


def test_a_decorated_function_that_is_called_with_a_batch_names_what_runs_one() -> None:
    with pytest.raises(RuntimeError, match="is ambiguous") as caught:
        absolute(torch.ones(3))
    assert caught.value.__notes__ == [
        "absolute(...) runs one example, as plain Python; absolute.batch(...) runs a batch of them."
    ]
    with pytest.raises(RuntimeError, match="is ambiguous") as caught:
        absolute.batch(torch.ones(3, 2))
    assert not any("as plain Python" in note for note in caught.value.__notes__)


def test_arrays_of_another_byte_order_are_read():
    swapped = np.array([1.5, -2.0], dtype=">f4")
    result = autobatch.function(lambda x: x * 2).batch(swapped)
    assert result.dtype is torch.float32 and result.tolist() == [3.0, -4.0]


def test_arrays_of_long_doubles_are_named():
    with pytest.raises(OptionError, match=r"argument 'x'.*longdouble|argument 'x'.*float128"):
        autobatch.function(lambda x: x).batch(np.ones(2, dtype=np.longdouble))


def test_masked_arrays_are_named_where_something_is_masked():
    numbers = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    with pytest.raises(OptionError, match="argument 'x' of <lambda> is a masked array"):
        autobatch.function(lambda x: x).batch(numbers)
    assert autobatch.function(lambda x: x).batch(numbers[::2]).tolist() == [1.0, 3.0]
