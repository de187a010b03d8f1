"""Text of what may be a tensor that has a gradient: its text names the graph, which differs.

Most of what is made text of is none: a thread that does come to a tensor's is given up there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.alone import printing

WORDS = [["a", "bc", "d"], ["b", "aa"], ["a"], ["cc", "a", "b", "d", "e"], ["c"], ["d"], ["e"]]
LAYER = nn.Linear(3, 3)


def spans(words: list[str], x: Tensor) -> Tensor:
    """By a memo whose keys are texts."""
    memo: dict[str, Tensor] = {}

    def of(i: int, j: int) -> Tensor:
        key = f"{words[i]}-{i}:{j}"
        if key not in memo:
            if j - i == 1:
                memo[key] = torch.tanh(LAYER(x) * len(words[i]))
            else:
                memo[key] = torch.stack([of(i, k) * of(k, j) for k in range(i + 1, j)]).sum(0)
        return memo[key]

    return of(0, len(words))


def labels(words: list[str], x: Tensor) -> Tensor:
    kept: dict[Any, Any] = {"start": x}
    for place, word in enumerate(words):
        label = "{}/{}".format(word, place) + repr(word) + str(place)  # noqa: UP032
        kept[label] = torch.tanh(LAYER(kept["start"])) + len(kept)
    return torch.stack(list(kept.values())).sum(0)


def shown_by_some(words: list[str], x: Tensor) -> Tensor:
    h: Any = torch.tanh(LAYER(x))
    for word in [*words, h]:
        text = word if len(words) > 4 and word is not h else "none"
        if len(words) > 4:
            text = f"{word}"
        h = h * (1 if text else 0)
    return h


def caught(words: list[str], x: Tensor) -> Tensor:
    h: Any = torch.tanh(LAYER(x))
    try:
        text = f"{[words[0], h][len(words) > 1]}"
    except:  # noqa: E722 - what gives a thread up may not come to it
        return x
    return h * (2 if text else 0)


def failing(words: list[str], x: Tensor) -> Tensor:
    kept: dict[str, Any] = {"h": torch.tanh(LAYER(x))}
    text = f"{kept.get(words[0], 'none')}"
    return kept[text]


def loop_of(function: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.stack([function(list(w), row.clone()) for w, row in zip(WORDS, x, strict=True)])
    return rows.detach(), torch.autograd.grad(rows.square().sum(), x)[0]


@pytest.mark.parametrize("function", [spans, labels, shown_by_some, caught])
def test_the_loops_results_and_gradients(function):
    for _ in range(6):
        x = torch.randn(len(WORDS), 3, requires_grad=True)
        wanted, slopes = loop_of(function, x)
        found = autobatch.vmap(function)(autobatch.objects([list(w) for w in WORDS]), x)
        torch.testing.assert_close(found.detach(), wanted)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), x)[0], slopes)
        assert torch.Tensor.__repr__ is printing.REPR


@pytest.mark.parametrize(("function", "plain"), [(spans, 7), (labels, 7), (shown_by_some, 6)])
def test_plain_python_runs_those_that_show_none(function, plain):
    counted = []
    for _ in range(8):
        x = torch.randn(len(WORDS), 3, requires_grad=True)
        with autobatch.counts() as seen:
            autobatch.vmap(function)(autobatch.objects([list(w) for w in WORDS]), x)
        counted.append(seen.plain)
    assert plain in counted and set(counted) <= {0, plain}


def test_what_may_catch_anything_keeps_all_together():
    x = torch.randn(len(WORDS), 3, requires_grad=True)
    for _ in range(5):
        with autobatch.counts() as seen:
            autobatch.vmap(caught)(autobatch.objects([list(w) for w in WORDS]), x)
        assert not seen.plain


def test_texts_are_as_ever_once_an_example_has_failed():
    x = torch.randn(len(WORDS), 3, requires_grad=True)
    for _ in range(5):
        with pytest.raises(KeyError, match="none"):
            autobatch.vmap(failing)(autobatch.objects([list(w) for w in WORDS]), x)
        assert torch.Tensor.__repr__ is printing.REPR
        assert repr(torch.ones(1)) == "tensor([1.])"
