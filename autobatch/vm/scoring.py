"""Torch's distributions whose code has been read: which of them write to no tensor.

Such a class is lowered as a user's is, and a user's may tell two names for one tensor from two
tensors (see ``aliasing``). These do not, as long as nobody has put something in their place.
"""

from __future__ import annotations

from types import MethodType

from torch import distributions

DISTRIBUTIONS = (
    *(distributions.Normal, distributions.Categorical, distributions.Uniform),
    *(distributions.Exponential, distributions.Laplace, distributions.Cauchy),
    *(distributions.Gamma, distributions.MultivariateNormal, distributions.LogNormal),
    *(distributions.HalfNormal, distributions.Independent, distributions.MixtureSameFamily),
)
"""Classes of torch's that write to no tensor but where they draw; others do for their ``mode``, or
for ``log_prob`` (``Geometric``).
"""
SCORES = frozenset({"log_prob", "cdf", "icdf", "entropy", "perplexity"})
"""Methods of theirs that do not draw."""
AS_THEY_CAME: dict[tuple[type, str], object] = {
    (kind, name): getattr(kind, name, None)
    for kind in DISTRIBUTIONS
    for name in (*SCORES, "__init__")
}
"""The code that has been read, nobody's in its place."""


def is_of_distributions(callee: object) -> bool:
    """Whether it is one of ``DISTRIBUTIONS``, or a method of an instance, as it comes."""
    if isinstance(callee, MethodType):
        if not is_distribution(callee.__self__):
            return False
        return AS_THEY_CAME.get((type(callee.__self__), callee.__name__)) is callee.__func__
    return any(callee is kind for kind in DISTRIBUTIONS)


def are_as_they_came() -> bool:
    """Whether nobody has put a method in the place of a distribution's."""
    return all(getattr(*each, None) is found for each, found in AS_THEY_CAME.items())


def is_distribution(value: object) -> bool:
    return any(type(value) is kind for kind in DISTRIBUTIONS)
