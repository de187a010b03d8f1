"""Functions of the standard library that compute values, and what they ask of what they get.

``READS`` give a value, or something new that holds none of what they get; ``LENDS`` may give what
they get, or what is within it. Neither writes what it gets, nor draws, prints, or asks for a clock
or a file. What is written in Python calls methods of what it gets by name: ``ASKED`` has them, a
user's class may have one.
"""

from __future__ import annotations

import array
import ast
import base64
import binascii
import calendar
import cmath
import collections.abc
import colorsys
import csv
import datetime
import decimal
import difflib
import fnmatch
import fractions
import hashlib
import hmac
import html
import io
import numbers
import operator
import posixpath
import re
import shlex
import statistics
import string
import struct
import textwrap
import types
import typing
import unicodedata
import urllib.parse
import uuid
import zlib
from types import ModuleType
from typing import Any


def _named(module: ModuleType, names: str) -> frozenset[Any]:
    return frozenset(getattr(module, name) for name in names.split() if hasattr(module, name))


def _in_c(module: ModuleType) -> frozenset[Any]:
    """All functions of a module in C, whose names are public."""
    return frozenset(
        found
        for name, found in vars(module).items()
        if name[0] != "_" and type(found) is types.BuiltinFunctionType
    )


def _names(*kinds: type) -> frozenset[str]:
    return frozenset(name for kind in kinds for name in dir(kind) if name[0] != "_")


_HASHES = "md5 sha1 sha224 sha256 sha384 sha512 blake2b blake2s sha3_256 sha3_512 new pbkdf2_hmac"
_ENCODED = "b16 b32 b64 b85 a85 standard_b64 urlsafe_b64"
_TEXTS = (
    _named(textwrap, "dedent fill shorten wrap")
    | _named(html, "escape unescape")
    | _named(shlex, "quote split")
    | _named(urllib.parse, "quote quote_plus unquote unquote_plus urlencode urljoin urlparse")
    | _named(urllib.parse, "parse_qs parse_qsl urlsplit urlunsplit urlunparse")
    | {string.capwords, ast.literal_eval, textwrap.indent}
)
_STATISTICS = _named(
    statistics,
    "correlation covariance fmean geometric_mean harmonic_mean linear_regression mean pstdev"
    " pvariance quantiles stdev variance",
)
_ELEMENTS = _named(statistics, "median median_grouped median_high median_low mode multimode")
_DATES = frozenset({datetime.date, datetime.datetime, datetime.time, datetime.timedelta})
_NUMBERS = frozenset({decimal.Decimal, fractions.Fraction})
_KINDS = _named(numbers, " ".join(numbers.__all__)) | _named(
    collections.abc, " ".join(collections.abc.__all__)
)
"""Abstract classes, of which something is an instance."""

READS = frozenset(
    {*_in_c(zlib), *_in_c(binascii), *_in_c(unicodedata), *_in_c(cmath), *_TEXTS, *_STATISTICS}
    | {*_DATES, *_NUMBERS, *_KINDS, datetime.timezone}
    | _named(struct, "calcsize iter_unpack pack unpack unpack_from Struct")
    | _named(base64, " ".join(f"{name}encode {name}decode" for name in _ENCODED.split()))
    | _named(hashlib, _HASHES)
    | _named(hmac, "compare_digest digest new")
    | _named(calendar, "isleap leapdays monthrange timegm weekday")
    | _named(colorsys, "hls_to_rgb hsv_to_rgb rgb_to_hls rgb_to_hsv rgb_to_yiq yiq_to_rgb")
    | _named(fnmatch, "fnmatch fnmatchcase translate")
    | _named(posixpath, "basename commonprefix dirname isabs join normpath split splitext")
    | _named(operator, "abs index indexOf length_hint")
    | {uuid.UUID, uuid.uuid3, uuid.uuid5, array.array, bytearray, io.StringIO, io.BytesIO}
) - {zlib.compressobj, zlib.decompressobj}
LENDS = frozenset(
    {*_ELEMENTS, re.subn, csv.reader, difflib.SequenceMatcher, difflib.get_close_matches}
    | {difflib.unified_diff, fnmatch.filter, operator.concat, typing.cast}
)
CHANGES = frozenset({operator.setitem, operator.delitem})
KEEPING = frozenset({difflib.SequenceMatcher})
"""Those that give what has what they get in attributes."""
CALLING = frozenset({textwrap.indent, urllib.parse.urlencode, hmac.new, hmac.digest})
"""Those that call functions that they get; others call none."""

_OF_TEXTS = _names(str, bytes) | {"items", "read", "readline"}
_OF_NUMBERS = frozenset(
    {"numerator", "denominator", "as_integer_ratio", "sqrt", "limit_denominator"}
)
ASKED: dict[Any, frozenset[str]] = {
    **dict.fromkeys(_TEXTS, _OF_TEXTS),
    **dict.fromkeys(_STATISTICS | _ELEMENTS | _NUMBERS, _OF_NUMBERS),
    **dict.fromkeys((uuid.uuid3, uuid.uuid5, hmac.new, hmac.digest), frozenset({"bytes"})),
    csv.reader: frozenset(name for name in dir(csv.excel) if name[0] != "_"),
}
"""Names of methods and attributes that they ask of what they get; what is not here asks none."""
ASKED_BY_ANY: frozenset[str] = frozenset().union(*ASKED.values())

FIXED = frozenset(
    {decimal.Decimal, datetime.date, datetime.timedelta, datetime.timezone, uuid.UUID}
    | {struct.Struct, fractions.Fraction}
)
"""Classes of values that nobody can write to, but by what is ``HIDDEN`` of a fraction."""
HIDDEN = frozenset(fractions.Fraction.__slots__)
TIMES = frozenset({datetime.datetime, datetime.time})
"""So are these, where their time zone is one of Python's."""
_CLOCK = frozenset({"now", "today", "utcnow"})
_GIVING_VALUES = "as_integer_ratio digest hexdigest limit_denominator tobytes tolist tounicode"
VALUE_METHODS = (_names(*FIXED, *TIMES) - _CLOCK) | frozenset(_GIVING_VALUES.split())
"""Methods that give values: of these, and of what ``READS`` make."""
_MATCHING = "find_longest_match get_matching_blocks get_opcodes quick_ratio ratio real_quick_ratio"
METHODS = frozenset({*_MATCHING.split(), "from_iterable", *_names(io.StringIO, io.BytesIO)})
"""Others. A stream is the program's own, wherever one is: none may have existed before."""
WRITING_METHODS = frozenset({"byteswap", "frombytes", "fromlist", "fromunicode", "set_seqs"})
"""Those that write what they are of."""
