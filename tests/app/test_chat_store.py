import sqlite3
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtTest import QSignalSpy

from app.chat.database import KEEP_DELETED_S, ChatDatabase, NewerFileError
from app.chat.records import Chat, Figures, Message, Sampling
from app.chat.schema import NEWEST
from app.chat.store import ChatStore

PATIENCE_MS = 15_000


def chat(chat_id="c", **fields):
    return Chat(chat_id=chat_id, **fields)


def message(message_id="m", chat_id="c", **fields):
    return Message(**{
        "message_id": message_id,
        "chat_id": chat_id,
        "parent_id": None,
        "role": "user",
        **fields,
    })


@pytest.fixture
def database(tmp_path):
    database = ChatDatabase(tmp_path / "chats.sqlite")
    yield database
    database.close()


def test_everything_of_a_chat_comes_back_as_it_was(database):
    one = chat(
        title="Größe 你好",
        is_titled=True,
        system_prompt="Be\nbrief.",
        sampling=Sampling(temperature=0.1, seed=2**40),
        leaf_id="b",
        created_s=1.5,
        changed_s=2.5,
    )
    asked = message("a", text="x\x01\u202e \U0001f600", created_s=1.5)
    answered = message(
        "b",
        parent_id="a",
        role="assistant",
        text="y",
        state="failed",
        figures=Figures(model="M", pcs=("A", "B"), pauses_s=(1.0,), code="stage"),
        token_ids=(1, 2**31 - 1, 0),
    )
    database.add_message(one, asked)
    database.add_message(one, answered)

    assert database.read_chat("c") == (one, [asked, answered])
    assert database.read_chat("none") is None


def test_an_answer_grows_piece_by_piece_and_then_ends(database):
    database.add_message(chat(), message(role="assistant", state="growing"))
    database.grow_message("m", "He", (1, 2))
    database.grow_message("m", "llo", (3,))
    database.end_message("m", "whole", Figures(seed=4))

    _, (found,) = database.read_chat("c")
    assert (found.text, found.token_ids, found.state) == ("Hello", (1, 2, 3), "whole")
    assert found.figures.seed == 4


def test_an_answer_that_grew_when_the_program_ended_is_kept_as_stopped(tmp_path):
    file = tmp_path / "chats.sqlite"
    first = ChatDatabase(file)
    first.add_message(chat(), message(role="assistant", state="growing", text="half"))
    first.close()

    again = ChatDatabase(file)
    _, (found,) = again.read_chat("c")
    again.close()
    assert (found.text, found.state) == ("half", "stopped")


def test_words_are_found_in_any_case_and_script_with_their_place(database):
    database.add_message(chat("a", title="Holidays", changed_s=1), message("1", "a", text="Paris"))
    database.add_message(
        chat("b", title="Work", changed_s=2), message("2", "b", text="x" * 200 + " STRASSE 北京")
    )
    assert [f.chat.chat_id for f in database.find("")] == ["b", "a"]
    assert [f.chat.chat_id for f in database.find("straße")] == ["b"]
    assert "北京" in database.find("北京")[0].excerpt
    assert [f.chat.chat_id for f in database.find("HOLI")] == ["a"]
    assert database.find("%") == []
    assert database.find("' OR 1=1 --") == []


def test_a_deleted_chat_comes_back_within_thirty_days_and_then_no_more(tmp_path):
    file = tmp_path / "chats.sqlite"
    database = ChatDatabase(file)
    for name, age_s in (("new", 10), ("old", KEEP_DELETED_S + 10)):
        database.add_message(chat(name), message(f"m{name}", name))
        database.delete_chat(name, time.time() - age_s)
    assert database.find("") == []
    database.close()

    database = ChatDatabase(file)
    database.restore_chat("new")
    database.restore_chat("old")
    assert [f.chat.chat_id for f in database.find("")] == ["new"]
    assert database.read_chat("old") is None
    database.close()


def test_settings_that_cannot_be_read_do_not_cost_the_chat(database):
    database.add_message(chat(sampling=Sampling(seed=3)), message())
    database._connection.execute("UPDATE chats SET sampling = '{broken'")
    database._connection.execute("UPDATE messages SET figures = '[]', token_ids = x'0102'")
    found, (one,) = database.read_chat("c")
    assert found.sampling == Sampling()
    assert one.figures == Figures()
    assert one.token_ids == ()


