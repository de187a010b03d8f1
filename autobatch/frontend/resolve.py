"""What an expression means before anything runs: names and attribute chains to Python objects.

In: values that exist when a function is lowered (its globals, closure and receiver). Out: the
object that ``a.b.c`` will give, or ``MISSING``. No user code runs: properties, ``__getattr__`` and
other descriptors written in Python are never called. Lowering only takes the *shape* of a call
from this; what is called is looked up again when the program runs.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Final, cast

from autobatch.structure import own_attributes


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
IMPORT: Final = builtins.__import__
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")


def python_function(value: object) -> tuple[FunctionType, object] | None:
    """The Python function that calling ``value`` runs, and its receiver (else ``MISSING``).

    A class runs its ``__init__``, a ``torch.nn`` module its ``forward``.
    """
    if isinstance(value, FunctionType):
        return value, MISSING
    if isinstance(value, MethodType):
        inner: object = value.__func__
        return (inner, value.__self__) if isinstance(inner, FunctionType) else None
    if isinstance(value, type):
        made = inspect.getattr_static(value, "__init__", None)
        return (made, MISSING) if isinstance(made, FunctionType) else None
    name = "forward" if _is_torch_module(value) else "__call__"
    found = inspect.getattr_static(type(value), name, None)
    return (found, value) if isinstance(found, FunctionType) else None


def _is_torch_module(value: object) -> bool:
    own = own_attributes(value) or {}
    return all(isinstance(own.get(table), dict) for table in _MODULE_TABLES)


def _functions_are_programs(value: object) -> str:
    return "program" if isinstance(value, (FunctionType, MethodType)) else "opaque"


@dataclass(frozen=True, slots=True)
class Resolver:
    """How lowering tells what a call runs.

    ``classify(value)`` is ``"program"`` for a callable whose Python code is lowered, ``"inline"``
    for one whose code is a single block, or a class that only holds what it is given, so that a
    call of it stays in its block, else ``"opaque"``. An unresolved ``x.name(…)`` is taken to be
    opaque for ``name`` in ``opaque_methods``. ``function_of`` gives the Python function behind a
    program callable, ``makes_mode`` says whether calling a value makes a manager that is entered
    around each block, ``switches`` whether it switches a mode of torch's by itself. ``writes``:
    whether the program may write to what existed before the call.
    ``derives`` says whether calling a value gives a function whose calls stay in their block:
    ``grad(f)``.
    """

    classify: Callable[[object], str] = _functions_are_programs
    opaque_methods: frozenset[str] = frozenset()
    function_of: Callable[[object], tuple[FunctionType, object] | None] = python_function
    makes_mode: Callable[[object], bool] = lambda _: False
    switches: Callable[[object], bool] = lambda _: False
    writes: bool = False
    derives: Callable[[object], bool] = lambda _: False


ANY_FUNCTION: Final = Resolver()
"""Takes every Python function for a program, and nothing else."""


def static_value(node: ast.expr, name_value: Callable[[str], object]) -> object:
    """What ``node`` (a name or a chain of attributes) will give, or ``MISSING``."""
    if isinstance(node, ast.Name):
        return name_value(node.id)
    if isinstance(node, ast.Attribute):
        base = static_value(node.value, name_value)
        return MISSING if base is MISSING else static_attribute(base, node.attr)
    return MISSING


def imported_before(
    asked: tuple[str, int, tuple[str, ...]], namespace: Mapping[str, object]
) -> object:
    """The module that an ``import`` gives, which has been imported before, else ``MISSING``.

    Then it only looks the module up. In: module, level and names, as ``__import__`` gets them.
    """
    name, level, names = asked
    if builtins.__import__ is not IMPORT or "__builtins__" not in namespace:
        return MISSING
    own = namespace["__builtins__"]
    if (own if isinstance(own, dict) else vars(own)).get("__import__") is not IMPORT:
        return MISSING
    if level:
        package = namespace.get("__package__")
        above = package.split(".") if isinstance(package, str) and package else []
        if getattr(namespace.get("__spec__"), "parent", package) != package or level > len(above):
            return MISSING
        name = ".".join([*above[: len(above) - level + 1], *([name] if name else [])])
    top = name if names else name.partition(".")[0]
    found = sys.modules.get(top)
    return found if type(sys.modules.get(name)) is type(found) is ModuleType else MISSING


def static_attribute(value: object, name: str) -> object:
    """``value.name`` where that is known without running user code, else ``MISSING``."""
    kind = type(value)  # not isinstance, which would ask the object for its __class__
    if issubclass(kind, ModuleType):
        return vars(value).get(name, MISSING)
    if issubclass(kind, type):
        return _class_attribute(cast(type, value), name)
    if isinstance(inspect.getattr_static(kind, "__getattribute__"), FunctionType):
        return MISSING
    own = own_attributes(value) or {}
    if name in own:
        return own[name]
    on_class = inspect.getattr_static(kind, name, MISSING)
    if on_class is not MISSING:
        return _bound(on_class, value, name)
    for table in _MODULE_TABLES:
        if isinstance(own.get(table), dict) and name in own[table]:
            return own[table][name]
    return MISSING


LISTS = ("ModuleList", "Sequential", "ModuleDict")
"""Containers of modules, by their names in torch's module of them."""


def members(value: object) -> Sequence[object]:
    """The items of a list, tuple or dict, or of a list of modules; none of anything else."""
    kind = type(value)
    if kind is list or kind is tuple:
        return list(cast("list[object]", value))
    if kind is dict:
        return list(cast("dict[object, object]", value).values())
    if kind.__module__ == "torch.nn.modules.container" and kind.__name__ in LISTS:
        return list((own_attributes(value) or {})["_modules"].values())
    return ()


def inherited_method(kind: type, value: object, name: str) -> object:
    """The method ``super(kind, value).name`` where that is a function's, else ``MISSING``."""
    order = type(value).__mro__
    if isinstance(value, type) or kind not in order:
        return MISSING
    later = order[order.index(kind) + 1 :]
    found = next((vars(base)[name] for base in later if name in vars(base)), MISSING)
    return MethodType(found, value) if isinstance(found, FunctionType) else MISSING


def _class_attribute(owner: type, name: str) -> object:
    found = inspect.getattr_static(owner, name, MISSING)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return MethodType(found.__func__, owner)
    return MISSING if isinstance(found, property) else found


def _bound(found: object, value: object, name: str) -> object:
    if isinstance(found, FunctionType):
        return MethodType(found, value)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return MethodType(found.__func__, type(value))
    if inspect.ismethoddescriptor(found) and type(found).__module__ == "builtins":
        return getattr(value, name, MISSING)
    return MISSING if hasattr(type(found), "__get__") else found
