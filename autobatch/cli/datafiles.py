"""The command line's data files: arguments read by name, results written by name.

Input is data only, never code: ``.npz`` without pickles, ``.pt`` or ``.pth`` loaded
weights-only (a dict of tensors by name), ``.jsonl`` with one JSON object per example.
What cannot be read or written so is a ``DataFileError`` of one line that names the file.
Output is written beside its place and renamed into it, so it is whole or not there.

A 0-d array is shared by all threads, as a Python number; strings, and JSON values that are no
numbers or lists of them, become one Python object per thread.
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from autobatch.arguments.mapped import objects
from autobatch.cli.stopping import stopping_late
from autobatch.ragged import ragged
from autobatch.values.numbers import fits_tensor

UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    MemoryError,
    TypeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    pickle.UnpicklingError,
)


OF_OBJECTS = (
    "holds Python objects, and only data is read: numbers, strings, or a .jsonl file with one "
    "object for each example"
)


class DataFileError(Exception):
    """A file that cannot be read or written; its message is one line."""


def read_arguments(path: Path, *, exact: bool = False) -> dict[str, Any]:
    """Arguments by parameter name: tensors ``[B, *E]``, ``ragged`` ones, ``objects``, or numbers.

    JSON's numbers with a point are float64, as in a list given to ``batch``; lists of such take
    torch's default dtype, as in ``torch.tensor``, or stay float64 if ``exact``.
    """
    reader = READERS.get(path.suffix)
    if reader is None:
        raise DataFileError(f"{path}: input files end in {', '.join(READERS)}")
    if path.is_dir():
        raise DataFileError(f"{path}: is a folder")
    if not path.is_file():
        raise DataFileError(f"{path}: no such file")
    try:
        arguments = dict(reader(path))
    except UNREADABLE as error:
        raise DataFileError(f"{path}: {_one_line(error)}") from error
    if path.suffix == ".jsonl" and not exact:
        arguments = {name: _default_dtype(value) for name, value in arguments.items()}
    return arguments


def check_writable(path: Path) -> None:
    """Tell before a long run, not after it, that its results have no place to go."""
    if path.suffix not in WRITERS:
        raise DataFileError(f"{path}: output files end in {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise DataFileError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise DataFileError(f"{path}: is a folder")


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write results by name; nothing at ``path`` changes unless all of it was written."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise DataFileError(f"{path}: {_one_line(error)}") from error
    with stopping_late():
        try:
            with os.fdopen(handle, "wb") as file:
                WRITERS[path.suffix](file, results)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException as error:
            os.unlink(temporary)
            if isinstance(error, (OSError, TypeError, ValueError, RuntimeError)):
                raise DataFileError(f"{path}: {_one_line(error)}") from error
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _one_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].strip()


# Readers.


def _read_npz(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("not an npz file, or a truncated one")
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            try:
                yield name, _argument(arrays[name])
            except (ValueError, TypeError) as error:
                told = OF_OBJECTS if "Object arrays" in str(error) else _one_line(error)
                raise ValueError(f"array {name}: {told}") from error


def _argument(array: Any) -> Any:
    if not isinstance(array, np.ndarray):  # numpy gives the bytes of other members of the archive
        raise ValueError("is no array")
    if array.dtype.kind in "US":
        return objects(array.tolist()) if array.ndim else array.item()
    if array.ndim == 0:
        return array.item()
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C", copy=False))


def _read_torch(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of what the file is that it cannot be
            values = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError("not a file of tensors (loaded weights-only), or truncated") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ValueError("must hold a dict of tensors by parameter name")
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} is of type {type(value).__name__}, not a tensor")
        if value.is_meta:
            raise ValueError(f"{name} is a meta tensor, which holds no data")
        yield name, value if value.dim() else value.item()


def _read_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    rows: list[dict[str, Any]] = []
    # Not ``splitlines``: a string may hold what ends a line elsewhere (U+2028, U+0085).
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number}: {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise ValueError(f"line {number}: not an object with values by parameter name")
        if rows and row.keys() != rows[0].keys():
            differ = ", ".join(sorted(row.keys() ^ rows[0].keys()))
            raise ValueError(f"line {number}: not the names of the first line (differ: {differ})")
        rows.append(row)
    if not rows:
        raise ValueError("no examples in it")
    for name in rows[0]:
        yield name, _stacked([row[name] for row in rows])


def _default_dtype(value: Any) -> Any:
    """Lists of numbers in the default dtype."""
    if isinstance(value, ragged):
        return ragged([in_default_dtype(part) for part in value.tensors])
    return in_default_dtype(value) if isinstance(value, Tensor) and value.dim() > 1 else value


def in_default_dtype(value: Tensor) -> Tensor:
    return value.to(torch.get_default_dtype()) if value.dtype is torch.float64 else value


def _stacked(values: list[Any]) -> Any:
    """A tensor where the values are numbers, or lists of them, of one shape; ``ragged`` ones where
    lists differ in length; else objects.
    """
    shapes = {_shape(value) for value in values}
    if None in shapes:
        return objects(values)
    if len(shapes) == 1:
        array = np.array(values)
        return torch.from_numpy(array) if array.dtype.kind in "bif" else objects(values)
    rows = {shape[1:] for shape in shapes if shape != (0,)}  # type: ignore[index]
    if () in shapes or len(rows) > 1:
        return objects(values)
    arrays = [np.array(value).reshape(len(value), *next(iter(rows))) for value in values]
    dtype = np.result_type(*(array for array in arrays if len(array)))
    if dtype.kind not in "bif":
        return objects(values)
    return ragged([torch.from_numpy(array.astype(dtype)) for array in arrays])


def _shape(value: Any) -> tuple[int, ...] | None:
    """Of nested lists of numbers; None of anything else, and of ints that no tensor holds."""
    if isinstance(value, list):
        shapes = {_shape(part) for part in value} or {()}
        inner = shapes.pop() if len(shapes) == 1 else None
        return None if inner is None else (len(value), *inner)
    return () if fits_tensor(value) else None


# Writers.


def _write_npz(file: IO[bytes], results: Mapping[str, Any]) -> None:
    arrays = {name: _array(name, value) for name, value in results.items()}
    np.savez(file, **arrays)


def _array(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.is_nested:
            raise ValueError(f"result {name} is nested, which npz cannot; try .jsonl or .pt")
        value = value.detach().cpu().resolve_conj().resolve_neg()
        return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
    if all(isinstance(part, str) for part in value):
        return np.array(value, dtype=str)
    kind = type(value[0]).__name__
    raise ValueError(f"result {name} holds objects ({kind}), which npz cannot; try .jsonl")


def _write_torch(file: IO[bytes], results: Mapping[str, Any]) -> None:
    for name, value in results.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"result {name} holds objects, not tensors; try .jsonl")
    torch.save({name: value.detach().cpu() for name, value in results.items()}, file)


def _write_json_lines(file: IO[bytes], results: Mapping[str, Any]) -> None:
    columns = [_listed(value) for value in results.values()]
    for row in zip(*columns, strict=True):
        line = json.dumps(dict(zip(results, row, strict=True)), ensure_ascii=False)
        file.write(line.encode() + b"\n")


def _listed(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.is_nested:
        return [part.detach().cpu().tolist() for part in value.unbind()]
    return value.detach().cpu().tolist()


READERS: dict[str, Callable[[Path], Iterator[tuple[str, Any]]]] = {
    ".npz": _read_npz,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".jsonl": _read_json_lines,
}
WRITERS: dict[str, Callable[[IO[bytes], Mapping[str, Any]], None]] = {
    ".npz": _write_npz,
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".jsonl": _write_json_lines,
}
