"""Results that are complex numbers or numpy's scalars stack as Python's floats and ints do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop

XS = torch.tensor([1.0, -4.0, 9.0])
WAYS = pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)


def number(x):
    return x if isinstance(x, float) else x.item()


def complex_of_all(x):
    return complex(number(x), 1), 1j, {"parts": [complex(number(x)), "text"]}


def root(x):
    x = number(x)
    return x**0.5, (x**0.5 if x < 0 else x), (1j if x < 0 else True)


def beside_tensors(x):
    return 1j if number(x) > 0 else torch.tensor(2.0)


def beside_large(x):
    return 2**70 if number(x) > 0 else 1j


def numpy_of_all(x):
    x = number(x)
    return np.sqrt(abs(x)), np.float32(x), np.int8(3), np.float32(x) > 0, np.complex64(x)


def numpy_of_some(x):
    x = number(x)
    return (np.float32(x) if x > 0 else x), (np.int16(x) if x > 0 else torch.tensor(1.5))


def within(x):
    return autobatch.vmap(root)(torch.stack([x, -x])), autobatch.pfor(lambda i: complex(i, 1), 2)


def other_scalars(x):
    return np.longdouble(1), np.datetime64("2020-01-01"), np.str_("text")


def of_a_complex(z):
    rounds = 0
    while abs(z) < 2 and rounds < 20:
        z = z * z + 1j
        rounds += 1
    return isinstance(z, complex), z, rounds, z.real


@pytest.mark.sampled(8)
@WAYS
@pytest.mark.parametrize("scalars", ["tensor", "python"])
@pytest.mark.parametrize(
    "program",
    [complex_of_all, root, beside_tensors, beside_large, numpy_of_all, numpy_of_some],
    ids=lambda program: program.__name__,
)
def test_numbers_of_other_types_stack(program, scalars, options):
    assert_matches_loop(
        program, (XS,), scalars=scalars, chunk_sizes=[None, 2], configurations=[options]
    )


@WAYS
def test_they_stack_within_a_program(options):
    assert_matches_loop(within, (XS,), configurations=[options])


@WAYS
def test_scalars_that_torch_has_no_dtype_for_are_objects(options):
    found = autobatch.vmap(other_scalars, **options)(XS)
    assert found == tuple([part] * 3 for part in other_scalars(1.0))


@pytest.mark.sampled(3)
@WAYS
@pytest.mark.parametrize("scalars", ["tensor", "python"])
def test_a_complex_argument_is_a_number_where_scalars_are(scalars, options):
    for dtype in (torch.complex64, torch.complex128):
        zs = torch.tensor([1j, 0.1, 2], dtype=dtype)
        assert_matches_loop(of_a_complex, (zs,), scalars=scalars, configurations=[options])


def test_a_list_of_complex_numbers_is_mapped():
    assert_matches = torch.testing.assert_close
    found = autobatch.function(lambda z: z * 2).batch([1j, 2])
    assert_matches(found, torch.tensor([2j, 4], dtype=torch.complex128))
    found = autobatch.function(scalars="python")(abs).batch([3 + 4j, 2.0])
    assert_matches(found, torch.tensor([5.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64", "bool", "complex64"])
@pytest.mark.parametrize("scalars", ["tensor", "python"])
def test_a_list_of_numpys_numbers_is_one_of_numbers(dtype: str, scalars: str) -> None:
    array = np.array([1, 0, 3]).astype(dtype)
    doubled = autobatch.function(lambda x, k: x * k, scalars=scalars)
    same = partial(torch.testing.assert_close, rtol=0, atol=0)
    same(doubled.batch(list(array), 2), doubled.batch(array, 2))
    same(doubled.batch(array, k=list(array)), doubled.batch(array, array))
    program = autobatch.lower(lambda x: x + x)
    same(autobatch.execute(program, list(array)), autobatch.execute(program, array))


def test_a_list_of_numbers_of_both_kinds() -> None:
    found = autobatch.function(lambda x: x * 2).batch([np.int64(1), 2.5, True])
    assert found.tolist() == [2.0, 5.0, 2.0]


@WAYS
def test_a_float_beside_tensors_keeps_what_their_dtype_holds(options):
    """Not rounded by way of the default dtype, in which alone it would be a tensor."""

    def tenth(x):
        return 0.1 if x > 0 else x.double()

    for _ in range(4):
        result = autobatch.vmap(tenth, **options)(torch.tensor([1.0, -2.0]))
        assert result.dtype is torch.float64 and result.tolist() == [0.1, -2.0]
