"""Where torch's batching rules give something else than one example does, without an error."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import assert_matches_loop

NAN = float("nan")


def rolled(x):
    return x.roll(1), torch.roll(x + 1, (2,)), torch.func.grad(lambda z: z.roll(1) * x)(x)


def test_a_number_rolls_within_its_example():
    assert_matches_loop(rolled, [torch.tensor([1.0, 2.0, 3.0])])


OPERANDS = {
    torch.addmv: ((5,), (5, 4), (4,)),
    torch.addmm: ((5, 6), (5, 4), (4, 6)),
    torch.addbmm: ((5, 6), (2, 5, 4), (2, 4, 6)),
    torch.baddbmm: ((2, 5, 6), (2, 5, 4), (2, 4, 6)),
}


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (None, 0, 0), (0, None, 0)], ids=str)
@pytest.mark.parametrize("beta", [0, 0.0, False, 0.5])
@pytest.mark.parametrize("function", OPERANDS, ids=lambda f: f.__name__)
def test_what_has_the_factor_0_is_not_looked_at(function, beta, in_dims):
    def product(x, a, b):
        y = x.clone()
        getattr(y, f"{function.__name__}_")(a, b, beta=beta)
        return function(x, a, b, beta=beta, alpha=1.5), y

    torch.manual_seed(0)
    args = [torch.randn(3, *shape) for shape in OPERANDS[function]]
    args[0][1] = NAN
    args = [arg if dim == 0 else arg[1] for arg, dim in zip(args, in_dims, strict=True)]
    assert_matches_loop(product, args, in_dims=in_dims)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("factors", [(0.6, 2), (1, 1.5), (2, 3), (0, 0.5)], ids=str)
@pytest.mark.parametrize("function", OPERANDS, ids=lambda f: f.__name__)
def test_of_ints_all_are_ints(function, factors, dtype):
    beta, alpha = factors

    def product(x, a, b):
        return function(x, a, b, beta=beta, alpha=alpha)

    torch.manual_seed(0)
    args = [torch.randint(0, 9, (3, *shape), dtype=dtype) for shape in OPERANDS[function]]
    assert_matches_loop(product, args)


@pytest.mark.parametrize("function", OPERANDS, ids=lambda f: f.__name__)
def test_what_has_the_factor_0_has_the_gradient_0(function):
    def slopes(x, a, b):
        def total(x, a, b):
            return function(x, a, b, beta=0).sin().sum()

        return torch.func.grad(total, (0, 1, 2))(x, a, b)

    torch.manual_seed(0)
    assert_matches_loop(slopes, [torch.randn(3, *shape) for shape in OPERANDS[function]])


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("shapes", [((2, 2), (2, 2)), ((2,), (2, 2)), ((2,), (2,)), ((2, 2), (2,))])
def test_a_product_with_a_vector_has_one(shapes, in_dims):
    args = [torch.randn(3, *shape) for shape in shapes]
    args = [arg if dim == 0 else arg[0] for arg, dim in zip(args, in_dims, strict=True)]
    assert_matches_loop(lambda a, b: torch.mv(a, b) + a.mv(b), args, in_dims=in_dims)
