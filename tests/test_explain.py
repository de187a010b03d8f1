"""``explain``: what it says of each line, that it prints it, and that it runs once."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

import autobatch
from programs import treelstm

HERE = __file__


def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def scaled(x, weight):
    y = weight * 2 @ x
    return halved(y)


def halved(y):
    return y / 2


def shout(tree):
    name = tree.name.upper()
    pair = (name, tree.size)
    return f"{pair[0]}{pair[1]}"


def fails(x):
    y = x + 1
    if y.sum() > 3:
        raise ValueError("too large")
    return y


def at(func, offset):
    return func.__code__.co_firstlineno + offset


def values(line):
    return dict(line.values)


def test_lines_of_a_loop(capsys):
    report = autobatch.explain(collatz, torch.arange(1, 10))
    assert capsys.readouterr().out == f"{report}\n"
    assert report.title == "collatz" and report.threads == 9
    assert report.result.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19]
    (function,) = report.functions
    assert function.name == "collatz" and function.file == HERE
    assert [line.number for line in function.lines] == list(range(at(collatz, 0), at(collatz, 6)))
    assert function.lines[1].text == "    steps = 0"
    assert values(report.line(at(collatz, 0))) == {"n": ("column int64 []",)}
    assert values(report.line(at(collatz, 1))) == {"steps": ("uniform int",)}
    assert values(report.line(at(collatz, 2)))["n != 1"] == ("column bool []",)
    assert values(report.line(at(collatz, 3)))["n % 2"] == ("column int64 []",)


def test_blocks_are_those_of_the_counts():
    report = autobatch.explain(collatz, torch.arange(1, 10))
    told = {block.pc: block for line in report.functions[0].lines for block in line.blocks}
    assert {pc: block.runs for pc, block in told.items()} == {
        pc: runs for (_, pc), runs in report.counts.by_block.items()
    }
    assert sum(block.threads for block in told.values()) == sum(
        report.counts.threads_by_block.values()
    )
    assert told[0].runs == 1 and told[0].fewest == told[0].most == 9
    text = str(report)
    assert "block 0 ran once, 9 threads" in text
    assert re.search(r"block 1 ran 19 times, 1 to 8 threads", text)


def test_helpers_uniform_and_columns():
    report = autobatch.explain(
        scaled, torch.ones(2, 3), weight=2.0 * torch.ones(4, 3)[None].repeat(2, 1, 1)
    )
    assert [function.name for function in report.functions] == ["scaled", "halved"]
    assert values(report.line(at(scaled, 0)))["weight"] == ("column float32 [4, 3]",)
    options = autobatch.function(in_dims=(0, None))(scaled)
    report = autobatch.explain(options, torch.ones(2, 3), torch.ones(4, 3))
    line = values(report.line(at(scaled, 1)))
    assert line["weight * 2"] == ("uniform float32 [4, 3]",)
    assert line["y"] == ("column float32 [4]",)
    assert values(report.line(at(scaled, 2)))["halved(y)"] == ("column float32 [4]",)
    assert values(report.line(at(halved, 0)))["y"] == ("column float32 [4]",)


def test_objects_containers_and_fallbacks():
    trees = [SimpleNamespace(name="ab", size=1), SimpleNamespace(name="c", size=2)]
    report = autobatch.explain(shout, autobatch.objects(trees))
    assert report.result == ["AB1", "C2"]
    first = report.line(at(shout, 1))
    assert values(first)["tree.name"] == ("objects (str)",)
    assert values(first)["name"] == ("objects (str)",)
    assert "once: an attribute of objects" in first.fallbacks
    assert any(entry.startswith("once: str.upper: ") for entry in first.fallbacks)
    (kind,) = values(report.line(at(shout, 2)))["pair"]
    assert kind == "container tuple of objects (str), column int"
    assert "thread by thread" in str(report)


def test_kinds_that_change():
    def grows(n):
        s = 0
        while n > 0:
            s = s + n.item()
            n = n - 1
        return s

    report = autobatch.explain(grows, torch.tensor([1, 2]))
    line = report.line(at(grows, 3))
    assert values(line)["s"] == ("column int",)
    assert values(report.line(at(grows, 1)))["s"] == ("uniform int",)


def test_options_hold_and_arguments_map_as_in_batch():
    numbers = autobatch.function(scalars="python", chunk_size=2)(collatz)
    report = autobatch.explain(numbers, [1, 2, 3])
    assert values(report.line(at(collatz, 0))) == {"n": ("column int",)}
    assert report.result.tolist() == numbers.batch([1, 2, 3]).tolist()
    assert [block.runs for block in report.line(at(collatz, 1)).blocks] == [2]
    with pytest.raises(autobatch.OptionError, match="collatz"):
        autobatch.explain(collatz, 3)
    with pytest.raises(autobatch.OptionError, match="3"):
        autobatch.explain(3)


def test_it_runs_once():
    seen = Mock(side_effect=lambda x: x)

    def noted(x):
        return seen(x)

    report = autobatch.explain(noted, torch.ones(3))
    assert seen.call_count == 3
    (entry,) = report.line(at(noted, 1)).fallbacks
    assert "it may have any effect" in entry


def test_a_failure_is_told_up_to_there(capsys):
    with pytest.raises(ValueError, match="too large"):
        autobatch.explain(fails, torch.tensor([1.0, 5.0]))
    text = capsys.readouterr().out
    assert text.startswith("fails: 2 threads") and "y: column float32 []" in text


def test_modules_and_methods():
    class Twice(torch.nn.Module):
        def forward(self, x):
            return x * 2

    report = autobatch.explain(Twice(), torch.ones(2, 3))
    assert report.title == "Twice"
    assert values(report.line(at(Twice.forward, 1)))["x * 2"] == ("column float32 [3]",)
    with pytest.raises(KeyError):
        report.line(1)


def distance(a, b):
    """Levenshtein's, which has no tensor in it."""
    before = list(range(len(b) + 1))
    for i, own in enumerate(a):
        row = [i + 1]
        for j, other in enumerate(b):
            row.append(min(before[j + 1] + 1, row[j] + 1, before[j] + (own != other)))
        before = row
    return before[-1]


