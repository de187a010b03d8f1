"""Whether a file's text is what a code object was compiled from: it is compiled once more.

A file may change after it was loaded, and be loaded again: then its text holds another function of
the same name on the same line. What rewrites code as it is loaded (pytest's assertions, a checker
of types) adds to it, and keeps most of what the text has.
"""

from __future__ import annotations
import __future__

import ast
import dis
from collections import Counter
from functools import lru_cache
from types import CodeType
from typing import Any

ANNOTATIONS = __future__.annotations.compiler_flag
OPERATORS = ("BINARY_OP", "COMPARE_OP", "UNARY_", "CONTAINS_OP", "IS_OP")


def is_same(text: str, code: CodeType) -> bool:
    """Whether the text has the very same code at that line."""
    try:
        return code in _candidates(text, code)
    except SyntaxError:
        return False


def is_within(text: str, code: CodeType) -> bool:
    """Whether the code has all the names, constants and operators of one that begins there.

    But for those of assertions, which pytest writes anew.
    """
    whole = _content(code)
    candidates = _candidates(text, code, without_assertions=True)
    return any(_content(made) <= whole for made in candidates)


def _candidates(text: str, code: CodeType, without_assertions: bool = False) -> list[CodeType]:
    """What begins at the same line; ``exec`` takes this one flag from its file."""
    flag = code.co_flags & ANNOTATIONS
    return _codes(text, flag, without_assertions).get(code.co_firstlineno, [])


@lru_cache(maxsize=64)
def _codes(text: str, flag: int, without_assertions: bool) -> dict[int, list[CodeType]]:
    """The code of every function of a file, by its first line."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | flag
    whole: Any = text
    if without_assertions:
        tree = compile(text, "<source>", "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        whole = _WithoutAssertions().visit(tree)
    found: dict[int, list[CodeType]] = {}
    for made in _nested(compile(whole, "<source>", "exec", flags, dont_inherit=True)):
        found.setdefault(made.co_firstlineno, []).append(made)
    return found


class _WithoutAssertions(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)


def _nested(code: CodeType) -> list[CodeType]:
    """The code objects within one, however deep."""
    found = [each for each in code.co_consts if isinstance(each, CodeType)]
    return found + [deeper for each in found for deeper in _nested(each)]


def _content(code: CodeType) -> Counter[tuple[str, str]]:
    """What code is made of, in any order; of names and constants, whether it has them."""
    found: Counter[tuple[str, str]] = Counter()
    for each in (code, *_nested(code)):
        for name in (*each.co_names, *each.co_varnames, *each.co_cellvars, *each.co_freevars):
            found["name", name] = 1
        for constant in each.co_consts:
            if not isinstance(constant, CodeType):
                found["constant", repr(constant)] = 1
        for at in dis.get_instructions(each):
            if at.opname.startswith(OPERATORS):
                found[at.opname, at.argrepr] += 1
    return found
