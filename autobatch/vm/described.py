"""What Python tells of a function that a program made: its text, defaults and signature.

In: its record, and the defaults that it was made with, by the names of their parameters.
Annotations are not evaluated, so a function that has some has no signature.
"""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from typing import Any

from autobatch.ir.program import Function
from autobatch.source import FunctionNode, Span, definition_at

KINDS = {
    "positional_only": inspect.Parameter.POSITIONAL_ONLY,
    "positional": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "var_positional": inspect.Parameter.VAR_POSITIONAL,
    "keyword_only": inspect.Parameter.KEYWORD_ONLY,
    "var_keyword": inspect.Parameter.VAR_KEYWORD,
}


@lru_cache(maxsize=1024)
def docstring(span: Span) -> str | None:
    """The text that a function begins with, as this version of Python keeps it."""
    node = definition_at(span)
    if not isinstance(node, ast.FunctionDef) or ast.get_docstring(node, clean=False) is None:
        return None
    bare = ast.parse("def f(): ...")
    assert isinstance(bare.body[0], ast.FunctionDef)
    bare.body[0].body = [node.body[0]]
    scope: dict[str, Any] = {}
    exec(compile(bare, span.file, "exec", dont_inherit=True), scope)
    return scope["f"].__doc__  # type: ignore[no-any-return]


def positional_defaults(function: Function, given: dict[str, Any]) -> tuple[Any, ...] | None:
    """``__defaults__``"""
    named = keyword_defaults(function, given) or {}
    return tuple(value for name, value in given.items() if name not in named) or None


def keyword_defaults(function: Function, given: dict[str, Any]) -> dict[str, Any] | None:
    """``__kwdefaults__``"""
    named = [p.name for p in function.params if p.kind == "keyword_only" and p.name in given]
    return {name: given[name] for name in named} or None


def signature(function: Function, given: dict[str, Any]) -> inspect.Signature | None:
    """What ``inspect.signature`` tells; None where that has annotations."""
    node = definition_at(function.span)
    if node is None or is_annotated(node):
        return None
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(p.name, KINDS[p.kind], default=given.get(p.name, empty))
            for p in function.params
        ]
    )


def is_annotated(node: FunctionNode) -> bool:
    arguments = [part for part in ast.walk(node.args) if isinstance(part, ast.arg)]
    return getattr(node, "returns", None) is not None or any(a.annotation for a in arguments)
