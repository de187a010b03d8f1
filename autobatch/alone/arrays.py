"""What a program that plain Python runs may do with numpy's arrays.

Arrays that it makes are its own, and what is in them is as in any container. Those that existed
before (``ARRAY``) hold numbers alone; they, and views of them, may only be read. An array that is
made of a tensor may be a view of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autobatch.alone.kinds import NotAlone
from autobatch.alone.taint import (
    ARRAY,
    FOREIGN,
    NONE,
    OUTER,
    OUTER_FLAT,
    OWN,
    TENSOR,
    TENSORS,
    Share,
    Shares,
    elements,
)
from autobatch.batching import known_arrays as known
from autobatch.batching import known_callees as callees
from autobatch.ir.program import CallShape

GENERATORS, MANAGERS, TO_ARRAYS = known.GENERATORS, known.MANAGERS, known.TO_ARRAYS
METHODS = callees.METHODS | known.METHODS
WRITING_METHODS = callees.WRITING_METHODS | known.WRITING_METHODS
METHODS_OF_VALUES = callees.METHODS_OF_VALUES - known.METHODS
NOWHERE = known.NOWHERE
OWN_COPIES = frozenset({"copy"})
"""Methods of arrays that containers have, too."""


def is_function(found: object) -> bool:
    try:
        return found in known.FUNCTIONS
    except TypeError:  # unhashable
        return False


def called(found: object, given: list[Share], shares: Shares, shape: CallShape) -> Share:
    """What a function of numpy's gives for what it gets."""
    if found in known.LIMITS:
        return OUTER_FLAT
    given = each(given, shares, shape)
    whole, places, told = joined(given), known.places_of(found), NONE
    if found in known.CHANGES:
        shares.write(given[0] if is_placed(shape) and given else whole)
    elif places:
        told = written(places.get("out", NOWHERE), given, shape)
        shares.write(whole if overwrites(places, shape) else told)
    tensors = NONE if found in known.TO_ARRAYS else whole & TENSORS
    shares.contain(joined(map(elements, given)) & ~TENSORS | tensors)
    result = shares.hidden | told | (TENSOR if tensors else NONE)
    if found in known.NEW and is_new(shape):
        within = shares.heap | (whole & ~(ARRAY | TENSORS))
        return result | (within if found in known.ELEMENTS else NONE)
    rest = whole & ~TENSORS
    return result | rest | tensors | shares.within(rest) | of_memory(whole, shares)


def of_memory(tensor: Share, shares: Shares) -> Share:
    """What an array is that has the memory of what may be a tensor."""
    if not tensor & TENSOR:
        return NONE
    return ARRAY if tensor & FOREIGN or not shares.computes else NONE


def by_method(
    name: str, receiver: Share, given: list[Share], shares: Shares, shape: CallShape
) -> Share | None:
    """What a method gives that makes something new; None for all others."""
    given = each(given, shares, shape)
    told = written(known.place_of_methods_out(name), given, shape)
    shares.write(told)
    if name not in known.NEW_METHODS or not is_new(shape):
        return None
    may_be_itself = name == "astype" and len(given) > 4
    if may_be_itself or (name in OWN_COPIES and receiver & (OUTER | OWN)):
        return None
    shares.contain(joined(map(elements, given)))
    return shares.hidden | told | (shares.heap if name in known.ELEMENT_METHODS else NONE)


def of_ufunc(name: str, given: list[Share], shares: Shares, shape: CallShape) -> Share:
    """What ``np.add.reduce`` and its like give."""
    if name not in known.METHODS_OF_UFUNCS:
        raise NotAlone(f"{name} of a function of numpy's is not known")
    given = each(given, shares, shape)
    told = written(known.place_of_methods_out(name), given, shape)
    if name == "at":
        told = given[0] if is_placed(shape) and given else joined(given)
    shares.write(told)
    shares.contain(joined(map(elements, given)))
    return shares.hidden | told | shares.heap


def each(given: list[Share], shares: Shares, shape: CallShape) -> list[Share]:
    """What the arguments share; of those that are starred, what is within."""
    if shape.is_plain:
        return given
    whole = joined(given)
    return [whole | shares.within(whole)] * len(given)


def written(place: int, given: list[Share], shape: CallShape) -> Share:
    """What a call is told to write by ``out``, which it gives then."""
    if not shape.is_plain:
        return joined(given)
    count = len(shape.positional)
    named = zip(shape.keywords, given[count:], strict=True)
    return joined(given[place:count]) | joined(share for name, share in named if name == "out")


def overwrites(places: Mapping[str, int], shape: CallShape) -> bool:
    """Whether a call may be told to write its first argument."""
    return any(
        name != "out" and (name in shape.keywords or place < len(shape.positional))
        for name, place in places.items()
    )


def is_placed(shape: CallShape) -> bool:
    return shape.is_plain and not shape.keywords


def is_new(shape: CallShape) -> bool:
    """Whether nothing is said of what a function is to copy."""
    return shape.is_plain and "copy" not in shape.keywords


def joined(shares: Iterable[Share]) -> Share:
    found = NONE
    for share in shares:
        found |= share
    return found
