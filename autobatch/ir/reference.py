"""The reference page of operations: a Markdown table made of ``ir.ops``, and nothing else.

In: the table. Out: text (``autobatch ops`` prints it). What the columns mean stands in ``OpInfo``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autobatch.ir.ops import OPS, OpInfo

COLUMNS = ("operation", "means", "operands", "outs", "attribute", "effect", "result", "traits")


def reference(table: Mapping[str, OpInfo] = OPS) -> str:
    """The page: a row for each operation, in the order of the table."""
    return "\n".join(lines(table))


def lines(table: Mapping[str, OpInfo]) -> Iterator[str]:
    yield row(COLUMNS)
    yield row(("---",) * len(COLUMNS))
    for name, declared in table.items():
        yield row(cells(name, declared))


def row(texts: tuple[str, ...]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def cells(name: str, declared: OpInfo) -> tuple[str, ...]:
    """What the page says of one operation."""
    return (
        f"`{name}`",
        declared.doc,
        "any" if declared.arity is None else str(declared.arity),
        "any" if declared.outs < 0 else str(declared.outs),
        declared.attr,
        declared.effect,
        declared.result if declared.outs else "",
        ", ".join(traits(declared)),
    )


def traits(declared: OpInfo) -> Iterator[str]:
    if declared.stretch != "never":
        yield declared.stretch
    for name in ("safe", "commutative", "moves", "free", "framed"):
        if getattr(declared, name):
            yield name
