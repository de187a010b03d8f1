"""Slices of lists that are written, and lists that come with ever more parts, as machine code."""

from __future__ import annotations

import pytest

from tests.test_compiled_lists import EACH, program_of
from tests.test_compiled_rules import hold_each

pytest.importorskip("llvmlite")

STATEMENTS = (
    "s = [i for i in range(9)]\ns[1:3] = [a, b, 5, 6]\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[a:] = [b]\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[:a] = s\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[a:2] = (1, b)\ns[-2:] = range(a)\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[::2] = [b] * 5\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[a::2] = [b] * len(s[a::2])\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[::-2] = [b] * a\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[a:1:-1] = range(7)\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[a:a:a] = []\nreturn seen(s)",
    "s = [i for i in range(9)]\ndel s[a:]\nreturn seen(s)",
    "s = [i for i in range(9)]\ndel s[1:a]\nreturn seen(s)",
    "s = [i for i in range(9)]\ndel s[a::-2]\nreturn seen(s)",
    "s = [i for i in range(9)]\ndel s[::a]\nreturn seen(s)",
    "s = [i for i in range(9)]\ndel s[:]\ns[:] = [a]\nreturn seen(s)",
    "s = [i for i in range(9)]\ns[1:2] += [a, b]\nt = s\nt[:0] = [b]\nreturn seen(s)",
    "s = [1, 2, 3]\ns[0:2] = [False, False]\nreturn seen(s)",
    "s = [1, 2, 3]\ns[a:] = reversed(s[a:])\nreturn seen(s)",
    "s = [a, 2, 3]\ntry:\n    s[::2] = [1]\nexcept ValueError:\n    s.append(9)\nreturn seen(s)",
    "s = [a] * 3\nfor v in (1, 2, 3, 4, 5, 6, 7, 8, 9, b):\n    s = s + [v]\nreturn seen(s)",
    "s = []\nfor i in range(a):\n    s = s + [i * b]\nreturn seen(s)",
    "s = []\nfor i in range(a):\n    s = [i] + s[:3]\nreturn seen(s)",
    "s = []\nx = s[0] if a > 3 else 5\ns.append(b)\nreturn x, seen(s)",
)  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("body", STATEMENTS)
def test_slices_are_written_as_in_python(body: str) -> None:
    hold_each(program_of(body), EACH, "python")
