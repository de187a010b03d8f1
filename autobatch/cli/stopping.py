"""Signals that end the process wait until what is half written has been removed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Stopped(BaseException):
    """A signal that would end the process at once."""


@contextmanager
def stopping_late() -> Iterator[None]:
    """SIGTERM and SIGHUP end the process once what is half written has been removed.

    Those that have a handler, as that of Ctrl-C, and host threads without a say in signals, do as
    they did.
    """
    own: list[int] = []
    came: list[int] = []

    def stopped(number: int, _: object) -> None:
        came.append(number)
        raise _Stopped

    if threading.current_thread() is threading.main_thread():
        known = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
        own = [number for number in known if number and signal.getsignal(number) == signal.SIG_DFL]
    for number in own:
        signal.signal(number, stopped)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])
