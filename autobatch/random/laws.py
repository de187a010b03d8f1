"""The laws of torch's random operations: from their operands and threads' words to their results.

A rule gets a source, the operation and its operands: of a group with the threads as the first
dimension, as vmap makes them of one example's, or of one thread as they are. What an operation
checks, and the dtype and shape that it gives, are torch's: it runs first, its numbers are
replaced. Operations without a rule here take a generator of torch's own, row by row, seeded with
words of the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch.random import transforms
from autobatch.random.sources import Source, Thread

aten: Any = torch.ops.aten
Rule = Callable[..., Any]


# The numbers of an operation


def event(source: Source, out: Tensor) -> int:
    """How many numbers each thread gets."""
    return out.numel() // source.k if source.k else 0


def numbers(source: Source, law: Rule, out: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers in the shape of a result."""
    found: Tensor = law(source, event(source, out), dtype or out.dtype, out.device)
    return found.view(out.shape)


def checked(func: Any, args: Any, kwargs: Any) -> Any:
    """What torch gives, its numbers being of no use."""
    scratch = torch.Generator(device_of(args, kwargs))
    return func(*args, **{**kwargs, "generator": scratch})


def device_of(args: Any, kwargs: Any) -> torch.device:
    for arg in args:
        if isinstance(arg, Tensor):
            return arg.device
    return torch.device(kwargs.get("device") or torch.get_default_device())


