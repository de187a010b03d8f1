"""What an exception has as its context: what was being handled as it arose, by a caller too."""

from __future__ import annotations

import sys

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

# Within one function.


def context_of_a_failure(n):
    try:
        return str(10 // n)
    except RuntimeError as error:
        return repr(error.__context__)


def contexts_within_handlers(n):
    seen = []
    try:
        10 // n
    except (RuntimeError, ZeroDivisionError):
        try:
            [1][n + 3]
        except IndexError as error:
            seen.append(repr(error.__context__))
        try:
            try:
                torch.linalg.inv(torch.ones(2, 2) * n)
            finally:
                seen.append(repr(sys.exception().__context__))
        except RuntimeError as error:
            seen.append(repr(error.__context__))
    return str(seen)


# Across calls: a function that is called by a handler catches what arises in it.


def names(error):
    found = []
    while error is not None:
        found.append(type(error).__name__)
        error = error.__context__
    return "+".join(found)


def catching(n):
    try:
        if n > 1:
            raise ValueError("v")
        raise TypeError("t")
    except ValueError as error:
        return names(error)
    except TypeError:
        return "type " + names(sys.exception())


def calling(n):
    return catching(n) + names(sys.exception())


def caught_in_a_call(n):
    log = [catching(n)]
    try:
        log.append([7][n])
    except IndexError:
        log += [calling(n), catching(n + 1)]
        try:
            log.append(10 // (n - 2))
        except ZeroDivisionError as error:
            log += [names(error), catching(n)]
    log.append(catching(n))
    return str(log)


def keeping(n):
    error = ValueError("kept")
    try:
        if n > 1:
            raise error
    except ValueError:
        pass
    return error


def caught_without_a_name(n):
    log = [names(keeping(n))]
    try:
        log.append([7][n])
    except IndexError:
        log.append(names(keeping(n)))
    return str(log)


class Noting:
    def __init__(self):
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.seen = names(error)
        return True


def noted(n):
    noting = Noting()
    with noting:
        if n > 1:
            raise ValueError("v")
    return noting.seen


def left_to_a_manager(n):
    log = [noted(n)]
    try:
        log.append([7][n])
    except IndexError:
        log += [noted(n + k) for k in range(2)]
    return str(log)


def looked_at_by_a_finally(n):
    log = []
    try:
        try:
            log.append([7][n])
        finally:
            log.append(catching(n))
    except IndexError as error:
        log.append(names(error))
    return str(log)


def dividing(n, log):
    try:
        log.append(10 // (n - 2))
    except ZeroDivisionError as error:
        log.append(names(error))


def failing_in_an_operation(n):
    log = []
    dividing(n, log)
    try:
        log.append([7][n])
    except IndexError:
        dividing(n, log)
    return str(log)


def down(n, depth):
    try:
        if depth > n:
            raise ValueError("v")
        return again(n, depth)
    except ValueError as error:
        return names(error)


def again(n, depth):
    try:
        raise KeyError("k")
    except KeyError:
        return down(n, depth + 1)


def recursive(n):
    return down(n, 0)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scalars", ["tensor", "python"])
@pytest.mark.parametrize(
    "func",
    [
        context_of_a_failure,
        contexts_within_handlers,
        caught_in_a_call,
        caught_without_a_name,
        left_to_a_manager,
        looked_at_by_a_finally,
        failing_in_an_operation,
        recursive,
    ],
)
def test_contexts_are_the_loops(func, scalars):
    """What runs row by row has failed in a batch before, which is nothing to the program."""
    assert_matches_loop(func, (torch.tensor([3, 0, 5, 0, 1, 2]),), scalars=scalars)


def test_an_isolated_failure_has_no_context_of_the_engines():
    def func(n):
        return 10 // n

    for chunk_size in (None, 1):
        batched = autobatch.vmap(func, on_error="isolate", plain="never", chunk_size=chunk_size)
        for result in batched(torch.tensor([0, 2, 0])):
            assert result.exception is None or result.exception.__context__ is None
