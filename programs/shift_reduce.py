"""A shift-reduce parser that composes as it goes, in the manner of SPINN (Bowman et al., 2016).

Whether to shift the next word or to reduce the top two of the stack is decided by a score
of the vectors that stand there, which earlier reductions made: no schedule can be known
beforehand. The stack is a Python list.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class ShiftReduce(nn.Module):
    """Words ``[T, hidden]`` to the vector of the sentence ``[hidden]`` and the early reductions.

    A reduction is early when it was chosen, rather than forced by the end of the words.
    """

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.compose = nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(3 * hidden, 1)

    def forward(self, words: Tensor) -> tuple[Tensor, int]:
        stack = [words[0]]
        position, early = 1, 0
        while position < len(words):
            if len(stack) > 1 and self.reduction_score(stack, words[position]) > 0:
                self.reduce(stack)
                early += 1
            else:
                stack.append(words[position])
                position += 1
        while len(stack) > 1:
            self.reduce(stack)
        return stack[0], early

    def reduction_score(self, stack: list[Tensor], word: Tensor) -> Tensor:
        return self.score(torch.cat((stack[-2], stack[-1], word)))[0]

    def reduce(self, stack: list[Tensor]) -> None:
        right = stack.pop()
        left = stack.pop()
        stack.append(torch.tanh(self.compose(torch.cat((left, right)))))


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        model = ShiftReduce().to(dtype)
        return Example(model, (torch.randn(batch, 7, 16, dtype=dtype),))
