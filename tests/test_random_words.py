"""Philox, and the numbers made of its words: known answers, exact ranges, statistics.

The statistics are of fixed seeds, so they pass or fail for good; limits are at four and a half
standard deviations, or at a chance of one in 100,000.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autobatch.llvm import assembled, is_installed
from autobatch.random import host_code, transforms
from autobatch.random.counters import LANES, Draw
from autobatch.random.host_code import Code
from autobatch.random.host_words import on_the_host
from autobatch.random.normal_text import normal_text
from autobatch.random.paths import Ledger, Paths, key_of, split
from autobatch.random.philox import MASK, philox
from autobatch.random.sources import Thread, Threads, on_a_device

CPU = torch.device("cpu")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LIMIT = 4.5
# The vectors that Random123 publishes for philox4x32-10: counter, key, words.
KNOWN = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


Words = tuple[int, ...]


def threads(count: int, seed: int = 7, first: int = 0) -> Threads:
    paths = Paths.over(Ledger.of(np.full(count, key_of(seed))))
    return Threads(paths, np.arange(first, first + count))


@pytest.mark.parametrize("counter, key, expected", KNOWN)
def test_known_answers(counter: Words, key: Words, expected: Words) -> None:
    assert philox(counter, key) == expected


@pytest.mark.parametrize("own_keys", [False, True])
def test_known_answers_for_many_counters_at_once(own_keys: bool) -> None:
    for counter, key, expected in KNOWN:
        many = tuple(torch.full((3, 2), word) for word in counter)
        keys = tuple(torch.full((3, 2), w) if own_keys else w for w in key)
        for found, word in zip(philox(many, keys), expected, strict=True):
            assert (found & MASK == word).all()


def test_words_that_are_the_same_for_all_may_be_ints() -> None:
    index = torch.arange(50)
    found = philox((0, 9, index, 3), (5, 6))
    for thread in (0, 17, 49):
        expected = philox((0, 9, thread, 3), (5, 6))
        assert tuple(int(word[thread]) & MASK for word in found) == expected


@pytest.mark.parametrize("n, size", [(1, 1), (1, 2), (1, 4), (7, 1), (7, 2), (7, 4), (90, 1)])
def test_a_thread_alone_has_its_words_of_the_group(n: int, size: int) -> None:
    index = 2**40 + 11
    group = threads(5, first=index - 3)
    alone = Thread(index, key_of(7))
    for _ in range(3):
        for many, one in zip(group.columns(n, size, CPU), alone.columns(n, size, CPU), strict=True):
            assert many.shape == (5, n)
            assert torch.equal(many[3], one[0])


@pytest.mark.parametrize("k, n, size", [(0, 2, 2), (3, 0, 1), (3, 1, 2), (3, 9, 1), (40000, 1, 2)])
@pytest.mark.parametrize("own_keys", [False, True])
def test_words_are_the_same_on_the_host_and_on_a_device(
    k: int, n: int, size: int, own_keys: bool
) -> None:
    key = np.arange(k) + 2**40 if own_keys else 2**62 + 5
    draw = Draw(key, 3, np.arange(k) + 2**33)
    blocks = -(-n * size // LANES)
    host = on_the_host(draw, blocks, n * size)
    for one, other in zip(host, on_a_device(draw, blocks, CPU), strict=False):
        assert one.dtype is other.dtype and torch.equal(one, other)
        assert ((one >= 0) & (one <= MASK)).all()


@pytest.mark.skipif(not is_installed(), reason="needs llvmlite")
@pytest.mark.parametrize(
    "k, blocks, words",
    [
        *((0, 1, 1), (3, 0, 0), (5, 1, 1), (5, 1, 2), (5, 1, 3), (5, 1, 4), (1000, 1, 2)),
        *((3, 3, 9), (2, 70, 280)),
    ],
)
def test_words_are_the_same_by_machine_code(
    k: int, blocks: int, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = [
        Draw(key, number, np.arange(k) + 2**33)
        for key in (2**62 + 5, np.arange(k) - 2**50)
        for number in (7, np.arange(k) + 2**40)
    ]
    by_numpy = [on_the_host(draw, blocks, words) for draw in draws]
    code = Code(most=0)
    monkeypatch.setattr(host_code, "CODE", code)
    for draw, expected in zip(draws, by_numpy, strict=True):
        found = on_the_host(draw, blocks, words)
        assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
    ((_, made),) = code.functions.values()
    assert made is not None


AT_ONCE = Code(most=0)


@pytest.mark.skipif(not is_installed(), reason="needs llvmlite")
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 7, 8, 31, 33, 64])
@pytest.mark.parametrize("k", [0, 1, 5, 1000])
def test_normal_numbers_are_the_same_by_machine_code(
    k: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dtype in (torch.float32, torch.float16, torch.float64):
        monkeypatch.setattr(host_code, "CODE", Code(most=math.inf))
        by_torch = threads(k)
        expected = [transforms.normal(by_torch, n, dtype, CPU) for _ in range(2)]
        monkeypatch.setattr(host_code, "CODE", AT_ONCE)
        by_code = threads(k)
        for each in expected:
            found = transforms.normal(by_code, n, dtype, CPU)
            assert found.dtype is dtype and torch.equal(found, each)


@pytest.mark.skipif(not is_installed(), reason="needs llvmlite")
@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", ["log", "cos", "sin"])
def test_elementary_functions_are_torchs_to_the_bit(function: str, step: int) -> None:
    """Of every operand there is: a word as a float, of 24 bits, scaled as ``transforms`` does."""
    parts = [np.arange(0, 2**24, step, dtype=np.float32)]
    for places in range(24, 32):
        words = np.arange(2**places, 2 ** (places + 1) + 1, step * 2 ** (places - 23))
        parts.append(words.astype(np.float32))
    words = torch.from_numpy(np.unique(np.concatenate([*parts, np.float32([2**32])])))
    if function == "log":
        operands = words.add_(1.0).mul_(2.0**-32)
    else:
        operands = words.mul_(2.0**-32).mul_(2.0 * math.pi)
    _engine, rounded = elementary(function)  # which owns the code
    for some in operands.split(2**22):
        found = torch.empty_like(some)
        rounded(found.data_ptr(), some.data_ptr(), len(some))
        expected = getattr(torch, function)(some.double()).float()
        assert torch.equal(found.view(torch.int32), expected.view(torch.int32))


def elementary(function: str) -> tuple[Any, Any]:
    """A loop over floats, with what owns it."""
    loop = f"""
