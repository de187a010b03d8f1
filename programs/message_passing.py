"""Message passing on a graph of its own size (Gilmer et al., 2017): a score for each graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from programs.example import Example, seeded

DTYPES = (torch.float32, torch.float64)


class MessagePassing(nn.Module):
    """Node features ``[N, features]`` and edges ``[E, 2]``, from and to, to a score (0-d)."""

    def __init__(self, features: int = 8, hidden: int = 32, rounds: int = 3) -> None:
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.message = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU())
        self.update = nn.GRUCell(hidden, hidden)
        self.score = nn.Linear(hidden, 1)
        self.rounds = rounds

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        h = self.embed(features)
        source, target = edges[:, 0], edges[:, 1]
        for _ in range(self.rounds):
            messages = self.message(torch.cat((h[source], h[target]), dim=1))
            received = torch.zeros_like(h).index_add(0, target, messages)
            h = self.update(received, h)
        return self.score(h.sum(0))[0]


def random_graph(nodes: int) -> Tensor:
    """The edges ``[E, 2]``, both ways, of a tree of ``nodes`` with some more edges."""
    pairs = [(child, int(torch.randint(0, child, ()))) for child in range(1, nodes)]
    pairs += [(int(a), int(b)) for a, b in torch.randint(0, nodes, (nodes // 2, 2))]
    return torch.tensor([pair for a, b in pairs for pair in ((a, b), (b, a))])


def example(batch: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Example:
    with seeded(seed):
        sizes = torch.randint(3, 13, (batch,)).tolist()
        features = [torch.randn(size, 8, dtype=dtype) for size in sizes]
        model = MessagePassing().to(dtype)
        return Example(model, (features, [random_graph(size) for size in sizes]))
