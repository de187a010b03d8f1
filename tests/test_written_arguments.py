"""What C functions write in unusual places, and what keeps a state, is shared by all examples."""

from __future__ import annotations

import hashlib
import hmac
import io
import struct
import zlib

import numpy as np
import pytest
import torch

import autobatch
from autobatch.runs.trial import measuring

A = np.zeros(2)
X = torch.arange(4.0)
DOUBLE = struct.Struct("d")
HASH, MAC, PACKER = hashlib.md5(), hmac.new(b"key", digestmod="md5"), zlib.compressobj()


def packs(x):
    DOUBLE.pack_into(A, 0, float(A[0]) + 1)
    return x + float(A[0])


def packs_by_function(x):
    struct.pack_into("d", A, 0, float(A[0]) + 1)
    return x + float(A[0])


def reads_into(x):
    io.BytesIO(struct.pack("d", float(A[0]) + 1)).readinto(A)
    return x + float(A[0])


def copies_by_name(x):
    np.copyto(dst=A, src=A + 1)
    return x + float(A[0])


def places_by_name(x):
    np.place(arr=A, mask=A == A, vals=[float(A[0]) + 1])
    return x + float(A[0])


def clips_by_place(x):
    np.clip(A + 1, 0, 9, A)
    return x + float(A[0])


def sums_by_place(x):
    np.cumsum(A + 1, 0, None, A)
    return x + float(A[0])


def method_by_place(x):
    (A + 1).clip(0, 9, A)
    return x + float(A[0])


def reduces_by_place(x):
    np.add.reduce(np.stack([A + 1]), 0, None, A)
    return x + float(A[0])


def hashes(x):
    HASH.update(b"1")
    return x + HASH.digest()[0]


def signs(x):
    MAC.update(b"1")
    return x + MAC.digest()[0]


def compresses(x):
    return x + len(PACKER.compress(b"1"))


PROGRAMS = [
    *(packs, packs_by_function, reads_into, copies_by_name, places_by_name, clips_by_place),
    *(sums_by_place, method_by_place, reduces_by_place, hashes, signs, compresses),
]


@pytest.mark.parametrize("options", [{}, {"plain": "never"}], ids=["auto", "never"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_refused(program, options):
    state = HASH.digest(), MAC.digest()
    with measuring(True):
        for _ in range(2):
            with pytest.raises(autobatch.AutobatchError):
                autobatch.vmap(program, **options)(X)
    assert A.tolist() == [0.0, 0.0]
    assert state == (HASH.digest(), MAC.digest())


def own_state(x):
    own = hashlib.md5()
    own.update(str(int(x.item())).encode())
    pair = np.zeros(1)
    DOUBLE.pack_into(pair, 0, own.digest()[0])
    return x + float(pair[0])


@pytest.mark.parametrize("options", [{}, {"plain": "never"}], ids=["auto", "never"])
def test_what_the_program_makes_is_its_own(options):
    expected = torch.stack([own_state(x) for x in X])
    with measuring(True):
        torch.testing.assert_close(autobatch.vmap(own_state, **options)(X), expected)
