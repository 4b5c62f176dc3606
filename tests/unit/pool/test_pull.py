"""Pulling files from PCs that are slow, wrong, or gone, and being killed meanwhile."""

import asyncio
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from engine.errors import ModelNotFoundError, ShardCorruptError, StorageError
from engine.pool import incoming
from engine.pool.chunk_pieces import PIECE_BYTES
from engine.pool.chunks import CHUNK_BYTES, ChunkList
from engine.pool.pull import Pulls
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads
from tests.unit.pool.files import Peer, chunked, pieces, random_bytes
from tests.unit.pool.pulling_child import write_source

DATA = random_bytes(4 * CHUNK_BYTES + 77, 3)
CHUNKS = chunked(DATA)
NAME = CHUNKS.sha256
CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return ShardStore(tmp_path / "store")


def pull(store, *peers, name=NAME, report=lambda *_: None, deadline_s=10.0):
    async def run():
        async with StoreThreads() as threads:
            return await Pulls(store, threads, deadline_s).pull(name, peers, report)

    return asyncio.run(run())


def asked(*peers):
    return sorted(index for peer in peers for index in peer.asked)


def test_a_file_comes_from_all_who_have_it_and_each_chunk_once(store):
    """Both have work."""
    a, b = Peer("a", DATA), Peer("b", DATA)
    done = pull(store, a, b)
    assert store.object_path(NAME).read_bytes() == DATA
    assert asked(a, b) == [0, 1, 2, 3, 4]
    assert a.asked
    assert b.asked
    assert done.fetched_bytes == len(DATA)
    assert done.set_aside == {}


def test_a_second_pull_moves_nothing(store):
    """Nobody is even asked."""
    pull(store, Peer("a", DATA))
    peer = Peer("a", DATA)
    assert pull(store, peer).fetched_bytes == 0
    assert peer.asked == []


def test_progress_is_verified_bytes_and_never_goes_back(store):
    """From what is there already to all of it; a bad chunk adds nothing."""
    store.begin(CHUNKS)
    store.write_chunk(NAME, 3, pieces(DATA)[3])
    a, b = Peer("a", DATA), Peer("b", DATA)
    a.bad = {0, 1, 2, 4}
    told = []
    done = pull(store, a, b, report=lambda verified, total: told.append((verified, total)))
    amounts = [verified for verified, _ in told]
    assert amounts == sorted(amounts)
    assert (amounts[0], amounts[-1]) == (CHUNK_BYTES, len(DATA))
    assert {total for _, total in told} == {len(DATA)}
    assert len(told) == 5
    assert done.fetched_bytes == len(DATA) - CHUNK_BYTES


def test_s10_a_flipped_bit_sets_its_sender_aside_by_name_and_is_fetched_from_another(store):
    """The file is right all the same."""
    bad, good = Peer("bad", DATA), Peer("good", DATA)
    bad.bad = set(range(5))
    done = pull(store, bad, good)
    assert store.object_path(NAME).read_bytes() == DATA
    assert list(done.set_aside) == ["bad"]
    assert "is not what it should be" in done.set_aside["bad"]
    assert sorted(good.asked) == [0, 1, 2, 3, 4]


def test_pcs_with_a_part_each_make_a_whole(store):
    """As while several fetch the same file."""
    done = pull(store, Peer("a", DATA, has={0, 1}), Peer("b", DATA, has={2, 3, 4}))
    assert store.has(NAME)
    assert done.set_aside == {}


def test_what_another_pc_fetches_meanwhile_is_asked_for_later(store):
    """It had one chunk at first, and more when that came."""
    growing = Peer("a", DATA, has={0})
    growing.after = lambda index: growing.has.add(index + 1)
    pull(store, growing)
    assert store.has(NAME)
    assert growing.asked == [0, 1, 2, 3, 4]


def test_what_nobody_has_is_said(store):
    """And what did come stays."""
    with pytest.raises(ShardCorruptError, match="a: it has only a part of it"):
        pull(store, Peer("a", DATA, has={0, 1}))
    assert store.missing_chunks(NAME) == (2, 3, 4)
    peer = Peer("b", DATA)
    pull(store, peer)
    assert sorted(peer.asked) == [2, 3, 4]


