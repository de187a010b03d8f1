"""Errors about results that do not stack: what threads return, and where they return it.

In: one value per thread, and the part of the results that they are. Out: a ``StackingError`` with
a caret at one ``return`` and a note on each other one that gives something else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from torch import Tensor

from autobatch.batching.fallbacks import quoted
from autobatch.errors import Diagnostic, OptionError, StackingError
from autobatch.results.own_lists import Holding, parts_of, stacks, way_to
from autobatch.source import Span
from autobatch.structure import DICTS, Form, attributes, form_of, is_collection, is_record
from autobatch.values.numbers import fits_tensor

MOST = 4
"""Unlike results that an error tells of."""


def nowhere(thread: int) -> tuple[Span, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the results: ``path`` leads to it, ``spans`` says where a thread returned it.

    ``ragged`` is how its tensors of different lengths come back (``ragged_out``), ``rings`` are
    the structures that hold themselves, by identity: objects, which have no parts. ``holding`` is
    what is known to hold what stacks (see ``own_lists``).
    """

    spans: Callable[[int], tuple[Span, ...]] = nowhere
    way: tuple[Any, str] | None = None
    ragged: Any = None
    rings: Mapping[int, Any] = field(default_factory=dict)
    holding: Holding = field(default_factory=dict)

    @property
    def path(self) -> str:
        places, way = [], self.way
        while way is not None:
            way, place = way
            places.append(place)
        return "".join(reversed(places))

    def inside(self, form: Form) -> list[Part]:
        """The parts of a structure."""
        keys, ragged = form.keys, self.ragged
        if is_record(ragged):
            ragged = {name: getattr(ragged, name) for name in attributes(ragged)}
        forms: Any = [ragged] * len(keys)
        if isinstance(ragged, dict):
            forms = [ragged[key] for key in keys if key in ragged]
        elif isinstance(ragged, tuple | list):
            forms = ragged
        if len(forms) != len(keys) or (isinstance(ragged, dict) and len(ragged) > len(keys)):
            raise self.misfit(form)
        named = zip(keys, forms, strict=True)
        return [
            Part(self.spans, (self.way, form.place(key)), own, self.rings, self.holding)
            for key, own in named
        ]

    def told(self, item: Any) -> str:
        itself = " that holds itself" if id(item) in self.rings else ""
        return f"{describe(item)}{itself}"

    def misfit(self, form: Form | None = None) -> OptionError:
        place = f" at result{self.path}" if self.path else ""
        parts = ""
        if form is not None and form.kind in DICTS:
            parts = f", and the result has the keys {', '.join(map(repr, form.keys))}"
        elif form is not None:
            parts = f", and the result has {len(form.keys)} parts"
        return OptionError(
            f"ragged_out does not fit the result{place}: it is {self.ragged!r}{parts}."
        )


@dataclass(frozen=True, slots=True)
class Example:
    """A thread that returns something of its kind, the first to do so."""

    thread: int
    what: str
    spans: tuple[Span, ...]


def structures_differ(items: Sequence[Any], part: Part) -> StackingError:
    hint = "return the same structure on every path"
    if len({type(item) for item in items}) == 1:
        hint = (
            "give all examples the same parts, or return an object of a class of your own that is "
            "no dataclass: it comes back as it is, in a list"
        )
    lists = all(type(item) is list for item in items)
    if lists and way_to(lambda leaf: not stacks(leaf), items, parts_of) is None:
        hint = (
            "return one tensor instead, torch.stack(items) or torch.tensor(items), and pass "
            'ragged_out="nested", "list" or "pad"'
        )
    elif lists:
        hint = (
            "give all examples as many parts, or return a list without numbers and tensors, or an "
            "object of a class of your own: these come back as they are, in a list"
        )
    if not part.path and any(item is None for item in items):
        hint += "; a path that ends without `return` gives None"
    hint += '; on_error="isolate" gives each example\'s result by itself, whatever it is'
    found = examples(items, structures(items, part), part)
    return unlike("Threads return different structures.", found, part, hint, "mixed-results")


def shapes_differ(tensors: Sequence[Tensor], part: Part) -> StackingError:
    hint = 'pass ragged_out="list", pad the results to one shape, or return an object of your own'
    if part.ragged in ("nested", "pad"):
        hint = f'ragged_out="{part.ragged}" is of lengths alone, the first dimension; pass "list"'
    if differ_in_length(tensors):
        hint = 'pass ragged_out="nested", "list" or "pad" for results of different lengths'
    headline = "Threads return tensors of different shapes."
    found = examples(tensors, [tensor.shape for tensor in tensors], part)
    return unlike(headline, found, part, hint, "ragged-result")


