"""``save="offload"``: what goes to the host, once each, when it comes back, and the gradients.

Here the CPU stands for a device: a ``Post`` takes bytes out and back and notes what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch.errors import OptionError
from autobatch.saving.offload import Offload, Offloading
from autobatch.saving.streams import transfer_of

WIDTH = 16
ROW = WIDTH * 4
"""Bytes of a tensor of one thread."""


class Post:
    """A transfer within the host; ``log`` has what was done with which parcel."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.sizes: list[int] = []

    def out(self, data: Tensor) -> tuple[int, Tensor]:
        self.sizes.append(len(data))
        self.log.append(("out", len(self.sizes) - 1))
        return len(self.sizes) - 1, data.clone()

    def back(self, held: tuple[int, Tensor]) -> tuple[int, Tensor]:
        self.log.append(("back", held[0]))
        return held[0], held[1].clone()

    def arrived(self, coming: tuple[int, Tensor]) -> Tensor:
        self.log.append(("arrived", coming[0]))
        return coming[1]

    def rest(self) -> None:
        self.log.append(("rest", -1))

    def done(self, what: str) -> list[int]:
        return [number for name, number in self.log if name == what]


def posted(post: Post, after: int = 0, least: int = 16) -> Offload:
    return Offload(after, least, lambda device: post)


def pulled_along(h: Tensor, w: Tensor, steps: int) -> Tensor:
    i = 0
    while i < steps:
        h = h * 0.5 + torch.tanh(w @ h)
        i += 1
    return h


def until_small(h: Tensor, w: Tensor, limit: Tensor) -> Tensor:
    while torch.linalg.vector_norm(h) > limit:
        h = torch.sin(w @ h) * 0.9
    return h.exp()


def made_inputs(k: int = 4) -> tuple[Tensor, Tensor]:
    h = torch.randn(k, WIDTH, requires_grad=True)
    return h, (torch.randn(WIDTH, WIDTH) / WIDTH).requires_grad_()


def differentiated(save: Any, steps: int = 8, **options: Any) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    h, w = made_inputs()
    mapped = autobatch.vmap(
        pulled_along, in_dims=(0, None, None), save=save, trace_after=0, **options
    )
    return torch.autograd.grad(mapped(h, w, steps).square().sum(), (h, w))


def warm() -> None:
    """Record the stretches, so that what a test counts are replays alone."""
    differentiated(posted(Post()), steps=3)


@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_gradients_are_those_of_keep(engine: str) -> None:
    kept = differentiated("keep", engine=engine)
    for _ in range(2):
        found = differentiated(posted(Post()), engine=engine)
    assert all(map(torch.equal, kept, found))


def test_threads_that_part() -> None:
    h, w = made_inputs(6)
    limits = torch.linspace(0.01, 1, 6)

    def run(save: Any) -> tuple[Tensor, ...]:
        mapped = autobatch.vmap(until_small, in_dims=(0, None, 0), save=save, trace_after=0)
        mapped(h, w, limits)
        return torch.autograd.grad(mapped(h, w, limits).sum(), (h, w))

    post = Post()
    assert all(map(torch.equal, run("keep"), run(posted(post))))
    assert post.done("arrived")


def test_each_storage_leaves_once_and_comes_back_once() -> None:
    warm()
    post = Post()
    with autobatch.counts() as seen:
        differentiated(posted(post))
    # Of a step: the result of tanh, and the new h, which the next product reads; not the last h.
    assert len(post.sizes) == 8 + 7
    assert set(post.sizes) == {4 * ROW}
    assert seen.offloaded == sum(post.sizes)
    assert sorted(post.done("back")) == sorted(post.done("out"))


def test_what_leaves_last_comes_back_first_and_some_ahead_of_time() -> None:
    warm()
    post = Post()
    differentiated(posted(post))
    assert post.done("back") == sorted(post.done("back"), reverse=True)
    first = post.log.index(("arrived", 14))
    assert [number for name, number in post.log[:first] if name == "back"] == [14]
    then = post.log.index(("arrived", post.done("arrived")[1]))
    assert [number for name, number in post.log[first:then] if name == "back"] == [13, 12, 11, 10]


