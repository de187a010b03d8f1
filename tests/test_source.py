"""Spans, excerpts, and finding the node that a code object was compiled from."""

from __future__ import annotations

import ast
import doctest
import linecache
from types import FunctionType
from typing import Any

import pytest

from autobatch.source import SourceUnavailable, Span, excerpt, function_node


def node_of(function: Any) -> str:
    assert isinstance(function, FunctionType)
    return ast.unparse(function_node(function).node)


def from_text(tmp_path, text: str, name: str = "made.py") -> dict[str, Any]:
    """The names that ``text`` defines, run from a file."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), namespace)
    return namespace


def identity(function):
    return function


@identity
@(lambda function: function)
def decorated(x: int) -> int:
    return x


def decorators(make):
    return make


# fmt: off
pair = (lambda a: a + 1), (lambda a: a + 2)
nested = lambda a: lambda b: (a, b)  # noqa: E731
constants = [lambda: 1, lambda: -2, lambda x: 1, lambda *a, b=(lambda: (3, "x")): 1, lambda: 1]
same_body = [lambda a: (a,), lambda a, b: (a,), lambda *a: (a,)]
table = {"é": lambda a: "é", "漢": lambda a: "é" + a, "": lambda a: (
    a, "two lines")}
# fmt: on


def test_functions_and_decorators() -> None:
    assert node_of(identity) == "def identity(function):\n    return function"
    assert node_of(decorated).endswith("def decorated(x: int) -> int:\n    return x")


def test_several_lambdas_on_a_line() -> None:
    assert [node_of(each) for each in pair] == ["lambda a: a + 1", "lambda a: a + 2"]
    assert [node_of(each) for each in same_body] == [
        "lambda a: (a,)",
        "lambda a, b: (a,)",
        "lambda *a: (a,)",
    ]
    assert [node_of(each) for each in constants] == [
        "lambda: 1",
        "lambda: -2",
        "lambda x: 1",
        "lambda *a, b=lambda: (3, 'x'): 1",
        "lambda: 1",
    ]
    assert node_of(constants[3].__kwdefaults__["b"]) == "lambda: (3, 'x')"
    assert node_of(nested) == "lambda a: lambda b: (a, b)"
    assert node_of(nested(1)) == "lambda b: (a, b)"
    assert [node_of(each) for each in table.values()] == [
        "lambda a: 'é'",
        "lambda a: 'é' + a",
        "lambda a: (a, 'two lines')",
    ]


def test_lambdas_by_position_in_defaults_and_calls() -> None:
    first, second = identity((lambda x=(lambda: 1): x, lambda x=2: (lambda: x)()))  # noqa: PLC3002
    assert node_of(first) == "lambda x=lambda: 1: x"
    assert node_of(first()) == "lambda: 1"
    assert node_of(second) == "lambda x=2: (lambda: x)()"


def test_lambdas_without_column_positions(tmp_path) -> None:
    """As ``-X no_debug_ranges`` compiles them."""
    text = "f, g, h, i = lambda x: x, lambda x: -x, lambda y: 1, lambda y: 2\n"
    made = from_text(tmp_path, text)
    f, _, h, i = (
        FunctionType(_without_columns(made[name].__code__), made) for name in ("f", "g", "h", "i")
    )
    assert (node_of(h), node_of(i)) == ("lambda y: 1", "lambda y: 2")
    assert node_of(f) == "lambda x: x"
    text = "def make(a):\n    return lambda: a, lambda: (a, a)\n"
    outer = from_text(tmp_path, text, "outer.py")["make"](1)[0]
    outer.__code__ = _without_columns(outer.__code__)
    with pytest.raises(SourceUnavailable, match="2 functions named <lambda> begin at"):
        function_node(outer)


def _without_columns(code):
    """The code with a table of positions whose entries name lines only."""
    size = len(code.co_code) // 2
    entries = b""
    while size:
        step = min(size, 8)
        entries += bytes([0x80 | 13 << 3 | (step - 1), 0])
        size -= step
    return code.replace(co_linetable=entries)


def test_owner_is_the_class_that_names_are_mangled_by() -> None:
    assert function_node(TestOwner.method).owner == "TestOwner"
    assert function_node(TestOwner.Inner.method).owner == "Inner"
    assert function_node(TestOwner().method()).owner == "TestOwner"
    assert function_node(identity).owner is None


class TestOwner:
    __test__ = False

    def method(self) -> Any:
        def inner() -> None: ...

        return inner

    class Inner:
        def method(self) -> None: ...


def test_source_that_is_not_there(tmp_path) -> None:
    namespace: dict[str, Any] = {}
    exec("def made(): pass", namespace)
    with pytest.raises(SourceUnavailable, match=r"source of made\(\) is not available .*<string>"):
        function_node(namespace["made"])


def test_code_that_was_given_another_name() -> None:
    """torch 2.15 calls the code of what ``no_grad`` decorates ``no_grad``."""

    def renamed(x: float) -> float:
        import math as m  # noqa: PLC0415

        return m.sqrt(x)

    renamed.__code__ = renamed.__code__.replace(co_name="no_grad", co_qualname="no_grad")
    node = function_node(renamed).node
    assert isinstance(node, ast.FunctionDef)
    assert node.name == "renamed"
    constant, other, _ = (lambda: 1), (lambda x: 1), (lambda x: 2)
    for function, text in ((constant, "lambda: 1"), (other, "lambda x: 1")):
        function.__code__ = function.__code__.replace(co_name="no_grad")
        assert node_of(function) == text


def test_source_that_has_changed(tmp_path) -> None:
    made = from_text(tmp_path, "\n\ndef f(x):\n    return x\n")["f"]
    (tmp_path / "made.py").write_text("def g(x):\n    return x\n")
    linecache.checkcache()
    with pytest.raises(SourceUnavailable, match=r"made.py, line 3 does not hold f\(\): has the"):
        function_node(made)
    (tmp_path / "made.py").write_text("def g(x:\n")
    linecache.checkcache()
    with pytest.raises(SourceUnavailable, match="not readable as Python"):
        function_node(made)


@pytest.mark.parametrize("kept", [False, True], ids=["not read before", "read before"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(x):\n    return x * 2\n", "def f(x):\n    return x * 7\n"),
        ("def f(x):\n    return x + 2\n", "def f(x):\n    return x - 2\n"),
        ("def f(x):\n    return x[0]\n", "# a line\ndef f(x):\n    return x[0]\n"),
        ("f = lambda x: x * 2\n", "f = lambda x: x * 7\n"),
        (
            "def f(x):\n    return [y * 2 for y in x]\n",
            "def f(x):\n    return [y * 7 for y in x]\n",
        ),
        ("def f(x):\n    return x * 2\n", "def f(x:\n"),
    ],
)
def test_a_file_that_is_edited(tmp_path, before: str, after: str, kept: bool) -> None:
    """Its text is never taken for that of a function that was loaded before, or after."""
    old = from_text(tmp_path, before)["f"]
    text = node_of(old) if kept else None
    (tmp_path / "made.py").write_text(after + "# of another length\n")
    if kept:
        assert node_of(old) == text
    else:
        with pytest.raises(SourceUnavailable, match=r"changed since it was loaded|not readable"):
            function_node(old)
    if after != "def f(x:\n":
        new = from_text(tmp_path, after + "# of another length\n")["f"]
        assert ast.unparse(ast.parse(after).body[0]).endswith(node_of(new))


def test_code_to_which_something_was_added(tmp_path) -> None:
    """As pytest adds to assertions, and a checker of types to arguments."""
    text = "def f(x):\n    return x * 2\n"
    from_text(tmp_path, text)
    namespace: dict[str, Any] = {}
    added = "def f(x):\n    checked = isinstance(x, int); return x * 2\n"
    exec(compile(added, str(tmp_path / "made.py"), "exec"), namespace)
    assert node_of(namespace["f"]) == text.rstrip()


def test_text_in_linecache_only() -> None:
    """As doctest and IPython keep it."""
    text = "def cell(x):\n    return x + 1\n"
    name = "<ipython-input-1-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace: dict[str, Any] = {}
    exec(compile(text, name, "exec"), namespace)
    assert node_of(namespace["cell"]) == "def cell(x):\n    return x + 1"
    del linecache.cache[name]


def in_doctest() -> None:
    """
    >>> from autobatch.source import function_node
    >>> f = lambda x: x + 1
    >>> function_node(f).node.lineno
    1
    """


def test_inside_a_doctest() -> None:
    [test] = doctest.DocTestFinder().find(in_doctest, "in_doctest", globs={})
    assert doctest.DocTestRunner().run(test).failed == 0


def test_columns_count_characters(tmp_path) -> None:
    namespace = from_text(tmp_path, "def f(x):\n    return 'é漢😀', x\n")
    source = function_node(namespace["f"])
    value = source.node.body[0].value.elts[1]  # type: ignore[union-attr]
    assert source.span(value) == Span(source.file, 2, 18, 2, 19)


WALK = """\
def walk(x, y):
    if x:
