"""Scalar programs as machine code, in which each thread goes its own way (``executor="compiled"``).

``plans`` decides and keeps, ``flow`` and its kin write LLVM's text, ``kernel`` makes machine code
of it, ``launching`` runs a batch. A thread that comes to something which is not exactly Python's or
torch's way there *gives up*, and goes the general way from its start: programs that are compiled
have no effects.
"""

from autobatch.compiled.arrays.graph import NotLoaded, loading
from autobatch.compiled.joining import joined
from autobatch.compiled.launching import launched, seeds_of
from autobatch.compiled.plans import Plan, Plans, TooMany, kept, plan_for, plan_of
from autobatch.compiled.types import Refused, refuse

__all__ = [
    "NotLoaded",
    "Plan",
    "Plans",
    "Refused",
    "TooMany",
    "joined",
    "kept",
    "launched",
    "loading",
    "plan_for",
    "plan_of",
    "refuse",
    "seeds_of",
]
