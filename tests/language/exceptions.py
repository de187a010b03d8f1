"""Exceptions that programs catch: ``try`` in every form, and what handlers find."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.language.common import Base, Node, case, seen


class Odd(Exception):
    def __init__(self, number: Any, *, reason: str = "") -> None:
        super().__init__(number, reason)
        self.number = number


class Stop(BaseException):
    pass


SHARED = KeyError("shared")


def divided(n: Any, m: Any) -> Any:
    seen(("divided", n, m))
    return n // m


def deep(n: Any, m: Any, depth: int) -> Any:
    if depth == 0:
        return divided(n, m)
    result = deep(n, m, depth - 1)
    return result + 1


def fills(items: list[Any], n: Any) -> int:
    items.append(n)
    if n % 2:
        raise Odd(n)
    items.append(-n)
    return len(items)


def fills_slowly(items: list[Any], n: Any) -> Any:
    result = 12 // n
    items.append(n)
    return result


@case((1, 1), (1, 0), (7, 2), (0, 0))
def caught(n, m):
    try:
        x = n // m
    except ZeroDivisionError:
        x = -1
    return x


@case((1, 1), (1, 0), (7, 2), (0, 0))
def bare(n, m):
    x = 5
    try:
        x = n % m
    except:  # noqa: E722
        return x, "failed"
    return x


@case((1, 1), (1, 0), (7, 2), (0, 0))
def whole(n, m):
    out = []
    try:
        out.append("try")
        x = n // m
        out.append(x)
    except ZeroDivisionError as e:
        out.append(str(e))
        out.append(e.args)
        out.append(type(e))
        out.append(isinstance(e, ArithmeticError))
    else:
        out.append("else")
        out.append(x)
    finally:
        out.append("finally")
    return out


@case(("1", {"1": 1}), ("x", {}), ("3", {}), ("12", {"12": None}), (None, {}))
def several(text, table):
    try:
        n = int(text)
        found = table[text]
        return n + found
    except ValueError as e:
        return "value", str(e)
    except (KeyError, AttributeError) as e:
        return "key", e.args[0]
    except TypeError:
        return "type"


@case((0,), (1,), (2,), (3,), (4,))
def by_name(n):
    kinds = (ValueError, KeyError) if n % 2 else IndexError
    try:
        if n == 1:
            raise KeyError("k", n)
        if n == 2:
            raise IndexError(n)
        if n == 3:
            raise ValueError
        return n
    except kinds as e:
        return type(e), e.args


@case((0,), (1,), (2,))
def name_is_deleted(n):
    try:
        if n:
            raise ValueError(n)
    except ValueError as e:
        seen(str(e))
    try:
        return e  # noqa: F821
    except UnboundLocalError as missing:
        return str(missing)


@case((0,), (1,), (2,))
def name_was_used(n):
    e = n
    try:
        if n == 1:
            raise ValueError(n)
    except ValueError as e:  # noqa: F841
        e = 12
        n = e
    try:
        return e + n
    except NameError as missing:
        return str(missing)


@case((0,), (1,), (2,), (3,))
def raised_again(n):
    try:
        try:
            if n == 1:
                raise ValueError("one")
            if n == 2:
                raise KeyError("two")
        except ValueError as e:
            seen("inner")
            e.add_note("noted")
            raise
        except KeyError:
            raise
        return "fine"
    except Exception as e:
        return type(e), e.args, getattr(e, "__notes__", None)


@case((0,), (1,), (2,), (3,))
def raised_from(n):
    try:
        try:
            if n == 1:
                raise ValueError("one")
            return 12 // (n - 2)
        except ValueError as e:
            raise KeyError("k") from e
        except ZeroDivisionError:
            raise RuntimeError("none") from None
    except Exception as e:
        cause, context = e.__cause__, e.__context__
        return type(e), type(cause), type(context), e.__suppress_context__


@case((0,), (1,), (2,), (3,))
def contexts(n):
    try:
        try:
            try:
                12 // n
            except ZeroDivisionError:
                [][n]
        except IndexError as e:
            seen(type(e.__context__))
            raise Odd(n) from e
        finally:
            if n == 2:
                {}["missing"]
    except (Odd, KeyError) as e:
        found = []
        while e is not None:
            found.append(type(e))
            e = e.__context__
        return found
    return n


@case((0,), (1,), (2,), (-3,))
def own_exception(n):
    try:
        if n > 0:
            raise Odd(n, reason="positive")
        if n < 0:
            raise Odd(number=n)
    except Odd as e:
        e.extra = n + 1
        other = e
        return other.number + other.extra, e.args
    return n


@case((0,), (1,), (2,))
def base_exception(n):
    try:
        try:
            if n == 1:
                raise Stop(n)
            if n == 2:
                raise KeyboardInterrupt
        except Exception:
            return "exception"
        return "fine"
    except Stop as e:
        return e.args
    except BaseException as e:
        return type(e)


@case((0,), (1,), (2,))
def shared_exception(n):
    try:
        if n:
            raise SHARED
    except KeyError as e:
        return e is SHARED
    return n


@case((0,), (1,), (2,))
def made_before(n):
    error = ValueError("before")
    error.n = n
    try:
        if n:
            raise error
    except ValueError as e:
        return e is error, e.n
    return n


@case((0,), (1,), (2,), (3,), (4,))
def no_exception(n):
    try:
        if n == 1:
            raise n
        if n == 2:
            raise ValueError("v") from n
        if n == 3:
            raise int
        if n == 4:
            raise Odd
    except TypeError as e:
        return str(e)
    return n


@case((0,), (1,), (2,))
def wrong_kind(n):
    try:
        try:
            12 // n
        except n:
            return "never"
    except TypeError as e:
        return str(e), type(e.__context__)
    return n


@case((1, 1), (1, 0), (7, 2), (0, 0))
def finally_runs(n, m):
    out = [n]
    try:
        try:
            out.append(n // m)
        finally:
            out.append("finally")
            n = 100
    except ZeroDivisionError:
        out.append(n)
    return out


@case((0,), (1,), (2,), (3,))
def returns_through_finally(n):
    out = []

    def run(n):
        for i in range(3):
            try:
                if i == n:
                    return out, i
                out.append(i)
            finally:
                out.append("f")
        return "end"

    return run(n), out


@case((0,), (1,), (2,), (3,), (4,), (5,))
def leaves_through_finally(n):
    out = []
    for i in range(4):
        try:
            try:
                if i == n:
                    continue
                if i + 2 == n:
                    break
                if i + n == 6:
                    raise ValueError(i)
                out.append(i)
            finally:
                out.append("inner")
                if n == 5:
                    12 // (i - 1)
        except (ValueError, ZeroDivisionError) as e:
            out.append(str(e))
            continue
        finally:
            out.append("outer")
        out.append("body")
    else:
        out.append("else")
    return out


@case((0,), (1,), (2,), (3,))
def finally_overrides(n):
    def run(n):
        for i in range(3):
            try:
                if i == n:
                    raise ValueError(i)
                if n == 3:
                    return "body"
            finally:
                if n == 1:
                    break  # noqa: B012
                if n == 2:
                    return "finally"  # noqa: B012
                if n == 3:
                    continue  # noqa: B012
        return "end", i

    try:
        return run(n)
    except ValueError as e:
        return "raised", e.args


@case((0,), (1,), (2,), (3,))
def returned_value_is_kept(n):
    x = [n]
    y = n

    def run():
        return x

    try:
        try:
            12 // n
            return y, run()
        finally:
            x.append("later")
            y = 100
    except ZeroDivisionError:
        return x, y


@case((0, 0), (1, 0), (2, 1), (3, 2), (5, 5))
def retried(n, m):
    tries = 0
    while True:
        try:
            tries += 1
            return 100 // (n - m), tries
        except ZeroDivisionError:
            m = m - 1
            if tries > 3:
                return "never"


@case((0,), (1,), (2,), (3,), (6,))
def loop_inside(n):
    total = 0
    i = 3
    try:
        while i > -3:
            i = i - 1
            total = total + 12 // (i - n)
            if n == 6 and i == 0:
                break
        else:
            total = total * 2
    except ZeroDivisionError:
        return total, i, "failed"
    return total, i


@case((1, 1), (1, 0), (7, 2), (0, 0))
def through_calls(n, m):
    out = [n]
    try:
        x = deep(n, m, 3)
        out.append(x)
    except ZeroDivisionError as e:
        out.append(str(e))
    return out


@case((0,), (1,), (2,), (3,))
def mutation_stays(n):
    items = [0]
    other = items
    count = -1
    try:
        count = fills(items, n)
    except Odd as e:
        items.append(e.number)
    return items, other is items, count


@case((0,), (1,), (2,), (3,))
def nothing_after_the_failure(n):
    items = [0]
    try:
        fills_slowly(items, n)
        items.append("more")
    except ZeroDivisionError:
        items.append("failed")
    return items


@case((0,), (1,), (2,), (3,))
def values_as_at_the_failure(n):
    a = b = c = n
    try:
        a = a + 1
        b = 12 // n
        c = c * 2
        a = [a, b][n]
    except (ZeroDivisionError, IndexError) as e:
        return a, b, c, type(e)
    return a, b, c


@case((0, 0), (1, 5), (2, 2), (3, -4))
def containers_as_at_the_failure(n, i):
    items = [1, 2, 3]
    alias = items
    try:
        items[0] = n
        items[i] = "here"
        del items[i - 1]
    except IndexError as e:
        items.append(str(e))
    return items, alias


@case((0,), (1,), (2,), (3,))
def recursive(n):
    def down(k):
        try:
            if k == 0:
                raise ValueError("bottom")
            return down(k - 1)
        except ValueError as e:
            if k < 2:
                raise KeyError(k) from e
            return "caught", k, type(e)
        except KeyError as e:
            return "key", k, e.args

    try:
        return down(n)
    except KeyError as e:
        return "out", e.args


def tree_sum(node: Any) -> Any:
    if node.value is None:
        raise ValueError("empty")
    total = node.value
    for child in node.children:
        try:
            total += tree_sum(child)
        except ValueError:
            total -= 100
    return total


@case(
    (Node(1),),
    (Node(1, [Node(2), Node(None)]),),
    (Node(1, [Node(2, [Node(None), Node(5)]), Node(3)]),),
    (Node(None),),
)
def over_a_tree(tree):
    try:
        return tree_sum(tree)
    except ValueError:
        return "all empty"


class Account:
    def __init__(self, balance: Any) -> None:
        if balance < 0:
            raise ValueError(f"balance {balance}")
        self.balance = balance
        self.log: list[Any] = []

    def withdraw(self, amount: Any) -> Any:
        self.log.append(amount)
        if amount > self.balance:
            raise Odd(amount)
        self.balance -= amount
        return self.balance

    @property
    def fragile(self) -> Any:
        return 12 // self.balance

    def __add__(self, other: Any) -> Any:
        self.log.append("add")
        return self.balance // other


@case((5, 3), (5, 7), (-1, 2), (0, 0))
def methods(balance, amount):
    account = None
    try:
        account = Account(balance)
        left = account.withdraw(amount)
        return left, account.log
    except Odd as e:
        return "odd", e.number, account.balance, account.log
    except ValueError as e:
        return "value", str(e), account


@case((5, 3), (0, 7), (3, 0), (0, 0))
def properties_and_operators(balance, amount):
    account = Account(balance)
    out = []
    try:
        out.append(account.fragile)
    except ZeroDivisionError:
        out.append("property")
    try:
        out.append(account + amount)
    except ZeroDivisionError:
        out.append("operator")
    out.append(account.log)
    return out


@case((0,), (1,), (2,), (3,))
def old_value_stays(n):
    x = "old"
    try:
        x = Account(n - 2)
    except ValueError:
        return x
    return x.balance


@case(([3, 1, 2],), ([3, "a"],), ([0, 1],), ([],))
def key_functions(items):
    calls = []

    def key(item):
        calls.append(item)
        return 12 // item

    try:
        return sorted(items, key=key), calls
    except ZeroDivisionError:
        return "zero", calls
    except TypeError as e:
        return str(e), calls


@case(([1, 2],), ([],), ([0],), ([1, 0, 2],))
def iterators(items):
    it = iter(items)
    out = []
    try:
        while True:
            out.append(12 // next(it))
    except StopIteration as e:
        out.append(e.args)
    except ZeroDivisionError:
        out.append(list(it))
    return out


@case(([1, 2],), ([],), ([0],), ([1, 0, 2],))
def comprehensions(items):
    try:
        return [12 // i for i in items], {i: 1 // i for i in items}
    except ZeroDivisionError as e:
        return str(e)


@case(((1, 2),), ((1,),), (3,), ((1, 2, 3),))
def unpacking(pair):
    a = b = None
    try:
        a, b = pair
        return a + b
    except (ValueError, TypeError) as e:
        return str(e), a, b


@case((4.0,), (-1.0,), (0.0,), (1e308,))
def domains(x):
    out = []
    try:
        out.append(math.sqrt(x))
        out.append(math.log(x))
        out.append(math.exp(x))
    except ValueError as e:
        out.append(str(e))
    except OverflowError as e:
        out.append(str(e))
    return out


@case((2**62,), (3,), (-(2**62),), (0,))
def large_numbers(n):
    try:
        m = n * n * n
        k = 10 // n
        return m, k, 1 << (n - 3)
    except ZeroDivisionError:
        return "zero"
    except (ValueError, OverflowError, MemoryError) as e:
        return type(e), m


@case((0,), (1,), (2,), (5,))
def asserts(n):
    try:
        assert n != 1
        assert n < 3, f"{n} is too much"
    except AssertionError as e:
        return "assertion", e.args
    return n


@case((0,), (1,), (2,))
def effects_stop(n):
    try:
        seen(("before", n))
        x = 6 // n
        seen(("after", x))
    except ZeroDivisionError:
        seen("handler")
    finally:
        seen("finally")
    seen("end")


@case((0,), (1,), (2,), (3,))
def uncaught(n):
    try:
        return 12 // (n - 3), [1, 2, 3, 4][n]
    except IndexError:
        return "index"
    finally:
        seen(("finally", n))


@case((0, 2), (2, 0), (3, 4), (4, 1))
def check_before_the_statement(n, m):
    x = 12 // m
    try:
        y = 12 // n
    except ZeroDivisionError:
        y = -1
    return x, y


@case((0, 2), (2, 1), (3, 4), (4, 1))
def check_after_the_statement(n, m):
    try:
        x = 12 // m
    except ZeroDivisionError:
        x = -1
    y = 12 // (n - 7)
    return x, y


@case((0,), (1,), (2,))
def in_else(n):
    try:
        try:
            x = n + 1
        except ZeroDivisionError:
            return "never"
        else:
            return x // n
    except ZeroDivisionError:
        return "outside"


@case((0,), (1,), (2,), (3,))
def fails_in_handler(n):
    out = []
    try:
        try:
            12 // n
            out.append("fine")
            raise ValueError(n)
        except ZeroDivisionError:
            out.append("zero")
            [][0]
        except ValueError as e:
            out.append(e.args[0] // (n - 2))
        finally:
            out.append("finally")
    except Exception as e:
        out.append(type(e))
        out.append(type(e.__context__))
    return out


@case((torch.ones(3), 1), (torch.ones(3), 5), (torch.zeros(3), 2))
def indexed(x, i):
    y = x
    try:
        y[0] = 5.0
        y[i] = 7.0
        y = y * 2
    except IndexError:
        y += 1
    return x, y


@case(
    (torch.ones(2, 3), torch.ones(3)),
    (torch.ones(2, 3), torch.ones(4)),
    (torch.ones(2), torch.ones(2)),
)
def shapes(a, b):
    try:
        return a @ b
    except RuntimeError:
        return a.shape


@case((torch.tensor([1.0, 2.0]), 0), (torch.tensor([1.0]), 1), (torch.tensor(3.0), 2))
def ambiguous(x, n):
    try:
        if x:
            return n
        return "false"
    except RuntimeError:
        return "ambiguous"


@case((torch.tensor([1.0, 2.0]), 0), (torch.tensor([1.0, 3.0]), 1), (torch.tensor([4.0, 5.0]), 2))
def in_place_before_failing(x, n):
    total = torch.zeros(2)
    view = total[:1]
    try:
        total += x
        with torch.no_grad():
            view += 10 // n
            total *= 2
    except ZeroDivisionError:
        return total, view, "failed"
    return total, view


@case((0,), (1,), (2,))
def modes_are_left(n):
    try:
        with torch.no_grad():
            x = torch.ones(2, requires_grad=True) * (6 // n)
    except ZeroDivisionError:
        return torch.is_grad_enabled(), (torch.ones(1, requires_grad=True) * 2).requires_grad
    return torch.is_grad_enabled(), x.requires_grad


@case((0,), (1,), (2,))
def statement_in_a_mode(n):
    with torch.no_grad():
        for i in range(2):
            try:
                x = torch.ones(2, requires_grad=True) * (6 // n)
                break
            except ZeroDivisionError:
                x = torch.ones(2, requires_grad=True) * i
                continue
            finally:
                seen(torch.is_grad_enabled())
    return x.requires_grad, torch.is_grad_enabled(), x.sum()


@case((0,), (1,), (2,))
def captured_variables(n):
    x = n

    def get():
        return x

    try:
        x = 5
        x = 12 // n
        x = x + 100
    except ZeroDivisionError as e:  # noqa: F841
        text = lambda: str(e)  # noqa: E731, F821
        return get(), text()
    return get()


@case((0,), (1,), (2,), (3,))
def alternating(n):
    out = []
    for i in range(6):
        try:
            out.append(12 // ((i + n) % 3))
        except ZeroDivisionError:
            out.append("z")
        try:
            out.append([7, 8][(i + n) % 4])
        except IndexError:
            out.append("i")
    return out


@case((0,), (1,), (2,), (3,))
def nested_functions(n):
    def safe(f, *args):
        try:
            return f(*args)
        except Exception as e:
            return type(e).__name__

    def a(x):
        return 6 // x

    def b(x, y):
        return [x, y][x + y]

    return safe(a, n), safe(b, n - 1, 1), safe(b, n), safe(lambda: {1: 2}[n])


@case((0,), (1,), (2,), (3,))
def instance_attributes(n):
    base = Base(n)
    try:
        base.n = 12 // (n - 1)
        base.extra = 5
        return base.missing
    except AttributeError as e:
        return str(e), base.n, base.extra
    except ZeroDivisionError:
        return base.n, hasattr(base, "extra")


@case((0,), (1,), (2,))
def deletes(n):
    x = 1
    d = {"a": 1}
    try:
        if n:
            del x
        del d["a"]
        del d["b"]
    except KeyError as e:
        try:
            return x, d, e.args
        except UnboundLocalError:
            return "unbound", d
    return d


@case((0,), (1,), (2,))
def matches(n):
    try:
        match [1, 2][n]:
            case 1:
                raise ValueError("one")
            case other:
                return other
    except IndexError:
        return "index"
    except ValueError as e:
        return e.args


@case((0,), (1,), (2,))
def walrus(n):
    y = "none"
    try:
        if (y := n + 1) and (z := 6 // n):
            return y, z
    except ZeroDivisionError:
        return y


@case((1,), (0,), (2,), (5,))
def writes_as_at_the_failure(n):
    t = torch.zeros(2)
    u = t[:1]
    items = [1]
    table = {"a": 1}
    try:
        t += 1
        u.add_(2)
        t[1] = t[1] + 5
        items.append(2)
        items[0] += 1
        table["a"] += 1
        table["b"] = 2
        items[n] = 12 // n
        t.mul_(2)
    except (ZeroDivisionError, IndexError):
        t += 100
    return t, u, items, table


@case((0,), (1,), (2,), (3,))
def calls_of_safe_functions(n):
    def safe(k):
        try:
            return 12 // (k - 1)
        except ZeroDivisionError:
            return -1

    found = [safe(k) for k in range(n)]
    return found, safe(n) + safe(n - 1), sum(safe(k) for k in range(3))


def checked_sum(tree: Any) -> Any:
    try:
        own = 12 // tree.value
    except ZeroDivisionError:
        own = 100
    return own + sum(checked_sum(child) for child in tree.children)


@case((Node(1),), (Node(0, [Node(2), Node(0)]),), (Node(1, [Node(0, [Node(4)]), Node(3)]),))
def safe_recursion(tree):
    return checked_sum(tree)
