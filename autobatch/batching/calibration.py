"""What the CPU at hand can do, measured once a process, and what an operation asks of it.

In: an operation that has run, and the cells of its variables. Out: its ``Work``, by shapes: a
kernel where an operand is a column, the bytes of its operands and results, an arithmetic operation
for each element of a result (for a matrix product, two for each element that it multiplies). Of
calls, and of what runs on the host or another device, that is the least that they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from time import perf_counter

import torch
from torch import Tensor

from autobatch.ir.costs import Machine, Work
from autobatch.ir.ops import FREE
from autobatch.ir.program import Op
from autobatch.values.cells import Cell, Column, Uniform, read

ROUNDS, SMALL = 5, 200
"""How often large and small kernels run; the fastest counts."""
LARGE, SQUARE = 2**20, 256


@cache
def machine() -> Machine:
    """The CPU with the number of threads that torch has at the first call."""
    with torch.no_grad():
        one = torch.ones(1, dtype=torch.float32, device="cpu")
        many = torch.ones(LARGE, dtype=torch.float32, device="cpu")
        matrix = torch.ones(SQUARE, SQUARE, dtype=torch.float32, device="cpu")
        launch = fastest(lambda: torch.add(one, one), SMALL)
        moving = fastest(lambda: torch.add(many, many), ROUNDS)
        product = fastest(lambda: torch.mm(matrix, matrix), ROUNDS)
    return Machine(launch, 3 * many.nbytes / moving, 2 * SQUARE**3 / product)


def fastest(run: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of some runs."""
    found = []
    for _ in range(rounds):
        begin = perf_counter()
        run()
        found.append(perf_counter() - begin)
    return max(min(found), 1e-9)


def work_of(op: Op, env: Mapping[str, Cell]) -> Work:
    """What an operation that has just run has done."""
    read_cells = [env[name] for name in op.args if name in env]
    made = [env[name] for name in op.outs if name in env]
    if op.name in FREE or not any(type(read(cell)) is Column for cell in (*read_cells, *made)):
        return Work()
    results = tensors_of(made)
    given = tensors_of(read_cells)
    moved = sum(tensor.nbytes for tensor in (*given, *results))
    elements = sum(tensor.numel() for tensor in results)
    return Work(1, moved, elements * factor(op, given))


def factor(op: Op, given: Sequence[Tensor]) -> int:
    """Arithmetic operations for each element of a result."""
    if op.name not in ("matmul", "imatmul") or not given:
        return 1
    return 2 * (given[0].shape[-1] if given[0].dim() else 1)


def tensors_of(cells: Sequence[Cell]) -> list[Tensor]:
    found: list[Tensor] = []
    for cell in cells:
        value = read(cell)
        if type(value) is Column:
            found.append(value.table)
        elif type(value) is Uniform and isinstance(value.obj, Tensor):
            found.append(value.obj)
    return [tensor for tensor in found if tensor.is_cpu and tensor.layout is torch.strided]
