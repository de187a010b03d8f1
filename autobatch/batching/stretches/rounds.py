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
as long as the block's condition is what it was: each thread's, a result of the replay, is, byte by
byte, ``before``; a number of the host's is ``sign``. It gives how many rounds that took, at most so
many, and what the last one found of each thread. Where that is something else, ``ride`` is told,
and of the variables' cells, and says how many rounds there may be; without it that ends them. What
a round cannot do is left to the general way, with all as it was when that round began. There are
none where a line is of another kind than those above: where ints of each thread's own are looked
at, say.

What a round has made nobody holds but the next one, which may write its results over it (``spent``
inputs of ``trace.reuse``): of a fixed point's 1,024 rows of 128 floats, 0.985 of the time. It does
nothing then that may fail for what it holds; where memory runs out, all rounds are run once more.

The item of a range that is counted between rounds is a local number, ``step`` more in each. A round
of three kernels of 256 numbers: 5.5 us without, 4.3 us with it (by hand 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from autobatch.batching.stretches.printer import told_apart
from autobatch.ir.program import Var

Spending = Callable[[Mapping[str, int]], str | None]


@dataclass(frozen=True, slots=True)
class Round:
    """A block in a loop, which assigns the variables ``varying``.

    ``condition`` is what it decides by who goes on, if it does, and ``item`` what it gets of a
    range, which is asked for more where it ends, or in the block after it. ``grows``: lists may
    grow meanwhile, and attributes be assigned, by whatever names.
    """

    varying: Set[Var]
    condition: Var | None = None
    item: Var | None = None
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Printed:
    """Lines of ``rounds``, which ``looks`` at what each thread's condition is; ``spending`` is what
    its replay is called from the second round on, where that is another. ``carried`` are the local
    names that hold results of the last one, each with its place among these; None where more than
    the replay reads one.
    """

    text: str
    looks: bool = False
    spending: str | None = None
    carried: Mapping[str, int] | None = None


TEXT = """
    def rounds(env, k, most, before, sign, step, ride):
{first}
        done, last, seen = 0, None, None{begun}
        try:
            while done < most:
{turning}
                last, done = outs, done + 1
{carried}
{deciding}
                if not ({dense}): break
        except Exception:  # the general way finds out what is wrong
            {failing}
        if last is not None:
{stored}
        return done, seen"""
LOOKING = """
now = seen.tobytes()
if now != before:
    if ride is None: break
    before = now
{made}
    most = ride(seen, now, done, {{{named}}})
"""
BEGUN = """
        run = {replay}"""
HOLDING = "    if not ride.known: run = {replay}  # who has left may hold what was made"
FAILING = "if done and last is None: raise  # what it began with is written over, not what all did"
NONE = Printed("\n    rounds = None")
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
OF_ITEM = (
    "u0 = {place}.value\n"
    "if u0.__class__ is not Uniform or u0.shared is not False: return False\n"
    "o0 = u0.obj\nif o0.__class__ is not int: return False\n"
)
OTHER = re.compile(r"if .*: return False|[oh]\d+ = .*|outs = .*")
LOCAL = re.compile(r"\b[a-z]\d+\b")
MADE_COLUMN = re.compile(r"\w+ = Cell\(Column\((outs\[\d+\]), ")
REPLAY = re.compile(r"outs = (\w+)\((.*)\)")
RESULT = re.compile(r"outs\[(\d+)\]")
MADE_NUMBER = re.compile(r"\w+ = Cell\(Uniform\(([oh]\d+), False\)\)")


def printed_rounds(gliding: Sequence[str], turn: Round, spending: Spending) -> Printed:
    """The lines of ``rounds``.

    ``spending`` names the replay that may write over operands which are results of the last one.
    """
    lines = with_item([line.strip() for line in gliding], turn.item)
    found = (STORE.fullmatch(line) for line in lines)
    stores = {match[1]: match[2] for match in found if match is not None}
    own = set() if turn.item is None else {turn.item}
    steady, turning, changing = told_apart(lines, own.union(stores))
    cells = {match[1]: match[0] for match in map(CELL.fullmatch, turning) if match is not None}
    body = "".join(
        f"{line}\n" for line in turning if not (STORE.fullmatch(line) or CELL.fullmatch(line))
    )
    loads: list[str] = []
    fed: dict[str, str] = {}
    for pattern, made in ((COLUMN, MADE_COLUMN), (NUMBER, MADE_NUMBER)):
        for match in pattern.finditer(body):
            local = match[match.lastindex or 0]
            new = made.match(cells.get(stores.get(match[2], ""), ""))
            if match[2] == turn.item and made is MADE_NUMBER:
                fed[local] = f"{local} + step"
            elif new is not None:
                fed[local] = new[1]
            else:
                return NONE
            loads += match[0].splitlines()
        body = pattern.sub("", body)
    rest = body.splitlines()
    if not all(map(OTHER.fullmatch, rest)) or "outs" not in changing:
        return NONE
    if "env" in body or not set(LOCAL.findall(body)).isdisjoint(cells):
        return NONE
    cells = {local: line for local, line in cells.items() if local in stores.values()}
    condition = "" if turn.condition is None else cells.get(stores.get(turn.condition, ""), "")
    result, number = MADE_COLUMN.match(condition), MADE_NUMBER.match(condition)
    if turn.condition is not None and result is None and number is None:
        return NONE
    assigned = {line.partition(" = ")[0] for line in rest} | set(fed)
    kept = sorted({name for cell in cells.values() for name in LOCAL.findall(cell)} & assigned)
    carried = [f"z{name} = {name}" for name in kept]
    if fed:  # all at once: names may change places
        carried.append(f"{', '.join(fed)} = {', '.join(fed.values())}")
    dense = [f"{local}.is_contiguous()" for local in fed if local.startswith("d")]
    remade = [renamed(line, kept) for line in cells.values()]
    named = ", ".join(f"{name!r}: {local}" for name, local in stores.items())
    deciding: list[str] = []
    call = REPLAY.fullmatch(rest[-1])
    results = [local for local, made in fed.items() if RESULT.fullmatch(made)]
    carried_on = None if call is None else given_on(rest[:-1], fed, None)
    if carried_on is not None and len(carried_on) < len(results):
        carried_on = None
    then = None if call is None else spending(given_on(rest[:-1], fed, result and result[1]))
    begun, failing = "", "pass"
    if call is not None and then is not None:
        rest[-1:] = [f"if run is {then}: last = None", f"outs = run({call[2]})"]
        carried.append(f"run = {then}")
        begun, failing = BEGUN.format(replay=call[1]), FAILING
    if result is not None:
        rest.append(f"seen = {result[1]}.cpu().numpy()")
        made_then = "\n".join(f"    {line}" for line in remade)
        deciding = LOOKING.format(made=made_then, named=named).strip().splitlines()
        if call is not None and then is not None:
            deciding.append(HOLDING.format(replay=call[1]))
    elif number is not None:
        deciding = [f"if {renamed(number[1], kept)} is not sign: break"]
    text = TEXT.format(
        begun=begun,
        failing=failing,
        first=indented([line.replace("return False", "return 0, None") for line in steady + loads]),
        turning=indented([line.replace("return False", "break") for line in rest], 4),
        carried=indented(carried, 4),
        deciding=indented(deciding, 4),
        dense=" and ".join(dense) or "True",
        stored=indented([*remade, *(f"env[{n!r}] = {local}" for n, local in stores.items())], 3),
    )
    return Printed(text, result is not None, then, carried_on)


def given_on(
    lines: Sequence[str], fed: Mapping[str, str], condition: str | None
) -> Mapping[str, int]:
    """The tensors that a round gets of the last one's results and only its replay reads.

    In: the lines before the replay. Out: each with its place among the results.
    """
    read = set(LOCAL.findall("\n".join(lines)))
    found = ((local, RESULT.fullmatch(made)) for local, made in fed.items() if made != condition)
    return {
        local: int(match[1]) for local, match in found if match is not None and local not in read
    }


def with_item(lines: Sequence[str], item: Var | None) -> list[str]:
    """The same, what they read of a range's item by a ``NUMBER`` of its own."""
    place = f"env[{item!r}]"
    if item is None or not any(place in line for line in lines):
        return list(lines)
    text = "".join(f"{line}\n" for line in lines)
    if re.search(r"\b[uo]0\b", text):
        return list(lines)
    cells = re.findall(rf"^(m\d+) = {re.escape(place)}$", text, re.MULTILINE)
    for cell in cells:
        text = re.sub(rf"\b{cell}\.value\b", f"{place}.value", text)
    number = next((match for match in NUMBER.finditer(text) if match[2] == item), None)
    if number is None:
        text = OF_ITEM.format(place=place) + text
        number = next(NUMBER.finditer(text))
    loads = number[0]
    text = loads + text.replace(loads, "")
    for cell in cells:
        text = text.replace(f"{cell} = {place}\n", f"{cell} = Cell(Uniform({number[3]}, False))\n")
    return text.splitlines()


def renamed(line: str, kept: Sequence[str]) -> str:
    """A line of what the last whole round has left."""
    line = line.replace("outs[", "last[")
    for name in kept:
        line = re.sub(rf"\b{name}\b", f"z{name}", line)
    return line


def indented(lines: Sequence[str], depth: int = 2) -> str:
    return "\n".join("    " * depth + line for line in lines or ["pass"])
