"""The command line: results by name, one-line input errors with exit code 2, whole outputs."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autobatch
from autobatch.cli import datafiles
from autobatch.cli.datafiles import read_arguments
from autobatch.cli.main import main
from autobatch.ir.program import Call

SOURCE = """
from collections import namedtuple

import torch

Walk = namedtuple("Walk", ["steps", "peak"])


def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def walk(n, limit=1000):
    steps, peak = 0, n
    while n != 1 and steps < limit:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        peak = torch.maximum(peak, n)
        steps += 1
    return Walk(steps, peak)


def pair(x, y):
    return x + y, {"difference": x - y}


def kind(n):
    return "even" if n % 2 == 0 else "odd"


def is_int(n):
    return isinstance(n, int)


def same(word):
    return word


def placed(n, /):
    return n


def length(word):
    return len(word)


def fails(n):
    if n == 3:
        raise ValueError("three is not welcome")
    return n


def generates(n):
    yield n


class Holder:
    pass


number = 3
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.npz"
    np.savez(path, n=np.array([1, 7, 27, 6]))
    return path


def run(*words: object) -> int:
    try:
        return main([str(word) for word in words])
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        return stop.code


Failing = Callable[..., str]


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str]) -> Failing:
    """Runs a command that must fail as an input error; gives its one line."""

    def fail(*words: object) -> str:
        assert run(*words) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("autobatch: ") and captured.err.count("\n") == 1
        return captured.err

    return fail


# What runs.


def test_results_by_name_in_npz(program: Path, numbers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    assert run("run", f"{program}:collatz", "--input", numbers, "--output", out) == 0
    with np.load(out) as results:
        assert results.files == ["out"]
        assert results["out"].tolist() == [0, 16, 111, 8]
    assert run("run", f"{program}:walk", "--input", numbers, "--output", out) == 0
    with np.load(out) as results:
        assert sorted(results.files) == ["out.peak", "out.steps"]
        assert results["out.peak"].tolist() == [1, 52, 9232, 16]


def test_nested_results_and_two_arrays(program: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "out.npz"
    np.savez(data, y=np.ones((3, 2)), x=np.arange(6.0).reshape(3, 2))
    assert run("run", f"{program}:pair", "--input", data, "--output", out) == 0
    with np.load(out) as results:
        assert sorted(results.files) == ["out.0", "out.1.difference"]
        assert results["out.0"].tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_without_output_prints_a_summary(
    program: Path, numbers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", f"{program}:collatz", "--input", numbers) == 0
    assert capsys.readouterr().out == "out: int64 [4]: 0, 16, 111, 8\n"
    assert run("run", f"{program}:kind", "--input", numbers) == 0
    assert capsys.readouterr().out == "out: list of 4: 'odd', 'odd', 'odd', 'even'\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--chunk-size", 3),
        ("--engine", "sequential"),
        ("--engine", "program_counter"),
        ("--executor", "vmap"),
    ],
)
def test_options_do_not_change_results(
    program: Path, numbers: Path, capsys: pytest.CaptureFixture[str], options: tuple[object, ...]
) -> None:
    assert run("run", f"{program}:collatz", "--input", numbers, *options) == 0
    assert capsys.readouterr().out == "out: int64 [4]: 0, 16, 111, 8\n"


