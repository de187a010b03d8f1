"""Notes on calls whose arguments do not fit the function: what it takes, and what was meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import Any

from torch import Tensor

from autobatch.arguments.batch import Batch
from autobatch.arguments.spelling import nearest
from autobatch.errors import AMBIGUOUS, note_within_vmap
from autobatch.options import NAMES
from autobatch.runs.entry import name_of

STARS = {int(Parameter.VAR_POSITIONAL): "*", int(Parameter.VAR_KEYWORD): "**"}
NOTE = "The arguments do not fit "


def noted(error: TypeError, function: Callable[..., Any], batch: Batch) -> None:
    """Say, in a note on what a call has raised, whether its arguments fit, and what would."""
    note = misfit(function, batch.args, batch.kwargs)
    if fits_wrapper(function, batch) and f"{name_of(function)}() " not in str(error):
        return  # raised by what has been called: a decorator may give arguments of its own
    if note and not any(said.startswith(NOTE) for said in getattr(error, "__notes__", ())):
        error.add_note(note)


def noted_of_one(error: RuntimeError, name: str, args: tuple[Any, ...]) -> None:
    """Say, where a decorated function was called with a batch in the place of one example."""
    note = f"{name}(...) runs one example, as plain Python; {name}.batch(...) runs a batch of them."
    has_rows = any(isinstance(arg, Tensor) and arg.dim() for arg in args)
    note_within_vmap(error)
    if has_rows and AMBIGUOUS in str(error) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def fits_wrapper(function: Callable[..., Any], batch: Batch) -> bool:
    """Whether what wraps a function takes the arguments, whatever the function does."""
    try:
        signature(function, follow_wrapped=False).bind(*batch.args, **batch.kwargs)
    except (TypeError, ValueError):
        return False
    return True


def misfit(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What is amiss with the arguments; empty if they fit, or nothing is known of the function."""
    try:
        own = signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        own.bind(*args, **kwargs)
    except TypeError as error:
        lines = [f"{NOTE}{title(function, own)}: {error}."]
        lines += [hint(function, own, name) for name in surplus(own, kwargs)]
        return "\n".join(filter(None, lines))
    return ""


def title(function: Callable[..., Any], own: Signature) -> str:
    """``f(x, y, *, scale)``: its parameters, those with defaults in brackets."""
    names = []
    for each in own.parameters.values():
        name = f"[{each.name}]" if each.default is not each.empty else each.name
        names.append(STARS.get(int(each.kind), "") + name)
    return f"{name_of(function)}({', '.join(names)})"


def surplus(own: Signature, kwargs: Mapping[str, Any]) -> list[str]:
    """The keywords of a call that are no parameters."""
    return [name for name in kwargs if name not in own.parameters]


def hint(function: Callable[..., Any], own: Signature, keyword: str) -> str:
    if keyword in NAMES:
        made = f"autobatch.vmap({name_of(function)}, {keyword}=...)"
        return (
            f"  Hint: {keyword} is an option of autobatch's: {made}, or "
            f"autobatch.function({keyword}=...) as the decorator, which explain and .batch respect."
        )
    near = nearest(keyword, [*own.parameters, *NAMES])
    said = f"Hint: did you mean {near!r}?" if near else f"Note: it has no parameter {keyword!r}."
    return f"  {said}"
