"""Results that do not stack: the error names the returns that they come from."""

from __future__ import annotations

import linecache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import autobatch
from autobatch import StackingError
from autobatch.results.mismatch import Part, describe, structures_differ
from autobatch.vm.ways import Way, joined, picked
from tests.building import Lines, block, function
from tests.goldens import assert_golden

UNLIKE = """\
import torch

def walk(x):
    if x > 0:
        return x, x + 1
    while x < -1:
        x = x + 1
    return x * 2

def off_the_end(x):
    if x > 0:
        return [x]

def inner(x):
    if x > 1:
        return (x, {"a": x, "b": x > 2})
    return (x, {"a": x, "b": helper(x)})

def helper(x):
    return "text" if x > 0 else (x, x)

def countdown(x):
    if x > 4:
        return None
    if x < 1:
        return x
    return countdown(x - 2)

def ragged(x):
    if x > 2:
        with torch.no_grad():
            return torch.ones(2, 2)
    return torch.ones(3) if x > 0 else torch.ones(2)

def one_return(x):
    pair = (x, x) if x > 0 else {"x": x}
    return pair

def lengths(x):
    return torch.zeros(int(x) + 3)

several = lambda x: x if x > 3 else "a" if x > 1 else [x] if x > 0 else {}

@torch.no_grad()
def decorated(x):
    if x > 0:
        return x
    return x, x

def within(x):
    with torch.inference_mode():
        return walk(x)

class Made:
    def __init__(self, x):
        if x > 0:
            return
        self.x = x

def made(x):
    if x > 0:
        return Made(x), x
    return Made(x)

def narrow(x):
    if x > 4:
        return x.bool()
    return x.to(torch.uint16) if x > 0 else x.short()
"""
XS = torch.tensor([1.0, -2.0, 3.0, 5.0, 0.0])
NAMES = ("walk", "off_the_end", "inner", "countdown", "ragged", "one_return", "lengths", "several")


@pytest.fixture
def unlike(tmp_path, monkeypatch) -> SimpleNamespace:
    """The functions above, from a file whose name does not depend on the machine."""
    (tmp_path / "unlike.py").write_text(UNLIKE)
    monkeypatch.chdir(tmp_path)
    linecache.checkcache("unlike.py")
    space: dict = {"__name__": "unlike"}
    exec(compile(UNLIKE, "unlike.py", "exec"), space)
    return SimpleNamespace(**space)


def said(func, xs=XS, **options) -> str:
    with pytest.raises(StackingError) as caught:
        autobatch.vmap(func, **options)(xs)
    return str(caught.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["stackless", "sequential"])
@pytest.mark.parametrize("chunk_size", [None, 1, 2])
def test_golden_errors(unlike, engine, chunk_size):
    options = {"engine": engine, "chunk_size": chunk_size}
    texts = [f"{said(getattr(unlike, name), **options)}\n" for name in (*NAMES, "made", "narrow")]
    assert_golden("mismatch", "\n".join(texts))


@pytest.mark.parametrize("executor", ["traced", "vmap"])
def test_both_returns_are_named(unlike, executor):
    for xs in (XS, XS[:2], torch.arange(64.0) - 32):
        text = said(unlike.walk, xs, executor=executor, trace_after=0)
        assert "line 5" in text and "line 8" in text and "^" in text


def positives(x):
    found = []
    for value in x:
        if value > 0:
            found.append(value)
    return found


def counted(x):
    return {f"key {i}": x for i in range(int(x.sum()))}


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("executor", ["vmap", "traced"])
def test_returns_within_modes_are_named(unlike, engine, executor):
    told = said(unlike.decorated, engine=engine, executor=executor)
    assert "        return x\n" in told
    assert 'File "unlike.py"' in told
    told = said(unlike.within, engine=engine, executor=executor)
    assert "        return x, x + 1\n" in told


def test_lists_of_unequal_length_may_be_tensors():
    text = said(positives, torch.tensor([[1.0, 0.0], [2.0, 3.0]]))
    assert text.endswith(
        'Hint: pass ragged_out="list", under which each example has its own list, or return one '
        'tensor (torch.stack, torch.tensor) for "nested" or "pad"; on_error="isolate" gives each '
        "example's result by itself, whatever it is."
    )

    def stacked(x):
        return torch.stack(positives(x))

    xs = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
    for func in (stacked, positives):
        assert [len(part) for part in autobatch.vmap(func, ragged_out="list")(xs)] == [1, 2]
    alone = autobatch.vmap(positives, on_error="isolate")(xs)
    assert [len(result.value) for result in alone] == [1, 2]


def counted_words(text):
    return [(word, len(word)) for word in text.split()]


def test_lists_of_strings_and_numbers_are_told_what_does_come_back():
    with pytest.raises(autobatch.StackingError) as caught:
        autobatch.vmap(counted_words)(autobatch.objects(["a b", "c"]))
    assert "torch.stack" not in str(caught.value)
    assert 'pass ragged_out="list", under which each example has its own list;' in str(caught.value)


def test_dicts_of_unequal_length_may_be_wrapped():
    text = said(counted, torch.tensor([[1.0, 0.0], [2.0, 3.0]]))
    assert text.endswith(
        "Hint: give all examples the same keys, or return `[found]`, a list that holds the dict, "
        'and pass ragged_out="list", under which each example has its own; '
        'on_error="isolate" gives each example\'s result by itself, whatever it is.'
    )
    alone = autobatch.vmap(counted, on_error="isolate")(torch.tensor([[1.0, 0.0], [2.0, 3.0]]))
    assert [len(result.value) for result in alone] == [1, 5]


