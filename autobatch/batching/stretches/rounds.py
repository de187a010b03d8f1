"""Rounds of a loop that is one block, as one function: what goes from round to round stays local.

    glide:                             rounds:
      c9 = env['x'].value                c9 = env['x'].value
      d11 = c9.table                     d11 = c9.table
      outs = replay(k, d11)              while done < most:
      r50 = Cell(Column(outs[0]))            outs = replay(k, d11)
      env['x'] = r50                         last, d11, done = outs, outs[0], done + 1
                                             ...
                                         env['x'] = Cell(Column(last[0]))

In: the lines of a driver that glides (see ``drivers``). Out: those of ``rounds``, which goes on for
as long as result ``slot`` of the replay is, byte by byte, ``before``; it gives how many rounds that
took, at most so many, and what the last one found. Where it is something else, ``ride`` is told,
and of the variables' cells, and says how many rounds there may be; without it that ends them. What
a round cannot do is left to the general way, with all as it was when that round began. There are
none where a line is of another kind than those above: where ints of each thread's own are looked
at, say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from autobatch.batching.stretches.printer import told_apart

TEXT = """
    def rounds(env, k, most, before, slot, ride):
{first}
        done, last, seen = 0, None, None
        try:
            while done < most:
{turning}
                seen = outs[slot].cpu().numpy()
                last, done = outs, done + 1
{carried}
                now = seen.tobytes()
                if now != before:
                    if ride is None: break
                    before = now
{made}
                    most = ride(seen, now, done, {{{named}}})
                if not ({dense}): break
        except Exception:  # the general way finds out what is wrong
            pass
        if last is not None:
{stored}
        return done, seen"""
NONE = "\n    rounds = None"
STORE = re.compile(r"env\['([^']*)'\] = ([a-z]\d+)")
CELL = re.compile(r"([mr]\d+) = Cell\((?:Column|Uniform)\(.*\)\)")
COLUMN = re.compile(
    r"(c\d+) = env\['([^']*)'\]\.value\n(d\d+) = \1\.table\n"
    r"(d\d+) = \3 if \3\.is_contiguous\(\) else dense_rows\(\1\)\nif \4 is None: return False\n"
)
NUMBER = re.compile(
    r"(u\d+) = env\['([^']*)'\]\.value\n"
    r"if \1\.__class__ is not Uniform or \1\.shared is not False: return False\n(o\d+) = \1\.obj\n"
)
OTHER = re.compile(r"if .*: return False|[oh]\d+ = .*|outs = .*")
LOCAL = re.compile(r"\b[a-z]\d+\b")
MADE_COLUMN = re.compile(r"\w+ = Cell\(Column\((outs\[\d+\]), ")
MADE_NUMBER = re.compile(r"\w+ = Cell\(Uniform\(([oh]\d+), False\)\)")


def printed_rounds(gliding: Sequence[str]) -> str:
    """The lines of ``rounds``."""
    lines = [line.strip() for line in gliding]
    found = (STORE.fullmatch(line) for line in lines)
    stores = {match[1]: match[2] for match in found if match is not None}
    steady, turning, changing = told_apart(lines, set(stores))
    cells = {match[1]: match[0] for match in map(CELL.fullmatch, turning) if match is not None}
    body = "".join(
        f"{line}\n" for line in turning if not (STORE.fullmatch(line) or CELL.fullmatch(line))
    )
    loads: list[str] = []
    fed: dict[str, str] = {}
    for pattern, made in ((COLUMN, MADE_COLUMN), (NUMBER, MADE_NUMBER)):
        for match in pattern.finditer(body):
            new = made.match(cells.get(stores.get(match[2], ""), ""))
            if new is None:
                return NONE
            loads += match[0].splitlines()
            fed[match[match.lastindex or 0]] = new[1]
        body = pattern.sub("", body)
    rest = body.splitlines()
    if not all(map(OTHER.fullmatch, rest)) or "outs" not in changing:
        return NONE
    if "env" in body or not set(LOCAL.findall(body)).isdisjoint(cells):
        return NONE
    assigned = {line.partition(" = ")[0] for line in rest} | set(fed)
    kept = sorted({name for cell in cells.values() for name in LOCAL.findall(cell)} & assigned)
    carried = [f"z{name} = {name}" for name in kept]
    if fed:  # all at once: names may change places
        carried.append(f"{', '.join(fed)} = {', '.join(fed.values())}")
    dense = [f"{local}.is_contiguous()" for local in fed if local.startswith("d")]
    remade = [renamed(line, kept) for line in cells.values()]
    stored = [*remade, *(f"env[{name!r}] = {local}" for name, local in stores.items())]
    return TEXT.format(
        first=indented([line.replace("return False", "return 0, None") for line in steady + loads]),
        turning=indented([line.replace("return False", "break") for line in rest], 4),
        carried=indented(carried, 4),
        made=indented(remade, 5),
        named=", ".join(f"{name!r}: {local}" for name, local in stores.items()),
        dense=" and ".join(dense) or "True",
        stored=indented(stored, 3),
    )


def renamed(line: str, kept: Sequence[str]) -> str:
    """A line of what the last whole round has left."""
    line = line.replace("outs[", "last[")
    for name in kept:
        line = re.sub(rf"\b{name}\b", f"z{name}", line)
    return line


def indented(lines: Sequence[str], depth: int = 2) -> str:
    return "\n".join("    " * depth + line for line in lines or ["pass"])
