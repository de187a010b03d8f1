"""``min``, ``max`` and ``sorted`` give operands themselves: a write to either is seen in both.

Where which operand it is differs by thread, a write is refused while both have a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.outside_world import program

XS = torch.tensor([0.0, 1.0, 3.0])
SAID = r"(another of its names|of one tensor)[\s\S]*\^"
BOTH = "a = x * 1;;b = x * -1 + 2;;"
SHARED = "c = torch.tensor(1.0);;d = torch.tensor(2.0);;"
RIGHT = (
    BOTH + "m = sorted([a, b])[0];;m += 1;;return a, b, m",
    BOTH + "m = a or b;;m += 1;;return a, b, m",
    BOTH + "m = min(a, b, key=lambda t: t * 1);;m += 1;;return a, b, m",
    BOTH + "m = min((a, b), default=None);;m += 1;;return a, b, m",
    BOTH + "m = [a, b][int(x) % 2];;m += 1;;return a, b, m",
    BOTH + "m = min(a, a);;m += 1;;return a, m",
    BOTH + "m = min(a, b);;n = m * 2;;a += 1;;return a, b, n",
    BOTH + "m = min(a, b) + 0;;m += 1;;a += 1;;return a, b, m",
    BOTH + "a += 1;;b.mul_(2);;return max(a, b), a, b",
    BOTH + "m = min(a, b);;c = 0;;if x > 1:;;    c = 1;;n = m + 1;;n += 1;;return a, b, n, c",
    BOTH + "m = sorted([a, b])[0];;return a + (m is a), b + (m is b)",
    SHARED + "m = min(c, d);;return x + (m is c), x + (m is not d)",
    SHARED + "m = min(c, d);;c += 5;;return c + x, d + x, m + x",
    SHARED + "m = max(c, d);;m += 5;;return c + x, d + x, m + x",
    "m = max(x, 1.0);;x += 1;;return x, m + 0.0",
    "n = x * 0;;best = n * 1;;while n < 3:;;    best = max(best, n * x);;    n += 1;;return best",
)
REFUSED = (
    BOTH + "m = min(a, b);;return a + (m is a), b",
    BOTH + "m = min([a, b]);;return [q is not m for q in [a, b]], a + x",
    BOTH + "m = min(a, b);;m += 1;;return a, b, m",
    BOTH + "m = max(a, b);;a += 1;;return a, b, m",
    BOTH + "m = min(a, b);;m.add_(1);;return a, b, m",
    BOTH + "m = min([a, b]);;m += 1;;return a, b, m",
    BOTH + "m = min(a, b, x);;x += 1;;return m, x",
    BOTH + "m = max(min(a, b), x);;a += 1;;return m, a",
    BOTH + "m = min(a, b);;l = [m];;c = 0;;if x > 1:;;    c = 1;;a += 1;;return l, a, c",
    BOTH + "m = min(a, b);;torch.add(m, 1, out=m);;return a, b, m",
    BOTH + "m = min(a, b);;v = m.view(1);;v += 1;;return a, b, m",
    BOTH + "def g(t):;;    t += 1;;m = min(a, b);;g(m);;return a, m",
    "b = torch.tensor(1.0);;m = min(x, b);;b += 1;;return m, b",
    "m = min(x, G);;m += 1;;return m, x",
    "n = x * 0;;best = x * 0;;while n < 3:;;    best = max(best, n);;    n += 1;;return best, n",
)


def made(source: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of ``x`` with these lines, and its module's names."""
    names: dict[str, Any] = {"torch": torch, "G": torch.tensor(1.5)}
    return program(f"given back {source}", source.split(";;"), names), names


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", RIGHT)
def test_seen_under_both_names(source: str) -> None:
    assert_matches_loop(made(source)[0], [XS])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", REFUSED)
def test_refused_where_it_differs_by_thread(source: str) -> None:
    func, names = made(source)
    batched = [each for each in CONFIGURATIONS if each.get("engine") != "sequential"]
    for configuration in batched:
        run = autobatch.vmap(func, **configuration)
        for _ in range(3):
            with pytest.raises(
                autobatch.UnsupportedError, match=r"(another of its names|of one tensor)[\s\S]*\^"
            ):
                run(XS)
    assert names["G"] == 1.5