def test_tuples_of_unequal_length_may_be_lists():
    def best(text):
        return tuple(text.split()), len(text)

    def listed(text):
        return list(text.split()), len(text)

    texts = autobatch.objects(["a b", "c"])
    with pytest.raises(autobatch.StackingError) as caught:
        autobatch.vmap(best)(texts)
    assert 'return `list(found)` and pass ragged_out=("list", None),' in str(caught.value)
    found, sizes = autobatch.vmap(listed, ragged_out=("list", None))(texts)
    assert found == [["a", "b"], ["c"]]
    assert sizes.tolist() == [3, 1]


def test_rows_that_meet_keep_their_return(unlike):
    """Threads 1 and 2 meet at the exit before thread 0 comes: by then they are one group."""

    def scattered(x, n):
        while n > 0:
            n = n - 1
        if x == 2:
            return None
        if x == 1:
            return 1
        return 2

    start = scattered.__code__.co_firstlineno
    text = said(lambda pair: scattered(pair[0], pair[1]), torch.tensor([[0, 9], [1, 0], [2, 0]]))
    assert f"line {start + 7}" in text and f"line {start + 4} returns None, in thread 2" in text
    text = said(lambda pair: scattered(pair[0], pair[1]), torch.tensor([[1, 9], [0, 3], [2, 0]]))
    assert f"line {start + 6}" in text and f"line {start + 4} returns None, in thread 2" in text


def test_an_end_without_return_is_told(unlike):
    text = said(unlike.off_the_end, -XS)
    assert (
        "if x > 0:\n" in text and "^ off_the_end ends without `return`: None, in thread 0" in text
    )
    assert "line 12 returns a list of 1, in thread 1" in text
    text = said(unlike.off_the_end)
    assert "off_the_end ends at line 12 without `return`: None, in thread 1" in text


def test_dicts_of_other_keys_come_back_in_lists():
    def counted(word):
        return len(word), {letter: word.count(letter) for letter in word}

    def in_lists(word):
        return len(word), [{letter: word.count(letter) for letter in word}]

    words = autobatch.objects(["aab", "c"])
    text = said(counted, words)
    assert "the same keys, or return `[found]`" in text and 'ragged_out=(None, "list")' in text
    found = autobatch.vmap(in_lists, ragged_out=(None, "list"))(words)
    assert found[1] == [[{"a": 2, "b": 1}], [{"c": 1}]]


def test_more_than_eight_unlike_groups():
    def shaped(n):
        if n == 11:
            return None
        return torch.zeros(n)

    start = shaped.__code__.co_firstlineno
    text = said(shaped, torch.arange(12))
    assert f"line {start + 3}\n" in text and f"line {start + 2} returns None, in thread 11" in text


def test_a_callable_that_is_no_program_has_no_return_to_name():
    xs = torch.tensor([[1, 0], [1, 1]])
    text = said(torch.nonzero, xs)
    assert "entry.py" not in text and "thread 1 returns a tensor of shape (2, 1)" in text


def test_numbers_of_all_kinds_and_large_ints_are_a_list():
    assert autobatch.vmap(lambda x: True if x > 0 else 2**70)(XS[:2]) == [True, 2**70]
    assert autobatch.vmap(lambda x: 0.5 if x > 0 else 2**70)(XS[:2]) == [0.5, 2**70]


def test_a_tensor_and_an_int_that_fits_none():
    text = said(lambda x: x if x > 0 else 2**70, torch.tensor([1, -1]))
    assert "a tensor of shape ()" in text and "an int" in text


@pytest.mark.parametrize(
    "item, text",
    [
        (None, "None"),
        ((), "a tuple of 0"),
        ({}, "an empty dict"),
        (3, "an int"),
        ("a", "a str"),
        (object(), "an object"),
    ],
)
def test_descriptions(item, text):
    assert describe(item) == text


def test_marks_of_groups():
    assert joined([2, 2], [3, 1]) == 2 and joined([None, None], [1, 1]) is None
    both = joined([2, np.array([0, 1]), 3], [2, 2, 1])
    assert both.tolist() == [2, 2, 0, 1, 3]
    assert picked(both, np.array([4, 1])).tolist() == [3, 2]
    assert picked(2, np.array([0])) == 2 and picked(None, np.array([0])) is None


def test_ways_that_meet_before_the_exit_are_all_named():
    at = Lines()
    made = function(
        "f",
        "x",
        block(at.branch("x", 1, 2)),
        block(at.op("%return = tuple x, x"), at.jump(3)),
        block(at.op("%return = const", None), at.branch("x", 3, 4)),
        block(at.jump(4)),
        block(at.give("%return")),
    )
    lines = {label: tuple(span.line for span in Way(made, label).spans()) for label in range(1, 5)}
    assert lines == {1: (3,), 2: (5,), 3: (3, 5), 4: (5, 3)}
    part = Part(lambda thread: Way(made, 3).spans() if thread else Way(made, 1).spans())
    error = structures_differ([(1, 1), None], part)
    assert error.span.line == 3
    assert error.diagnostic.notes[0].startswith("one of the lines 3, 5 returns None, in thread 1")
    same = function("f", "x", block(at.give("x")))
    assert [span.line for span in Way(same, 0).spans()] == [same.blocks[0].terminator.span.line]


def test_what_ragged_out_does_not_fit_is_told() -> None:
    def parts(x):
        return {"row": x, "sum": x.sum()}

    def pair(x):
        return x, x.sum()

    for func, given, told in (
        (parts, {"rows": "list", "sum": None}, "and the result has the keys 'row', 'sum'"),
        (pair, ("list", None, None), "and the result has 2 parts"),
    ):
        with pytest.raises(autobatch.OptionError, match=told):
            autobatch.vmap(func, ragged_out=given)(torch.ones(2, 3))
