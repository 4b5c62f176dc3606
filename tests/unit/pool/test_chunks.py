"""Chunk lists, bitmaps, names, and who is asked for what."""

import hashlib
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RemoteProtocolError, ShardCorruptError, UsageError
from engine.pool.chunk_schedule import MAX_FAILURES, ChunkSchedule
from engine.pool.chunks import (
    CHUNK_BYTES,
    MAX_CHUNK_LIST_BYTES,
    ChunkBitmap,
    ChunkList,
    checked_name,
    chunk_list_of,
    decode_chunk_list,
)
from tests.unit.pool.files import chunked, pieces, random_bytes

DATA = random_bytes(2 * CHUNK_BYTES + 5)
CHUNKS = chunked(DATA)

HOSTILE_NAMES = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\Windows\\win.ini",
    "con",
    "aux.bin",
    "a" * 63,
    "a" * 65,
    "A" * 64,
    "a" * 63 + "/",
    "a" * 64 + "\n",
    "a" * 63 + "\x00",
    "٣" * 64,
    "g" * 64,
    "." * 64,
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_s14_a_name_is_a_hash_in_small_hex_digits_and_nothing_else(name):
    """Never a path, whatever a peer sends."""
    with pytest.raises(UsageError):
        checked_name(name)


@given(name=st.text(max_size=80) | st.text("0123456789abcdef", min_size=60, max_size=68))
def test_s14_any_text_is_64_small_hex_digits_or_is_refused(name):
    if re.fullmatch("[0-9a-f]{64}", name):
        assert checked_name(name) == name
        return
    with pytest.raises(UsageError):
        checked_name(name)


def test_a_hash_is_a_name():
    """As it is."""
    assert checked_name(CHUNKS.sha256) == CHUNKS.sha256


def test_a_chunk_list_has_the_hash_of_each_chunk_and_of_the_whole():
    """Three chunks, the last short."""
    assert CHUNKS.sha256 == hashlib.sha256(DATA).hexdigest()
    assert (CHUNKS.num_bytes, CHUNKS.num_chunks) == (len(DATA), 3)
    assert [CHUNKS.chunk_bytes(i) for i in range(3)] == [CHUNK_BYTES, CHUNK_BYTES, 5]
    for index, piece in enumerate(pieces(DATA)):
        assert CHUNKS.digest(index) == hashlib.sha256(piece).digest()
        assert CHUNKS.matches(index, piece)
    assert not CHUNKS.matches(0, pieces(DATA)[1])
    assert not CHUNKS.matches(2, pieces(DATA)[2] + b"x")
    assert decode_chunk_list(CHUNKS.encoded(), CHUNKS.sha256) == CHUNKS


@pytest.mark.parametrize("index", [-1, 3])
def test_there_is_no_other_chunk(index):
    """Neither before the first nor after the last."""
    with pytest.raises(UsageError, match=f"no chunk {index}"):
        CHUNKS.chunk_bytes(index)


def test_an_empty_file_has_no_chunks():
    """And is a file all the same."""
    empty = chunk_list_of([])
    assert empty.num_chunks == 0
    assert decode_chunk_list(empty.encoded(), empty.sha256) == empty


def test_a_file_that_shrinks_while_it_is_read_is_noticed():
    """A short piece in the middle."""
    with pytest.raises(ShardCorruptError, match="being changed"):
        chunk_list_of([b"short", b"more"])


def altered(**changes):
    return msgspec.msgpack.encode(msgspec.structs.replace(CHUNKS, **changes))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "can't be read"),
        (b"\xc1", "can't be read"),
        (CHUNKS.encoded()[:-1], "can't be read"),
        (msgspec.msgpack.encode({"format": 1}), "can't be read"),
        (b"\x91" * 5000, "can't be read"),
        (bytes(MAX_CHUNK_LIST_BYTES + 1), "more than any can be"),
        (altered(format=2), "has format 2"),
        (altered(sha256="0" * 64), "another file"),
        (altered(num_bytes=-1), "-1 bytes"),
        (altered(num_bytes=2**62), "bytes"),
        (altered(num_bytes=3 * CHUNK_BYTES + 1), "96 bytes of hashes for 4"),
        (altered(digests=b""), "0 bytes of hashes"),
    ],
)
def test_a_chunk_list_from_anywhere_is_checked(data, why):
    """Each mistake has its sentence, and none allocates."""
    with pytest.raises(RemoteProtocolError, match=why):
        decode_chunk_list(data, CHUNKS.sha256)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_chunk_list(data):
    """And no crash."""
    with pytest.raises(RemoteProtocolError):
        decode_chunk_list(data, CHUNKS.sha256)


@given(st.integers(0, 70), st.data())
def test_a_bitmap_remembers_what_was_added(num_chunks, data):
    """Through encoding, for every length of the last byte."""
    chosen = data.draw(st.sets(st.integers(0, max(0, num_chunks - 1)))) if num_chunks else set()
    bitmap = ChunkBitmap(num_chunks)
    for index in chosen:
        bitmap.add(index)
    again = ChunkBitmap(num_chunks, bitmap.encoded())
    assert set(range(num_chunks)) - set(again.missing()) == chosen
    assert -1 not in again
    assert num_chunks not in again


