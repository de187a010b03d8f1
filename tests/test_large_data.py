"""Large data that all threads share is not looked through at each call, and seen to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from autobatch.alone import contents as alone_contents
from autobatch.alone.computing import SHARED, SHARED_FOR_EACH
from autobatch.batching.stretches.contents import LARGEST, content_key

TABLE: dict[int, Any] = {}
NUMBERS: list[Any] = []
WAYS: list[dict[str, Any]] = [
    {},
    {"plain": "never"},
    {"trace_after": 0, "plain": "never"},
    {"engine": "program_counter", "trace_after": 0, "plain": "never"},
]


def looked_up(n: Any) -> Any:
    total = 0
    while n > 0:
        total += TABLE[n] + NUMBERS[3]
        n = n - 1
    return total


@pytest.fixture(autouse=True)
def filled() -> None:
    TABLE.clear()
    TABLE.update({i: 3 * i for i in range(3 * LARGEST)})
    NUMBERS[:] = range(2 * LARGEST)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_changes_is_seen(way: dict[str, Any]) -> None:
    batched = autobatch.vmap(looked_up, scalars="python", **way)
    ns = torch.arange(7)
    for turn in range(6):
        assert batched(ns).tolist() == list(map(looked_up, range(7)))
        TABLE[turn], NUMBERS[3] = 100 * turn, turn
    TABLE[4] = torch.tensor(0.5)
    want = torch.stack([torch.as_tensor(looked_up(n)).to(torch.float32) for n in range(7)])
    torch.testing.assert_close(batched(ns), want, check_dtype=False)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_grows_large_between_calls(way: dict[str, Any]) -> None:
    TABLE.clear()
    TABLE.update({i: i for i in range(9)})
    batched = autobatch.vmap(looked_up, scalars="python", **way)
    ns = torch.arange(7)
    for _ in range(3):
        assert batched(ns).tolist() == list(map(looked_up, range(7)))
        TABLE.update({i: 2 * i for i in range(2 * LARGEST)})


def test_a_key_of_large_data_is_never_met_again() -> None:
    assert content_key(NUMBERS) != content_key(NUMBERS)
    assert content_key([NUMBERS]) != content_key([NUMBERS])
    assert content_key(NUMBERS[:9]) == content_key(list(range(9)))


def spelled(word: str) -> int:
    return sum(TABLE.get(ord(letter), 0) for letter in word)


def test_plain_python_looks_through_what_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few threads run in the engine then, many as plain Python."""
    words = ["abba", "deed", "cab"]
    few, many = autobatch.objects(words), autobatch.objects(words * 400)
    TABLE.update({i: i for i in range(SHARED + 100 * SHARED_FOR_EACH)})
    seen: list[int] = []
    compound = alone_contents.compound

    def noted(items: Any) -> Any:
        seen.append(len(items))
        return compound(items)

    monkeypatch.setattr(alone_contents, "compound", noted)
    batched = autobatch.vmap(spelled)
    for batch, plain in ((few, 0), (many, len(many.items))):
        for _ in range(20):  # what has been refused is tried again, ever more seldom
            seen.clear()
            with autobatch.counts() as counts:
                got = batched(batch)
            assert got.tolist() == list(map(spelled, batch.items))
            if counts.plain:
                break
        assert counts.plain == plain
        assert (max(seen, default=0) >= len(TABLE)) == bool(plain)
