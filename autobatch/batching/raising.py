"""What ``raise`` and ``except`` do for one thread, on real exceptions.

In: real Python objects, as a program's ``raise`` and ``except`` name them. Out: what CPython
makes of them, down to the exception for a wrong one. Nothing is raised here: what the plain
function raises is handed over, so that nobody's ``except`` is in force meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autobatch.source import Span

NO_EXCEPTION = "exceptions must derive from BaseException"
NO_CAUSE = "exception causes must derive from BaseException"
NO_KIND = "catching classes that do not inherit from BaseException is not allowed"


def raised(exception: Any, *cause: Any) -> BaseException:
    """What ``raise exception`` raises, or ``raise exception from cause``."""
    try:
        error = instance_of(exception, NO_EXCEPTION)
        if cause:
            error.__cause__ = None if cause[0] is None else instance_of(cause[0], NO_CAUSE)
    except Exception as other:
        return other
    return error


def instance_of(exception: Any, otherwise: str) -> BaseException:
    """The exception that an instance or a class stands for."""
    if isinstance(exception, BaseException):
        return exception
    if not (isinstance(exception, type) and issubclass(exception, BaseException)):
        raise TypeError(otherwise)
    made: object = exception()
    if not isinstance(made, BaseException):
        raise TypeError(
            f"calling {exception!r} should have returned an instance of BaseException, "
            f"not {type(made)!r}"
        )
    return made


def catches(error: BaseException, kinds: Any) -> bool:
    """Whether ``except kinds`` takes an exception."""
    each = kinds if isinstance(kinds, tuple) else (kinds,)
    for kind in each:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(NO_KIND)
    return any(kind in type(error).__mro__ for kind in each)


def left_generators(error: BaseException, spans: Iterable[Span | None]) -> BaseException:
    """What an exception has become that has left the code at ``spans``.

    ``StopIteration`` ends no generator whose own code raises it (PEP 479).
    """
    if not isinstance(error, StopIteration):
        return error
    places = [place for span in spans if span is not None for place in span.chain()]
    if not any(place.generated for place in places):
        return error
    became = RuntimeError("generator raised StopIteration")
    became.__cause__ = became.__context__ = error
    return became


def add_context(new: BaseException, handled: BaseException | None) -> None:
    """``new`` has arisen while ``handled`` was being handled; it may have a context already."""
    if handled is None:
        return
    chain = contexts(new)
    if any(error is handled for error in chain):
        return
    for error in contexts(handled):
        if any(error.__context__ is other for other in chain):
            error.__context__ = None  # it would lead round in a circle
    chain[-1].__context__ = handled


def lose_context(error: BaseException, handled: BaseException | None) -> None:
    """``error`` without ``handled``, which the engine was handling as it arose."""
    if handled is not None:
        for each in contexts(error):
            if each.__context__ is handled:
                each.__context__ = None


def contexts(error: BaseException) -> list[BaseException]:
    """An exception, the one that was being handled when it arose, and so on."""
    chain = [error]
    while (last := chain[-1].__context__) is not None and not any(last is each for each in chain):
        chain.append(last)
    return chain