def test_a_pc_that_will_not_say_what_it_has_counts_as_having_nothing(store):
    """The other does the work."""

    class Mute(Peer):
        async def chunks_there(self, name):
            raise ModelNotFoundError(f"{name} is gone.")

    mute, good = Mute("a", DATA), Peer("b", DATA)
    pull(store, mute, good)
    assert mute.asked == []
    assert store.has(NAME)


def test_nobody_there_and_nobody_who_has_it(store):
    """Two sentences."""
    with pytest.raises(ShardCorruptError, match="there is none to ask"):
        pull(store)
    with pytest.raises(ShardCorruptError, match="a: a has no file"):
        pull(store, Peer("a", b"another file"))


def test_a_pc_that_does_not_answer_is_waited_for_no_longer_than_the_deadline(store):
    """At the list, and at a chunk; the other does the work."""
    silent, slow, good = Peer("silent", DATA), Peer("slow", DATA), Peer("z", DATA)
    silent.is_silent = True
    slow.delay_s = 3600
    done = pull(store, silent, slow, good, deadline_s=0.3)
    assert store.has(NAME)
    assert done.set_aside["silent"] == "it did not answer in time"
    assert sorted(good.asked) == [0, 1, 2, 3, 4]


def test_a_pc_that_fails_now_and_then_is_asked_again(store):
    """And set aside when it fails three times in a row."""
    flaky = Peer("a", DATA)
    flaky.failing = 2
    assert pull(store, flaky).set_aside == {}
    store.remove(NAME)
    flaky.failing = 10
    with pytest.raises(ShardCorruptError, match="a: a can't"):
        pull(store, flaky)


def test_a_chunk_list_that_lies_sets_aside_who_gave_it(store):
    """Whoever is believed first, the file is right in the end; what agreed is not fetched twice."""
    liar, honest = Peer("a", DATA), Peer("b", DATA)
    other = random_bytes(CHUNK_BYTES, 4)
    lie = ChunkList(1, NAME, CHUNK_BYTES, chunked(other).digests)
    liar.lists[NAME] = lie.encoded()
    liar.files[NAME] = other
    done = pull(store, liar, honest)
    assert store.object_path(NAME).read_bytes() == DATA
    assert "another file" in done.set_aside["a"]
    half_true = msgspec.structs.replace(CHUNKS, digests=CHUNKS.digests[:-32] + bytes(32))
    store.remove(NAME)
    liar = Peer("a", DATA)
    liar.lists[NAME] = half_true.encoded()
    honest = Peer("b", DATA)
    done = pull(store, liar, honest)
    assert list(done.set_aside) == ["a"]
    assert honest.asked == []  # the liar's chunk was right, only its list was not


def test_junk_for_a_chunk_list_sets_its_sender_aside(store):
    """And more PCs with one list come before fewer."""
    junk, odd, good, better = (Peer(n, DATA) for n in "abcd")
    junk.lists[NAME] = b"\xff\xff"
    odd.lists[NAME] = msgspec.structs.replace(CHUNKS, digests=bytes(5 * 32)).encoded()
    done = pull(store, junk, odd, good, better)
    assert list(done.set_aside) == ["a"]
    assert odd.asked == []
    assert store.has(NAME)


def test_a_chunk_the_disk_lost_is_fetched_again(store):
    """As after a power failure: before the file gets its name, and nothing else with it."""
    store.begin(CHUNKS)
    for index in range(4):
        store.write_chunk(NAME, index, pieces(DATA)[index])
    with store.paths.data(NAME).open("r+b") as file:
        file.write(bytes(10))
    store = ShardStore(store.paths.root)
    peer = Peer("a", DATA)
    pull(store, peer)
    assert store.object_path(NAME).read_bytes() == DATA
    assert peer.asked == [4, 0]


def test_a_list_with_another_size_than_the_manifests_is_not_believed(store):
    """However large it says the file is, no room is looked for."""
    huge = ChunkList(1, NAME, 2**38, bytes(2**16 * 32))
    liar, honest = Peer("a", DATA), Peer("b", DATA)
    liar.lists[NAME] = huge.encoded()

    async def run():
        async with StoreThreads() as threads:
            return await Pulls(store, threads).pull(NAME, [liar, honest], num_bytes=len(DATA))

    done = asyncio.run(run())
    assert done.set_aside == {"a": f"its file {NAME} has {2**38} bytes instead of {len(DATA)}"}
    assert store.has(NAME)


