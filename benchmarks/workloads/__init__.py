"""The workloads: a per-example program of ``programs/``, its inputs, and the loop by hand."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads.collatz import COLLATZ
from benchmarks.workloads.fixed_point import FIXED_POINT
from benchmarks.workloads.lstm import LSTM
from benchmarks.workloads.mandelbrot import MANDELBROT
from benchmarks.workloads.ode import ODE

WORKLOADS: tuple[Workload, ...] = (COLLATZ, MANDELBROT, FIXED_POINT, LSTM, ODE)
