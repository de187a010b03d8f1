"""A process of its own: one thread recurses as deep as its argument says, 1,023 return at once;
prints the MiB by which that raises the process's peak of memory."""

from __future__ import annotations

import resource
import sys

import torch
import torch._dynamo  # which long runs load: that is not the stack's

import autobatch


def total(n):
    if n == 0:
        return 0
    return n + total(n - 1)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(depth: int) -> None:
    torch.set_num_threads(1)
    ns = torch.zeros(1024, dtype=torch.int64)
    run = autobatch.vmap(total, engine="program_counter")
    ns[700] = 50
    run(ns)  # what is imported and recorded once is not the stack's
    before = peak()
    ns[700] = depth
    sums = run(ns)
    assert sums[700] == depth * (depth + 1) // 2 and sums.sum() == sums[700]
    print(peak() - before)


if __name__ == "__main__":
    main(int(sys.argv[1]))
