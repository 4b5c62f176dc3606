"""Files between real processes over loopback: twice, killed, damaged, and onto a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from engine.pool.chunk_pieces import PIECE_BYTES
from engine.pool.chunks import CHUNK_BYTES
from engine.pool.store import ShardStore
from engine.splitter.manifest import sha256_of
from tests.paired import identity_of
from tests.unit.pool.files import random_bytes

pytestmark = [pytest.mark.processes, pytest.mark.together]

CHECKOUT = Path(__file__).parents[2]
IS_LONG = os.environ.get("DAISY_LONG") == "1"
KILLS = 20 if IS_LONG else 2  # of the sender, and as many of the receiver
PACE_MS = 5  # a piece: 1.7 Gbit/s
FILES = (random_bytes(5 * CHUNK_BYTES + 3 * PIECE_BYTES + 7, 1), random_bytes(CHUNK_BYTES + 1, 2))
NAMES = tuple(sha256_of(data) for data in FILES)
BIG, SMALL = NAMES


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Both files, as a PC has them."""
    folder = tmp_path_factory.mktemp("files")
    for name, data in zip(NAMES, FILES, strict=True):
        (folder / name).write_bytes(data)
    return folder


def started(*words):
    command = [sys.executable, "-m", "tests.integration.pushing", *map(str, words)]
    return subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


class Sender:
    """A PC that has files; it can be killed and comes back at the same port."""

    def __init__(self, node_id, files, folder, names=NAMES, pace_ms=PACE_MS):
        identity_of(node_id)  # before its process looks for it
        self.store, self.log = folder / f"{node_id}-store", folder / f"{node_id}-log"
        self.log.touch()
        paths = []
        for name in names:  # of its own, so that what becomes of one store stays there
            paths.append(folder / f"{node_id}-{name}")
            shutil.copyfile(files / name, paths[-1])
        self.node_id, self.port = node_id, 0
        self._words = (self.store, self.log, pace_ms, *paths)
        self.start()

    def start(self):
        self._process = started("send", self.node_id, self.port, *self._words)
        self.port = int(self._process.stdout.readline())

    def kill(self):
        self._process.kill()
        self._end()

    def stop(self):
        self._process.stdin.close()
        self._end()

    def _end(self):
        self._process.wait(20)
        self._process.stdin.close()
        self._process.stdout.close()

    @property
    def place(self):
        return f"{self.node_id}={self.port}"

    def asked_bytes(self):
        """Bytes of each file this sender was asked for, whatever became of the answers."""
        lengths = {name: len(data) for name, data in zip(NAMES, FILES, strict=True)}
        asked = Counter()
        for line in self.log.read_text().splitlines():
            name, index, piece = line.split()
            start = int(index) * CHUNK_BYTES + int(piece) * PIECE_BYTES
            asked[name] += min(PIECE_BYTES, lengths[name] - start)
        return asked


@contextmanager
def sending(*senders):
    with ExitStack() as stack:
        for sender in senders:
            stack.callback(sender.stop)
        yield


@contextmanager
def pulling(store, *senders, names=NAMES, spare_bytes=0):
    # Yields a receiver that has begun.
    identity_of("receiver")
    where = ",".join(sender.place for sender in senders)
    process = started("pull", store, spare_bytes, where, *names)
    with process:
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


def pulled(store, *senders, **options):
    """Pull to the end and return what came of it."""
    with pulling(store, *senders, **options) as process:
        out, _ = process.communicate(timeout=60)
        return json.loads(out)


def assert_whole(store):
    opened = ShardStore(store)
    assert opened.notes == []
    for name, data in zip(NAMES, FILES, strict=True):
        assert opened.object_path(name).read_bytes() == data
    assert not list(store.glob("partial/*"))


# ---- what is there is not moved ----------------------------------------------------------------


def test_a_second_pull_moves_nothing_and_asks_nobody(files, tmp_path):
    sender = Sender("a", files, tmp_path, pace_ms=0)
    with sending(sender):
        assert pulled(tmp_path / "mine", sender) == {
            "fetched_bytes": sum(map(len, FILES)),
            "set_aside": {},
        }
        assert sender.asked_bytes() == dict(zip(NAMES, map(len, FILES), strict=True))
    # Another process, and the sender is gone: nobody has to be asked.
    assert pulled(tmp_path / "mine", sender) == {"fetched_bytes": 0, "set_aside": {}}
    assert_whole(tmp_path / "mine")


# ---- whoever is killed -------------------------------------------------------------------------


def chooser():
    seed = random.SystemRandom().randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")  # shown where the test fails
    return random.Random(seed)  # noqa: S311 - not for secrets


def ends_within(process, seconds):
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def kill_receivers(sender, store, moments, most):
    """Kill one receiver after the other, until one is done; return how many."""
    for kills in range(most):
        with pulling(store, sender) as process:
            if ends_within(process, moments.uniform(0, 0.25)):
                return kills
    return most