@pytest.mark.parametrize("bits", [b"", b"\0", b"\0\0\0", b"\0\x04"])
def test_a_bitmap_of_another_length_is_refused(bits):
    """Ten chunks: two bytes, six bits unused."""
    with pytest.raises(ShardCorruptError):
        ChunkBitmap(10, bits)


# ---- who is asked for what


def requests(schedule):
    """Take every request there is."""
    taken = []
    while (request := schedule.take()) is not None:
        taken.append(request)
    return taken


def test_the_rarest_chunk_comes_first_and_work_is_shared():
    """Chunk 2 is on b only; the rest on both."""
    schedule = ChunkSchedule([0, 1, 2], {"a": frozenset({0, 1}), "b": frozenset({0, 1, 2})})
    assert requests(schedule) == [("b", 2), ("a", 0)]
    schedule.asked(0)
    assert requests(schedule) == [("a", 1)]
    assert not schedule.is_stuck
    for index in range(3):
        schedule.came(index)
    assert schedule.is_complete
    assert not schedule.is_stuck


def test_a_source_gets_the_next_chunk_when_all_of_one_is_asked_for():
    """Or when that one is back."""
    schedule = ChunkSchedule(range(5), {"a": frozenset(range(5))})
    assert requests(schedule) == [("a", 0)]
    schedule.asked(0)
    assert requests(schedule) == [("a", 1)]
    schedule.came(0)
    assert requests(schedule) == []
    schedule.came(1)
    assert requests(schedule) == [("a", 2)]


def test_a_bad_chunk_of_several_senders_is_asked_for_again_and_nobody_is_set_aside():
    """However often."""
    schedule = ChunkSchedule([0], {"a": frozenset({0})})
    for _ in range(5):
        assert requests(schedule) == [("a", 0)]
        schedule.asked(0)
        schedule.was_mixed(0)
    assert schedule.set_aside == {}


def test_a_bad_chunk_sets_its_sender_aside_and_is_asked_of_another():
    """By name, with the reason; what the other has is still fetched."""
    schedule = ChunkSchedule([0, 1], {"a": frozenset({0, 1}), "b": frozenset({0, 1})})
    assert schedule.take() == ("a", 0)
    schedule.was_bad(0, "a flipped bit")
    assert schedule.set_aside == {"a": "a flipped bit"}
    assert requests(schedule) == [("b", 0)]
    schedule.came(0)
    assert requests(schedule) == [("b", 1)]


def test_a_source_that_fails_has_a_few_chances_in_a_row():
    """A chunk that comes resets the count; the reason kept is the first."""
    schedule = ChunkSchedule(range(9), {"a": frozenset(range(9))})
    for _ in range(MAX_FAILURES - 1):
        schedule.failed(schedule.take()[1], "busy")
    schedule.came(schedule.take()[1])
    for _ in range(MAX_FAILURES):
        assert not schedule.is_stuck
        schedule.failed(schedule.take()[1], "gone")
    assert schedule.is_stuck
    assert schedule.take() is None
    assert schedule.set_aside == {"a": "gone"}


def test_a_failing_source_is_asked_after_the_others():
    """All else being equal."""
    schedule = ChunkSchedule([0], {"a": frozenset({0}), "b": frozenset({0})})
    assert schedule.take() == ("a", 0)
    schedule.failed(0, "busy")
    assert schedule.take() == ("b", 0)


def test_what_nobody_has_is_stuck_only_when_nothing_is_under_way():
    """What is under way is waited for."""
    schedule = ChunkSchedule([0, 1], {"a": frozenset({0})})
    assert not schedule.is_stuck
    schedule.take()
    assert not schedule.is_stuck
    schedule.came(0)
    assert schedule.is_stuck
    assert not schedule.is_complete


@given(st.data())
def test_every_chunk_comes_as_long_as_one_honest_source_has_it(data):
    """Whatever the others have and do."""
    num_chunks = data.draw(st.integers(1, 12))
    sources = {
        name: data.draw(st.frozensets(st.integers(0, num_chunks - 1)), label=name) for name in "abc"
    }
    sources["honest"] = frozenset(range(num_chunks))
    schedule = ChunkSchedule(range(num_chunks), sources)
    under_way = []
    come = []
    for _ in range(1000):
        under_way.extend(requests(schedule))
        if not under_way:
            break
        node_id, index = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
        if data.draw(st.booleans()):
            schedule.asked(index)
        does = "came" if node_id == "honest" else data.draw(st.sampled_from(["came", "bad", "no"]))
        if does == "came":
            schedule.came(index)
            come.append(index)
        elif does == "bad":
            schedule.was_bad(index, "bad")
        else:
            schedule.failed(index, "failed")
    assert schedule.is_complete
    assert sorted(come) == list(range(num_chunks))
    assert "honest" not in schedule.set_aside


def test_a_list_is_plain_data():
    """Equal content, equal bytes."""
    same = ChunkList(CHUNKS.format, CHUNKS.sha256, CHUNKS.num_bytes, CHUNKS.digests)
    assert same.encoded() == CHUNKS.encoded()
