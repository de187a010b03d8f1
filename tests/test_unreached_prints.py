"""A ``print`` that no thread comes to costs nothing; those that do come to one print in order."""

from __future__ import annotations

import builtins
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from threading import Event

import pytest
import torch

import autobatch
from autobatch.alone import running
from tests.expected import check

ROOT = Path(__file__).parent.parent
NUMBERS = torch.tensor([2.0, 9.0, 0.25, 100.0, 3.0])
PYTHON = {"scalars": "python"}


def root(x, verbose=False):
    """Newton's method, which tells of its steps where it is asked to, and of a bad start."""
    y, steps = x, 0
    while abs(y * y - x) > 1e-9:
        y = 0.5 * (y + x / y)
        steps += 1
        if verbose:
            print(f"step {steps}: {y:.3f}")
    if x > 99:
        print("far", steps, end="!\n")
    return y, steps


def counted(text, limit=3):
    """Words, which only objects have."""
    found = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
        if found[word] >= limit:
            print("often:", word)
    return sorted(found.items())


def loop(function, items):
    return [function(item) for item in items]


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_machine_code_goes_on_for_the_threads_that_do_not_print(capsys, on_error):
    options = {"executor": "compiled", "on_error": on_error, **PYTHON}
    wanted = loop(root, NUMBERS.tolist())
    said = capsys.readouterr().out
    assert said.startswith("far") and said.count("\n") == 1
    mapped = autobatch.vmap(root, **options)
    for numbers, told in ((NUMBERS, said), (NUMBERS[:3], ""), (NUMBERS[3:4], said)):
        with autobatch.counts() as seen:
            found = mapped(numbers)
        assert capsys.readouterr().out == told
        rows = wanted[:3] if len(numbers) == 3 else wanted if len(numbers) == 5 else wanted[3:4]
        if on_error == "isolate":
            check([result.value for result in found], rows)
        else:
            check(found[0], torch.tensor([y for y, _ in rows], dtype=torch.float64))
            assert found[1].tolist() == [steps for _, steps in rows]
        if told == "":
            assert seen.block_executions == 1  # machine code is one
    autobatch.vmap(root, in_dims=(0, None), **options)(NUMBERS[:2], True)
    assert capsys.readouterr().out.count("step 1: ") == 2


def test_a_name_that_only_looks_like_print_is_what_it_is(capsys):
    def printing(x, print):
        if x > 2:
            x = x + print(x)
        return x

    def doubled(x):
        return x * 2

    mapped = autobatch.vmap(printing, in_dims=(0, None), executor="compiled", **PYTHON)
    assert mapped(NUMBERS, doubled).tolist() == [2.0, 27.0, 0.25, 300.0, 9.0]
    with pytest.raises(TypeError, match="NoneType"):
        mapped(NUMBERS, print)
    assert capsys.readouterr().out.startswith("9.0\n")  # in a block, all print before one fails


def test_plain_python_goes_on_for_the_threads_that_do_not_print(capsys):
    texts = ["a b a", "c", "a a a b", "b b b b", "d e", "d"]
    wanted = loop(counted, texts)
    assert capsys.readouterr().out == "often: a\noften: b\noften: b\n"
    for some, plain in ((texts, 4), (texts[:2], 2), (texts[2:4], 0)):
        with autobatch.counts() as seen:
            found = autobatch.vmap(counted, ragged_out="list")(autobatch.objects(some))
        said = capsys.readouterr().out.split("\n")[:-1]
        assert sorted(said) == sorted(
            f"often: {word}" for text in some for word in "ab" for _ in range(text.count(word) - 2)
        )
        assert found == [wanted[texts.index(text)] for text in some] and seen.plain == plain
        assert builtins.print is print and builtins.print.__module__ == "builtins"


def test_what_prints_often_is_soon_left_to_the_blocks(capsys):
    def noisy(text):
        print("<", text)
        return text + text

    texts = [f"t{i}" for i in range(20)]
    for _ in range(3):
        found = autobatch.vmap(noisy)(autobatch.objects(texts))
        assert found == [text + text for text in texts]
        assert capsys.readouterr().out == "".join(f"< {text}\n" for text in texts)