def kill_senders(sender, process, moments, most):
    """Kill the sender again and again while somebody pulls from it; return how often."""
    for kills in range(most):
        if ends_within(process, moments.uniform(0, 0.25)):
            return kills
        sender.kill()
        sender.start()
    return most


def assert_little_was_sent_again(sender, num_kills):
    asked = sender.asked_bytes()
    for name, data in zip(NAMES, FILES, strict=True):
        again = asked[name] - len(data)
        assert 0 <= again <= num_kills * CHUNK_BYTES, (name, again, num_kills)


def test_a_receiver_that_is_killed_has_at_most_a_chunk_of_each_file_sent_again(files, tmp_path):
    moments, kills = chooser(), 0
    while kills < KILLS:
        sender, store = Sender(f"a{kills}", files, tmp_path), tmp_path / f"mine{kills}"
        with sending(sender):
            kills_here = kill_receivers(sender, store, moments, KILLS - kills)
            pulled(store, sender)
            assert_little_was_sent_again(sender, kills_here)
        assert_whole(store)
        kills += kills_here


def test_a_sender_that_is_killed_sends_at_most_a_chunk_of_each_file_again(files, tmp_path):
    moments, kills = chooser(), 0
    while kills < KILLS:
        sender, store = Sender(f"a{kills}", files, tmp_path), tmp_path / f"mine{kills}"
        with sending(sender), pulling(store, sender) as process:
            kills_here = kill_senders(sender, process, moments, KILLS - kills)
            assert "fetched_bytes" in json.loads(process.stdout.readline())
            assert_little_was_sent_again(sender, kills_here)
        assert_whole(store)
        kills += kills_here


# ---- whoever has it wrong ----------------------------------------------------------------------


def flip_a_bit(path, at, *, secretly):
    """Change a file, and its date or not."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))
    if secretly:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("secretly", [True, False])
def test_a_flipped_bit_is_refused_and_its_chunk_comes_from_another(files, tmp_path, secretly):
    bad, good = (Sender(node_id, files, tmp_path, pace_ms=1) for node_id in ("bad", "good"))
    with sending(bad, good):
        for index in range(5):  # wherever it is asked first
            path = bad.store / "objects" / BIG
            flip_a_bit(path, index * CHUNK_BYTES + 1000, secretly=secretly)
        done = pulled(tmp_path / "mine", bad, good)
        if secretly:  # it believes its disk; the receiver does not
            assert "is not what it should be" in done["set_aside"]["bad"]
        else:  # it saw that something wrote there, looked, and took the file out
            assert not (bad.store / "objects" / BIG).exists()
        assert "good" not in done["set_aside"]
    assert_whole(tmp_path / "mine")


# ---- no room -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    # 16 MiB.
    disk = tmp_path / "disk"
    disk.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("nothing can be mounted here")
    command = [mount, "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    yield disk
    subprocess.run([unmount, str(disk)], check=True)


def room(disk):
    return shutil.disk_usage(disk).free


def has_any(bitmap):
    """It says of some piece that it is there."""
    with contextlib.suppress(OSError):  # it is being replaced
        return any(bitmap.read_bytes())
    return False


def test_a_full_disk_is_said_with_what_is_lacking_and_nothing_is_left_behind(
    files, tmp_path, small_disk
):
    sender = Sender("a", files, tmp_path, pace_ms=0)
    with sending(sender):
        told = pulled(small_disk / "mine", sender, names=[BIG])
        assert told["code"] == "storage"
        lacking = len(FILES[0]) - room(small_disk)
        assert f"{len(FILES[0])} bytes are to come" in told["what"]
        assert abs(int(told["what"].split(": ")[-1].split()[0]) - lacking) < 100_000
        assert sender.asked_bytes() == {}
        left = [path.name for path in small_disk.rglob("*") if path.is_file()]
        assert left == ["format"]
        # What does fit comes all the same.
        assert pulled(small_disk / "mine", sender, names=[SMALL])["fetched_bytes"] == len(FILES[1])


def test_a_disk_that_fills_up_meanwhile_ends_the_pull_and_what_came_is_kept(
    files, tmp_path, small_disk
):
    (small_disk / "other").write_bytes(bytes(room(small_disk) - 3 * CHUNK_BYTES))
    sender = Sender("a", files, tmp_path, names=[SMALL], pace_ms=100)
    with sending(sender):
        with pulling(small_disk / "mine", sender, names=[SMALL]) as process:
            while not any(map(has_any, small_disk.glob("mine/partial/*.bitmap"))):
                pass
            (small_disk / "filler").write_bytes(bytes(room(small_disk) - PIECE_BYTES))
            told = json.loads(process.stdout.readline())
        assert told["code"] == "storage"
        assert sender.asked_bytes()[SMALL] < len(FILES[1]) + PIECE_BYTES
        (small_disk / "filler").unlink()
        done = pulled(small_disk / "mine", sender, names=[SMALL])
        assert 0 < done["fetched_bytes"] < len(FILES[1])
    assert ShardStore(small_disk / "mine").object_path(SMALL).read_bytes() == FILES[1]
