"""``daisy split``: a whole folder of shards, or a reason and nothing at all."""

from __future__ import annotations

import json
import time

import pytest

from engine.pipeline.shard_folder import open_shard_folder
from tests.integration.daisy import (
    daisy,
    daisy_here,
    family,
    interrupt,
    refused,
    started,
    wait_gone,
)

pytestmark = [pytest.mark.processes, pytest.mark.together]

PHASES = ["Reading the model", "Cutting", "Computing golden vectors", "Hashing"]


def ranges(folder):
    return [(s.layers.start, s.layers.stop) for s in open_shard_folder(folder).manifest.shards]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--stages", 1], [(0, 4)]),
        (["--stages", 4], [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (["--cuts", "1,3"], [(0, 1), (1, 3), (3, 4)]),
    ],
)
def test_a_model_becomes_a_folder_of_shards(how, expected, talking, own_data, tmp_path):
    out = tmp_path / "deep" / "shards"
    ended = daisy("split", talking, "--out", out, *how, "--json", data=own_data)
    assert ended.status == 0, ended.err
    told = ended.one("split")
    folder = open_shard_folder(out)
    assert told["folder"] == str(out)
    assert told["manifest_sha256"] == folder.manifest_sha256
    assert told["model"]["num_layers"] == 4
    assert ranges(out) == expected
    assert [(s["layers"]["start"], s["layers"]["stop"]) for s in told["shards"]] == expected
    progress = [e for e in ended.events if e["event"] == "progress"]
    assert {e["phase"] for e in progress} == set(PHASES)
    assert all(0 <= e["done"] <= e["total"] for e in progress)
    assert sorted(p.name for p in out.parent.iterdir()) == ["shards"]
    # A program that reads the lines is told nothing elsewhere.
    assert not ended.err


def test_a_person_is_told_of_every_step_and_of_every_shard(talking, own_data, tmp_path):
    out = tmp_path / "shards"
    ended = daisy("split", talking, "--out", out, "--stages", 2, data=own_data)
    assert (ended.status, ended.out) == (0, "")
    lines = ended.err.splitlines()
    assert [line.removesuffix(" ...") for line in lines if line.endswith(" ...")][:2] == PHASES[:2]
    shown = [line for line in lines if line.startswith("  layers")]
    assert len(shown) == 2
    assert all(line.endswith(" MB") for line in shown)


def test_a_folder_that_exists_is_not_touched(talking, own_data, tmp_path):
    out = tmp_path / "shards"
    assert daisy("split", talking, "--out", out, data=own_data).status == 0
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in out.rglob("*")}
    refused(daisy("split", talking, "--out", out, data=own_data), 2, str(out), "exists already")
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in out.rglob("*")} == before


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        (["--stages", "0"], 2, ["--stages is 0"]),
        (["--stages", "-1"], 2, ["--stages is -1"]),
        (["--stages", "5"], 2, ["4 layers", "5 stages"]),
        (["--stages", "x"], 2, ["--stages", "'x'"]),
        (["--cuts", "3,1"], 2, ["1", "3", "ascend"]),
        (["--cuts", "2,2"], 2, ["2"]),
        (["--cuts", "0"], 2, ["0", "from 1 to 3"]),
        (["--cuts", "4"], 2, ["4", "from 1 to 3"]),
        (["--cuts=-1"], 2, ["-1"]),
        (["--cuts", "1,,3"], 2, ["1,,3"]),
        (["--cuts", "one"], 2, ["one"]),
        (["--cuts", "1", "--stages", "2"], 2, ["--stages", "--cuts"]),
        (["--bogus"], 2, ["--bogus"]),
    ],
)
def test_a_division_that_can_not_be_is_refused(
    how, status, words, talking, own_data, tmp_path, capfd
):
    out = tmp_path / "shards"
    ended = daisy_here("split", talking, "--out", out, *how, data=own_data, capfd=capfd)
    refused(ended, status, *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.embedded
def test_more_stages_than_the_embedded_model_has_layers(embedded, data_dir, tmp_path):
    ended = daisy("split", embedded.folder, "--out", tmp_path / "s", "--stages", 31, data=data_dir)
    refused(ended, 2, "30 layers", "31 stages")
    assert not list(tmp_path.iterdir())


def test_errors_are_events_for_a_program(talking, own_data, tmp_path):
    ended = daisy("split", talking, "--out", tmp_path / "s", "--cuts", 9, "--json", data=own_data)
    error = ended.one("error")
    assert (ended.status, error["code"]) == (2, "usage")
    assert error["what"].endswith(".")
    assert error["advice"].endswith(".")
    assert not ended.err


@pytest.mark.alone
@pytest.mark.embedded
@pytest.mark.parametrize("phase", ["Reading the model", "Cutting", "Computing golden vectors"])
def test_ctrl_c_leaves_nothing_behind(phase, embedded, data_dir, tmp_path):
    words = ("split", embedded.folder, "--out", tmp_path / "shards", "--stages", 3, "--json")
    with started(*words, "--data", data_dir) as process:
        while json.loads(process.stdout.readline()).get("phase") != phase:
            pass
        time.sleep(0.2)
        members = family(process.pid)
        assert members
        status, seconds, _, err = interrupt(process)
        wait_gone(members, 1)
    assert status == 130
    assert b"Traceback" not in err
    assert seconds < 4
    assert not list(tmp_path.iterdir())