def test_only_past_the_threshold() -> None:
    warm()
    post = Post()
    differentiated(posted(post, after=10 * 4 * ROW + 4))  # 4 for the number 0.5
    assert len(post.sizes) == 15 - 10


def test_only_large_tensors() -> None:
    warm()
    post = Post()
    differentiated(posted(post, least=4 * ROW + 1))
    assert post.sizes == []
    differentiated(posted(post, least=4 * ROW))
    assert len(post.sizes) == 15


def doubled(x: Tensor) -> Tensor:
    return x * x


def halves(x: Tensor) -> Tensor:
    return x[:2] * x[2:]


def sine(x: Tensor) -> Tensor:
    return x.sin()


def called(offloading: Offloading, *functions: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    x = torch.randn(4, requires_grad=True)
    y = x
    for function in functions:
        y = offloading.call(function, (y,), True)
    return x, y


def test_what_was_given_stays() -> None:
    post = Post()
    x, y = called(Offloading(posted(post), lambda size: None), doubled)
    assert post.sizes == []
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], 2 * x)


def test_views_of_one_storage_are_one_parcel() -> None:
    post = Post()
    x, y = called(Offloading(posted(post), lambda size: None), sine, halves)
    assert post.sizes == [16]
    (found,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(found, x.sin().roll(2) * x.cos())
    assert post.done("back") == [0]


def test_a_second_backward_fetches_again() -> None:
    post = Post()
    x, y = called(Offloading(posted(post), lambda size: None), sine, doubled, sine)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y.sum(), x)[0])
    assert post.done("back") == [1, 0, 1, 0]


def test_a_write_after_the_call_changes_nothing_that_has_left() -> None:
    x, y = called(Offloading(posted(Post()), lambda size: None), sine, torch.exp)
    expected = (x.sin().exp() * x.cos()).detach()
    y.detach().zero_()
    assert torch.allclose(torch.autograd.grad(y.sum(), x)[0], expected)


def test_a_write_to_what_has_stayed_is_told() -> None:
    _, y = called(Offloading(posted(Post(), after=10**6), lambda size: None), sine, torch.exp)
    y.detach().zero_()
    with pytest.raises(RuntimeError, match="changed in place after the call"):
        y.sum().backward()


def test_the_run_waits_for_what_is_under_way() -> None:
    warm()
    post = Post()
    differentiated(posted(post))
    assert post.done("rest") == [-1]


def test_the_host_has_no_post() -> None:
    assert transfer_of(torch.device("cpu")) is None
    with autobatch.counts() as seen:
        found = differentiated(Offload(after=0, least=1))
    assert all(map(torch.equal, found, differentiated("keep")))
    assert seen.offloaded == 0


def test_options() -> None:
    with pytest.raises(OptionError, match="after, of save, is -1"):
        autobatch.vmap(pulled_along, save=Offload(after=-1))
    with pytest.raises(OptionError, match="least, of save, is 0"):
        autobatch.vmap(pulled_along, save=Offload(least=0))
    with pytest.raises(OptionError, match='executor must be "traced"'):
        autobatch.vmap(pulled_along, save="offload", executor="vmap")


@pytest.mark.gpu
def test_on_a_device() -> None:
    h, w = (arg.detach().cuda().requires_grad_() for arg in made_inputs(64))

    def run(save: Any) -> tuple[Tensor, ...]:
        mapped = autobatch.vmap(pulled_along, in_dims=(0, None, None), save=save, trace_after=0)
        mapped(h, w, 3)
        return torch.autograd.grad(mapped(h, w, 50).square().sum(), (h, w))

    with autobatch.counts() as seen:
        found = run(Offload(after=0, least=1))
    assert all(map(torch.equal, found, run("keep")))
    assert seen.offloaded > 0


@pytest.mark.gpu
def test_memory_of_a_device() -> None:
    h = torch.randn(1024, 512, device="cuda", requires_grad=True)
    w = (torch.randn(512, 512, device="cuda") / 512**0.5).requires_grad_()

    def peak(save: Any) -> int:
        mapped = autobatch.vmap(pulled_along, in_dims=(0, None, None), save=save, trace_after=0)
        mapped(h, w, 3).sum().backward()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        mapped(h, w, 200).sum().backward()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    assert peak(Offload(after=2**25)) < peak("keep") / 2
