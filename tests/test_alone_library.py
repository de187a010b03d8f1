"""Plain Python calls what of the standard library computes values, and nothing else."""

import array
import base64
import binascii
import calendar
import contextlib
import csv
import datetime
import decimal
import difflib
import hashlib
import html
import io
import json
import re
import statistics
import struct
import textwrap
import unicodedata
import urllib.parse
import uuid
import zlib
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import chain

import pytest
import torch

import autobatch
from autobatch.alone import running
from tests.test_alone import outcome, same

WORDS = ["ab", "abc", "x y"]
HEADER = struct.Struct("<IH")
BEGIN = date(2024, 1, 30)
WRITTEN = array.array("i", [1, 2])
STREAM = io.StringIO("a\nb")
HASH = hashlib.sha256()
SEEN = []


class Loud:
    """Has methods that functions of the library call by name."""

    def expandtabs(self, size=8):
        SEEN.append(size)
        return "a"

    @property
    def bytes(self):
        SEEN.append("bytes")
        return b""

    @property
    def numerator(self):
        SEEN.append("numerator")
        return 1


class Zone(datetime.tzinfo):
    def utcoffset(self, moment):
        SEEN.append(moment)
        return timedelta(0)


def sums(word):
    data = word.encode()
    packed = base64.b64encode(zlib.compress(data))
    assert zlib.decompress(base64.b64decode(packed)) == data
    return str(zlib.crc32(data)) + binascii.hexlify(data).decode() + hashlib.md5(data).hexdigest()


def hashes(word):
    whole = hashlib.sha256()
    for letter in word:
        whole.update(letter.encode())
    return whole.hexdigest()


def packs(word):
    first, second = HEADER.unpack(HEADER.pack(len(word), 7))
    return str(struct.pack(">H", first + second))


def days(word):
    end = BEGIN + timedelta(days=len(word))
    later = datetime.datetime.strptime("2024-02-01", "%Y-%m-%d")
    last = calendar.monthrange(end.year, end.month)[1]
    return f"{end.isoformat()} {(end - BEGIN).days} {later.weekday()} {last}"


def counts(word):
    whole = Decimal(len(word)) / 3 + Decimal("1.10")
    part = Fraction(len(word), 12).limit_denominator(5)
    return f"{whole.quantize(Decimal('0.01'))} {part} {part.numerator}"


def averages(word):
    codes = [ord(letter) for letter in word]
    return f"{statistics.mean(codes)} {statistics.median(codes)} {statistics.stdev(codes)}"


def texts(word):
    lines = textwrap.wrap(word * 5, 4)
    return html.escape("|".join(lines)) + unicodedata.name(word[0]) + urllib.parse.quote(word)


def ratios(word):
    return (
        f"{difflib.SequenceMatcher(None, word, 'abz').ratio():.3f}"
        + uuid.uuid5(uuid.NAMESPACE_DNS, word).hex
    )


def streams(word):
    stream = io.StringIO(word)
    stream.seek(1)
    rows = list(csv.reader([word, "a,b"]))
    return stream.read() + str(rows) + re.subn("a", "b", word)[0]


def buffers(word):
    data, row = bytearray(word.encode()), array.array("i", [1])
    data[0] ^= 3
    data.append(7)
    row.append(len(word))
    return str(bytes(data)) + str(row.tolist())


def catches(word):
    try:
        return str(json.loads(word))
    except json.JSONDecodeError as error:
        return str(error)


def chained(word):
    return "".join(chain.from_iterable([word, "!"]))


GOOD = [sums, hashes, packs, days, counts, averages, texts, ratios, streams, buffers, catches]


@pytest.mark.parametrize("function", [*GOOD, chained])
def test_functions_of_values_are_plain_python(function):
    assert same(function, WORDS) == [function(word) for word in WORDS]


def test_values_of_the_library_are_data():
    moments = [(date(2024, 1, day), Decimal(day)) for day in (1, 2)]
    assert same(lambda pair: f"{pair[0].isoformat()} {pair[1] + 1}", moments)


def reads_clock(word):
    return datetime.datetime.now().year + date.today().month > 0


def writes_buffer(word):
    WRITTEN.append(1)


def reads_stream(word):
    return STREAM.read()


def updates_hash(word):
    HASH.update(b"a")


def sets_precision(word):
    decimal.getcontext().prec = 5


def wraps_loud(word):
    textwrap.wrap(Loud())


def names_loud(word):
    uuid.uuid5(Loud(), "a")


def wraps_by_map(word):
    list(map(textwrap.fill, [Loud()]))


def asks_zone(moment):
    return moment.isoformat()


BAD = [reads_clock, writes_buffer, reads_stream, updates_hash, sets_precision, wraps_loud]


@pytest.mark.parametrize("function", [*BAD, names_loud, wraps_by_map])
def test_what_others_see_is_no_plain_python(function):
    _, alone = outcome(function, WORDS)
    assert alone == 0


def test_a_time_zone_of_the_users_is_no_plain_python():
    moments = [datetime.datetime(2024, 1, day, tzinfo=Zone()) for day in (1, 2)]
    assert outcome(asks_zone, moments)[1] == 0
    zoned = [each.replace(tzinfo=datetime.timezone.utc) for each in moments]  # noqa: UP017
    assert outcome(lambda moment: moment.isoformat(), zoned)[1] == 2


class Entry:
    def __init__(self, key, value):
        self.key, self.value = key, value
        self.before = self.after = None


def recent(keys):
    """Links entries that hold tensors: what is linked may be one, as far as is known."""
    last = first = Entry(-1, -1)
    table = {}
    for key in keys:
        entry = Entry(key, key * 2)
        entry.before, last.after = last, entry
        table[int(key)] = entry
        last = table[int(key)]
    total = 0
    while last is not first:
        total, last = total + last.value, last.before
    return total, len(table)


def marks_shared(row):
    SHARED.seen = row.sum()
    return row.sum()


SHARED = torch.zeros(3)


def asked(function, *args):
    """What a call asks of plain Python, which is told that there is no proof."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "worth_it", lambda each, computes: found.append(each))
        with contextlib.suppress(Exception):
            autobatch.vmap(function)(*args)
    return found[0]


def test_entries_that_hold_tensors_are_linked():
    rows = autobatch.ragged([torch.tensor([1, 2, 3]), torch.tensor([4, 1])])
    assert running.new_proof(asked(recent, rows), True).computes
    with pytest.raises(running.NotAlone, match=r"a form that is refused|may write a tensor"):
        running.new_proof(asked(marks_shared, rows), True)
