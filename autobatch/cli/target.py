"""The command line's target: a function named ``FILE.py:function``, and its parameters."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from autobatch.arguments.spelling import meant

Target = Callable[..., Any]


class CommandError(Exception):
    """A command that cannot be carried out as given; its message is one line."""


def find_target(text: str) -> Target:
    """The callable that ``FILE.py:function`` names; ``FILE.py:model.forward`` works too."""
    file, colon, name = text.rpartition(":")
    path = Path(file)
    if not colon or path.suffix != ".py" or not name:
        raise CommandError(f"{text}: name the function as FILE.py:function")
    if not path.is_file():
        raise CommandError(f"{path}: no such file")
    found: Any = _import(path)
    for part in name.split("."):
        if not hasattr(found, part):
            held = getattr(found, "__dict__", {})
            names = [n for n, each in held.items() if callable(each) and n[0] != "_"]
            told = meant(part, names, "its functions are") if names else "it has no functions."
            raise CommandError(f"{path}: no {name} in it; {told}")
        found = getattr(found, part)
    if not callable(found) or isinstance(found, type):
        raise CommandError(f"{path}: {name} is of type {type(found).__name__}, not a function")
    if hasattr(found, "__autobatch_mapped__"):
        raise CommandError(f"{path}: {name} is mapped already; name the function of one example")
    target: Target = found
    return target


def _import(path: Path) -> object:
    """Run the file as a module: of its package if it is in one, else under a name of its own."""
    folder = path.resolve().parent
    names = [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path[:0] = [str(folder), str(Path.cwd())]
    try:
        return importlib.import_module(".".join(names)) if names[1:] else _import_alone(path)
    except (Exception, SystemExit) as error:
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = ": ".join((type(error).__name__, *told.splitlines()[:1]))
        raise CommandError(f"{path}: cannot be imported: {reason} ({_place(error)})") from error


def _place(error: BaseException) -> str:
    """The line that cannot be read, or that failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{line.filename}, line {line.lineno}"


def _import_alone(path: Path) -> object:
    # Not under its stem: a file called queue.py must not replace the library's queue.
    name = f"_run_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def check_names(target: Target, arguments: Mapping[str, Any], path: Path) -> None:
    """Each array has a parameter of its name, and each parameter an array or a default."""
    parameters = _parameters(target)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unnamed = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if unnamed:
        raise CommandError(f"parameter {', '.join(unnamed)} is positional-only: arrays go by name")
    needed = [p.name for p in parameters if p.name in named and p.default is p.empty]
    missing = [name for name in needed if name not in arguments]
    surplus = [name for name in arguments if name not in named and not takes_any]
    if missing:
        held = f"its arrays are {', '.join(arguments)}" if arguments else "it has no arrays"
        raise CommandError(f"{path}: no array for parameter {', '.join(missing)}; {held}")
    if surplus:
        own = ", ".join(sorted(named)) or "none"
        raise CommandError(
            f"{path}: no parameter for array {', '.join(surplus)}; the parameters are {own}"
        )


def by_place(
    target: Target, arguments: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments as far as there are, and those by name after one that has none."""
    named, placed = dict(arguments), []
    for parameter in _parameters(target):
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name not in named:
            break
        placed.append(named.pop(parameter.name))
    return tuple(placed), named


def _parameters(target: Target) -> list[inspect.Parameter]:
    called = target.forward if isinstance(target, nn.Module) else target
    try:
        return list(inspect.signature(called).parameters.values())
    except ValueError as error:  # a function of torch's, in C
        told = "call it in a function of the file"
        raise CommandError(f"{called!r} does not tell its parameters' names: {told}") from error