def test_two_pulls_of_one_file_at_once_fetch_it_once(store):
    """The second waits, and has it then."""
    peer = Peer("a", DATA)
    peer.delay_s = 0.01

    async def run():
        async with StoreThreads() as threads:
            pulls = Pulls(store, threads)
            return await asyncio.gather(*(pulls.pull(NAME, [peer]) for _ in range(5)))

    reports = asyncio.run(run())
    assert sorted(peer.asked) == [0, 1, 2, 3, 4]
    assert sum(report.fetched_bytes for report in reports) == len(DATA)


def test_a_disk_without_room_is_our_own_error_and_nobody_is_asked_for_a_chunk(tmp_path):
    """No source is blamed."""
    store = ShardStore(tmp_path / "small", quota_bytes=CHUNK_BYTES)
    peer = Peer("a", DATA)
    with pytest.raises(StorageError, match="too few"):
        pull(store, peer)
    assert peer.asked == []


def test_a_disk_that_fails_in_between_ends_the_pull(store):
    """The folder is gone; the error is ours, not the sender's."""
    peer = Peer("a", DATA)
    peer.after = lambda _: store.paths.data(NAME).unlink(missing_ok=True)
    with pytest.raises(StorageError, match="can't be written"):
        pull(store, peer)


def test_a_cancelled_pull_keeps_every_piece_that_was_written(store):
    """And goes on where it was, also in the middle of a chunk."""
    enough = asyncio.Event()

    class Slow(Peer):
        async def piece(self, name, index, piece):
            if len(self.asked_pieces) == 10:
                enough.set()
                await asyncio.sleep(3600)
            return await super().piece(name, index, piece)

    async def run():
        async with StoreThreads() as threads, asyncio.TaskGroup() as tasks:
            task = tasks.create_task(Pulls(store, threads).pull(NAME, [Slow("a", DATA)]))
            await enough.wait()
            task.cancel()

    asyncio.run(run())
    missing = [(i, p) for i, left in store.incoming.missing_pieces(NAME).items() for p in left]
    assert 7 <= len(missing) <= 7 + 4
    again = Peer("a", DATA)
    pull(store, again)
    assert again.asked_pieces == missing
    assert store.object_path(NAME).read_bytes() == DATA


@pytest.mark.parametrize("num_peers", [1, 2, 6])
def test_no_more_is_under_way_than_one_chunk_has_pieces_until_it_is_written(store, num_peers):
    """Of one file, whoever sends it: so much is lost at most, and the link is never idle."""
    under_way = set()
    most = 0

    class Counting(Peer):
        async def piece(self, name, index, piece):
            nonlocal most
            under_way.add((index, piece))
            most = max(most, len(under_way))
            return await super().piece(name, index, piece)

    land = store.incoming.land

    def counted(name, index, piece, data):
        time.sleep(0.003)
        land(name, index, piece, data)
        under_way.discard((index, piece))

    store.incoming.land = counted
    pull(store, *(Counting(str(number), DATA) for number in range(num_peers)))
    assert most == 4


def test_a_bad_chunk_of_two_senders_sets_nobody_aside_until_one_sends_all_of_it(store):
    """A part came in an earlier run; who sent the rest is not to blame for it."""
    store.begin(CHUNKS)
    bad = bytes(PIECE_BYTES)
    store.incoming.land(NAME, 0, 0, bad)
    honest = Peer("a", DATA)
    done = pull(store, honest)
    assert store.object_path(NAME).read_bytes() == DATA
    assert done.set_aside == {}
    assert sorted(p for i, p in honest.asked_pieces if i == 0) == [0, 1, 1, 2, 2, 3, 3]