def test_scalars(program: Path, numbers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", f"{program}:is_int", "--input", numbers) == 0
    assert "False, False" in capsys.readouterr().out
    assert run("run", f"{program}:is_int", "--input", numbers, "--scalars", "python") == 0
    assert "True, True" in capsys.readouterr().out


def test_a_single_number_is_shared(program: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "out.npz"
    np.savez(data, n=np.array([7, 27]), limit=np.array(5))
    assert run("run", f"{program}:walk", "--input", data, "--output", out) == 0
    with np.load(out) as results:
        assert results["out.steps"].tolist() == [5, 5]


def test_json_lines_in_and_out(program: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_text('{"word": "batch"}\n\n{"word": "éa"}\n', encoding="utf-8")
    assert run("run", f"{program}:length", "--input", data, "--output", out) == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == [{"out": 5}, {"out": 2}]
    data.write_text('{"n": 2}\n{"n": 3}\n', encoding="utf-8-sig")
    assert run("run", f"{program}:kind", "--input", data, "--output", out) == 0
    assert out.read_text() == '{"out": "even"}\n{"out": "odd"}\n'


def test_what_json_values_become(tmp_path: Path) -> None:
    def read(*values: Any, exact: bool = False) -> Any:
        data = tmp_path / "data.jsonl"
        data.write_text("".join(json.dumps({"x": value}) + "\n" for value in values))
        return read_arguments(data, exact=exact)["x"]

    assert read(1, 2.5).dtype is torch.float64  # as in ``f.batch([1, 2.5])``
    assert read([1, 2.5], [3, 4]).dtype is torch.float32  # as in ``torch.tensor([1, 2.5])``
    assert read([1, 2.5], [3, 4], exact=True).dtype is torch.float64
    for rows, dtype in (([[1, 2.5], [], [3]], torch.float32), ([[[1, 2]], []], torch.int64)):
        parts = read(*rows).tensors
        assert [part.tolist() for part in parts] == rows and parts[1].shape[1:] == parts[0].shape[
            1:
        ]
        assert {part.dtype for part in parts} == {dtype}
    large = ((2**63, -1), (2**64, 0.5), ([2**63], [-1]))
    for mixed in (([1], 2), ([[1]], [[1, 2]]), (None, 1), ("a", "b"), (["a"], []), *large):
        assert read(*mixed).items == list(mixed)


def test_json_strings_may_hold_what_ends_lines_elsewhere(program: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    words = ["a\u2028b", "\x85", "c\u2029"]
    rows = (json.dumps({"word": word}, ensure_ascii=False) for word in words)
    data.write_text("\n".join(rows), encoding="utf-8")
    assert run("run", f"{program}:same", "--input", data, "--output", out) == 0
    lines = out.read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line)["out"] for line in lines] == words


def test_torch_files_in_and_out(program: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.pt", tmp_path / "out.pt"
    torch.save({"n": torch.tensor([7, 27])}, data)
    assert run("run", f"{program}:collatz", "--input", data, "--output", out) == 0
    assert torch.load(out)["out"].tolist() == [16, 111]


def test_a_module_of_torchs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is one operation is a program that calls it."""
    program, data = tmp_path / "model.py", tmp_path / "data.npz"
    program.write_text("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(3, 2))\n")
    np.savez(data, input=np.ones((4, 3), dtype=np.float32))
    assert run("run", f"{program}:model", "--input", data) == 0
    assert capsys.readouterr().out == "out: float32 [4, 2]\n"
    assert run("show", f"{program}:model") == 0
    assert "call" in capsys.readouterr().out
    assert run("run", f"{program}:torch.sin", "--input", data) == 2
    assert "call it in a function of the file" in capsys.readouterr().err


def test_show(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", f"{program}:collatz") == 0
    assert "collatz" in capsys.readouterr().out


def test_opt(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text is optimised to what the function is."""
    assert run("opt", f"{program}:collatz") == 0
    optimised = capsys.readouterr().out
    assert "b1 converted" in optimised
    assert run("opt", f"{program}:collatz", "--passes", "") == 0
    text = tmp_path / "collatz.txt"
    text.write_text(capsys.readouterr().out)
    assert run("opt", text) == 0
    assert capsys.readouterr().out == optimised
    assert run("opt", text, "--passes", "") == 0
    assert capsys.readouterr().out == text.read_text()


def test_opt_after_all(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", f"{program}:walk", "--passes", "simplify,order_blocks", PRINT) == 0
    parts = capsys.readouterr().out.split("# ")
    assert [p.splitlines()[0] for p in parts if p.startswith(("as ", "after "))] == [
        "as lowered",
        "after simplify",
        "after order_blocks",
    ]


CALLING = """
def size(x):
    return -x if x < 0 else x

def total(n, s):
    return s if n == 0 else total(n - 1, s + size(3 - n))

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
"""


def test_opt_of_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is sure to be called is inlined or jumped to, with its places; recursion is called."""
    source, text = tmp_path / "calling.py", tmp_path / "total.txt"
    source.write_text(CALLING)
    assert run("opt", f"{source}:total", "--passes", "simplify") == 0
    text.write_text(capsys.readouterr().out)
    assert run("opt", text, "--passes", "inline_calls,loop_tail_calls,simplify") == 0
    program = autobatch.parse(capsys.readouterr().out)
    ends = [block.terminator for block in program.main.blocks]
    assert not any(isinstance(end, Call) for end in ends)
    inlined = [op.span for block in program.main.blocks for op in block.ops if op.name == "neg"]
    assert [(span.line, span.caller.line) for span in inlined if span.caller] == [(3, 6)]
    assert autobatch.execute(program, [0, 1, 5], [7, 0, 0])[0].tolist() == [7, 2, 6]
    assert run("opt", f"{source}:fib", "--passes", "inline_calls,loop_tail_calls") == 0
    assert capsys.readouterr().out.count("call %") == 2


def test_opt_takes_a_pass_of_ones_own(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text("def loses_all(function):\n    return None\n")
    assert run("opt", f"{program}:walk", "--passes", f"simplify,{own}:loses_all") == 1
    assert "The pass loses_all gives None" in capsys.readouterr().err


def test_opt_of_what_is_no_program(tmp_path: Path, failing: Failing) -> None:
    text = tmp_path / "broken.txt"
    text.write_text("program f -> out\n\nfunction f(x):\n  b0:\n    retrun x\n")
    told = failing("opt", text)
    assert f"{text}: " in told and "line 5" in told and "did you mean return?" in told
    failing("opt", tmp_path / "absent.txt")
    told = failing("opt", text, "--passes", "simplfy")
    assert "simplify" in told and "inline_calls" in told


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ops") == 0
    assert "| `floordiv` | x // y | 2 |" in capsys.readouterr().out


PRINT = "--print-after-all"


def test_explain(program: Path, numbers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", f"{program}:collatz", "--input", numbers) == 0
    assert "while n != 1" in capsys.readouterr().out


def test_as_a_module_from_another_folder(numbers: Path, tmp_path: Path) -> None:
    """``programs/`` is a package: its files import each other wherever the command runs."""
    root = Path(__file__).parent.parent
    target = f"{root / 'programs' / 'collatz.py'}:collatz"
    done = subprocess.run(
        [sys.executable, "-m", "autobatch", "run", target, "--input", numbers],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out: int64 [4]: 0, 16, 111, 8\n"


# What is refused, in one line.


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("program.py", "FILE.py:function"),
        ("absent.py:f", "no such file"),
        ("program.py:absent", "no absent in it; its functions are "),
        ("program.py:colatz", "no colatz in it; did you mean 'collatz'?"),
        ("program.py:number", "int, not a function"),
        ("program.py:number.real.absent", "no number.real.absent in it"),
        ("program.py:placed", "parameter n is positional-only"),
        ("program.py:Holder", "type, not a function"),
    ],
)
def test_targets(program: Path, numbers: Path, failing: Failing, target: str, says: str) -> None:
    assert says in failing("run", program.parent / target, "--input", numbers)


def test_file_that_cannot_be_imported(tmp_path: Path, failing: Failing) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import torch\nnumber = 1 / 0\n")
    line = failing("show", f"{broken}:f")
    assert "ZeroDivisionError" in line and "line 2" in line
    broken.write_text("import torch\ndef f(x:\n    return x\n")
    line = failing("show", f"{broken}:f")
    assert "SyntaxError" in line and f"({broken}, line 2)" in line
    broken.write_text("error = ValueError('why\\nnot')\nerror.add_note('of it')\nraise error\n")
    assert "ValueError: why (" in failing("show", f"{broken}:f")
    broken.write_text("import sys\nsys.exit(0)\n")
    line = failing("show", f"{broken}:f")
    assert "SystemExit: 0" in line and "line 2" in line


def test_parameters_and_arrays_must_agree(
    program: Path, numbers: Path, tmp_path: Path, failing: Failing
) -> None:
    line = failing("run", f"{program}:pair", "--input", numbers)
    assert "no array for parameter x, y; its arrays are n" in line
    data = tmp_path / "data.npz"
    np.savez(data, n=np.arange(3), m=np.arange(3))
    line = failing("run", f"{program}:collatz", "--input", data)
    assert "no parameter for array m; the parameters are n" in line
    np.savez(data, x=np.arange(3), y=np.arange(4))
    assert "x has 3, y has 4" in failing("run", f"{program}:pair", "--input", data)
    np.savez(data, n=np.array(3))
    assert "one row per example" in failing("run", f"{program}:collatz", "--input", data)


def test_bad_input_files(program: Path, numbers: Path, tmp_path: Path, failing: Failing) -> None:
    def refused(name: str, content: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return failing("run", f"{program}:collatz", "--input", path)

    whole = numbers.read_bytes()
    absent = failing("run", f"{program}:collatz", "--input", tmp_path / "absent.npz")
    assert "absent.npz: no such file" in absent
    refused("data.csv", b"1,2")
    refused("empty.npz", b"")
    refused("text.npz", b"not a zip file")
    for cut in range(1, len(whole), 7):
        refused("truncated.npz", whole[:cut])
    refused("data.pt", whole[:40])
    assert "line 2" in refused("data.jsonl", b'{"n": 1}\n{"n": \n')
    assert "line 2" in refused("data.jsonl", b'{"n": 1}\n{"m": 2}\n')
    assert "line 1" in refused("data.jsonl", b"[1]\n")
    assert "no examples" in refused("data.jsonl", b"\n")
    refused("data.jsonl", b"\xff\xfe\n")


def test_members_of_an_archive_that_are_no_arrays(
    program: Path, tmp_path: Path, failing: Failing
) -> None:
    path = tmp_path / "notes.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("n", "no array")
    line = failing("run", f"{program}:collatz", "--input", path)
    assert "array n: is no array" in line


def test_tensors_without_data_are_not_read(program: Path, tmp_path: Path, failing: Failing) -> None:
    path = tmp_path / "data.pt"
    torch.save({"n": torch.ones(3, device="meta")}, path)
    assert "n is a meta tensor" in failing("run", f"{program}:collatz", "--input", path)


def test_a_pickle_is_told_in_one_line(program: Path, tmp_path: Path) -> None:
    """Also where torch warns of it, which a test sees by another process only."""
    path = tmp_path / "data.pt"
    path.write_bytes(pickle.dumps({"n": 1}, protocol=4))
    command = [sys.executable, "-m", "autobatch", "run", f"{program}:collatz", "--input", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr.startswith("autobatch: ") and found.stderr.count("\n") == 1


def test_what_is_mapped_already_is_no_target(
    numbers: Path, tmp_path: Path, failing: Failing
) -> None:
    program = tmp_path / "mapped.py"
    program.write_text("import autobatch\nf = autobatch.vmap(lambda n: n)\n")
    assert "f is mapped already" in failing("run", f"{program}:f", "--input", numbers)


DECORATED = """
import autobatch

@autobatch.function(in_dims=(1, None))
def dotted(x, w, scale=2):
    return (x * w).sum() * scale

@autobatch.function(on_error="isolate")
def inverse(n):
    return 1 / n.item()

@autobatch.function(ragged_out="nested")
def upto(n):
    return n.new_ones(int(n))
"""


def test_the_options_of_a_decorated_function_hold(
    tmp_path: Path, failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    program, data, out = tmp_path / "made.py", tmp_path / "data.npz", tmp_path / "out.jsonl"
    program.write_text(DECORATED)
    x, w = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 0.5])
    np.savez(data, w=w, x=x)
    for command in ("run", "explain"):
        assert run(command, f"{program}:dotted", "--input", data) == 0
    assert run("run", f"{program}:dotted", "--input", data, "--output", out) == 0
    found = [json.loads(line)["out"] for line in out.read_text().splitlines()]
    assert found == (2 * (w @ x)).tolist()
    capsys.readouterr()
    np.savez(data, w=w, x=np.arange(3.0))
    line = failing("run", f"{program}:dotted", "--input", data)
    assert "in_dims has dimension 1" in line
    np.savez(data, w=w, x=x, scale=np.ones(2))
    assert "in_dims has 2 entries" in failing("run", f"{program}:dotted", "--input", data)


def test_results_that_do_not_stack(
    tmp_path: Path, failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    program, data, out = tmp_path / "made.py", tmp_path / "data.npz", tmp_path / "out.jsonl"
    program.write_text(DECORATED)
    np.savez(data, n=np.array([2, 0, 1]))
    assert run("run", f"{program}:inverse", "--input", data) == 0
    assert "out: list of 3: Result(value=0.5, exception=None), Result(" in capsys.readouterr().out
    assert run("run", f"{program}:upto", "--input", data, "--output", out) == 0
    assert [json.loads(line)["out"] for line in out.read_text().splitlines()] == [[1, 1], [], [1]]
    whole = tmp_path / "out.npz"
    capsys.readouterr()
    line = failing("run", f"{program}:upto", "--input", data, "--output", whole)
    assert "result out is nested, which npz cannot" in line and not whole.exists()


def test_sparse_results_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, data = tmp_path / "sums.py", tmp_path / "data.pt"
    program.write_text("def total(x):\n    return (x * 2).sum()\n")
    torch.save({"x": torch.ones(3, 2).to_sparse()}, data)
    assert run("run", f"{program}:total", "--input", data) == 0
    assert capsys.readouterr().out.startswith("out: float32 [3]")


def test_two_results_of_one_name_are_refused(
    numbers: Path, tmp_path: Path, failing: Failing
) -> None:
    program, out = tmp_path / "twice.py", tmp_path / "out.npz"
    program.write_text('def f(n):\n    return {"a": {"b": n}, "a.b": n + 1}\n')
    line = failing("run", f"{program}:f", "--input", numbers, "--output", out)
    assert "two results are called out.a.b" in line and not out.exists()


def test_a_damaged_archive_is_read_right_or_refused(
    program: Path, numbers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = numbers.read_bytes()
    path = tmp_path / "flipped.npz"
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        code = run("run", f"{program}:collatz", "--input", path)
        captured = capsys.readouterr()
        if code == 0:
            assert captured.out == "out: int64 [4]: 0, 16, 111, 8\n"
        else:
            assert code == 2 and captured.err.count("\n") == 1


class Payload:
    """Unpickling this makes a folder; no reader may."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.path,)


def test_no_input_file_runs_code(program: Path, tmp_path: Path, failing: Failing) -> None:
    made = tmp_path / "made"
    array = np.empty(1, dtype=object)
    array[0] = Payload(str(made))
    np.savez(tmp_path / "data.npz", n=array)
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(array))
    torch.save({"n": Payload(str(made))}, tmp_path / "data.pt")
    for name in ("data.npz", "raw.npz", "data.pt"):
        failing("run", f"{program}:collatz", "--input", tmp_path / name)
    assert not made.exists()


def test_bad_options(program: Path, numbers: Path, failing: Failing) -> None:
    command = ("run", f"{program}:collatz", "--input", numbers)
    for option in (("--chunk-size", "0"), ("--device", "nowhere"), ("--scalars", "c")):
        assert option[0] in failing(*command, *option)
    assert "argument --max-steps: x1 is no positive number" in failing(*command, "--max-steps=x1")


def test_an_input_of_no_examples(program: Path, tmp_path: Path, failing: Failing) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, n=np.zeros(0, dtype=int))
    assert "depend on data" in failing("run", f"{program}:collatz", "--input", data)


def test_a_reader_that_goes_away() -> None:
    command = [sys.executable, "-m", "autobatch", "ops"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 141


# What fails, and what it leaves.


def test_the_function_is_lowered_before_the_input_is_read(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", f"{program}:generates", "--input", tmp_path / "absent.npz") == 1
    error = capsys.readouterr().err
    assert "yield" in error and "^" in error


def test_a_failure_of_the_program_keeps_its_type(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "out.npz"
    np.savez(data, n=np.arange(5))
    assert run("run", f"{program}:fails", "--input", data, "--output", out) == 1
    assert "ValueError: three is not welcome" in capsys.readouterr().err
    assert not out.exists()


def test_output_is_whole_or_not_there(
    program: Path,
    numbers: Path,
    tmp_path: Path,
    failing: Failing,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ("run", f"{program}:collatz", "--input", numbers, "--output")
    assert "output files end in" in failing(*command, tmp_path / "out.csv")
    assert "no folder" in failing(*command, tmp_path / "absent" / "out.npz")
    assert "too long" in failing(*command, tmp_path / ("n" * 250 + ".npz"))
    (tmp_path / "folder.npz").mkdir()
    assert "is a folder" in failing(*command, tmp_path / "folder.npz")
    sparse = tmp_path / "sparse.pt"
    torch.save({"word": torch.eye(2).to_sparse()}, sparse)
    failing("run", f"{program}:same", "--input", sparse, "--output", tmp_path / "out.jsonl")
    strings = ("run", f"{program}:is_int", "--input", numbers, "--output")
    out = tmp_path / "out.npz"
    out.write_bytes(b"before")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(datafiles.np, "savez", interrupted)
    assert run(*strings, out) == 130
    assert out.read_bytes() == b"before"
    files = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert files == ["numbers.npz", "out.npz", "program.py", "sparse.pt"]


WRITES = """
import sys, time
from pathlib import Path
from autobatch.cli import datafiles

def slow(file, results):
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)

datafiles.WRITERS[".npz"] = slow
datafiles.write_results(Path(sys.argv[1]), {})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_leaves_nothing_half_written(name: str, tmp_path: Path) -> None:
    number = signal.Signals[name]
    command = [sys.executable, "-c", WRITES, str(tmp_path / "out.npz")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as running:  # type: ignore[call-overload]
        assert running.stdout.readline() == b"writing\n"
        running.send_signal(number)
        assert running.wait(30) == -number
    assert not list(tmp_path.iterdir())


def test_arrays_of_objects_are_not_read(program: Path, tmp_path: Path, failing: Failing) -> None:
    np.savez(tmp_path / "data.npz", n=np.array([1, "a"], dtype=object))
    line = failing("run", f"{program}:collatz", "--input", tmp_path / "data.npz")
    assert "array n: holds Python objects, and only data is read" in line