def dtypes_differ(tensors: Sequence[Tensor], part: Part) -> StackingError:
    """torch has no dtype for what holds both: of uint16, uint32 and uint64 with other ints."""
    headline = "Threads return tensors of dtypes that torch does not promote to one."
    kinds = [tensor.dtype for tensor in tensors]
    found = examples(tensors, kinds, part, lambda item: f"a tensor of {item.dtype}")
    return unlike(headline, found, part, "convert the results to one dtype", "mixed-dtypes")


def differ_in_length(tensors: Sequence[Tensor]) -> bool:
    """Whether the first dimension is all in which their shapes differ, if they do at all."""
    shapes = {tensor.shape[1:] if tensor.shape else None for tensor in tensors}
    return len(shapes) == 1 and None not in shapes


def unlike(
    headline: str, found: Sequence[Example], part: Part, hint: str, code: str
) -> StackingError:
    first, *others = found
    span = first.spans[0] if len(first.spans) == 1 else None
    told = others if span is not None else [first, *others]
    notes = [returns(example, span) for example in told]
    notes[-1] += "; results of a batch must stack."
    notes[:-1] = [f"{note}." for note in notes[:-1]]
    label = f"here {first.what}, in thread {first.thread}" if span is not None else ""
    return StackingError(Diagnostic(headline, span, label, tuple(notes), (f"{hint}.",), code))


def structures(items: Iterable[Any], part: Part) -> Iterator[Hashable]:
    """For each item what is equal for those that stack with each other."""
    forms: list[Form] = []
    for item in items:
        form = form_of(item)
        if id(item) in part.rings:
            yield Part
        elif form is not None:
            like = next((known for known in forms if known.fits(item)), form)
            if like is form:
                forms.append(form)
            yield (Form, id(like))
        elif isinstance(item, Tensor) or fits_tensor(item):
            yield Tensor
        else:
            yield (type(item), describe(item))


def examples(
    items: Sequence[Any],
    kinds: Iterable[Hashable],
    part: Part,
    told: Callable[[Any], str] | None = None,
) -> list[Example]:
    """The first thread of each kind of result."""
    told = told or part.told
    found: dict[Hashable, int] = {}
    for thread, kind in enumerate(kinds):
        found.setdefault(kind, thread)
    place = f" at result{part.path}" if part.path else ""
    return [
        Example(thread, f"{told(items[thread])}{place}", part.spans(thread))
        for thread in list(found.values())[:MOST]
    ]


def returns(example: Example, other: Span | None) -> str:
    """``line 14 returns None, in thread 3``; ``other`` is where the caret stands."""
    subject = f"thread {example.thread}"
    if not example.spans:
        return f"{subject} returns {example.what}"
    if example.spans == (other,):
        return f"{subject} returns {example.what} there"
    lines = sorted({span.line for span in example.spans})
    if len(lines) == 1:
        where = f"line {lines[0]}"
    else:
        where = f"one of the lines {', '.join(map(str, lines))}"
    if other is not None and example.spans[0].file != other.file:
        where += f" of {PurePath(example.spans[0].file).name}"
    elif other is not None and lines == [other.line]:
        where += f", by {quoted(example.spans[0])},"
    return f"{where} returns {example.what}, in {subject}"


def describe(item: Any) -> str:
    if isinstance(item, Tensor):
        return f"a tensor of shape {tuple(item.shape)}"
    if type(item) is tuple:
        return f"a tuple of {len(item)}"
    if type(item) is list:
        return f"a list of {len(item)}"
    if type(item) is dict and not item:
        return "an empty dict"
    if item is None:
        return "None"
    name = type(item).__name__
    named = f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
    if type(item) in DICTS:
        return f"{named} with the keys {', '.join(map(repr, item))}"
    if is_collection(item):
        parts = [f"{key!r} of shape {tuple(part.shape)}" for key, part in item.items(True, True)]
        return f"{named} with {', '.join(parts)}"
    form = form_of(item)
    if form is None:
        return named
    if is_record(item):
        return f"{named} with {', '.join(form.keys)}"
    return f"{named} of {len(form.keys)}"
