"""``with`` around managers of a program's own and the library's: what the plain loop gives."""

from __future__ import annotations

import collections
import contextlib
import functools
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.test_isolation import hold

N = [k * 5 % 9 for k in range(66)]
M = [k * 7 % 5 for k in range(66)]


class Kept:
    """Notes what it sees; ``takes`` are the exceptions that it swallows."""

    def __init__(self, log: list[Any], name: Any, takes: Any = ()) -> None:
        self.log, self.name, self.takes = log, name, takes

    def __enter__(self) -> Any:
        self.log.append(("enter", self.name))
        if self.name == 7:
            raise KeyError("seven")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        self.log.append(("exit", self.name, kind.__name__ if kind else None, str(error)))
        if self.name == 8:
            raise RuntimeError("eight")
        return kind is not None and issubclass(kind, self.takes)


def branches(n, m):
    log = []
    with Kept(log, n, ZeroDivisionError) as kept:
        if n > m:
            kept.name = n + m
            log.append(12 // (n - 4))
        else:
            log.append(12 // m)
    return str(log)


def loops(n, m):
    log = []
    for i in range(5):
        with Kept(log, i, IndexError):
            if i == n:
                continue
            if i == m:
                break
            log.append([1, 2, 3][i - m])
            if i + n == 9:
                return str(log)
        log.append("next")
    else:
        log.append("else")
    return str(log)


def whiles(n, m):
    log = []
    while n > 0:
        with Kept(log, n), Kept(log, -n, ZeroDivisionError) as inner:
            log.append(10 // (n - m))
            inner.name = "changed"
            n = n - 1
            if n % 3 == 0:
                continue
        n = n - 1
    return str(log)


def guarded(n, m):
    log = []
    try:
        with Kept(log, n):
            log.append(6 // (n - m))
            if n > 5:
                raise ValueError(n)
    except ZeroDivisionError as error:
        log.append(type(error.__context__).__name__)
    except RuntimeError as error:
        log.append(type(error.__context__).__name__)
        if m == 2:
            raise
    finally:
        log.append("finally")
    return str(log)


def guarding(n, m):
    log = []
    with Kept(log, n, ValueError):
        try:
            log.append(6 // (n - m))
            if m == 3:
                return str(log)
        except ZeroDivisionError:
            if n > 2:
                raise ValueError("again") from None
            log.append("caught")
        finally:
            log.append("finally")
    return str(log)


def helper(log, n, m):
    with Kept(log, m, KeyError):
        if n == 0:
            return [1, 2][m - n]
        return helper(log, n - 1, m) + 6 // (m - n)


def recursion(n, m):
    log = []
    try:
        log.append(helper(log, n % 4, m))
    except (ArithmeticError, IndexError, TypeError) as error:
        log.append(type(error).__name__)
    return str(log)


def several(n, m):
    log = []
    takes = ZeroDivisionError if n > 3 else (ValueError, IndexError)
    manager = Kept(log, n, takes) if m % 2 else Kept(log, "even", takes)
    with manager as one:
        total = one.name * 0 if m % 2 else 1
        for i in range(m):
            total = total + 4 // (i - n + 2)
        log.append(total)
        if total > 3:
            raise ValueError(total)
        return str(log)
    return "swallowed" + str(log)


def unbound(n, m):
    with contextlib.suppress(ZeroDivisionError):
        value = 6 // (n - m)
    return value


def suppressing(n, m):
    out = []
    for i in range(4):
        with contextlib.suppress(ZeroDivisionError, IndexError):
            out.append(6 // (n - i))
            if i == m:
                break
            out.append([1, 2][i - m])
            continue
        out.append("suppressed")
    return str(out)


def null(n, m):
    with contextlib.nullcontext(n) as same, contextlib.nullcontext():
        if same > m:
            return same
        total = 10 // (same - m)
    return total


class Closed:
    def __init__(self, log: list[Any], n: int) -> None:
        self.log, self.n = log, n

    def close(self) -> None:
        self.log.append(("closed", self.n))


def closing(n, m):
    log: list[Any] = []
    try:
        with contextlib.closing(Closed(log, n)) as thing:
            if n > m:
                log.append(6 // (thing.n - 5))
            else:
                log.append(-1)
    except ZeroDivisionError:
        log.append("caught")
    return str(log)


def stack_of(n, m):
    log: list[Any] = []
    with contextlib.ExitStack() as stack:
        for i in range(m):
            stack.enter_context(Kept(log, i, ZeroDivisionError))
        stack.callback(log.append, "callback")
        if n > 3:
            log.append(6 // (n - 5))
    return str(log)


@contextlib.contextmanager
def generated(log, n):
    log.append(("enter", n))
    if n == 2:
        raise PermissionError(n)
    try:
        yield n * 2
    except ZeroDivisionError:
        log.append(("saw", n))
        if n > 4:
            raise
    finally:
        log.append(("exit", n))
        if n == 6:
            raise OSError(n)


def generators(n, m):
    log: list[Any] = []
    for i in range(3):
        with generated(log, n + i) as twice:
            if twice > 6:
                log.append(12 // (twice - m - 8))
                continue
            if m == 1:
                return str(log)
        log.append("next")
    return str(log)


def mixed(n, m):
    log: list[Any] = []
    with torch.no_grad(), Kept(log, n, ZeroDivisionError):
        with torch.enable_grad() if n > 4 else contextlib.nullcontext():
            log.append(torch.is_grad_enabled())
            log.append(6 // (n - m))
        with torch.enable_grad():
            if m > 2:
                return str(log)
        log.append(torch.is_grad_enabled())
    log.append(torch.is_grad_enabled())
    return str(log)


def fails(n, m):
    raise KeyError(n)


class Odd:
    """What a manager may do otherwise than most."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __enter__(self) -> Any:
        return None if self.n % 2 else (self.n, self.n + 1)

    def __exit__(self, *failure: Any) -> Any:
        if self.n == 3:
            fails(*failure[:2])
        return [1] * (self.n % 3)


def odd(n, m):
    total = 0
    with Odd(n) as (a, b):
        total = 6 // (a - m)
        total = total + b
    return total


PROGRAMS = [
    *(branches, loops, whiles, guarded, guarding, recursion, several, unbound, suppressing, null),
    *(closing, stack_of, generators, mixed, odd),
]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("func", PROGRAMS, ids=lambda func: func.__name__)
def test_as_in_the_loop(func):
    """At more threads than have pairs of their own, for some; at fewer for all."""
    count = len(N) if func in (branches, loops, generators) else 9
    hold(func, N[:count], M[:count])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("func", PROGRAMS, ids=lambda func: func.__name__)
def test_the_first_exception(func):
    args = (torch.tensor(N[:9]), torch.tensor(M[:9]))
    assert_matches_loop(func, args, batch_sizes=(0, 1, 2, 7, 9), scalars="python")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("func", [branches, loops, guarded, several, suppressing, mixed])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_streams(func, engine):
    examples = list(zip(N, M, strict=True))
    options: dict[str, Any] = {"on_error": "isolate", "order": "input", "engine": engine}
    for index, result in autobatch.stream(func, examples, 7, **options):
        try:
            expected: Any = func(*examples[index])
        except Exception as error:
            assert (type(result.exception), str(result.exception)) == (type(error), str(error))
        else:
            assert result.value == expected


def test_gradients_and_dtypes():
    class Scaled:
        def __init__(self, x):
            self.x = x

        def __enter__(self):
            return self.x * 2

        def __exit__(self, kind, error, trace):
            self.x = self.x + 1
            return kind is ZeroDivisionError

    def model(x, n):
        scaled = Scaled(x)
        total = x.double()
        with scaled as twice:
            for i in range(3):
                total = total + twice * (6 // (n - i))
        return total * scaled.x

    x, n = torch.randn(6, 3, dtype=torch.float64), torch.arange(6)
    wanted = x.clone().requires_grad_()
    torch.stack([model(row, k) for row, k in zip(wanted, n.tolist(), strict=True)]).sum().backward()
    for options in CONFIGURATIONS:
        mine = x.clone().requires_grad_()
        autobatch.vmap(model, scalars="python", **options)(mine, n).sum().backward()
        torch.testing.assert_close(mine.grad, wanted.grad)
    assert_matches_loop(model, (x.float(), n), batch_sizes=(1, 2, 6), scalars="python")


def test_a_mode_that_with_enters_may_come_from_anywhere():
    def model(x, n):
        made = [torch.no_grad, functools.partial(torch.set_grad_enabled, False)]
        if n > 2:
            with made[1]():
                x = x * 2
        with (mode := made[0]() if len(made) < 2 else torch.set_grad_enabled(True)):
            return x * 3 + mode.mode

    x, n = torch.randn(4, 3, requires_grad=True), torch.tensor([3, 0, 2, 5])
    wanted = x * torch.tensor([6, 3, 3, 6])[:, None] + 1
    for options in CONFIGURATIONS:
        result = autobatch.vmap(model, scalars="python", **options)(x, n)
        torch.testing.assert_close(result, wanted)
        (slopes,) = torch.autograd.grad(result.sum(), x)
        assert slopes[:, 0].tolist() == [0, 3, 3, 0] and torch.is_grad_enabled()


# What is refused.


@contextlib.contextmanager
def without_gradients(n):
    with torch.no_grad():
        yield n


def leaks(n, m):
    with without_gradients(n) as same:
        return same + 1


SHARED = without_gradients(1)


def shares(n, m):
    with SHARED:
        return n


def modes_in_objects(n, m):
    made = [torch.autocast("cpu", enabled=n > 2), contextlib.nullcontext()]
    with made[m % 2]:
        return n + 1


BATCHED = [each for each in CONFIGURATIONS if each.get("engine") != "sequential"]


def switched(n, m):
    if n > 2:
        torch.set_grad_enabled(False)
    return n


def on_a_stack(n, m):
    with contextlib.ExitStack() as stack:
        if n > 2:
            stack.enter_context(torch.no_grad())
        return n


def entered_by_hand(n, m):
    mode = torch.no_grad()
    mode.__enter__()
    return n


def sets_a_dtype(n, m):
    torch.set_default_dtype(torch.float64)
    return torch.zeros(2) + n


@pytest.mark.parametrize("options", BATCHED)
@pytest.mark.parametrize("func", [switched, on_a_stack, entered_by_hand, sets_a_dtype])
def test_modes_are_switched_by_with_statements_alone(func, options):
    batched = autobatch.vmap(func, scalars="python", **options)
    with pytest.raises(autobatch.UnsupportedError, match=r"mode of torch's[\s\S]*\^[\s\S]*`with"):
        batched(torch.tensor([1, 5, 2]), torch.tensor([0, 1, 2]))
    assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32


@autobatch.per_thread
def switches_unseen(n):
    if n > 2:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
    return n


def by_a_marked_function(n, m):
    return switches_unseen(n) + torch.ones(2)


def by_a_key_function(n, m):
    return sorted([n, m], key=switches_unseen)[0]


def by_a_setter_from_a_table(n, m):
    setters = {1: torch.set_default_dtype}
    setters[1](torch.float64)
    return n


def by_a_manager_from_a_list(n, m):
    switches = [torch.set_grad_enabled]
    switches[0](False)
    return n


def by_a_partial_of_anomaly_detection(n, m):
    functools.partial(torch.autograd.set_detect_anomaly, True)()
    return n


def by_a_manager_that_differs(n, m):
    made = torch.set_grad_enabled if n > 2 else torch.autocast
    return made(False) if n > 2 else n


def by_a_manager_for_later(n, m):
    mode = getattr(torch, "set_grad_" + "enabled")(False)  # code between runs under it
    with mode:
        return n


def by_what_map_calls(n, m):
    return len(list(map(torch.set_grad_enabled, [False]))) + n


@pytest.mark.parametrize("options", CONFIGURATIONS)
@pytest.mark.parametrize(
    "func",
    [
        *(by_a_marked_function, by_a_key_function, by_a_setter_from_a_table),
        *(by_a_manager_from_a_list, by_a_partial_of_anomaly_detection, by_a_manager_that_differs),
        *(by_a_manager_for_later, by_what_map_calls),
    ],
)
def test_modes_that_code_on_the_host_switches_for_good_are_put_back_and_refused(func, options):
    batched = autobatch.vmap(func, scalars="python", **options)
    with pytest.raises(autobatch.UnsupportedError, match=r"mode of torch's for good[\s\S]*\^"):
        batched(torch.tensor([1, 5, 2]), torch.tensor([0, 1, 2]))
    try:
        assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32
        assert torch.zeros(1).device.type == "cpu"
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@pytest.mark.parametrize("options", BATCHED)
@pytest.mark.parametrize(
    "func,why",
    [
        (leaks, "changes torch's modes"),
        (shares, "all threads share its manager"),
        (modes_in_objects, "modes of torch's of their own"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_refused(func, why, options):
    before = torch.is_grad_enabled()
    batched = autobatch.vmap(func, scalars="python", **options)
    with pytest.raises(autobatch.UnsupportedError, match=rf"\^+ entered here[\s\S]*{why}"):
        batched(torch.tensor([1, 5, 2]), torch.tensor([0, 1, 2]))
    assert torch.is_grad_enabled() is before


def test_objects_of_the_callers():
    """A manager of each example's own that existed before may be read, not written."""
    log: collections.deque[Any] = collections.deque()

    def func(manager):
        with manager as kept:
            return kept.name + 1

    class Quiet(Kept):
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            return None

    items = [Quiet([], n) for n in range(4)]
    for options in CONFIGURATIONS:
        got = autobatch.vmap(func, **options)(autobatch.objects(items))
        assert got.tolist() == [1, 2, 3, 4]
    assert not log


def test_a_choice_of_attention_kernels_is_a_mode() -> None:
    """It can be entered once only; the blocks inside enter it again and again."""
    inside: list[bool] = []

    @autobatch.per_thread
    def noted(x):
        inside.append(torch.backends.cuda.flash_sdp_enabled())
        return x

    def attended(x, n):
        with sdpa_kernel(SDPBackend.MATH):
            while n > 0:
                x = noted(F.scaled_dot_product_attention(x, x, x))
                n = n - 1
        return x

    x, n = torch.randn(3, 2, 4, 5), torch.tensor([2, 0, 3])
    wanted = torch.stack([attended(row, k) for row, k in zip(x, n, strict=True)])
    for options in CONFIGURATIONS:
        torch.testing.assert_close(autobatch.vmap(attended, **options)(x, n), wanted)
    assert not any(inside) and torch.backends.cuda.flash_sdp_enabled()
