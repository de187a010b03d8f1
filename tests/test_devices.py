"""What the library makes is made where it belongs: no tensor is on the CPU by default.

There may be no device to try it on, so this reads the source: a call that makes a tensor names its
device, and what comes from the host's arrays is moved in the same expression. Those that are meant
to stay on the host are listed, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import autobatch
from autobatch.arguments import devices
from autobatch.arguments.devices import home_of
from autobatch.batching import lists
from autobatch.batching.applying.example import without_data
from autobatch.batching.applying.index_parts import parts_of
from autobatch.batching.fused.replays import number
from autobatch.batching.levels import Batched
from autobatch.compat import on_one_device
from autobatch.values.cells import Uniform, read
from autobatch.values.lists import Lists
from autobatch.vm.reconciling import joined_value

ROOT = Path(autobatch.__file__).parent
FACTORIES = frozenset(
    {"arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand"}
    | {"randint", "randn", "randperm", "scalar_tensor", "tensor", "zeros"}
)
FROM_HOST = frozenset({"from_numpy", "as_tensor"})
OWNERS = ("torch", "firsthand")
ON_THE_HOST = {
    "arguments/batch_size.py": {
        "firsthand.as_tensor(array.copy() if backwards or not array.flags.writeable else array)": (
            "the caller's array"
        ),
    },
    "batching/shared/compacting.py": {
        "torch.from_numpy(inverse.reshape(-1))": "moved by `over`",
    },
    "compat.py": {
        "torch.zeros(2)": "a probe",
        "torch.from_numpy(array)": "moved by the next statement",
    },
    "batching/converters/losses.py": {
        "torch.as_tensor(n)": "lengths, which a kernel reads on the host",
    },
    "batching/fused/inductor.py": {
        "torch.empty((), dtype=torch.float64)": "kernels run on the CPU",
        "torch.empty(shape, dtype=bytes_of(meta.dtype))": "kernels run on the CPU",
        "torch.full(tuple(literal.shape), literal.item(), dtype=literal.dtype)": (
            "kernels run on the CPU"
        ),
    },
    "batching/containers/iterators.py": {
        "torch.tensor(value.obj)": "0-d, beside tensors of any device"
    },
    "batching/lists.py": {"torch.from_numpy(found.lengths)": "lengths, which are numpy's"},
    "batching/shared/merging.py": {
        "torch.zeros(shape, dtype=dtype)": "runs once more for the error it raises",
        "torch.zeros(sample.shape, dtype=sample.dtype)": "the same",
    },
    "presence/arranging.py": {
        "torch.from_numpy(index)": "which rows are needed is told on the host",
    },
    "batching/trace/rewrite.py": {
        "torch.tensor(node.args[1], dtype=dtype)": "0-d, beside tensors of any device",
    },
    "batching/writes.py": {"torch.zeros(1, 1, requires_grad=True)": "shows what torch refuses"},
    "compiled/joining.py": {"torch.from_numpy(rows)": "machine code runs on the CPU"},
    "compiled/returned.py": {
        "torch.from_numpy(data)": "machine code runs on the CPU",
        "torch.from_numpy(memory.words(place + far * WORD, leaf))": "the same",
        "torch.from_numpy(rows)": "the same",
    },
    "cli/datafiles.py": {
        "torch.from_numpy(array.astype(array.dtype.newbyteorder('='), order='C', copy=False))": (
            "a file"
        ),
        "torch.from_numpy(array)": "a file",
        "torch.from_numpy(array.astype(dtype))": "a file",
    },
    "encoding.py": {
        "torch.tensor(numbers, dtype=torch.int64)": "encoded on the host, moved by the caller",
        "torch.tensor([self.number(value) for value in values], dtype=torch.int64)": (
            "encoded on the host, moved by the caller"
        ),
        "torch.tensor([number for numbers in lists for number in numbers], dtype=torch.int64)": (
            "encoded on the host, moved by the caller"
        ),
        "torch.tensor(values)": "encoded on the host, moved by the caller",
    },
    "arguments/mapped.py": {"torch.from_numpy(index)": "an index, which torch takes from the host"},
    "parallel.py": {"torch.arange(count(n))": "rounds are where the default device is"},
    "presence/guards.py": {
        "torch.zeros((), dtype=grad.dtype)": "0-d, beside tensors of any device",
    },
    "ragged.py": {
        "torch.arange(size)": "moved to the table's device as it enters",
        "firsthand.empty(0)": "tells a dtype",
        "firsthand.tensor([part.shape[0] for part in parts], dtype=torch.int64)": (
            "moved to the table's device as it enters"
        ),
        "firsthand.as_tensor(item if item.flags.writeable else item.copy())": "the caller's array",
    },
    "random/host_words.py": {
        "torch.from_numpy(lane)": "of draws on the CPU",
        "torch.from_numpy(lane.view(np.int64))": "of draws on the CPU",
    },
    "random/laws.py": {
        "torch.tensor(high, dtype=out.dtype)": "read on the host",
        "torch.tensor(low, dtype=out.dtype)": "read on the host",
        "torch.tensor(1.0 - p)": "0-d, beside tensors of any device",
    },
    "saving/streams.py": {
        "torch.empty(data.shape, dtype=data.dtype, pin_memory=True)": "pinned memory of the host",
    },
    "vm/forks/noting.py": {"torch.from_numpy(keys)": "keys of paths, which are the host's"},
    "values/heap/selecting.py": {
        "torch.from_numpy(rows)": "rows of tensors on the CPU; others are moved",
        "torch.from_numpy(self.rows)": "rows of tensors on the CPU, and no others",
    },
    "vm/leavers.py": {"torch.from_numpy(gone)": "an index into tables on the host"},
    "vm/program_counter.py": {
        "torch.from_numpy(np.stack(context.paths.here(), 1))": "keys of paths, which are the host's"
    },
}


def unplaced(path: Path) -> Iterator[str]:
    """The calls of a file that make a tensor without saying where."""
    tree = ast.parse(path.read_text())
    moved = {
        id(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to", "cpu")
    }
    moved |= {
        id(base)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("detach",)
        and id(node) in moved
        for base in (node.func.value,)
    }
    for node in ast.walk(tree):
        function = node.func if isinstance(node, ast.Call) else None
        if not isinstance(function, ast.Attribute) or not isinstance(node, ast.Call):
            continue
        if not isinstance(function.value, ast.Name) or function.value.id not in OWNERS:
            continue
        if function.attr not in FACTORIES | FROM_HOST or id(node) in moved:
            continue
        if not any(keyword.arg in ("device", None) for keyword in node.keywords):
            yield ast.unparse(node)


def test_every_tensor_is_made_somewhere() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found = set(unplaced(path))
        allowed = set(ON_THE_HOST.get(name, {}))
        assert found <= allowed, f"{name}: {found - allowed} without a device"
        assert allowed <= found, f"{name}: {allowed - found} is not there any more"


def test_lengths_of_lists_are_where_numbers_are() -> None:
    table = torch.zeros(3, 4)
    given = Lists("float", table, torch.tensor([1, 4, 2]).numpy(), None)
    context: Any = SimpleNamespace(device=torch.device("meta"))
    value = read(lists.length(context, given))
    assert value.data.device.type == "meta"  # type: ignore[union-attr]


def test_numbers_of_kernels_are_on_the_host_whatever_the_default_device() -> None:
    with torch.device("meta"):
        found = number((0.1).hex())
    assert found.device.type == "cpu" and found.item() == 0.1


def test_a_module_is_asked_where_it_is() -> None:
    seen: list[torch.device] = []

    class Asked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.device)
            return x

    x = torch.zeros(3, device="meta")
    without_data(Asked(), (x,), {})
    without_data(Asked(), (torch.zeros(3),), {})
    assert [device.type for device in seen] == ["meta", "cpu"]


# On tensors without data, a device need not be there.


@pytest.fixture
def device() -> Iterator[torch.device]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield torch.device("cuda", 0)


def of_a_global() -> Any:
    return WEIGHT + 1


WEIGHT: Any = None


def test_numbers_live_where_the_model_does(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3, affine=False, device=device))
    monkeypatch.setitem(globals(), "WEIGHT", torch.empty(3, device=device))

    def of_a_closure() -> Any:
        return model(torch.ones(3))

    brought = [model, model.forward, of_a_closure, of_a_global, partial(nn.Sequential(), model)]
    assert all(home_of(func).type == "cpu" for func in brought)  # no accelerator is there
    monkeypatch.setattr(devices, "has_accelerator", lambda: True)
    assert [home_of(func) for func in brought] == [device] * len(brought)
    assert home_of(nn.Linear(2, 2)).type == home_of(len).type == "cpu"


def test_indices_of_the_host_go_to_what_they_pick_from(device: torch.device) -> None:
    x, index = torch.empty(5, 4, device=device), torch.zeros(5, dtype=torch.int64)
    for base in (x, Batched(x)):
        own, shared, *rest = parts_of(base, (Batched(index), index, None, 2))
        assert own.data.device == shared.device == device and rest == [None, 2]
    assert [part.device.type for part in parts_of(torch.empty(5), (index,))] == ["cpu"]


def test_masks_of_the_host_are_read_with_those_of_the_device(device: torch.device) -> None:
    masks = [torch.zeros(5), torch.zeros(5, device=device), torch.ones(5)]
    assert {mask.device for mask in on_one_device(masks)} == {device}
    assert on_one_device(masks[::2]) == masks[::2]


@pytest.mark.parametrize(("obj", "joins"), [(2, True), (0.5, True), (2**40 + 1, False)])
def test_a_number_that_joins_a_tensor_is_looked_at_on_the_host(obj: Any, joins: bool) -> None:
    joined = joined_value(Uniform(obj), torch.empty((), device="meta"))
    if joins:
        assert joined.obj.device.type == "meta" and joined.obj.dtype is torch.float32
    else:
        assert joined is None


def shapes_of_numbers(x):
    n = 0.5
    while x > 0:
        x, n = x - 1, n + 0.5
    return torch.as_tensor(n), torch.tensor([n, 1.0]), torch.tensor([1, 2]), torch.scalar_tensor(n)


@pytest.mark.parametrize(
    "options",
    [{"trace_after": 0}, {"executor": "vmap"}, {"engine": "program_counter"}, {"plain": "never"}],
)
def test_tensors_of_numbers_go_where_the_mode_says(options: dict[str, Any]) -> None:
    """The device is one of the modes that recordings are kept by."""
    mapped = autobatch.vmap(shapes_of_numbers, **options)
    xs = torch.tensor([1.0, -2.0, 3.0])
    for device in ("cpu", "meta", "cpu", "meta"):
        with torch.device(device):
            made = mapped(xs)
        assert [part.device.type for part in made] == [device] * 4
        assert [tuple(part.shape) for part in made] == [(3,), (3, 2), (3, 2), (3,)]
    for _ in range(3):
        made = mapped(xs)
    assert made[0].tolist() == [1.0, 0.5, 2.0]