def told_distance(a, b):
    """The same, of which somebody sees what it does."""
    before = list(range(len(b) + 1))
    for i, own in enumerate(a):
        row = [i + 1]
        for j, other in enumerate(b):
            print(end="")
            row.append(min(before[j + 1] + 1, row[j] + 1, before[j] + (own != other)))
        before = row
    return before[-1]


WORDS = autobatch.objects(["kitten", "batch", "mapped", "vector"])
OTHERS = autobatch.objects(["sitting", "back", "map", "tractor"])


def sums_by_word(word, x):
    found = {}
    for letter in word:
        found[letter] = found.get(letter, 0) + x.sum()
        x = torch.tanh(x)
    return len(found), x


def test_a_program_with_tensors_is_not_told_that_it_has_none():
    words = autobatch.objects(["sitting", "kit", "saturday", "a"])
    report = autobatch.explain(sums_by_word, words, torch.rand(4, 3))
    assert report.counts.by_thread >= 16
    assert "no tensor" not in str(report)


class Reader:
    """Goes through a text, and computes with what tensors the names in it have."""

    def __init__(self, text, x):
        self.text, self.at, self.known = text, 0, {"x": x, "y": x * 2}

    def peek(self):
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at] if self.at < len(self.text) else ""

    def atom(self):
        name = self.peek()
        self.at += 1
        return self.known[name]

    def total(self):
        value = self.atom()
        while self.peek() == "+":
            self.at += 1
            value = value + self.atom()
        return value


def read(text, x):
    return Reader(text, x).total()


