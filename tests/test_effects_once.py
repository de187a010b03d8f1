"""What an engine has done for some threads, that others were quicker without, is not done again.

Results that do not stack are told by the general way, which runs what has had no effects.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.errors import StackingError
from autobatch.llvm import is_installed

needs_llvm = pytest.mark.skipif(not is_installed(), reason="needs llvmlite")


def halvings(x: Tensor) -> int:
    count = 0
    while x > 0:
        x = x // 2
        count += 1
    return count


def number_or_float(x: Tensor) -> float:
    if x % 3 == 0:
        print("third", x.item())
        return 1.5
    return halvings(x)


def number_or_pair(x: Tensor) -> Any:
    if x % 3 == 0:
        print("third", x.item())
        return 1, 2
    return halvings(x)


def letters(word: str) -> Any:
    found = dict.fromkeys(word, 1)
    if len(found) == 3:
        print(word)
        return [1.5]
    return len(found)


@needs_llvm
def test_numbers_of_two_types_print_once(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.arange(7)
    expected = [number_or_float(row) for row in x]
    printed = capsys.readouterr().out
    result = autobatch.vmap(number_or_float, executor="compiled")(x)
    assert result.tolist() == expected
    assert capsys.readouterr().out == printed


@needs_llvm
def test_machine_code_whose_results_do_not_stack(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StackingError, match="here a tuple of 2, in thread 0") as caught:
        autobatch.vmap(number_or_pair, executor="compiled")(torch.arange(7))
    assert "returns an int, in thread 1" in str(caught.value)
    assert capsys.readouterr().out.split() == ["third", "0", "third", "3", "third", "6"]


def test_plain_python_whose_results_do_not_stack(capsys: pytest.CaptureFixture[str]) -> None:
    words = autobatch.objects(["ab", "abc", "aa", "abcd", "cab"])
    with pytest.raises(StackingError, match="here an int, in thread 0") as caught:
        autobatch.vmap(letters)(words)
    assert "returns a list of 1, in thread 1" in str(caught.value)
    assert capsys.readouterr().out.split() == ["abc", "cab"]
