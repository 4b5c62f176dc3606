"""A node's folder: one holder, one identity, a term that stays, and damage that is said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.domain import NodeId
from engine.errors import StorageError, UsageError
from engine.messages.pool import Term
from engine.pool.node_folder import NodeFolder, read_reach


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
        "folder = NodeFolder(pathlib.Path(sys.argv[1])); folder.keep_reach('ws://127.0.0.1:1')\n"
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


@pytest.mark.parametrize("name", ["id.json", "term.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"counter": -', b"[1]"])
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
    folder.close()


def test_reach_is_there_while_the_node_runs_and_gone_afterwards(tmp_path):
    folder = NodeFolder(tmp_path)
    assert read_reach(tmp_path) is None
    folder.keep_reach("ws://127.0.0.1:4711")
    assert read_reach(tmp_path).address == "ws://127.0.0.1:4711"
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