def test_a_chunk_that_landed_and_was_not_verified_is_verified_at_the_end(store):
    """Its process was killed in between; it is found and fetched again if it was bad."""
    store.begin(CHUNKS)
    for piece in range(4):
        store.incoming.land(NAME, 2, piece, bytes(PIECE_BYTES))
    store = ShardStore(store.paths.root)
    assert store.missing_chunks(NAME) == (0, 1, 3, 4)
    peer = Peer("a", DATA)
    pull(store, peer)
    assert store.object_path(NAME).read_bytes() == DATA
    assert peer.asked == [0, 1, 3, 4, 2]


def test_a_sender_lost_in_the_middle_of_a_chunk_leaves_its_pieces_to_another(store):
    """Each piece comes once."""

    class Lost(Peer):
        async def piece(self, name, index, piece):
            if len(self.asked_pieces) >= 6:
                raise ModelNotFoundError("It is gone.")
            return await super().piece(name, index, piece)

    lost, other = Lost("a", DATA), Peer("b", DATA)
    done = pull(store, lost, other)
    assert store.object_path(NAME).read_bytes() == DATA
    assert done.fetched_bytes == len(DATA)
    assert len(lost.asked_pieces) + len(other.asked_pieces) == 17


def test_a_long_file_is_flushed_while_it_comes(store, monkeypatch):
    """Not all of it at the end, when everybody waits for it."""
    flushed = []
    monkeypatch.setattr(incoming, "FLUSHED_CHUNKS", 2)
    monkeypatch.setattr(incoming, "flush_file", lambda path: flushed.append(path.name))
    pull(store, Peer("a", DATA))
    assert flushed == [f"{NAME}.data"] * 3  # after two of five, after four, and at the end


def test_a_piece_of_another_length_is_not_written(store):
    """Its sender has three chances."""

    class Short(Peer):
        async def piece(self, name, index, piece):
            return (await super().piece(name, index, piece))[:-1]

    done = pull(store, Short("a", DATA), Peer("b", DATA))
    assert store.has(NAME)
    assert "bytes for a piece" in done.set_aside["a"]


def test_the_loop_goes_on_while_the_disk_works(store):
    """Hashing and writing are in threads: a clock on the loop never stops for long."""
    gaps = []

    async def tick():
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    threads_seen = set()
    write = store.write_chunk

    async def run():
        def recording(*args):
            threads_seen.add(threading.current_thread().name)
            write(*args)

        store.write_chunk = recording
        async with StoreThreads(2) as threads:
            clock = asyncio.ensure_future(tick())  # noqa: TID251
            await Pulls(store, threads).pull(NAME, [Peer("a", DATA)])
            clock.cancel()

    asyncio.run(run())
    assert gaps
    assert all(name.startswith("store_") for name in threads_seen)
    assert len(threads_seen) <= 2


def run_and_perhaps_kill(arguments, seconds):
    """Run the child; kill it after so many seconds from its beginning; return whether it was."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.pool.pulling_child", *arguments],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with child:
        assert child.stdout.readline() == b"begun\n", child.stderr.read()
        try:
            _, errors = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return True
        assert child.returncode == 0, errors
        return False


@pytest.mark.processes
def test_a_pull_that_is_killed_at_any_moment_fetches_at_most_a_chunk_a_file_again(tmp_path):
    """Twenty kills at random moments of pulls of two files over one link."""
    source = tmp_path / "source"
    source.mkdir()
    files = [random_bytes(8 * CHUNK_BYTES + 5, seed) for seed in (1, 2)]
    names = write_source(source, files)
    chooser = random.Random(20)  # noqa: S311 - not for secrets
    kills = 0
    while kills < 20:
        store, log = tmp_path / f"store{kills}", tmp_path / f"log{kills}"
        kills_here = 0
        while run_and_perhaps_kill([store, source, log, *names], chooser.uniform(0, 0.35)):
            kills_here += 1
        kills += kills_here
        sent = Counter()
        for line in log.read_text().splitlines():
            name, num_bytes = line.split()
            sent[name] += int(num_bytes)
        opened = ShardStore(store)
        assert opened.notes == []
        for name, data in zip(names, files, strict=True):
            assert len(data) <= sent[name] <= len(data) + kills_here * CHUNK_BYTES
            assert opened.object_path(name).read_bytes() == data
        if kills_here == 0:
            shutil.rmtree(store)
            log.unlink()
