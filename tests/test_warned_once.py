"""A fallback is told of once for each place, however often and by whom that is run."""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.batching.fallbacks import Policy
from autobatch.source import Span

XS = torch.arange(24.0).reshape(4, 2, 3)


def counted(row: Tensor) -> Tensor:
    return torch.unique(row).sum()


def in_a_loop(xs: Tensor) -> Tensor:
    total = torch.zeros(())
    for _ in range(3):
        total = total + autobatch.map_fn(counted, xs).sum()
    return total


def inside(xs: Tensor) -> Tensor:
    return autobatch.vmap(in_a_loop, fallback="warn")(xs)


def by_thread(xs: Tensor) -> Tensor:
    return autobatch.vmap(autobatch.per_thread(in_a_loop))(xs)


def one_by_one(xs: Tensor) -> Tensor:
    return torch.stack([in_a_loop(rows) for rows in xs])


@pytest.mark.parametrize("run", [inside, by_thread, one_by_one])
def test_once_for_each_place(run: Callable[[Tensor], Tensor]) -> None:
    here: dict[str, Any] = globals()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = one_by_one(XS)
        run(XS)  # what torch imports and changes filters for is done
    here.pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert torch.equal(run(XS), expected)
    assert {warning.category for warning in caught} == {autobatch.FallbackWarning}
    told = [str(warning.message) for warning in caught]
    assert len(told) == len(set(told))
    assert "`torch.unique(row)`" in told[0]


def test_once_where_the_source_is_of_no_module() -> None:
    """A cell of a notebook."""
    text = "def cell(i):\n    return torch.unique(XS[i]).sum()\n"
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
    given: dict[str, Any] = {"torch": torch, "XS": XS}
    exec(compile(text, "<cell 1>", "exec"), given)
    autobatch.pfor(given["cell"], 4, fallback="allow")
    vars(sys.modules["__main__"]).pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(4):
            autobatch.pfor(given["cell"], 4)
    assert [str(each.message).partition(":")[0] for each in caught] == ["<cell 1>, line 2"]


def many(x: Tensor) -> Tensor:
    total = torch.unique(x).sum()
    total = total + torch.unique(x + 1).sum() + torch.unique(x + 2).sum()
    total = total + torch.unique(x + 3).sum() + torch.unique(x + 4).sum()
    for _ in range(3):
        total = total + torch.unique(x * 2).sum()
    return total + torch.unique(x + 5).sum()


def test_what_runs_most_is_told_first_and_the_rest_is_counted() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        autobatch.vmap(many, fallback="warn", plain="never")(torch.ones(3, 4))
    told = [str(each.message) for each in caught if "thread by thread" in str(each.message)]
    assert len(told) == 6 and "`torch.unique(x * 2)`" in told[0]
    assert "2 other places of many" in told[-1] and "autobatch.explain" in told[-1]


def test_a_call_that_spent_its_time_recording_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autobatch.batching.fallbacks.WORTH_TELLING", 0.0)
    told = []
    for seconds in (3.0, 0.5):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Policy("warn").recorded("f", ("f.py", 1), seconds, 4.0, 7)
        told.append([str(each.message) for each in caught])
    assert "3.0 s of this call of f, which took 4.0 s, went to recording 7" in told[0][0]
    assert told[1] == []


def density(x: Tensor) -> Tensor:
    chosen = torch.distributions.Categorical(logits=x)
    return chosen.log_prob(torch.tensor(1)) + chosen.entropy()


def test_what_is_lost_in_a_library_is_told_at_a_line_of_the_users() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        autobatch.vmap(density, fallback="warn", plain="never")(torch.ones(5, 4))
    (told,) = caught
    assert told.filename == __file__ and "in a library that is called" in str(told.message)


def test_the_users_line_is_the_innermost_that_is_no_librarys() -> None:
    own, library = Span(__file__, 3, 0, 3, 4), Span(torch.__file__, 5, 0, 5, 4)
    policy = Policy("warn", calls=lambda thread: [own, library])
    assert policy.users(library, 0) is own and policy.users(own, 0) is own
    policy.waits = True
    policy.met(library, "torch.unique", "it may have any effect", [0, 1])
    with pytest.warns(
        autobatch.FallbackWarning, match=r"test_warned_once.*in .*__init__\.py, line 5"
    ):
        policy.tell("f", (__file__, 1))
