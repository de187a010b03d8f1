"""What functions that yield may call, and what is said of what they may not (``looking_at``)."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import re
from collections import Counter, OrderedDict, deque
from typing import Any

import torch

from autobatch.batching.generators import Given
from autobatch.frontend import generating
from autobatch.ir.ops import INPLACE

NO_COMPUTING = frozenset(
    {"backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad"}
)
"""Methods of tensors that change others."""
CHANGING: tuple[Any, ...] = (torch.autograd.backward, torch.set_printoptions)

CONTAINERS = frozenset({dict, frozenset, list, set, sorted, tuple, deque, OrderedDict, Counter})
"""What makes something new that holds what is in what it gets."""
COMPUTING = CONTAINERS | (
    {filter, reversed, functools.reduce, heapq.nlargest, heapq.nsmallest, heapq.merge}
    | {bisect.bisect, bisect.bisect_left, bisect.bisect_right}
    | {re.match, re.search, re.fullmatch, re.findall, re.finditer, re.split, re.sub, re.compile}
    | {found for found in vars(itertools).values() if isinstance(found, type)}
    | {generating.items, generating.items_of_each}
)
"""What does no more than call the functions that it is given."""
IMPORTS = ("import", "import_from")
NEW = frozenset({"clone", "item", "tolist", "sum", "mean"})
"""Methods of tensors and texts that give something new."""
METHODS = frozenset(
    {"popleft", "appendleft", "extendleft", "rotate", "most_common", "elements"}
    | {name for kind in (re.Match, re.Pattern) for name in dir(kind) if name[:1] != "_"}
)
"""Methods of the library's containers, patterns and what these find: what one writes it says."""
HANDED_FIRST = frozenset({"sub", "subn"})
"""Methods that may call what they get first."""
CHANGES = frozenset(
    {heapq.heappush, heapq.heappop, heapq.heapify, heapq.heapreplace, heapq.heappushpop}
    | {bisect.insort, bisect.insort_left, bisect.insort_right}
)
"""What writes its first argument."""
NO_LISTS = frozenset(name for name in INPLACE if name not in ("imul", "mul_inplace"))
NUMBERS = (bool, int, float)
NOTHING = Given(frozenset(), frozenset(), (), False)
IS_CALLED = "it is not known what this calls"
DRAWS = "this draws, and randomness is 'error'"
CHANGES_MODULE = "this changes the module that it calls"
WRITES_GIVEN = "this may write what the function is given"
SEEN = "others may see what this does"
ADVANCES = "this existed before, and changes by being read"
"""What is said of a place."""
