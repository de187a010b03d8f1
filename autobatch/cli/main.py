"""The command line: run, show, optimise or explain a per-example function in a Python file.

    autobatch run FILE.py:function --input data.npz [--output out.npz] [options]
    autobatch show FILE.py:function
    autobatch explain FILE.py:function --input data.npz [options]
    autobatch opt FILE.py:function|FILE [--passes a,b,c] [--print-after-all]
    autobatch ops

Arrays of the input map to parameters by name; results are named ``out``, ``out.0`` or
``out.name``. Exit codes: 0; 1 when the program cannot be lowered or fails as it runs; 2, with
one line, when the command, the file or the input is wrong; 130 when interrupted; 141, and nothing
said, when what reads the output has gone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

import autobatch
from autobatch.api import batch_of, call, function, lower
from autobatch.arguments.mapped import objects
from autobatch.cli.datafiles import DataFileError, check_writable, read_arguments, write_results
from autobatch.cli.optimising import optimised
from autobatch.cli.target import CommandError, Target, by_place, check_names, find_target
from autobatch.errors import AutobatchError, EmptyBatchError, OptionError
from autobatch.ir.reference import reference
from autobatch.options import CHOICES
from autobatch.passes import PASSES
from autobatch.passes.calls_by_name import CALL_PASSES
from autobatch.ragged import ragged
from autobatch.results.own_lists import parts_of, way_to
from autobatch.results.stacking import Result
from autobatch.structure import form_of


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
        sys.stdout.flush()
    except (CommandError, DataFileError) as error:
        print(f"autobatch: {error}", file=sys.stderr)
        return 2
    except EmptyBatchError as error:
        span = error.span
        where = "" if span is None else f": {span.file}, line {span.line}"
        print(f"autobatch: no examples, and their results depend on data{where}", file=sys.stderr)
        return 2
    except AutobatchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("autobatch: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and not hasattr(error, "__notes__"):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
            return 141
        # The user's own failure: its type and message, and the note with line and threads.
        print("".join(traceback.format_exception_only(error)).rstrip(), file=sys.stderr)
        return 1
    return 0


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with a command."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"autobatch: {message} (see {self.prog} -h)\n")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="autobatch", description="Run a function written for one example on a batch."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a function on a batch from a file")
    _add_input(run)
    run.add_argument("--output", type=Path, help="write results here (.npz, .pt, .jsonl)")
    run.set_defaults(command=_run)
    show = commands.add_parser("show", help="print the lowered program")
    show.add_argument("target", metavar="FILE.py:function")
    show.set_defaults(command=_show)
    opt = commands.add_parser("opt", help="run passes on a program, or on a text of one")
    opt.add_argument("target", metavar="FILE.py:function|FILE")
    names = ", ".join((*PASSES, *CALL_PASSES))
    opt.add_argument("--passes", metavar="a,b,c", help=f"of {names}, FILE.py:pass")
    opt.add_argument("--print-after-all", action="store_true", help="print it after each pass")
    opt.set_defaults(command=_opt)
    ops = commands.add_parser("ops", help="print the table of operations")
    ops.set_defaults(command=lambda options: print(reference()))
    describe = commands.add_parser("explain", help="run once and report line by line")
    _add_input(describe)
    describe.set_defaults(command=_explain)
    return parser


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="FILE.py:function")
    parser.add_argument("--input", type=Path, required=True, help=".npz, .pt or .jsonl")
    parser.add_argument("--device", type=_device, help="move tensors there, e.g. cuda")
    parser.add_argument("--chunk-size", type=_positive, help="threads at a time")
    parser.add_argument(
        "--scalars", choices=("tensor", "python"), help="what a row of a [B] array is"
    )
    parser.add_argument("--engine", choices=CHOICES["engine"])
    parser.add_argument("--executor", choices=CHOICES["executor"])
    parser.add_argument("--max-steps", type=_positive, help="limit of block executions")
    parser.add_argument("--fallback", choices=("allow", "warn", "error"))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return int(text)


def _device(text: str) -> torch.device:
    try:
        device = torch.device(text)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise argparse.ArgumentTypeError(f"no device {text} here") from error
    return device


# Commands.


def _run(options: argparse.Namespace) -> None:
    if options.output:
        check_writable(options.output)
    called, args, kwargs = _load(options)
    wrapped = called.__autobatch_function__
    try:
        batch = batch_of(wrapped, args, kwargs, called.options)
    except OptionError as error:  # of the ``in_dims`` that the function is decorated with
        raise CommandError(str(error)) from error
    start = time.perf_counter()
    result = call(wrapped, batch, called.options)
    seconds = time.perf_counter() - start  # a second run to measure might do what it does twice
    results = _by_name(_named(result, "out", batch.size))
    if options.output:
        write_results(options.output, results)
    for name, value in results.items():
        print(f"{name}: {_summary(value)}")
    took = f"{seconds:.3f} s, with what a first call does once (passes, recordings)"
    print(f"{batch.size:,} examples in {took}", file=sys.stderr)


def _show(options: argparse.Namespace) -> None:
    print(lower(find_target(options.target)))


def _opt(options: argparse.Namespace) -> None:
    found = optimised(options.target, options.passes)
    for title, program in found if options.print_after_all else list(found)[-1:]:
        print(f"# {title}\n\n{program}\n" if options.print_after_all else program)


def _explain(options: argparse.Namespace) -> None:
    called, args, kwargs = _load(options)
    autobatch.explain(called, *args, **kwargs)


def _load(options: argparse.Namespace) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function, lowered before the input is read, and its arguments on their device."""
    target = find_target(options.target)
    lower(target)
    called = _configured(target, options)
    arguments = read_arguments(options.input, exact=options.scalars == "python")
    check_names(target, arguments, options.input)
    if options.device is not None:
        arguments = {name: moved(value, options.device) for name, value in arguments.items()}
    if called.options.in_dims is not None:  # which has an entry for each positional argument
        return called, *by_place(target, arguments)
    check_sizes(arguments)
    return called, (), arguments


def moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, ragged):
        return ragged([part.to(device) for part in value.tensors])
    return value.to(device) if isinstance(value, Tensor) else value


def _configured(target: Target, options: argparse.Namespace) -> Any:
    names = ("chunk_size", "scalars", "engine", "executor", "max_steps", "fallback")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    decorated: Any = target if hasattr(target, "with_options") else function(target)
    return decorated.with_options(**given)


# The batch and its results by name.


def check_sizes(arguments: Mapping[str, Any]) -> None:
    sizes = {
        name: len(value)
        for name, value in arguments.items()
        if isinstance(value, (Tensor, objects, ragged))
    }
    if not sizes:
        raise CommandError("the input holds no array with one row per example")
    if len(set(sizes.values())) > 1:
        rows = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise CommandError(f"the arrays' numbers of rows disagree: {rows}")


def _named(value: Any, name: str, size: int) -> Iterator[tuple[str, Any]]:
    """Leaves of a result: ``out``, ``out.0``, ``out.name``; a list of B objects is a leaf."""
    form = None if type(value) is list and _is_leaf(value, size) else form_of(value)
    if form is None:
        yield name, value
        return
    keys = getattr(value, "_fields", form.keys)
    for key, part in zip(keys, form.parts(value), strict=True):
        yield from _named(part, f"{name}.{key}", size)


def _by_name(named: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, value in named:
        if name in results:  # of the keys "a.b" and "b" within "a", or 0 and "0"
            raise CommandError(f"two results are called {name}: return them by other keys")
        results[name] = value
    return results


def _is_leaf(values: list[Any], size: int) -> bool:
    """Whether this is one object per thread rather than a structure of stacked results."""
    if any(isinstance(value, Result) for value in values):
        return True
    no_tensor = way_to(lambda leaf: isinstance(leaf, Tensor), values, parts_of) is None
    return len(values) == size and no_tensor


def _summary(value: Any, shown: int = 6) -> str:
    if not isinstance(value, Tensor):
        head = ", ".join(repr(part) for part in value[:shown])
        return f"list of {len(value)}: {head}{', …' if len(value) > shown else ''}"
    kind = str(value.dtype).removeprefix("torch.")
    shape = f"{kind} {list(value.shape)}"
    if value.dim() != 1 or value.layout is not torch.strided:
        return shape
    numbers = value[:shown].tolist()
    head = ", ".join(f"{n:.6g}" if isinstance(n, float) else str(n) for n in numbers)
    return f"{shape}: {head}{', …' if len(value) > shown else ''}"