def factory(law: Rule, source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """``rand(size)`` and ``rand_like(x)``: as ``empty``, filled."""
    like = isinstance(args[0], Tensor)
    empty = aten.empty_like.default if like else aten.empty.memory_format
    out: Tensor = empty(args[0], **kwargs)
    if out.dtype not in (*transforms.BITS, torch.float64):
        return by_generator(source, func, args, kwargs)  # type: ignore[no-any-return]
    if out.is_contiguous() and out.device.type == "cpu":
        return numbers(source, law, out)
    return out.copy_(numbers(source, law, out))


def filled(law: Rule, source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """``x.normal_(mean, std)``: what it checks, then ``law`` of its parameters."""
    out: Tensor = checked(func, args, kwargs)
    if out.dtype not in (*transforms.BITS, torch.float64):
        return by_generator(source, func, args, kwargs)  # type: ignore[no-any-return]
    return out.copy_(law(source, out, *args[1:], **kwargs))


def computed(law: Rule, source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """``normal(mean, std)``: the same, of all its operands."""
    out: Tensor = checked(func, args, kwargs)
    if not kept(out.dtype):
        return by_generator(source, func, args, kwargs)  # type: ignore[no-any-return]
    return out.copy_(law(source, out, *args))


def kept(dtype: torch.dtype) -> bool:
    return not dtype.is_complex


# Laws


def normal(source: Source, out: Tensor, mean: Any = 0.0, std: Any = 1.0, *_: Any) -> Tensor:
    found: Tensor = numbers(source, transforms.normal, out) * std + mean
    return found


def uniform(source: Source, out: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    found = numbers(source, transforms.uniform, out) * (high - low) + low
    below = torch.tensor(high, dtype=out.dtype).nextafter(torch.tensor(low, dtype=out.dtype))
    return found.clamp_(max=below.item()) if high > low else found


def exponential(source: Source, out: Tensor, rate: float = 1.0) -> Tensor:
    return numbers(source, transforms.within, out).log_() / -rate


def geometric(source: Source, out: Tensor, p: float) -> Tensor:
    if p == 1:
        return torch.ones_like(out)
    return (numbers(source, transforms.within, out).log_() / torch.tensor(1.0 - p).log()).ceil_()


def cauchy(source: Source, out: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    half = numbers(source, transforms.within, out) - 0.5
    return (half * torch.pi).tan_() * sigma + median


def log_normal(source: Source, out: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    return normal(source, out, mean, std).exp_()


def chances(source: Source, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers of 32 bits in [0, 1), to compare with probabilities."""
    return transforms.within(source, n, torch.float32, device)


def bernoulli(source: Source, out: Tensor, p: Any) -> Tensor:
    taken: Tensor = numbers(source, chances, out) < p
    return taken


def bernoulli_of(source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """``bernoulli(p)``, and ``bernoulli(x, p)``, which takes no more than the shape of ``x``."""
    out: Tensor = checked(func, args, kwargs)
    return out.copy_(bernoulli(source, out, args[-1]))


def bernoulli_in(source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """``x.bernoulli_(p)``; ``p`` may be ``x`` itself."""
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    p = p.clone() if isinstance(p, Tensor) else p
    out: Tensor = checked(func, args, kwargs)
    return out.copy_(bernoulli(source, out, p))


def dropout(source: Source, func: Any, args: Any, kwargs: Any) -> tuple[Tensor, Tensor]:
    x, p = args[0], args[1]
    mask = bernoulli(source, x, 1.0 - p)
    return x * mask * (0.0 if p == 1 else 1.0 / (1.0 - p)), mask


def integers(source: Source, out: Tensor, low: int, size: int) -> Tensor:
    found = transforms.integers(source, event(source, out), size, out.device)
    return (found + low).view(out.shape)


def randint(source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """``randint(high, size)``, ``randint(low, high, size)``, and those like a tensor."""
    bounds = [arg for arg in args if isinstance(arg, int)]
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    out: Tensor = checked(WITH_GENERATOR[func], args, kwargs)
    return out.copy_(integers(source, out, low, high - low))


WITH_GENERATOR = {
    aten.rand.default: aten.rand.generator,
    aten.randn.default: aten.randn.generator,
    aten.rand_like.default: aten.rand_like.generator,
    aten.randn_like.default: aten.randn_like.generator,
    aten.randperm.default: aten.randperm.generator,
    aten.randint.default: aten.randint.generator,
    aten.randint.low: aten.randint.low_generator,
    aten.randint_like.default: aten.randint_like.generator,
    aten.randint_like.low_dtype: aten.randint_like.low_generator_dtype,
}
"""The overloads that take a generator, where that is not an argument of all."""
UNNAMED = {named: plain for plain, named in WITH_GENERATOR.items()}
"""What draws alike where that generator is torch's own."""


def random_in(source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """``x.random_(low, high)``; without them, all integers that its dtype has in a row."""
    out: Tensor = checked(func, args, kwargs)
    low, high = bounds_of(out.dtype, *args[1:])
    return out.copy_(integers(source, out, low, high - low))


def bounds_of(
    dtype: torch.dtype, first: int | None = None, second: int | None = None
) -> tuple[int, int]:
    if second is not None:
        return first or 0, second
    if first is not None:
        return 0, first
    if dtype is torch.bool:
        return 0, 2
    if dtype.is_floating_point:
        return 0, 2 ** transforms.BITS.get(dtype, 53) + 1
    return 0, torch.iinfo(dtype).max + 1


def randperm(source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """In the order of 64-bit words."""
    device = device_of((), kwargs)
    (n,) = args
    words = transforms.integers(source, n, 2**64, device)
    found = words.argsort(dim=1, stable=True).to(kwargs.get("dtype") or torch.int64)
    return found[0] if type(source) is Thread else found


def multinomial(source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
    """With replacement by the inverse of the distribution, else by a race of exponentials."""
    out: Tensor = checked(func, args, kwargs)
    weights = args[0].to(torch.float64)
    if len(args) > 2 and args[2]:
        cumulated = weights.cumsum(-1)
        total = cumulated[..., -1:]
        point = numbers(source, transforms.uniform, out, torch.float64) * total
        point = torch.minimum(point, total.nextafter(torch.zeros_like(total)))
        return torch.searchsorted(cumulated, point.contiguous(), right=True)
    arrivals = numbers(source, transforms.within, weights).log_().neg_() / weights
    first: Tensor = arrivals.topk(args[1], -1, largest=False).indices
    return first


# What has no law here


def by_generator(source: Source, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation with a generator of torch's, seeded with a word of each thread, row by row."""
    device = device_of(args, kwargs)
    seeds = transforms.integers(source, 1, 2**64, torch.device("cpu")).flatten().tolist()
    if type(source) is Thread:
        return generated(func, args, kwargs, seeds[0], device)
    rows = []
    for row, seed in enumerate(seeds):
        own = [
            arg[row] if isinstance(arg, Tensor) and arg.dim() and len(arg) == source.k else arg
            for arg in args
        ]
        if not isinstance(args[0], Tensor):
            own[0] = args[0][1:]  # a factory's size
        rows.append(generated(func, own, kwargs, seed, device))
    if func._schema.is_mutable:
        return args[0]
    if isinstance(rows[0], Tensor):
        return torch.stack(rows)
    return tuple(torch.stack(parts) for parts in zip(*rows, strict=True))


BY_GENERATOR = frozenset(
    [
        *(aten.poisson, aten.binomial, aten._standard_gamma, aten._sample_dirichlet),
        *(aten.rrelu_with_noise, aten.rrelu_with_noise_, aten.rrelu_with_noise_functional),
    ]
)
"""Operations of rows: whatever they draw for one depends on no other."""


def generated(func: Any, args: Any, kwargs: Any, seed: int, device: torch.device) -> Any:
    if any(argument.name == "generator" for argument in func._schema.arguments):
        generator = torch.Generator(device).manual_seed(seed)
        return func(*args, **{**kwargs, "generator": generator})
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return func(*args, **kwargs)


RULES: dict[Any, Rule] = {
    aten.rand.default: partial(factory, transforms.uniform),
    aten.randn.default: partial(factory, transforms.normal),
    aten.rand_like.default: partial(factory, transforms.uniform),
    aten.randn_like.default: partial(factory, transforms.normal),
    aten.normal_.default: partial(filled, normal),
    aten.uniform_.default: partial(filled, uniform),
    aten.exponential_.default: partial(filled, exponential),
    aten.geometric_.default: partial(filled, geometric),
    aten.cauchy_.default: partial(filled, cauchy),
    aten.log_normal_.default: partial(filled, log_normal),
    aten.normal.Tensor_float: partial(computed, normal),
    aten.normal.float_Tensor: partial(computed, normal),
    aten.normal.Tensor_Tensor: partial(computed, normal),
    aten.normal.float_float: partial(computed, normal),
    aten.bernoulli.default: bernoulli_of,
    aten.bernoulli.p: bernoulli_of,
    aten.bernoulli_.float: bernoulli_in,
    aten.bernoulli_.Tensor: bernoulli_in,
    aten.native_dropout.default: dropout,
    aten.randint.default: randint,
    aten.randint.low: randint,
    aten.randint_like.default: randint,
    aten.randint_like.low_dtype: randint,
    aten.random_.default: random_in,
    aten.random_.to: random_in,
    getattr(aten.random_, "from"): random_in,
    aten.randperm.default: randperm,
    aten.multinomial.default: multinomial,
}
