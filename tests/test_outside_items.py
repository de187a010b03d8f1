"""An item of a table that existed before is not written, however a thread takes it out."""

from __future__ import annotations

from typing import Any

import pytest

import autobatch
from tests.outside_world import program

IMPORTED = "import collections, copy, functools, heapq, itertools, operator, random, types"
TAKEN = (
    *("T.get(x)", "T.get(x, [])", "dict.get(T, x)", "T.__getitem__(x)", "H[0].get(x)"),
    *("{'z': T}.get('z').get(x)", "[T.get(w) for w in [x]][0]", "list(map(T.get, [x]))[0]"),
    *("functools.partial(T.get, x)()", "operator.methodcaller('get', x)(T)"),
    *("(T | {'z': [0]})[x]", "(T | {'z': x})[x]", "(T | {x + 'z': [0]}).get(x)", "T.copy().get(x)"),
    *("T.copy().setdefault(x, [])", "dict(T).pop(x)", "dict(T.items())[x]", "{**T}[x]"),
    *("dict(T.items()).get(x)", "dict(zip(T, T.values())).get(x)", "copy.copy(T).get(x)"),
    *("collections.OrderedDict(T).get(x)", "collections.ChainMap(T).get(x)"),
    *("types.MappingProxyType(T).get(x)", "(lambda **kw: kw)(**T).get(x)"),
    *("getattr(types.SimpleNamespace(**T), x)", "vars(types.SimpleNamespace(**T)).get(x)"),
    *("max(T.values(), key=lambda p: len(p) == len(x))", "min(T.items())[1]"),
    *("max(T.items(), key=lambda p: p[0] == x)[1]", "min(T.items(), key=lambda p: len(p[1]))[1]"),
    *("sorted(T.items(), key=lambda p: p[0] == x)[1][1]", "sorted(T.items())[len(x) - 1][1]"),
    "sorted(T.values(), key=lambda p: len(p) == len(x))[0]",
    "max(iter(T.items()), key=lambda p: p[0] == x)[1]",
    "max(reversed(T.items()), key=lambda p: p[0] == x)[1]",
    "max(zip(T.values(), T), key=lambda p: p[1] == x)[0]",
    "max(enumerate(T.values()), key=lambda p: len(p[1]) == len(x))[1]",
    "max(map(lambda k: T[k], T), key=lambda p: len(p) == len(x))",
    "max(map(T.get, T), key=lambda p: len(p) == len(x))",
    "max(((k, v) for k, v in T.items()), key=lambda p: p[0] == x)[1]",
    "functools.reduce(lambda a, b: a if a[0] == x else b, T.items())[1]",
    "heapq.nsmallest(1, T.items(), key=lambda p: p[0] != x)[0][1]",
    "next(itertools.dropwhile(lambda p: p[0] != x, T.items()))[1]",
    *("next(v for k, v in T.items() if k == x)", "next(filter(lambda p: p[0] == x, T.items()))[1]"),
    *(
        "list(T.values())[len(x) - 1]",
        "[*T.values()][len(x) - 1]",
        "list(T.items())[len(x) - 1][1]",
    ),
    *("list(reversed(T.values()))[len(x) - 1]", "list(enumerate(T.values()))[len(x) - 1][1]"),
    *("random.Random(3).choice(list(T.items()))[1]", "random.Random(3).sample(R, 1)[0]"),
    *("max(R, key=lambda p: len(p) == len(x))", "sorted(R, key=lambda p: len(p) == len(x))[0]"),
    "max(enumerate(R), key=lambda p: len(p[1]) == len(x))[1]",
    "sorted(zip(R, R), key=lambda p: len(p[1]) == len(x))[0][1]",
    *("min(R[:], key=lambda p: len(p) == len(x))", "min(tuple(R), key=lambda p: len(p) == len(x))"),
    "min(R[:2], R[1:], key=lambda p: len(p) == len(x))[0]",
    "min(reversed(R), key=lambda p: len(p) == len(x))",
    "min((r for r in R), key=lambda p: len(p) == len(x))",
    *("min([(len(r) == len(x), r) for r in R])[1]", "[*filter(lambda r: len(r) == len(x), R)][0]"),
)
WRITES = ("t.append(1)", "t += [1]", "t[0] = 5", "t.sort(reverse=True)", "t.__iadd__([1])")
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"plain": "never"},
    {"engine": "program_counter"},
    {"engine": "sequential"},
)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("taken", TAKEN)
def test_it_is_refused(taken: str) -> None:
    names: dict[str, Any] = {}
    exec(IMPORTED, names)
    names |= {"T": {"ab": [1, 2], "c": [3]}, "R": [[1, 2], [3]]}
    names["H"] = [names["T"]]
    write = WRITES[len(taken) % len(WRITES)]
    func = program(f"item {taken}", [f"t = {taken}", write], names)
    for words in (["ab", "c", "ab"], ["ab", "c"], ["c"]):
        for way in WAYS:
            with pytest.raises(autobatch.AutobatchError, match=r"existed before the call[\s\S]*\^"):
                autobatch.vmap(func, **way)(autobatch.objects(words))
            assert names["T"] == {"ab": [1, 2], "c": [3]} and names["R"] == [[1, 2], [3]], way