def test_a_thread_below_prints_before_another_one_fails(capsys):
    def checked(text):
        if text == "loud":
            print("heard")
        return int(text) if text != "loud" else 0

    with pytest.raises(ValueError, match="'x'"):
        autobatch.vmap(checked)(autobatch.objects(["1", "loud", "2", "x", "loud"]))
    assert capsys.readouterr().out == "heard\n"
    found = autobatch.vmap(checked, on_error="isolate")(autobatch.objects(["loud", "x", "loud"]))
    assert [type(each.exception) for each in found] == [type(None), ValueError, type(None)]
    assert capsys.readouterr().out == "heard\nheard\n"


def caught(text):
    try:
        if len(text) > 2:
            print("long", text)
        return int(text)
    except ValueError:
        return -1


def caught_all(text):
    while True:
        try:
            print("said", text)
            return text
        except:  # noqa: E722
            text = text + "!"


def finally_said(text):
    try:
        if len(text) > 2:
            print("long", text)
    finally:
        text = text + "?"
    return text


@pytest.mark.parametrize("function", [caught, caught_all, finally_said])
def test_handlers_see_nothing_of_a_thread_that_is_given_up(capsys, function):
    texts = ["1", "long", "x", "100"]
    wanted = loop(function, texts)
    said = capsys.readouterr().out
    for options in ({}, {"engine": "sequential"}):
        found = autobatch.vmap(function, ragged_out="list", **options)(autobatch.objects(texts))
        assert (found.tolist() if isinstance(found, torch.Tensor) else found) == wanted
        assert sorted(capsys.readouterr().out) == sorted(said)


def test_other_host_threads_print_meanwhile(capsys, monkeypatch):
    begun, may_end = Event(), Event()
    before = running.is_much

    def waiting(printed, threads):
        begun.set()
        assert may_end.wait(20)
        return before(printed, threads)

    def silent(text):
        if text == "loud":
            print("heard")
        return text

    monkeypatch.setattr(running, "is_much", waiting)
    texts = autobatch.objects(["loud"] * 4 + ["quiet"] * 9)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(autobatch.vmap(silent), texts)
        assert begun.wait(20)
        print("here")
        assert capsys.readouterr().out == "here\n"
        may_end.set()
        assert job.result() == texts.items
    assert capsys.readouterr().out == "heard\n" * 4
    assert builtins.print.__module__ == "builtins"


def test_streams_print_once(capsys):
    wanted = dict(enumerate(loop(root, NUMBERS.tolist())))
    said = capsys.readouterr().out
    for options in ({}, {"executor": "compiled"}):
        stream = autobatch.stream(root, NUMBERS.tolist(), width=2, **options)
        check(dict(sorted(stream)), wanted)
        assert capsys.readouterr().out == said


def summed(text, x):
    """What takes far less time by itself: words stand for tensors."""
    if text.startswith("a"):
        print("begun", text[:3])
    table = {}
    for word in text.split():
        table[word] = table.get(word, x) + x
    return sum(table.values())


def test_a_run_that_may_have_printed_does_not_begin_again():
    """In a process of its own: in one that has run thousands of tests the second run may be refused
    as plain Python, or be looked at ever more rarely.
    """
    code = "from tests.test_unreached_prints import begin_again; begin_again()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)


def begin_again():
    texts = autobatch.objects([" ".join(f"{i % (k + 2)}{k}" for i in range(40)) for k in range(8)])
    texts.items[0] = f"a {texts.items[0]}"
    xs = torch.arange(16.0).view(8, 2)
    with redirect_stdout(StringIO()) as heard:
        rows = [summed(text, x) for text, x in zip(texts.items, xs, strict=True)]
    said, wanted, plain = heard.getvalue(), torch.stack(rows), []
    for _ in range(2):
        with redirect_stdout(StringIO()) as heard, autobatch.counts() as seen:
            check(autobatch.vmap(summed)(texts, xs), wanted)
        plain.append(seen.plain)
        assert heard.getvalue() == said
    assert plain == [0, 7]
