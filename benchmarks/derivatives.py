"""``python -m benchmarks.derivatives``: per-example gradients and Jacobians.

As in the parallel-for paper (Agarwal and Ganichev 2019, arXiv 1903.04243): gradients of each
example of a batch with respect to shared parameters, of an MNIST-shaped convnet and of an LSTM of
ten steps; and Jacobians by the input, for some numbers of outputs, of such an LSTM and of VGG16 on
48 × 48 pixels (``--pixels 224`` for a GPU). Systems: the loop over examples (over rows of the
Jacobian), ``torch.func``, autobatch; their results are held to one another. Medians of interleaved
runs, seconds of the process, one torch thread.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import autobatch
from benchmarks.harness import interleave
from benchmarks.workloads.straight import ConvNet
from programs.example import seeded

BATCHES = (1, 16, 64, 256)
OUTPUTS = (1, 16, 128)
SYSTEMS = ("loop", "torch.func", "autobatch")
LOOPED = 16
"""Examples that the loop runs; its time is scaled to the batch."""
Run = Callable[[], Any]


class Recurrent(nn.Module):
    """An LSTM over the rows of ``[T, 64]``, its last state mapped to scores."""

    def __init__(self, outputs: int = 10, hidden: int = 128) -> None:
        super().__init__()
        self.inward = nn.Linear(64, 4 * hidden)
        self.around = nn.Linear(hidden, 4 * hidden, bias=False)
        self.scores = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(self.scores.in_features)
        for row in x:
            i, f, g, o = (self.inward(row) + self.around(h)).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        scores: Tensor = self.scores(h)
        return scores


def gradients(model: nn.Module, shape: Sequence[int], batch: int, device: str) -> dict[str, Run]:
    """Per-example gradients of a model's loss with respect to all of its parameters."""
    with seeded(1):
        xs, ys = torch.randn(batch, *shape).to(device), torch.randint(10, (batch,)).to(device)
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        scores = torch.func.functional_call(model, parameters, (x,))
        return F.cross_entropy(scores, y)

    def loop() -> Any:
        found = []
        for x, y in zip(xs[:LOOPED], ys[:LOOPED], strict=True):
            value = loss(dict(model.named_parameters()), x, y)
            found.append(torch.autograd.grad(value, list(model.parameters())))
        return [torch.stack(parts) for parts in zip(*found, strict=True)]

    ours = autobatch.vmap(autobatch.grad(loss), in_dims=(None, 0, 0))
    theirs = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return {
        "loop": loop,
        "torch.func": lambda: list(theirs(parameters, xs, ys).values()),
        "autobatch": lambda: list(ours(parameters, xs, ys).values()),
    }


def vgg16(outputs: int, pixels: int) -> nn.Module:
    """Thirteen convolutions and three layers (Simonyan and Zisserman 2015), for one image."""
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(0), nn.Linear(512 * (pixels // 32) ** 2, 4096), nn.ReLU()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, outputs)]
    return nn.Sequential(*layers)


def jacobians(model: nn.Module, x: Tensor) -> dict[str, Run]:
    """The Jacobian of a model's outputs with respect to its input."""

    def loop() -> Any:
        given = x.clone().requires_grad_()
        rows = model(given)
        found = [torch.autograd.grad(row, given, retain_graph=True)[0] for row in rows]
        return [torch.stack(found)]

    ours, theirs = autobatch.jacrev(model), torch.func.jacrev(model)
    return {"loop": loop, "torch.func": lambda: [theirs(x)], "autobatch": lambda: [ours(x)]}


def measured(name: str, size: int, runs: dict[str, Run], seconds: float, scale: float = 1) -> str:
    """A line: milliseconds of each system, and how autobatch compares."""
    expected = runs["torch.func"]()
    for _ in range(4):  # the last stretches are recorded by then
        found = runs["autobatch"]()
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    for got, want in zip(runs["loop"](), expected, strict=True):
        torch.testing.assert_close(got, want[: len(got)], rtol=1e-3, atol=1e-4)
    times = interleave(runs, seconds)
    took = {system: statistics.median(each) * 1e3 for system, each in times.items()}
    took["loop"] *= scale
    each = " ".join(f"{took[system]:>11.2f}" for system in SYSTEMS)
    ours = took["autobatch"]
    return (
        f"{name:>10} {size:>5} {each} {ours / took['torch.func']:>6.2f} {took['loop'] / ours:>6.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="*", default=BATCHES)
    parser.add_argument("--outputs", type=int, nargs="*", default=OUTPUTS)
    parser.add_argument("--pixels", type=int, default=48, help="of VGG16's image")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    each = " ".join(f"{system + ', ms':>11}" for system in SYSTEMS)
    print(f"{'':>10} {'size':>5} {each} {'ratio':>6} {'gain':>6}")
    with seeded(0):
        models = {"convnet": (ConvNet(), (1, 28, 28)), "lstm": (Recurrent(), (10, 64))}
    device = given.device
    for name, (model, shape) in models.items():
        for batch in given.batch:
            runs = gradients(model.to(device), shape, batch, device)
            print(measured(name, batch, runs, given.seconds, max(1, batch / LOOPED)), flush=True)
    for outputs in given.outputs:
        with seeded(2):
            pixels = given.pixels
            lstm, x = Recurrent(outputs).to(device), torch.randn(10, 64).to(device)
            vgg = vgg16(outputs, pixels).to(device)
            image = torch.randn(3, pixels, pixels).to(device)
        print(measured("J of lstm", outputs, jacobians(lstm, x), given.seconds), flush=True)
        print(measured("J of vgg16", outputs, jacobians(vgg, image), given.seconds), flush=True)


if __name__ == "__main__":
    main()