def test_a_parser_of_tensors_is_told_where_its_time_goes():
    texts, xs = ["x + y", "y+x + x", "x", " y + y"], torch.rand(4)
    told = r"much of read works on objects, thread by thread.*autobatch\.per_thread"
    for _ in range(2):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            together = autobatch.vmap(read, fallback="warn", plain="never")
            result = together(autobatch.objects(texts), xs)
        assert re.search(told, str(warned[0].message))
    assert torch.equal(result, torch.stack([read(*each) for each in zip(texts, xs, strict=True)]))
    together = autobatch.function(plain="never")(read)
    report = autobatch.explain(together, autobatch.objects(texts), xs)
    assert "much of read works on objects" in str(report).splitlines()[1]


def test_a_program_that_reads_objects_for_its_tensors_is_told_nothing():
    example = treelstm.example(16, seed=0)
    trees = example.mapped(autobatch.objects, autobatch.ragged)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        autobatch.vmap(example.function, fallback="warn")(*trees)
    assert "works on objects" not in str(autobatch.explain(example.function, *trees))


def test_a_program_of_objects_alone_is_told_of_per_thread(capsys):
    report = autobatch.explain(told_distance, WORDS, OTHERS)
    assert "autobatch.per_thread(told_distance) runs it as plain Python" in str(report)
    assert "per_thread" not in str(autobatch.explain(collatz, torch.tensor([3, 7])))
    with pytest.warns(UserWarning, match=r"autobatch\.per_thread\(told_distance\)") as warned:
        result = autobatch.vmap(told_distance, fallback="warn")(WORDS, OTHERS)
    assert [str(w.message).partition(", line")[0] for w in warned][-1] == HERE
    assert result.tolist() == [
        distance(a, b) for a, b in zip(WORDS.items, OTHERS.items, strict=True)
    ]
    per_thread = autobatch.vmap(autobatch.per_thread(told_distance))(WORDS, OTHERS)
    assert torch.equal(per_thread, result)


def test_a_program_that_runs_as_plain_python_is_told_so():
    report = autobatch.explain(distance, WORDS, OTHERS)
    assert "A call of distance runs as plain Python" in str(report).splitlines()[1]
    assert "per_thread" not in str(report)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        autobatch.vmap(distance, fallback="warn")(WORDS, OTHERS)


def density(x):
    return torch.distributions.Normal(x.mean(), 1.0).log_prob(x).sum()


def test_functions_of_libraries_are_one_line_each_and_can_be_unfolded(capsys):
    report = autobatch.explain(density, torch.ones(2, 3))
    printed = capsys.readouterr().out
    assert [each.name for each in report.own()] == ["density"]
    assert re.search(r"\n  Normal\.log_prob \(normal\.py\): \d+ block executions, 2 thr", printed)
    assert "self._validate_sample(value)\n      |" not in printed
    assert "self._validate_sample(value)\n      |" in report.unfolded()
    assert len(printed.splitlines()) < 50 < len(report.unfolded().splitlines())


def test_what_explain_returns_is_short_where_it_is_shown():
    report = autobatch.explain(collatz, torch.arange(1, 10))
    runs = report.counts.block_executions
    assert repr(report) == f"<autobatch.Report of collatz: 9 threads, {runs} block executions>"


def test_a_summary_stands_above_the_lines():
    def sums(x):
        found = sorted([x[0], x[1]], key=lambda v: -v)
        total = torch.unique(x).sum()
        return found[0] + total

    text = str(autobatch.explain(sums, torch.tensor([[1.0, 2.0], [3.0, 3.0]])))
    head = text[: text.index("sums (")] if "sums (" in text else text
    assert re.search(r"Most of its time, untraced:\n  \d+% from test_explain\.py, line \d+", text)
    assert "Thread by thread, where it might not be meant:" in text and head
    assert "Hint: autobatch.per_thread(fn)" in text
