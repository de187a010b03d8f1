"""Errors about results that do not stack: what threads return, and where they return it.

In: one value per thread, and the part of the results that they are. Out: a ``StackingError`` with
a caret at one ``return`` and a note on each other one that gives something else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from torch import Tensor

from autobatch.batching.fallbacks import quoted
from autobatch.errors import Diagnostic, OptionError, StackingError
from autobatch.ragged import Offsets
from autobatch.results.number_lists import are_of_numbers
from autobatch.results.own_lists import Holding, may_be_listed, parts_of, stacks, way_to
from autobatch.source import Span, ended_at
from autobatch.structure import (
    DICTS,
    Form,
    attributes,
    form_of,
    is_collection,
    is_record,
    is_record_type,
)
from autobatch.values.numbers import fits_tensor

MOST = 4
"""Unlike results that an error tells of."""
LONGEST = 60
"""Characters of an option that a hint writes out."""


def nowhere(thread: int) -> tuple[Span, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the results: ``path`` leads to it, ``spans`` says where a thread returned it.

    ``ragged`` is how its tensors of different lengths come back, and its lists (``ragged_out``),
    ``rings`` are the structures that hold themselves, by identity: objects, which have no parts.
    ``holding`` is what is known to hold what stacks (see ``own_lists``). ``way`` has the part that
    this is in, and as what. ``offsets`` are those that jagged tensors of equal lengths share.
    """

    spans: Callable[[int], tuple[Span, ...]] = nowhere
    way: Way | None = None
    ragged: Any = None
    rings: Mapping[int, Any] = field(default_factory=dict)
    holding: Holding = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)

    @property
    def path(self) -> str:
        return "".join(way.form.place(way.key) for way in reversed(self.ways))

    @property
    def ways(self) -> list[Way]:
        """From this part out to the whole."""
        found, way = [], self.way
        while way is not None:
            found.append(way)
            way = way.outer.way
        return found

    @property
    def has_own_lists(self) -> bool:
        """Whether lists here are each example's own, be their lengths equal or not."""
        return type(self.ragged) is str

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
        return [replace(self, way=Way(self, form, key, forms), ragged=own) for key, own in named]

    def option(self, wanted: str) -> str:
        """``ragged_out`` as it is to be for this part, or for the list that this is in."""
        text, ways = written(wanted), self.ways
        lists = [place for place, way in enumerate(ways) if way.form.kind is list]
        for way in ways[lists[-1] + 1 if lists else 0 :]:
            text = way.option(text)
        return text if len(text) <= LONGEST else written(wanted)

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
class Way:
    """How a part lies in another: ``key`` in its form; ``forms`` are the options of all keys."""

    outer: Part
    form: Form
    key: Any
    forms: Sequence[Any]

    def option(self, text: str) -> str:
        """``ragged_out`` of the whole, where that of the part is to be ``text``."""
        pairs = zip(self.form.keys, self.forms, strict=True)
        parts = [text if key == self.key else written(form) for key, form in pairs]
        if self.form.kind in DICTS or is_record_type(self.form.kind):
            keys = map(written, self.form.keys)
            inner = ", ".join(f"{key}: {part}" for key, part in zip(keys, parts, strict=True))
            return f"{{{inner}}}"
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def written(option: Any) -> str:
    return f'"{option}"' if type(option) is str else repr(option)


@dataclass(frozen=True, slots=True)
class Example:
    """A thread that returns something of its kind, the first to do so."""

    thread: int
    what: str
    spans: tuple[Span, ...]

    @property
    def ended(self) -> str | None:
        """The function that has come to its end without a ``return``, if it has."""
        is_sure = len(self.spans) == 1 and self.what.split(" ")[0] == "None"
        return ended_at(self.spans[0]) if is_sure else None


def structures_differ(items: Sequence[Any], part: Part) -> StackingError:
    hint = "return the same structure on every path"
    if len({type(item) for item in items}) == 1:
        hint = (
            "give all examples the same parts, or return an object of a class of your own that is "
            "no dataclass: it comes back as it is, in a list"
        )
    if all(type(item) is dict for item in items):
        hint = (
            "give all examples the same keys, or return `[found]`, a list that holds the dict, and "
            f"pass ragged_out={part.option('list')}, under which each example has its own"
        )
    if all(type(item) is tuple for item in items):
        hint = (
            "give all examples the same parts, or return `list(found)` and pass "
            f"ragged_out={part.option('list')}, under which each example has its own list"
        )
    if part.ragged != "list" and may_be_listed(items):
        own = f"pass ragged_out={part.option('list')}, under which each example has its own list"
        hint = own if all(type(item) is list for item in items) else f"{hint}, or {own}"
    if all(type(item) is list for item in items):
        if are_of_numbers(items) and all(way.form.kind is not list for way in part.ways):
            hint += ', or "nested" or "pad" for tensors'
        elif way_to(lambda leaf: not stacks(leaf), items, parts_of) is None:
            hint += ', or return one tensor (torch.stack, torch.tensor) for "nested" or "pad"'
    if not part.path and any(item is None for item in items):
        hint += "; a path that ends without `return` gives None"
    hint += '; on_error="isolate" gives each example\'s result by itself, whatever it is'
    found = examples(items, structures(items, part), part)
    return unlike("Threads return different structures.", found, part, hint, "mixed-results")


def lists_misfit(items: Sequence[Any], part: Part, why: Exception) -> StackingError:
    """Lists of numbers that are no tensors, where tensors are asked for."""
    headline = (
        f'Threads return lists that are no tensors, as ragged_out="{part.ragged}" wants them.'
    )
    span = part.spans(0)[0] if len(part.spans(0)) == 1 else None
    place = f" at result{part.path}" if part.path else ""
    label = "" if span is None else f"here{place}"
    hint = f"pass ragged_out={part.option('list')}, under which each example has its own list."
    return StackingError(Diagnostic(headline, span, label, (f"{why}.",), (hint,), "lists-misfit"))


def shapes_differ(tensors: Sequence[Tensor], part: Part) -> StackingError:
    hint = 'pass ragged_out="list", pad the results to one shape, or return an object of your own'
    if part.ragged in ("nested", "pad"):
        hint = f'ragged_out="{part.ragged}" is of lengths alone, the first dimension; pass "list"'
    ragged = ragged_dimension(tensors)
    if ragged:
        hint += (
            f"; where dimension {ragged}, in which they differ, is the first (y[:, None] for "
            f'y[None], torch.stack(items, 1), y.movedim({ragged}, 0)), "nested" and "pad" take it'
        )
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


def ragged_dimension(tensors: Sequence[Tensor]) -> int | None:
    """The one dimension in which their shapes differ, if there is one."""
    if len({tensor.dim() for tensor in tensors}) != 1:
        return None
    sizes = enumerate(zip(*(tensor.shape for tensor in tensors), strict=True))
    found = [dim for dim, own in sizes if len(set(own)) > 1]
    return found[0] if len(found) == 1 else None


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
    if first.ended is not None:
        label = f"{first.ended} ends without `return`: {first.what}, in thread {first.thread}"
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
    """``line 14 returns None, in thread 3``; ``other`` is where the caret stands.

    Or ``f ends at line 14 without `return`: None, in thread 3``.
    """
    subject = f"thread {example.thread}"
    if not example.spans:
        return f"{subject} returns {example.what}"
    if example.spans == (other,):
        return f"{subject} returns {example.what} there"
    if example.ended is not None:
        line = example.spans[0].end_line
        return f"{example.ended} ends at line {line} without `return`: {example.what}, in {subject}"
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
