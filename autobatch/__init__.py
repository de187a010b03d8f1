"""Per-example PyTorch functions with any control flow, run for a batch at once.

@autobatch.function
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps

collatz(7)                              # plain Python, one example
collatz.batch(torch.arange(1, 10_001))  # all of them at once
"""

from __future__ import annotations

from autobatch.api import Function, function, lower, per_thread, primitive, stream, vmap
from autobatch.arguments.mapped import objects
from autobatch.batching.custom import register_converter
from autobatch.batching.fallbacks import FallbackWarning
from autobatch.batching.stretches import Executor
from autobatch.batching.trace import Untraceable
from autobatch.encoding import encode
from autobatch.errors import (
    AutobatchError,
    ConverterError,
    DepthLimitError,
    EmptyBatchError,
    ExecutorError,
    FallbackError,
    OptionError,
    ParseError,
    SharedWriteError,
    StackingError,
    StepLimitError,
    UnsupportedError,
)
from autobatch.explaining.explain import explain
from autobatch.explaining.report import Report
from autobatch.exporting import to_fx
from autobatch.forms import cond, foldl, foldr, scan, while_loop
from autobatch.ir.parser import parse
from autobatch.ir.program import Program
from autobatch.listeners import Counts, Step, counts
from autobatch.options import Options
from autobatch.parallel import map_fn, pfor
from autobatch.ragged import ragged
from autobatch.results.stacking import Result
from autobatch.runs.executing import execute
from autobatch.saving.offload import Offload
from autobatch.transforms import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp
from autobatch.vm.schedule import WaitingBlock

__version__ = "0.1.0"

__all__ = [
    "AutobatchError",
    "ConverterError",
    "Counts",
    "DepthLimitError",
    "EmptyBatchError",
    "Executor",
    "ExecutorError",
    "FallbackError",
    "FallbackWarning",
    "Function",
    "Offload",
    "OptionError",
    "Options",
    "ParseError",
    "Program",
    "Report",
    "Result",
    "SharedWriteError",
    "StackingError",
    "Step",
    "StepLimitError",
    "UnsupportedError",
    "Untraceable",
    "WaitingBlock",
    "cond",
    "counts",
    "encode",
    "execute",
    "explain",
    "foldl",
    "foldr",
    "function",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "lower",
    "map_fn",
    "objects",
    "parse",
    "per_thread",
    "pfor",
    "primitive",
    "ragged",
    "register_converter",
    "scan",
    "stream",
    "to_fx",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
