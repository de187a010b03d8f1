"""The classes of errors, and what they look like."""

from __future__ import annotations

import pickle

import pytest

from autobatch import errors
from autobatch.errors import AutobatchError, Diagnostic, note_for, render
from autobatch.source import Span
from tests.goldens import assert_golden

WALK = """\
def walk(x, y):
    if x > 0:
        return x, y
    return inner(x)

def inner(x):
    return x @ x
"""


@pytest.fixture
def walk(tmp_path, monkeypatch) -> str:
    (tmp_path / "walk.py").write_text(WALK)
    monkeypatch.chdir(tmp_path)
    return "walk.py"


def test_golden_rendering(walk) -> None:
    failed = ValueError()
    full = Diagnostic(
        "Threads return different structures.",
        Span(walk, 3, 15, 3, 19),
        "here a pair of tensors",
        ("line 4 returns one tensor; results of a batch must stack.",),
        ("return the same structure on every path.",),
    )
    one, other = Span(walk, 4, 11, 4, 19), Span(walk, 3, 15, 3, 19)
    texts = [
        render(full),
        render(Diagnostic("Just a headline.")),
        render(Diagnostic("No span.", notes=("one", "two"), hints=("try this",))),
        note_for(
            ValueError(),
            [Span(walk, 4, 11, 4, 19), Span(walk, 7, 11, 7, 16)],
            ["float32 [3]"],
            [0, 4],
        ),
        note_for(failed, [Span(walk, 7, 11, 7, 16)], [], range(20)),
        note_for(
            ValueError(),
            [*(one, other) * 9, *(other,) * 3, one, one, Span(walk, 7, 11, 7, 16)],
            [],
            [2],
        ),
    ]
    assert_golden("errors", "\n\n".join(texts) + "\n")


def test_the_middle_of_a_long_way_is_counted(walk) -> None:
    failed = ValueError()
    places = [Span(walk, 7, 11, 7, 12 + n) for n in range(41)]
    note = note_for(failed, [*places, *places[-1:] * 30], [], [])
    assert note.count("called here") == 20 and "… 21 more calls …" in note
    assert "… the same line 29 more times …" in note


def kinds() -> list[type[AutobatchError]]:
    found = [AutobatchError]
    for kind in found:
        found += kind.__subclasses__()
    return found


@pytest.mark.parametrize("kind", kinds())
def test_errors_keep_their_diagnostic(kind) -> None:
    diagnostic = Diagnostic("A headline.", Span("gone.py", 3, 4, 3, 6), "a label", code="some-code")
    error = kind(diagnostic)
    assert str(error) == 'A headline.\n  File "gone.py", line 3: a label'
    assert error.span == diagnostic.span
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and copy.diagnostic == diagnostic
    assert str(kind("A headline.")) == "A headline." and kind("A headline.").span is None


def test_places_of_unsupported_code() -> None:
    here = errors.UnsupportedError(Diagnostic("No.", Span("gone.py", 3, 4, 3, 6)))
    assert (here.filename, here.lineno, here.offset) == ("gone.py", 3, 5)
    nowhere = errors.UnsupportedError("No.")
    assert (nowhere.filename, nowhere.lineno, nowhere.offset) == (None, None, None)


def test_kinds_that_python_knows() -> None:
    assert issubclass(errors.OptionError, ValueError)
    assert issubclass(errors.UnknownOptionError, TypeError)
    assert issubclass(errors.DepthLimitError, RecursionError)
    assert issubclass(errors.SharedWriteError, errors.UnsupportedError)
