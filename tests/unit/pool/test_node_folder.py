"""A node's folder: one holder, one identity, a term that stays, and damage that is said."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys

import pytest
from msgspec.structs import replace

from engine.domain import NodeId
from engine.errors import StorageError, UsageError
from engine.messages.pool import Term
from engine.pool.known_peers import MAX_KNOWN, KnownPeer
from engine.pool.node_folder import NodeFolder, is_held, read_reach
from engine.pool.roster_changes import add_member, remove_member
from tests.unit.pool.coordinator import ready_record


def test_a_node_is_the_same_after_a_restart_and_its_term_stays(tmp_path):
    first = NodeFolder(tmp_path / "node")
    first.keep_term(Term(7, first.node_id, 99))
    first.close()
    second = NodeFolder(tmp_path / "node")
    assert second.node_id == first.node_id
    assert second.term == Term(7, first.node_id, 99)
    assert second.notes == []
    second.close()


def test_two_folders_have_two_identities(tmp_path):
    one, other = NodeFolder(tmp_path / "a"), NodeFolder(tmp_path / "b")
    assert one.node_id != other.node_id
    one.close()
    other.close()


def test_a_folder_in_use_is_refused_and_its_holder_named(tmp_path):
    hold = (
        "import sys, pathlib; from engine.pool.node_folder import NodeFolder\n"
        "folder = NodeFolder(pathlib.Path(sys.argv[1])); folder.keep_reach(1, 'open')\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline().strip() == b"held"
        with pytest.raises(UsageError, match=rf"in use by another node \(process {holder.pid}\)"):
            NodeFolder(tmp_path)
    finally:
        holder.communicate()
    NodeFolder(tmp_path).close()  # it went with its process


@pytest.mark.parametrize(
    "name", ["roster.bin", "term.json", "known.json", "port.json", "record.json"]
)
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"counter": -', b"[1]", b"-7"])
def test_a_damaged_file_is_set_aside_and_said(tmp_path, name, content):
    NodeFolder(tmp_path).close()
    (tmp_path / name).write_bytes(content)
    folder = NodeFolder(tmp_path)
    (note,) = folder.notes
    assert note.startswith(f"{name} was damaged; it was set aside as {name}.damaged-")
    aside = next(tmp_path.glob(f"{name}.damaged-*"))
    assert aside.read_bytes() == content
    assert folder.node_id
    assert folder.term is None
    assert folder.known == ()
    assert folder.last_port is None
    assert folder.record is None
    folder.close()
    again = NodeFolder(tmp_path)
    assert again.notes == []  # said once
    assert again.node_id == folder.node_id
    again.close()


def test_a_pc_founds_a_pool_of_its_own_and_is_in_it_after_a_restart(tmp_path):
    first = NodeFolder(tmp_path, "Kitchen")
    assert [member.node_id for member in first.roster.members] == [first.node_id]
    assert first.roster.members[0].entry.name == "Kitchen"
    first.close()
    second = NodeFolder(tmp_path, "Study")
    assert second.roster.roster.signed == first.roster.roster.signed
    second.close()


def test_a_name_that_is_chosen_later_is_signed_and_stays(tmp_path):
    first = NodeFolder(tmp_path, "Kitchen")
    first.take_name("Study\n")
    first.close()
    second = NodeFolder(tmp_path, "Kitchen")
    (own,) = second.roster.members
    assert (own.entry.name, second.roster.roster.content.version) == ("Study", 2)
    second.take_name("Study")
    assert second.roster.roster.content.version == 2
    second.close()


def test_a_plain_member_is_told_that_it_cannot_rename_itself(tmp_path):
    host, member = NodeFolder(tmp_path / "host"), NodeFolder(tmp_path / "member")
    known = add_member(
        host.roster, host.identity, member.identity.certificate, "M", "member", os.urandom
    )
    member.join_pool(known, host.node_id, "10.0.0.2:7420")
    member.take_name("Boss")
    assert member.notes == ["Only an owner can rename this PC; it is called M."]
    assert member.roster.member(member.node_id).entry.name == "M"
    host.close()
    member.close()


def test_s22_key_and_roster_can_be_read_by_this_person_alone(tmp_path):
    NodeFolder(tmp_path).close()
    for name in ("identity.pem", "roster.bin"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_s25_a_roster_cut_short_or_turned_on_the_disk_lets_nobody_in_who_was_not(tmp_path):
    """A power cut, a bad sector: the roster is as it was, or there is none and nobody is in it."""
    host = NodeFolder(tmp_path / "host")
    ben, carl = (NodeFolder(tmp_path / name) for name in ("ben", "carl"))
    known = host.roster
    for other in (ben, carl):
        known = add_member(
            known, host.identity, other.identity.certificate, "x", "member", os.urandom
        )
    known = remove_member(known, host.identity, carl.node_id, os.urandom)
    host.keep_roster(known)
    for folder in (host, ben, carl):
        folder.close()
    file = tmp_path / "host" / "roster.bin"
    whole = file.read_bytes()
    chance = random.Random(25)  # noqa: S311 - so that a failure comes again
    spoilt = [whole[: len(whole) * part // 24] for part in range(24)]
    for _ in range(40):
        at = chance.randrange(8 * len(whole))
        turned = bytearray(whole)
        turned[at // 8] ^= 1 << at % 8
        spoilt.append(bytes(turned))
    for data in spoilt:
        file.write_bytes(data)
        opened = NodeFolder(tmp_path / "host")
        there = {member.node_id for member in opened.roster.members}
        assert opened.node_id in there
        assert there <= {host.node_id, ben.node_id}
        is_same_pool = opened.roster.roster.content.pool_id == known.roster.content.pool_id
        assert is_same_pool or there == {host.node_id}
        assert bool(opened.notes) != is_same_pool
        opened.close()


def test_a_damaged_identity_is_set_aside_with_the_pool_it_was_in(tmp_path):
    first = NodeFolder(tmp_path)
    first.close()
    (tmp_path / "identity.pem").write_text("x")
    second = NodeFolder(tmp_path)
    about_key, about_pool = second.notes
    assert "identity.pem is damaged" in about_key
    assert about_key.endswith("Pair this PC again.")
    assert about_pool.startswith("roster.bin is of another identity")
    assert second.node_id != first.node_id
    assert second.roster.roster.content.pool_id != first.roster.roster.content.pool_id
    second.close()


def test_s25_a_pc_that_leaves_has_a_new_key_and_a_pool_of_its_own(tmp_path):
    folder = NodeFolder(tmp_path)
    before, pool = folder.node_id, folder.roster.roster.content.pool_id
    folder.keep_term(Term(3, before, 5))
    folder.leave_pool()
    assert folder.node_id != before
    assert folder.term is None
    folder.close()
    again = NodeFolder(tmp_path)
    assert again.node_id == folder.node_id
    assert again.roster.roster.content.pool_id != pool
    assert again.term is None
    again.close()


def test_a_pc_that_joins_is_in_the_other_pool_after_a_restart_and_knows_where_it_is(tmp_path):
    host, joiner = NodeFolder(tmp_path / "host"), NodeFolder(tmp_path / "joiner")
    joiner.keep_term(Term(3, joiner.node_id, 5))
    known = add_member(
        host.roster, host.identity, joiner.identity.certificate, "J", "owner", os.urandom
    )
    joiner.join_pool(known, host.node_id, "10.0.0.2:7420")
    joiner.close()
    again = NodeFolder(tmp_path / "joiner")
    assert {member.node_id for member in again.roster.members} == {host.node_id, joiner.node_id}
    assert again.known == (KnownPeer(host.node_id, "10.0.0.2:7420"),)
    assert again.term is None
    again.close()
    host.close()


def test_a_folder_in_a_file_s_place_is_set_aside(tmp_path):
    (tmp_path / "term.json").mkdir()
    folder = NodeFolder(tmp_path)
    assert folder.notes[0].startswith("term.json was damaged")
    folder.keep_term(Term(1, folder.node_id, 1))
    folder.close()


def test_what_the_pool_is_to_run_is_there_after_a_restart(tmp_path):
    first = NodeFolder(tmp_path)
    assert first.record is None
    record = ready_record()
    first.keep_record(replace(record, version=1))
    first.keep_record(record)
    first.close()
    second = NodeFolder(tmp_path)
    assert second.record == record
    second.close()


def test_a_record_s_term_counts_as_accepted_though_the_term_was_lost(tmp_path):
    first = NodeFolder(tmp_path)
    record = ready_record()
    first.keep_record(record)
    first.close()
    (tmp_path / "term.json").write_text("{")
    second = NodeFolder(tmp_path)
    assert second.term == record.term
    newer = replace(record.term, counter=record.term.counter + 1)
    second.keep_term(newer)
    second.close()
    third = NodeFolder(tmp_path)
    assert third.term == newer
    third.close()


def test_a_record_too_long_to_be_read_again_is_not_written(tmp_path):
    folder = NodeFolder(tmp_path)
    record = ready_record()
    folder.keep_record(record)
    with pytest.raises(StorageError, match=r"record\.json would be \d+ bytes long"):
        folder.keep_record(replace(record, reason="x" * (1 << 20)))
    folder.close()
    again = NodeFolder(tmp_path)
    assert (again.record, again.notes) == (record, [])
    again.close()


def test_what_was_reached_and_where_it_listened_are_there_after_a_restart(tmp_path):
    first = NodeFolder(tmp_path)
    known = (KnownPeer(NodeId("a"), "10.0.0.2:7420"),)
    first.keep_known(known)
    first.keep_port(7421)
    first.close()
    second = NodeFolder(tmp_path)
    assert second.known == known
    assert second.last_port == 7421
    second.close()


def test_a_file_with_more_addresses_than_are_kept_is_cut(tmp_path):
    NodeFolder(tmp_path).close()
    many = [{"node_id": f"n{i}", "address": f"10.0.0.2:{i + 1}"} for i in range(1000)]
    many[0]["address"] = "no address"
    (tmp_path / "known.json").write_text(json.dumps(many))
    folder = NodeFolder(tmp_path)
    assert len(folder.known) == MAX_KNOWN
    assert folder.known[0].node_id == "n1"
    folder.close()


def test_whether_a_node_runs_is_seen_by_its_lock(tmp_path):
    assert not is_held(tmp_path)
    folder = NodeFolder(tmp_path)
    assert is_held(tmp_path)
    assert is_held(tmp_path)  # looking changes nothing
    folder.close()
    assert not is_held(tmp_path)


def test_where_a_node_that_was_killed_was_reached_is_forgotten(tmp_path):
    NodeFolder(tmp_path).close()
    (tmp_path / "reach.json").write_text("{}")
    folder = NodeFolder(tmp_path)
    assert not (tmp_path / "reach.json").exists()
    folder.close()


def test_reach_is_there_while_the_node_runs_and_gone_afterwards(tmp_path):
    folder = NodeFolder(tmp_path)
    assert read_reach(tmp_path) is None
    folder.keep_reach(4711, "sesame")
    assert read_reach(tmp_path).control_port == 4711
    assert read_reach(tmp_path).token == "sesame"  # noqa: S105 - of a test
    assert (tmp_path / "reach.json").stat().st_mode & 0o077 == 0, "only this person may read it"
    assert read_reach(tmp_path).node_id == folder.node_id  # who must answer there
    folder.close()
    folder.close()
    assert read_reach(tmp_path) is None


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="can't be written"):
        NodeFolder(tmp_path / "file" / "node")


def test_a_term_of_another_node_is_kept_as_well(tmp_path):
    folder = NodeFolder(tmp_path)
    folder.keep_term(Term(3, NodeId("other"), 5))
    folder.close()
    again = NodeFolder(tmp_path)
    assert again.term == Term(3, NodeId("other"), 5)
    again.close()
