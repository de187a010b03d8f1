"""The hashes of the keys that dicts and sets in memory may have: ints, words, tuples of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from autobatch.compiled.functions import Compiled, one
from autobatch.compiled.types import INT, Static, Structure, Value, parts_of, refuse
from autobatch.compiled.writer import Writer

SPREAD = 0x9E3779B97F4A7C15 - 2**64
"""An odd number by which hashes are multiplied (Knuth's multiplicative hashing)."""


def scattered(key: Any) -> int:
    """The hash of a key, as text calls it: equal for equal keys."""
    raise NotImplementedError


def scatter(w: Writer, args: Sequence[Value]) -> Value:
    return Value(INT, (hashed(w, one(args)),))


def hashed(w: Writer, key: Value) -> str:
    if key.type == INT:
        mixed = w.made(f"mul i64 {key.leaf}, {SPREAD}")
        return w.made(f"lshr i64 {mixed}, 24")
    if isinstance(key.type, Static) and type(key.type.obj) is str:
        return str(crc32(key.type.obj.encode()))
    if isinstance(key.type, Structure) and key.type.kind is tuple:
        made = str(len(key.type.parts))
        for part in parts_of(key):
            more = w.made(f"mul i64 {made}, 31")
            made = w.made(f"xor i64 {more}, {hashed(w, part)}")
        return made
    return refuse(f"a dict or a set has a compiled form with ints for keys, not with {key.type}")


FUNCTIONS: dict[Any, Compiled] = {scattered: scatter}
