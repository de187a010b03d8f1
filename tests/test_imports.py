"""The rooms of the package: imports run one way, and the lower rooms know no torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "autobatch"
FLOORS = ("source", "errors", "ir", "passes", "frontend", "compat", "saving", "presence", "values")
"""From the ground up; above them ``batching``, which ``vm`` and all that is made of it stand on."""
TORCH_FREE = ("source", "errors", "ir", "frontend", "passes")


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, within functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def files(room: str) -> list[Path]:
    single = PACKAGE / f"{room}.py"
    return [single] if single.exists() else sorted((PACKAGE / room).rglob("*.py"))


def rooms_of(path: Path) -> set[str]:
    parts = [name.split(".") for name in imports(path)]
    return {part[1] for part in parts if part[0] == "autobatch" and len(part) > 1}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("room", FLOORS)
def test_no_floor_stands_on_one_above_it(room: str) -> None:
    above = {*FLOORS[FLOORS.index(room) + 1 :], "batching", "vm", "transforms", "options", "api"}
    for path in files(room):
        assert not rooms_of(path) & above, path


@pytest.mark.parametrize("room", TORCH_FREE)
def test_what_is_torch_free(room: str) -> None:
    for path in files(room):
        assert not any(name.split(".")[0] == "torch" for name in imports(path)), path


def test_batching_does_not_know_the_engines() -> None:
    for path in files("batching"):
        assert "vm" not in rooms_of(path), path


def test_no_two_files_need_each_other() -> None:
    names = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    needs = {
        name: {other for other in map(str, top_imports(path)) if other in names}
        for name, path in names.items()
        if not name.startswith("autobatch.ir.")  # a program prints itself
    }
    done: set[str] = set()
    while len(done) < len(needs):
        ready = {name for name in needs.keys() - done if not (needs[name] & needs.keys()) - done}
        assert ready, sorted(needs.keys() - done)
        done |= ready


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top_imports(path: Path) -> Iterator[str]:
    """What a file needs before any of it runs."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{name.name}" for name in node.names]
            modules = [name for name in inner if exists(name)]
            yield from modules or [node.module]


def exists(module: str) -> bool:
    path = PACKAGE.parent / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