@given(st.text(max_size=200), st.lists(st.text(max_size=50), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text_is_kept_as_it_is(text, pieces):
    def kept(part):
        return part.encode("utf-8", "replace").decode()

    database = ChatDatabase(None)
    database.add_message(chat(title=kept(text)), message(text=kept(text)))
    for piece in pieces:
        database.grow_message("m", kept(piece), ())
    found, (one,) = database.read_chat("c")
    database.close()
    assert found.title == kept(text)
    assert one.text == kept(text + "".join(pieces))


def test_a_file_of_a_newer_version_is_left_as_it_is(tmp_path):
    file = tmp_path / "chats.sqlite"
    ChatDatabase(file).close()
    with sqlite3.connect(file) as raw:
        raw.execute(f"PRAGMA user_version = {NEWEST + 1}")
    raw.close()
    before = file.read_bytes()
    with pytest.raises(NewerFileError, match=str(NEWEST + 1)):
        ChatDatabase(file)
    assert file.read_bytes() == before


# ---- the store ---------------------------------------------------------------------------------


def do(store, qtbot, job):
    done = []
    store.do(job, done.append, done.append)
    qtbot.waitUntil(lambda: len(done) == 1, timeout=PATIENCE_MS)
    return done[0]


@pytest.mark.parametrize("damage", ["zeros", "middle", "text"])
def test_a_damaged_file_is_set_aside_and_its_copy_shown(tmp_path, qtbot, owner, damage):
    store = ChatStore(tmp_path, owner)
    long = "word " * 4000
    do(store, qtbot, lambda db: db.add_message(chat(title="Kept"), message(text=long)))
    store.close()
    ChatStore(tmp_path, owner).close()  # makes no second copy within a day
    (tmp_path / "chats.copy.sqlite").unlink()
    ChatStore(tmp_path, owner).close()
    file = tmp_path / "chats.sqlite"
    content = bytearray(file.read_bytes())
    match damage:
        case "zeros":
            content[:] = bytes(len(content))
        case "middle":
            content[4096:] = b"\xff" * (len(content) - 4096)
        case "text":
            content[:] = b"not a database at all" * 100
    file.write_bytes(content)

    store = ChatStore(tmp_path, owner)
    told = QSignalSpy(store.set_aside)
    found = do(store, qtbot, lambda db: db.find(""))
    qtbot.waitUntil(lambda: told.count() == 1, timeout=PATIENCE_MS)
    store.close()

    assert [f.chat.title for f in found] == ["Kept"]
    aside, made = told.at(0)
    assert (tmp_path / aside).read_bytes() == bytes(content)
    assert made


def test_without_a_copy_a_damaged_file_begins_anew_and_that_is_said(tmp_path, qtbot, owner):
    (tmp_path / "chats.sqlite").write_bytes(bytes(9000))
    store = ChatStore(tmp_path, owner)
    told = QSignalSpy(store.set_aside)
    assert do(store, qtbot, lambda db: db.find("")) == []
    qtbot.waitUntil(lambda: told.count() == 1, timeout=PATIENCE_MS)
    assert told.at(0)[1] == ""
    store.close()


def test_a_folder_that_cannot_be_written_keeps_chats_until_the_end_and_says_so(
    tmp_path, qtbot, owner
):
    (tmp_path / "app").write_text("a file where the folder should be")
    store = ChatStore(tmp_path / "app", owner)
    told = QSignalSpy(store.not_kept)
    do(store, qtbot, lambda db: db.add_message(chat(), message()))
    assert len(do(store, qtbot, lambda db: db.find(""))) == 1
    qtbot.waitUntil(lambda: told.count() == 1, timeout=PATIENCE_MS)
    assert told.at(0)[0].code == "storage"
    store.close()


def test_what_cannot_be_written_is_told_and_the_store_goes_on(tmp_path, qtbot, owner):
    store = ChatStore(tmp_path, owner)
    error = do(store, qtbot, lambda db: db._connection.execute("INSERT INTO nowhere VALUES (1)"))
    assert error.code == "storage"
    assert do(store, qtbot, lambda db: db.find("")) == []
    store.close()


def test_closing_finishes_what_was_asked_for(tmp_path, owner):
    store = ChatStore(tmp_path, owner)
    for number in range(50):
        store.do(lambda db, n=number: db.add_message(chat(f"c{n}"), message(f"m{n}", f"c{n}")))
    store.close()
    again = ChatDatabase(tmp_path / "chats.sqlite")
    assert len(again.find("")) == 50
    again.close()