define void @all(ptr noalias %made, ptr noalias %given, i64 %k) {{
begin:
  br label %each
each:
  %row = phi i64 [0, %begin], [%next, %each]
  %from = getelementptr float, ptr %given, i64 %row
  %x = load float, ptr %from
  %y = call float @rounded_{function}(float %x)
  %to = getelementptr float, ptr %made, i64 %row
  store float %y, ptr %to
  %next = add i64 %row, 1
  %more = icmp ult i64 %next, %k
  br i1 %more, label %each, label %end
end:
  ret void
}}"""
    engine = assembled("\n".join([*normal_text(), loop]))
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
    return engine, kind(engine.get_function_address("all"))


def test_machine_code_of_words_is_made_when_much_has_been_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(host_code, "CODE", Code(most=4000))
    monkeypatch.setattr(host_code, "function", lambda name, _: (asked.append(name), None))
    draw = Draw(5, 0, np.arange(1000))
    for _ in range(4):
        on_the_host(draw, 1, 1)
        assert not asked
    for _ in range(2):
        on_the_host(draw, 1, 1)
    assert asked == ["words_of_one1"]


def test_paths_differ_from_each_other_and_from_their_callers() -> None:
    alone = Thread(0, key_of(1))
    found = {tuple(Thread(0, alone.key, alone.number).blocks(1))}
    for _ in range(100):
        path = alone.opened()
        found |= {path.blocks(1)[0], path.opened().blocks(1)[0], path.opened().blocks(1)[0]}
        found.add(alone.blocks(1)[0])
    assert len(found) == 401
    keys = split(np.full(1000, key_of(3)), np.arange(1000))
    assert len(set(keys.tolist())) == 1000


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform_numbers_have_all_bits_and_never_reach_one(dtype: torch.dtype) -> None:
    bits = transforms.BITS.get(dtype, 53)

    class Largest:
        k = 1

        def columns(self, n: int, count: int, device: torch.device) -> list[Tensor]:
            return [torch.full((1, n), MASK) for _ in range(count)]

        def normals(self, n: int, device: torch.device) -> None:
            return None

        def opened(self) -> Largest:
            return self

    top = transforms.uniform(Largest(), 3, dtype, CPU)
    assert top.dtype is dtype and (top < 1).all() and (top.double() == 1 - 2.0**-bits).all()
    near = transforms.within(Largest(), 3, dtype, CPU)
    assert (near < 1).all() and torch.isfinite(near.log()).all() and (near.log() < 0).all()
    assert torch.isfinite(transforms.normal(Largest(), 3, dtype, CPU)).all()
    grid = transforms.uniform(threads(4000), 5, dtype, CPU).double() * 2**bits
    assert torch.equal(grid, grid.round()) and (grid % 2).mean().sub(0.5).abs() < 0.02


@pytest.mark.parametrize(
    "size", [1, 2, 10, 2**31 + 1, 2**32 - 1, 2**32, 2**33 + 1, 3 * 2**62, 2**64 - 1, 2**64]
)
def test_integers_are_the_upper_part_of_an_exact_product(size: int) -> None:
    count = 2 if size <= 2**32 or size == 2**64 else 4
    found = transforms.integers(threads(40), 3, size, CPU)
    given = threads(40).columns(3, count, CPU)
    for row in range(40):
        for place in range(3):
            whole = 0
            for word in given:
                whole = whole << 32 | int(word[row, place])
            expected = whole * size >> 32 * count
            assert int(found[row, place]) % 2**64 == expected < size


# Statistics


def chi_square(counts: Tensor) -> float:
    """How many standard deviations the statistic of even chances is above its mean."""
    expected = counts.sum() / counts.numel()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    free = counts.numel() - 1
    return (statistic - free) / math.sqrt(2 * free)


def kolmogorov_smirnov(sample: Tensor) -> float:
    """The largest distance from the even distribution, times the root of the size."""
    ordered = sample.double().flatten().sort().values
    n = ordered.numel()
    ranks = torch.arange(n, dtype=torch.float64)
    return float(torch.maximum((ranks + 1) / n - ordered, ordered - ranks / n).max()) * math.sqrt(n)


def correlation(a: Tensor, b: Tensor) -> float:
    """In standard deviations of that of independent numbers."""
    a, b = a.double().flatten(), b.double().flatten()
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).mean() / (a.std() * b.std())) * math.sqrt(a.numel())


def series(law: object, draws: int, n: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """``[draws, threads, n]``: successive draws of 20,000 threads."""
    source = threads(20_000)
    return torch.stack([law(source, n, dtype, CPU) for _ in range(draws)])  # type: ignore[operator]


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform_numbers_are_even(dtype: torch.dtype) -> None:
    found = series(transforms.uniform, 5, 2, dtype)
    cells = (found.double() * 256).long().flatten().bincount(minlength=256)
    assert abs(chi_square(cells.double())) < LIMIT
    if dtype in (torch.float32, torch.float64):
        assert kolmogorov_smirnov(found) < 2.5  # 1 in 100,000 is above


def test_every_bit_of_the_words_is_even() -> None:
    source = threads(20_000)
    for word in source.columns(1, 4, CPU):
        for bit in range(32):
            share = float((word >> bit & 1).double().mean())
            assert abs(share - 0.5) * 2 * math.sqrt(20_000) < LIMIT, bit


def test_draws_of_neighbours_and_successive_draws_are_independent() -> None:
    found = series(transforms.uniform, 20, 3)
    for lag in (1, 2, 4, 1024):
        assert abs(correlation(found[:, :-lag], found[:, lag:])) < LIMIT, lag
    for lag in (1, 2, 7):
        assert abs(correlation(found[:-lag], found[lag:])) < LIMIT, lag
    assert abs(correlation(found[..., :-1], found[..., 1:])) < LIMIT
    assert abs(correlation(found[1:, 1:], found[:-1, :-1])) < LIMIT
    pairs = (found[:-1] * 16).long() * 16 + (found[1:] * 16).long()
    assert abs(chi_square(pairs.flatten().bincount(minlength=256).double())) < LIMIT
    pairs = (found[:, :-1] * 16).long() * 16 + (found[:, 1:] * 16).long()
    assert abs(chi_square(pairs.flatten().bincount(minlength=256).double())) < LIMIT


def test_seeds_and_paths_are_independent() -> None:
    first = transforms.uniform(threads(50_000, seed=1), 1, torch.float64, CPU)
    second = transforms.uniform(threads(50_000, seed=2), 1, torch.float64, CPU)
    source = threads(50_000, seed=1)
    path = transforms.uniform(source.opened(), 1, torch.float64, CPU)
    other = transforms.uniform(source.opened(), 1, torch.float64, CPU)
    for a, b in ((first, second), (first, path), (path, other)):
        assert abs(correlation(a, b)) < LIMIT
        assert kolmogorov_smirnov((a - b).abs().sub(1).square().neg().add(1)) < 2.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3])
def test_normal_numbers_have_their_moments(dtype: torch.dtype, n: int) -> None:
    found = series(transforms.normal, 5, n, dtype).double()
    size = math.sqrt(found.numel())
    assert abs(found.mean()) * size < LIMIT
    assert abs(found.square().mean() - 1) * size / math.sqrt(2) < LIMIT
    assert abs(found.pow(3).mean()) * size / math.sqrt(15) < LIMIT
    assert abs(found.pow(4).mean() - 3) * size / math.sqrt(96) < LIMIT
    if dtype in (torch.float32, torch.float64):
        assert kolmogorov_smirnov((1 + torch.erf(found / math.sqrt(2))) / 2) < 2.5
    if n == 3:  # the two numbers of a pair
        assert abs(correlation(found[..., 0], found[..., 2])) < LIMIT
        assert abs(correlation(found[..., 0] ** 2, found[..., 2] ** 2)) < LIMIT


@pytest.mark.parametrize("size", [6, 1000, 3 * 2**61])
def test_integers_are_even(size: int) -> None:
    found = transforms.integers(threads(50_000), 2, size, CPU).double() / size
    assert kolmogorov_smirnov(found) < 2.5 if size > 1000 else True
    cells = (found * min(size, 100)).floor().long().clamp(max=99).flatten()
    assert abs(chi_square(cells.bincount(minlength=min(size, 100)).double())) < LIMIT
