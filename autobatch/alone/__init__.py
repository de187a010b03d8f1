"""Programs of Python objects alone: recognised, and run as plain Python, one thread after another.

Strings, dicts, trees: what no tensor comes near has nothing to batch, and keeping its threads
together takes hundreds of times what a thread takes by itself. ``contents`` reads what data a
program is given, ``proof`` shows that no more than such data can be met and that nobody else sees
what it does, ``running`` runs it.
"""

from autobatch.alone.beginning import CALLS, MOST_THREADS, begun
from autobatch.alone.measuring import trial
from autobatch.alone.objecting import objection
from autobatch.alone.running import Asked, alone, asked, better_alone

__all__ = [
    "CALLS",
    "MOST_THREADS",
    "Asked",
    "alone",
    "asked",
    "begun",
    "better_alone",
    "objection",
    "trial",
]
