"""What lowering refuses: each message is golden, with file, line, caret, reason and advice."""

from __future__ import annotations

import ast
from types import FunctionType

import pytest

from autobatch.errors import SharedWriteError, UnsupportedError
from autobatch.frontend import Resolver, lower_function, lower_program
from autobatch.frontend.subset import REFUSED
from tests import refused
from tests.goldens import assert_golden

COUNTER = refused.Counter()


def own_functions() -> dict[str, object]:
    """Everything in the module that is to be refused by itself, by name."""
    found: dict[str, object] = {
        name: value
        for name, value in vars(refused).items()
        if isinstance(value, FunctionType)
        and name not in ("make_closure", "make_counter", "calls_refused")
    }
    for name in vars(refused.Counter):
        if not name.startswith("_"):
            found[f"Counter.{name}"] = getattr(COUNTER, name)
    return found


def message(func: object) -> str:
    with pytest.raises(UnsupportedError) as caught:
        lower_function(func)  # type: ignore[arg-type]
    return str(caught.value).replace(refused.__file__, "refused.py")


def test_golden_messages() -> None:
    texts = [f"== {name}\n{message(func)}\n" for name, func in own_functions().items()]
    assert_golden("refusals", "\n".join(texts))


def test_every_refused_construct_is_shown() -> None:
    with open(refused.__file__, encoding="utf-8") as file:
        shown = {type(node) for node in ast.walk(ast.parse(file.read()))}
    unseen = {kind.__name__ for kind in REFUSED if kind not in shown}
    assert unseen <= {"AsyncFor", "AsyncWith", "TypeAlias"}


@pytest.mark.skipif(not hasattr(ast, "TypeAlias"), reason="needs Python 3.12")
def test_type_alias(tmp_path) -> None:
    path = tmp_path / "alias.py"
    path.write_text("def f(x):\n    type Pair = tuple[int, int]\n    return x\n")
    namespace: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with pytest.raises(UnsupportedError, match="`type` statement is not supported"):
        lower_function(namespace["f"])


def test_a_refused_helper_is_refused_with_its_own_caret() -> None:
    resolver = Resolver(lambda value: "program" if isinstance(value, FunctionType) else "opaque")
    with pytest.raises(UnsupportedError, match=r"`except\*` is not supported") as caught:
        lower_program(refused.calls_refused, resolver)
    assert caught.value.lineno == refused.tries_groups.__code__.co_firstlineno + 1
    lower_function(refused.calls_refused)


def test_errors_say_where_as_syntax_errors_do() -> None:
    with pytest.raises(SharedWriteError) as caught:
        lower_function(refused.appends)
    error = caught.value
    assert (error.filename, error.offset) == (refused.__file__, 5)
    assert error.diagnostic.code == "shared-write"


def test_without_a_receiver_methods_may_write_to_it() -> None:
    lower_function(refused.Counter.sets_attribute)


def test_receiver_that_is_reassigned_is_not_known() -> None:
    def replaced(self, x):
        self = x
        self.value = 1

    def kept(self, x):
        self.value = x

    lower_function(replaced, receiver=COUNTER)
    with pytest.raises(SharedWriteError):
        lower_function(kept, receiver=COUNTER)


def test_no_source() -> None:
    namespace: dict = {}
    exec("def made(x):\n    return x", namespace)
    with pytest.raises(UnsupportedError) as caught:
        lower_function(namespace["made"])
    assert str(caught.value) == (
        "made cannot run in a batch: its Python source is needed.\n"
        "  Note: the source of made() is not available (it was compiled from '<string>').\n"
        "  Hint: put the function into a file, or mark it with autobatch.per_thread or "
        "autobatch.primitive."
    )
    with pytest.raises(UnsupportedError, match=r"len cannot run .*\n.*not a Python function"):
        lower_function(len)
