"""An item that a thread takes out of its own container is that very item, however it is taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autobatch
from tests.outside_world import program

WORDS = ["ab", "c", "ab"]
WAYS: dict[str, tuple[str, str]] = {
    "dget": ("t = {'ab': a, 'c': b}", "t.get(word)"),
    "dget2": ("t = {'ab': a, 'c': b}", "t.get(word, a)"),
    "dget3": ("t = {'ab': a}", "t.get(word, b)"),
    "dpop": ("t = {'ab': a, 'c': b}", "t.pop(word)"),
    "dpop2": ("t = {'ab': a}", "t.pop(word, b)"),
    "dset": ("t = {'ab': a}", "t.setdefault(word, b)"),
    "dgi": ("t = {'ab': a, 'c': b}", "t.__getitem__(word)"),
    "Dgi": ("t = {'ab': a, 'c': b}", "dict.__getitem__(t, word)"),
    "Dget": ("t = {'ab': a, 'c': b}", "dict.get(t, word)"),
    "ogi": ("t = {'ab': a, 'c': b}", "operator.getitem(t, word)"),
    "oig": ("t = {'ab': a, 'c': b}", "operator.itemgetter(word)(t)"),
    "lgi": ("t = [a, b]", "t.__getitem__(n)"),
    "ogl": ("t = [a, b]", "operator.getitem(t, n)"),
    "oil": ("t = [a, b]", "operator.itemgetter(n)(t)"),
    "lpop": ("t = [a, b]", "t.pop(n)"),
    "tup": ("t = (a, b)", "t[n]"),
    "tgi": ("t = (a, b)", "t.__getitem__(n)"),
    "sl": ("t = [a, b]", "t[n:][0]"),
    "rev": ("t = [a, b]", "list(reversed(t))[n]"),
    "nxt": ("t = iter([a, b][n:])", "next(t)"),
    "isl": ("t = [a, b]", "next(itertools.islice(t, n, None))"),
    "filt": ("t = [a, b]", "next(filter(lambda r: r is t[n], t))"),
    "gen": ("t = [a, b]", "next(r for i, r in enumerate(t) if i == n)"),
    "mx": ("t = [a, b]", "max(enumerate(t), key=lambda p: p[0] == n)[1]"),
    "srt": ("t = [a, b]", "sorted(enumerate(t), key=lambda p: p[0] != n)[0][1]"),
    "cpy": ("t = [a, b]", "copy.copy(t)[n]"),
    "lcp": ("t = [a, b]", "t.copy()[n]"),
    "lst": ("t = [a, b]", "list(t)[n]"),
    "tpl": ("t = [a, b]", "tuple(t)[n]"),
    "add": ("t = [a, b]", "(t + [a])[n]"),
    "mul": ("t = [a, b]", "(t * len(word))[n]"),
    "val": ("t = {'ab': a, 'c': b}", "[v for k, v in t.items() if k == word][0]"),
    "vals": ("t = {0: a, 1: b}", "list(t.values())[n]"),
    "dint": ("t = {0: a, 1: b}", "t.get(n)"),
    "orr": ("t = {'ab': a} | {'c': b}", "t[word]"),
    "ior": ("t = {'ab': a}; t |= {'c': b}", "t.get(word)"),
    "iorw": ("t = {'ab': a, 'c': a}; t |= {word: b}", "t.get('c')"),
    "orw2": ("t = {'ab': a, 'c': a} | {word: b}", "t['c']"),
    "orw3": ("t = {'ab': a, 'c': a} | dict([(word, b)])", "t['c']"),
    "orw4": ("t = {'ab': a, 'c': b}.copy() | {word: a}", "t['c']"),
    "orw5": ("t = {'ab': a, 'c': b}; t = (t if n else dict(t)) | {}", "t[word]"),
    "unp": ("t = {'ab': a, 'c': b}; t = {**t, word: a}", "t['c']"),
    "lun": ("t = [a, b]; t = [*t, *([a] * n)]", "t[-1]"),
    "lel": ("t = [a, b]; t += [a] * n", "t[-1]"),
    "orw": ("t = {'ab': a} | {word: b}", "t.get('c', a)"),
    "red": ("t = [a, b]", "functools.reduce(lambda p, q: q if n else p, t)"),
    "zip": ("t = [a, b]", "list(zip(t, t))[n][0]"),
    "chn": ("t = [a, b]", "list(itertools.chain([a], [b]))[n]"),
    "odd": ("t = collections.OrderedDict(ab=a, c=b)", "t.get(word)"),
    "ddd": ("t = collections.defaultdict(list, ab=a, c=b)", "t.get(word)"),
    "ddi": ("t = collections.defaultdict(list, ab=a, c=b)", "t[word]"),
    "chm": ("t = collections.ChainMap({'ab': a}, {'c': b})", "t[word]"),
    "chg": ("t = collections.ChainMap({'ab': a}, {'c': b})", "t.get(word)"),
    "deq": ("t = collections.deque([a, b])", "t[n]"),
    "deqp": ("t = collections.deque([a, b] * len(word))", "t.popleft() if n else t.pop()"),
    "hq": ("t = [(n, 0, a), (1 - n, 1, b)]; heapq.heapify(t)", "heapq.heappop(t)[2]"),
    "nsm": ("t = [(n, 0, a), (1 - n, 1, b)]", "heapq.nsmallest(1, t, key=lambda r: r[0])[0][2]"),
    "ga": ("t = types.SimpleNamespace(ab=a, c=b)", "getattr(t, word)"),
    "vars": ("t = types.SimpleNamespace(ab=a, c=b)", "vars(t)[word]"),
    "og": ("t = types.SimpleNamespace(ab=a, c=b)", "operator.attrgetter(word)(t)"),
    "fset": ("t = dict(zip(['ab', 'c'], [a, b]))", "t.get(word)"),
    "dk": ("t = dict.fromkeys(['ab', word], a)", "t.get(word)"),
    "upd": ("t = {'ab': a}; t.update({word: b})", "t.get(word)"),
    "grp": ("t = [a, b]", "[list(g) for k, g in itertools.groupby(t, key=lambda r: r is b)][n][0]"),
    "acc": ("t = [a, b]", "list(itertools.accumulate(t, lambda p, q: q))[n]"),
    "par": ("t = {'ab': a, 'c': b}", "functools.partial(t.get, word)()"),
    "mapg": ("t = {'ab': a, 'c': b}", "list(map(t.get, [word]))[0]"),
    "mapi": ("t = {'ab': a, 'c': b}", "[t.get(w) for w in [word]][0]"),
    "cyc": ("t = itertools.cycle([a, b]); [next(t) for _ in range(n)]", "next(t)"),
    "lm": ("t = (lambda d, k: d.get(k))", "t({'ab': a, 'c': b}, word)"),
    "mt": ("t = {'ab': a, 'c': b}", "t.get(word) or b"),
    "cond": ("t = None", "(a if n else b)"),
    "minl": ("t = None", "min([a, b], key=lambda r: (r is a) == bool(n))"),
    "minv": ("t = None", "min(a, b, key=lambda r: (r is a) == bool(n))"),
    "enum": ("t = [a, b]", "dict(enumerate(t)).get(n)"),
    "nest": ("t = {'ab': {'z': a}, 'c': {'z': b}}", "t.get(word).get('z')"),
    "nest2": ("t = {'z': {'ab': a, 'c': b}}", "t.get('z').get(word)"),
    "tupd": ("t = {(0, 1): a, (0, 0): b}", "t.get((0, n))"),
    "lind": ("t = [a, b]", "t[t.index(t[n])]"),
}
"""By a name: how a table of ``a`` and ``b`` is made, and what is taken out of it."""
KINDS = {
    "list": ("[1]", "[2]", "x.append(3)", "(sum(a), sum(b))"),
    "dict": ("{'z': 1}", "{'z': 2}", "x['z'] += 5", "(a['z'], b['z'])"),
    "tensor": ("torch.zeros(2)", "torch.ones(2)", "x += 5", "(a, b)"),
    "part of a tensor": ("torch.zeros(2)", "torch.ones(2)", "x[0] = 7", "(a, b)"),
    "set": ("{1}", "{2}", "x.add(5)", "(sum(a), sum(b))"),
}
IMPORTED = "import collections, copy, functools, heapq, itertools, operator, types"


def written(way: str, kind: str) -> Any:
    """A function that writes to one of two, whichever its word says, and gives both."""
    (made, taken), (a, b, write, result) = WAYS[way], KINDS[kind]
    names: dict[str, Any] = {"torch": torch}
    exec(IMPORTED, names)
    head = [f"a, b, n = {a}, {b}, len(x) - 1", "word = x", *made.split("; ")]
    return program(f"{way} {kind}", [*head, f"x = {taken}", write, f"return {result}"], names)


@pytest.mark.sampled(32)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_taken_out_is_written(way: str, kind: str) -> None:
    func = written(way, kind)
    try:
        expected = [[as_plain(part) for part in func(word)] for word in WORDS]
    except RuntimeError as error:
        expected = type(error)
    for options in ({}, {"engine": "program_counter"}, {"engine": "sequential"}, {"plain": "auto"}):
        batched = autobatch.vmap(func, **{"plain": "never", **options})
        if isinstance(expected, type):
            with pytest.raises(expected):
                batched(autobatch.objects(WORDS))
            continue
        found = zip(*map(as_plain, batched(autobatch.objects(WORDS))), strict=True)
        assert [list(each) for each in found] == expected, options


def as_plain(result: Any) -> Any:
    return result.tolist() if isinstance(result, torch.Tensor) else result
