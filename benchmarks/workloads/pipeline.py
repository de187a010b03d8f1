"""An input pipeline with map and batch swapped: an image is cropped, maybe flipped, standardised.

As in the parallel-for paper (Agarwal and Ganichev 2019, arXiv 1903.04243): a pipeline maps a
function over examples and then makes batches of its results, the ``loop`` here; where the function
is batched, the pipeline may batch first, and map once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.workload import Problem, Workload
from programs.example import seeded

SIZE, CROP = 40, 32
DULL = 0.5


def prepared(image: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    """An image ``[3, 40, 40]`` to ``[3, 32, 32]`` of mean 0, and of deviation 1 unless it is dull.

    What was drawn for it stands in ``top``, ``left`` and ``flip``.
    """
    x = image[:, top : top + CROP, left : left + CROP]
    if flip:
        x = x.flip(-1)
    x = x - x.mean()
    deviation = x.std()
    if deviation > DULL:
        x = x / deviation
    return x


def by_hand(images: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    """The same for ``[B, 3, 40, 40]``."""
    steps = torch.arange(CROP, device=images.device)
    rows, columns = top[:, None] + steps, left[:, None] + steps
    columns = torch.where(flip[:, None], columns.flip(-1), columns)
    batch = torch.arange(len(images), device=images.device)[:, None, None, None]
    channels = torch.arange(3, device=images.device)[:, None, None]
    x = images[batch, channels, rows[:, None, :, None], columns[:, None, None, :]]
    x = x - x.mean((1, 2, 3), keepdim=True)
    deviation = x.std((1, 2, 3), keepdim=True)
    return x / torch.where(deviation > DULL, deviation, 1.0)


def make(batch: int, device: str = "cpu") -> Problem:
    with seeded(0):
        contrast = torch.rand(batch, 1, 1, 1)
        images = torch.randn(batch, 3, SIZE, SIZE) * contrast
        top, left = (torch.randint(SIZE - CROP + 1, (batch,)) for _ in range(2))
        flip = torch.rand(batch) < 0.5
    given = tuple(each.to(device) for each in (images, top, left, flip))
    return Problem(prepared, given, {"batched": lambda: by_hand(*given)})


PIPELINE = Workload("pipeline", make, largest=8192, tolerance=1e-4)
