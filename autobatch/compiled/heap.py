"""The memory of a thread for objects and lists: taken piece by piece, given back at its end.

Behind the fuel lie the address that is next and the end of all (``kernel``).
"""

from __future__ import annotations

from autobatch.compiled.writer import Writer

HEAP = 2**20
"""Bytes for the objects and lists of one thread, with those that it no longer needs."""


def taken(w: Writer, size: str) -> str:
    """The address of so many bytes, a multiple of 8; gives up where there are none left."""
    if size.startswith("%"):
        w.give_up_if(w.made(f"icmp ugt i64 {size}, {HEAP}"))
    place = w.made("getelementptr i64, ptr %fuel, i64 1")
    next_ = w.made(f"load i64, ptr {place}")
    after = w.made(f"add i64 {next_}, {size}")
    end = w.made(f"load i64, ptr {w.made('getelementptr i64, ptr %fuel, i64 2')}")
    w.give_up_if(w.made(f"icmp ugt i64 {after}, {end}"))
    w.emit(f"store i64 {after}, ptr {place}")
    return w.made(f"inttoptr i64 {next_} to ptr")
