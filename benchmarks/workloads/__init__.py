"""The workloads: a per-example program, its inputs, and the same by hand."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads.collatz import COLLATZ
from benchmarks.workloads.fib import FIB
from benchmarks.workloads.fixed_point import FIXED_POINT
from benchmarks.workloads.lstm import LSTM
from benchmarks.workloads.mandelbrot import MANDELBROT
from benchmarks.workloads.nuts import NUTS_GAUSSIAN
from benchmarks.workloads.ode import ODE
from benchmarks.workloads.pipeline import PIPELINE
from benchmarks.workloads.straight import CONVNET, LINEAR
from benchmarks.workloads.treelstm import SYNTAX_TREES, TREELSTM_128, TREELSTM_256
from benchmarks.workloads.unrolled import UNROLLED
from benchmarks.workloads.value_loop import VALUE_LOOP

WORKLOADS: tuple[Workload, ...] = (
    COLLATZ,
    MANDELBROT,
    FIXED_POINT,
    LSTM,
    ODE,
    FIB,
    TREELSTM_128,
    TREELSTM_256,
    SYNTAX_TREES,
    LINEAR,
    CONVNET,
    VALUE_LOOP,
    NUTS_GAUSSIAN,
    UNROLLED,
    PIPELINE,
)