\treturn x, y
    return (x +
            y), "漢字", y
"""


@pytest.fixture
def walk(tmp_path) -> str:
    (tmp_path / "walk.py").write_text(WALK, encoding="utf-8")
    return str(tmp_path / "walk.py")


def test_excerpt(walk) -> None:
    assert excerpt(Span(walk, 2, 7, 2, 8), "here a number") == (
        f'  File "{walk}", line 2\n    2 |     if x:\n      |        ^ here a number'
    )
    assert excerpt(Span(walk, 3, 8, 3, 12)).splitlines()[1:] == [
        "    3 | \treturn x, y",
        "      | \t       ^^^^",
    ]


def test_excerpt_of_several_lines_and_wide_characters(walk) -> None:
    assert excerpt(Span(walk, 4, 11, 5, 14)).splitlines()[1:] == [
        "    4 |     return (x +",
        "      |            ^^^^",
    ]
    assert excerpt(Span(walk, 5, 22, 5, 23)).splitlines()[2] == "      |                         ^"


def test_excerpt_without_text() -> None:
    assert excerpt(Span("/gone.py", 7, 1, 7, 2)) == '  File "/gone.py", line 7'
    assert excerpt(Span("/gone.py", 7, 1, 7, 2), "x") == '  File "/gone.py", line 7: x'


def test_what_exec_compiles_has_no_text_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 has the text of ``python -c`` under the name that ``exec`` gives to all."""
    text = ["def made(x):\n", "    return x + 1\n"]
    monkeypatch.setitem(linecache.cache, "<string>", (1, None, text, "<string>"))
    namespace: dict[str, Any] = {}
    exec("def made(x):\n    return x", namespace)
    with pytest.raises(SourceUnavailable, match="is not available"):
        function_node(namespace["made"])
