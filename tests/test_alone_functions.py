"""Functions of torch's that plain Python may call, whose results are tensors of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autobatch
from autobatch.alone import beginning, running
from autobatch.batching.levels import DrawError
from autobatch.compat import shown_name
from autobatch.runs import shortcuts
from autobatch.runs.trial import measuring
from autobatch.vm.invariants import checking

X = torch.randn(5, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def some(x: Tensor) -> Tensor:
    """A program that goes two ways."""
    return x if x.sum() > 0 else x * 2


OWN: list[Callable[[Tensor], Tensor]] = [
    lambda x: torch.det(some(x)),
    lambda x: some(x).slogdet().logabsdet,
    lambda x: torch.linalg.cholesky(some(x) @ x.T + torch.eye(4)).cholesky_inverse(),
    lambda x: torch.cholesky_solve(some(x), x.tril() + torch.eye(4)),
    lambda x: torch.pinverse(some(x)),
    lambda x: some(x).matrix_power(1),
    lambda x: torch.linalg.matrix_power(some(x), 1),
    lambda x: (
        torch.i0(some(x)) + torch.igamma(x.abs(), x.abs() + 1) + torch.mvlgamma(x.abs() + 3, 2)
    ),
    lambda x: torch.ger(some(x)[0], x[1]),
    lambda x: torch.trapezoid(some(x)) + torch.trapz(x),
    lambda x: torch.cumulative_trapezoid(some(x)),
    lambda x: torch.combinations(some(x)[0], 1),
    lambda x: torch.row_stack([some(x)[0], x[1]]),
    lambda x: torch.linalg.cond(some(x)) + torch.linalg.matrix_rank(x),
    lambda x: torch.linalg.cross(some(x)[0, :3], x[1, :3]),
    lambda x: torch.linalg.eigvals(some(x)).abs().sort().values,
    lambda x: torch.linalg.matrix_exp(some(x)) + torch.linalg.vander(x[0]),
    lambda x: torch.linalg.cholesky_ex(some(x) @ x.T + torch.eye(4))[0].diagonal().log(),
    lambda x: torch.linalg.cholesky_ex(some(x) @ x.T).L + torch.linalg.inv_ex(x).info,
    lambda x: torch.linalg.solve_ex(some(x), x.T)[0] + torch.linalg.lu(x)[1],
    lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(some(x)), x),
    lambda x: torch.linalg.multi_dot([some(x), x]) + torch.linalg.vecdot(x[0], x[1]),
    lambda x: torch.fft.irfft(torch.fft.rfft(some(x))),
    lambda x: torch.fft.fftshift(some(x), 0) + torch.fft.fftfreq(4) * x,
    lambda x: torch.special.expit(some(x)) + torch.special.log_ndtr(x) + torch.special.entr(x),
    lambda x: F.adaptive_avg_pool1d(some(x), 4) + F.adaptive_avg_pool2d(x[None], 4)[0],
    lambda x: F.group_norm(some(x)[None], 2)[0] + F.rms_norm(x, (4,)),
    lambda x: F.softsign(some(x)) + F.tanhshrink(x) + F.hardshrink(x, 0.0) + F.softshrink(x, 0.0),
    lambda x: F.glu(some(x)),
    lambda x: F.prelu(some(x), x[0, :1]),
    lambda x: F.unfold(some(x)[None, None], (1, 1)),
    lambda x: F.fold(some(x).view(1, 4, 4), (2, 2), (1, 1)),
    lambda x: F.gaussian_nll_loss(some(x), x * 2, x.abs() + 1) + F.poisson_nll_loss(x, x.abs()),
    lambda x: F.conv3d(some(x)[None, None, None], x[:1, :1].reshape(1, 1, 1, 1, 1)),
    lambda x: F.conv_transpose1d(some(x)[None], x[:, None, :2]),
    lambda x: F.conv_transpose2d(some(x)[None, None], x[None, None, :2, :2]),
]


@pytest.fixture(autouse=True)
def by_the_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(beginning, "SECONDS", 60.0)  # on any machine
    with measuring(True), checking(False):
        yield


@pytest.mark.sampled(2)
@pytest.mark.parametrize("own", OWN)
def test_it_runs_as_plain_python(
    own: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []

    def noted(asked: running.Asked) -> running.Alone | None:
        done = beginning.begun(asked)
        begun.append(done is not None)
        return done

    monkeypatch.setattr(shortcuts, "begun", noted)
    found = autobatch.vmap(own)(X)
    assert begun == [True]
    torch.testing.assert_close(found, torch.stack([own(x) for x in X]))


@pytest.mark.parametrize("own", OWN)
def test_its_result_has_memory_of_its_own(own: Callable[[Tensor], Tensor]) -> None:
    x = X[0].clone()
    for dtype in (torch.float64, torch.float32):
        given = x.to(dtype)
        memory = given.untyped_storage().data_ptr()
        assert own(given).untyped_storage().data_ptr() != memory


def test_messages_name_functions_as_users_do() -> None:
    assert shown_name(torch.det) == "torch.det"
    with pytest.raises(DrawError, match=r"^torch\.bernoulli draws"):
        autobatch.vmap(lambda x: torch.bernoulli(x))(X.sigmoid())
