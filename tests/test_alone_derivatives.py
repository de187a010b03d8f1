"""Derivatives made by ``torch.func``, which a program calls that may run as plain Python."""

import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError
from tests.test_alone_fields import proved

pytestmark = pytest.mark.usefixtures("plain_is_better")

X = torch.rand(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SEEN: list[float] = []
WEIGHT = torch.ones(3, dtype=torch.float64)


def bowl(x, scale=1.0):
    total = ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x) ** 2).sum() * scale
    return total if total > 1 else total * total


def with_extra(x):
    kept = [x * 2]
    return bowl(x), (kept, {"sum": x.sum()})


def of_dict(given):
    return bowl(given["x"] * given["y"])


def notes(x):
    SEEN.append(1.0)
    return x.sum()


def writes_weight(x):
    WEIGHT[0] = 2.0
    return x.sum()


SLOPE = torch.func.grad(bowl)
BOTH = torch.func.grad_and_value(bowl)
EXTRA = torch.func.grad(with_extra, has_aux=True)
OF_DICT = torch.func.grad(of_dict)
HESSIAN = torch.func.hessian(bowl)
JACOBIAN = torch.func.jacrev(lambda x: torch.stack([x.sum(), bowl(x)]))
NOTING = torch.func.grad(notes)
WRITING = torch.func.grad(writes_weight)


def descends(x):
    steps = 0
    while steps < 12:
        slope, value = BOTH(x, 0.5)
        if value < 0.2:
            break
        slope *= 2  # its own
        x, steps = x - 0.05 * slope, steps + 1
    return x, steps


def newton(x):
    for _ in range(2):
        if SLOPE(x).norm() < 0.05:
            return x
        x = x - torch.linalg.solve(HESSIAN(x) + torch.eye(3, dtype=x.dtype) * 3, SLOPE(x))
    return x + JACOBIAN(x).sum(0)


def searched(f, slope, x):
    step = 1.0
    while f(x - step * slope(x)) > f(x) and step > 0.1:
        step /= 2
    return x - step * slope(x)


def by_hand(x):
    slopes = {"bowl": SLOPE}
    slope, (kept, sums) = EXTRA(searched(bowl, SLOPE, x))
    kept.append(slope)
    parts = OF_DICT({"x": x, "y": slope})
    parts["x"] += 1
    return slopes["bowl"](x) + sum(kept) + sums["sum"] * parts["x"], parts["y"]


def noting(x):
    return NOTING(x) * x


def writing(x):
    return WRITING(x) * x


@pytest.mark.parametrize("function", [descends, newton, by_hand])
@pytest.mark.parametrize("plain", ["auto", "never"])
def test_the_result_is_the_loops(function, plain):
    for change in range(5):
        x = X + change / 10
        found = autobatch.vmap(function, plain=plain)(x)
        wanted = [function(row) for row in x.clone()]
        if isinstance(found, tuple):
            for part, each in zip(found, zip(*wanted, strict=True), strict=True):
                torch.testing.assert_close(part, torch.stack([*map(torch.as_tensor, each)]))
        else:
            torch.testing.assert_close(found, torch.stack(wanted))


def test_such_programs_are_plain():
    for function in (descends, newton, by_hand):
        assert proved(function, True, X)
        one = autobatch.vmap(function)
        for _ in range(8):
            one(X[:1])
        with autobatch.counts() as counted:
            one(X[:1])
        assert counted.plain == 1


def test_gradients_flow_through_them():
    rows, others = (X.clone().requires_grad_() for _ in range(2))
    torch.stack([newton(row) for row in others]).sum().backward()
    for _ in range(5):
        rows.grad = None
        autobatch.vmap(newton)(rows).sum().backward()
        torch.testing.assert_close(rows.grad, others.grad)


@pytest.mark.parametrize("function", [noting, writing])
def test_what_others_see_is_not(function):
    assert not proved(function, True, X)
    for _ in range(2):
        with pytest.raises(AutobatchError):
            autobatch.vmap(function)(X)
        assert not SEEN and WEIGHT.tolist() == [1.0] * 3
