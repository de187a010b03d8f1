"""From LLVM's text to machine code in this process, by ``llvmlite`` (the extra ``compiled``)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import Any

import numpy as np

IMPLIED = [
    name + end for name in ("fmod", "floor", "ceil", "trunc", "rint", "sqrt") for end in ("", "f")
]
"""Functions that stand for an instruction where a machine has none."""
LOCK = Lock()
"""LLVM compiles for one host thread at a time."""


class NotAssembled(Exception):
    """There is no machine code of a text; the message says why."""


def literal(obj: Any, machine: str) -> str:
    """A number as LLVM writes it; floating-point ones bit by bit, floats as doubles."""
    if machine in ("float", "double"):
        with np.errstate(over="ignore"):
            wide = np.float64(obj) if machine == "double" else np.float64(np.float32(obj))
        return f"0x{int(wide.view(np.uint64)):016X}"
    if machine == "i1":
        return "true" if obj else "false"
    return str(int(obj))


@lru_cache(maxsize=1)
def is_installed() -> bool:
    return find_spec("llvmlite") is not None


@lru_cache(maxsize=1)
def c_library() -> ctypes.CDLL:
    """The C library with the functions that Python's ``math`` calls."""
    return ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)


def address_of(name: str) -> int:
    found = getattr(c_library(), name, None)
    if found is None:
        raise NotAssembled(f"the C library has no {name}")
    address = ctypes.cast(found, ctypes.c_void_p).value
    assert address is not None
    return address


def assembled(text: str, functions: Iterable[str] = ()) -> Any:
    """Machine code of LLVM's text; ``functions`` of the C library's are called in it.

    LLVM ends the process where it knows no address, so it is told all that it may want to call.
    The engine that comes back owns the code: it has a ``get_function_address(name)``.
    """
    with LOCK:
        return _assembled(text, functions)


def _assembled(text: str, functions: Iterable[str]) -> Any:
    import llvmlite.binding as llvm  # noqa: PLC0415

    for name in (*functions, *IMPLIED):
        llvm.add_symbol(name, address_of(name))
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise NotAssembled(f"LLVM does not take it: {error}") from None
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
