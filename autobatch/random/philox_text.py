"""Philox 4x32-10 as text of LLVM's: ``philox`` for the words of one block (see ``sources``)."""

from __future__ import annotations

from collections.abc import Iterator

from autobatch.random.philox import MULTIPLIERS, ROUNDS, WEYL

BLOCK = "{i32, i32, i32, i32}"
"""The words of a block."""


def philox_text() -> Iterator[str]:
    """Philox 4x32-10, of the number of a block, a draw's number, a thread's index and a key."""
    given = "i64 %block, i64 %number, i64 %thread, i64 %key"
    yield f"define internal {BLOCK} @philox({given}) alwaysinline {{"
    yield "  %a0 = trunc i64 %block to i32"
    yield "  %b0 = trunc i64 %number to i32"
    yield "  %c0 = trunc i64 %thread to i32"
    yield "  %far = lshr i64 %thread, 32"
    yield "  %later = lshr i64 %number, 32"
    yield "  %laterup = shl i64 %later, 16"
    yield "  %above = or i64 %far, %laterup"
    yield "  %d0 = trunc i64 %above to i32"
    yield "  %k0 = trunc i64 %key to i32"
    yield "  %up = lshr i64 %key, 32"
    yield "  %l0 = trunc i64 %up to i32"
    for now in range(ROUNDS):
        then = now + 1
        yield from product(f"%a{now}", f"p{now}", f"%d{then}", MULTIPLIERS[0])
        yield from product(f"%c{now}", f"q{now}", f"%b{then}", MULTIPLIERS[1])
        yield f"  %x{now} = xor i32 %q{now}h, %b{now}"
        yield f"  %a{then} = xor i32 %x{now}, %k{now}"
        yield f"  %y{now} = xor i32 %p{now}h, %d{now}"
        yield f"  %c{then} = xor i32 %y{now}, %l{now}"
        yield f"  %k{then} = add i32 %k{now}, {WEYL[0]}"
        yield f"  %l{then} = add i32 %l{now}, {WEYL[1]}"
    made = "undef"
    for lane, name in enumerate("abcd"):
        yield f"  %r{lane} = insertvalue {BLOCK} {made}, i32 %{name}{ROUNDS}, {lane}"
        made = f"%r{lane}"
    yield f"  ret {BLOCK} {made}"
    yield "}"


def product(word: str, name: str, low: str, factor: int) -> Iterator[str]:
    """The upper and the lower 32 bits of a product."""
    yield f"  %{name}w = zext i32 {word} to i64"
    yield f"  %{name} = mul i64 %{name}w, {factor}"
    yield f"  %{name}u = lshr i64 %{name}, 32"
    yield f"  %{name}h = trunc i64 %{name}u to i32"
    yield f"  {low} = trunc i64 %{name} to i32"
