"""Chats in one SQLite file. Used by the store's thread alone; every call is whole or not done."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from array import array
from typing import TYPE_CHECKING

import msgspec

from app.chat.records import Chat, Figures, Found, Message, Sampling
from app.chat.schema import NEWEST, migrate, version_of
from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.chat.records import State

KEEP_DELETED_S = 30 * 24 * 3600.0
EXCERPT_CHARACTERS = 80
MAX_FOUND = 500  # chats of a list
# Columns, in the order they are written and read; put into statements below, never what comes in.
_CHAT = "chat_id, title, is_titled, system_prompt, sampling, leaf_id, created_s, changed_s"
_MESSAGE = "message_id, chat_id, parent_id, role, text, state, created_s, figures, token_ids"
_MARKS = 9


class NewerFileError(StorageError):
    """The chats were written by a newer version of Daisy.

    Update Daisy to see them; this version leaves them as they are.
    """

    code = "newer_file"


class ChatDatabase:
    """One file of chats.

    Thread: the one that made it.
    """

    def __init__(self, file: Path | None) -> None:
        """Open a file, making it if there is none, and bring it to the newest version.

        Args:
            file: Where; None keeps everything in memory.

        Raises:
            sqlite3.Error: It can't be opened, or is damaged.
            NewerFileError: A newer version wrote it.
        """
        self._connection = sqlite3.connect(":memory:" if file is None else file, timeout=5.0)
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> None:
        db = self._connection
        db.isolation_level = None  # transactions are ours
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        version = version_of(db)
        if version > NEWEST:
            raise NewerFileError(f"The chats have version {version}; this is version {NEWEST}.")
        if version:
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(str(verdict))
        migrate(db, version)
        db.create_function("folded", 1, _folded, deterministic=True)
        with self._change():
            db.execute("DELETE FROM chats WHERE deleted_s < ?", (time.time() - KEEP_DELETED_S,))
            # What still grew when the program ended grows no more.
            db.execute("UPDATE messages SET state = 'stopped' WHERE state = 'growing'")

    def close(self) -> None:
        """Close it; what was written is on disk."""
        self._connection.close()

    def copy_to(self, file: Path) -> None:
        """Write a copy of everything.

        Args:
            file: Where; what was there is replaced once the copy is whole.

        Raises:
            OSError: It can't be.
            sqlite3.Error: It can't be.
        """
        beside = file.with_name(f"{file.name}.new")
        beside.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(beside)) as copy:
            self._connection.backup(copy)
        beside.replace(file)

    @contextlib.contextmanager
    def _change(self, *, reaches_disk: bool = True) -> Iterator[None]:
        """Make changes together.

        Args:
            reaches_disk: Wait until they would survive a power cut; else only a crash.
        """
        db = self._connection
        db.execute(f"PRAGMA synchronous = {'FULL' if reaches_disk else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            db.rollback()
            raise
        db.commit()

    # ---- chats --------------------------------------------------------------------------------

    def find(self, words: str) -> list[Found]:
        """Return the chats whose title or text holds some words, the newest first.

        Args:
            words: In any case; empty for all chats.
        """
        where = ""
        values: tuple[str, ...] = ()
        if words.strip():
            where = (
                "AND (instr(folded(title), ?1) OR EXISTS (SELECT 1 FROM messages "
                "WHERE messages.chat_id = chats.chat_id AND instr(folded(text), ?1)))"
            )
            values = (_folded(words.strip()),)
        rows = self._connection.execute(
            f"SELECT {_CHAT} FROM chats WHERE deleted_s IS NULL {where} "  # noqa: S608
            f"ORDER BY changed_s DESC LIMIT {MAX_FOUND}",
            values,
        ).fetchall()
        chats = [_chat(row) for row in rows]
        return [Found(chat, self._excerpt(chat, values[0]) if values else "") for chat in chats]

    def _excerpt(self, chat: Chat, words: str) -> str:
        row = self._connection.execute(
            "SELECT text, instr(folded(text), ?2) FROM messages "
            "WHERE chat_id = ?1 AND instr(folded(text), ?2) ORDER BY number DESC LIMIT 1",
            (chat.chat_id, words),
        ).fetchone()
        if row is None:
            return ""
        begin = max(0, row[1] - 1 - EXCERPT_CHARACTERS // 4)
        return str(row[0])[begin : begin + EXCERPT_CHARACTERS]

    def put_chat(self, chat: Chat) -> None:
        """Keep a chat as it is now.

        Args:
            chat: New or known.
        """
        with self._change():
            self._put_chat(chat)

    def _put_chat(self, chat: Chat) -> None:
        settings = ", ".join(f"{name} = excluded.{name}" for name in _CHAT.split(", ")[1:])
        self._connection.execute(
            f"INSERT INTO chats ({_CHAT}) VALUES (?,?,?,?,?,?,?,?) "  # noqa: S608
            f"ON CONFLICT (chat_id) DO UPDATE SET {settings}",
            (
                chat.chat_id,
                chat.title,
                chat.is_titled,
                chat.system_prompt,
                msgspec.json.encode(chat.sampling).decode(),
                chat.leaf_id,
                chat.created_s,
                chat.changed_s,
            ),
        )

    def rename_chat(self, chat_id: str, title: str) -> None:
        """Give a chat the title a person chose.

        Args:
            chat_id: Of it.
            title: Not empty.
        """
        with self._change():
            self._connection.execute(
                "UPDATE chats SET title = ?, is_titled = 1 WHERE chat_id = ?", (title, chat_id)
            )

    def delete_chat(self, chat_id: str, now_s: float) -> None:
        """Take a chat from the list; it can be brought back for 30 days.

        Args:
            chat_id: Of it.
            now_s: Unix time.
        """
        with self._change():
            self._connection.execute(
                "UPDATE chats SET deleted_s = ? WHERE chat_id = ?", (now_s, chat_id)
            )

    def restore_chat(self, chat_id: str) -> None:
        """Bring a chat back.

        Args:
            chat_id: Of it.
        """
        with self._change():
            self._connection.execute(
                "UPDATE chats SET deleted_s = NULL WHERE chat_id = ?", (chat_id,)
            )

    def read_chat(self, chat_id: str) -> tuple[Chat, list[Message]] | None:
        """Return a chat with all its messages; None if there is none.

        Args:
            chat_id: Of it.
        """
        row = self._connection.execute(
            f"SELECT {_CHAT} FROM chats WHERE chat_id = ?",  # noqa: S608
            (chat_id,),
        ).fetchone()
        if row is None:
            return None
        rows = self._connection.execute(
            f"SELECT {_MESSAGE} FROM messages WHERE chat_id = ? ORDER BY number",  # noqa: S608
            (chat_id,),
        )
        return _chat(row), [_message(message) for message in rows]

    # ---- messages -----------------------------------------------------------------------------

    def add_message(self, chat: Chat, message: Message) -> None:
        """Keep a message, and its chat as it is with it.

        A user's message would survive a power cut once this returns.

        Args:
            chat: As it is with the message.
            message: New.
        """
        with self._change():
            self._put_chat(chat)
            self._connection.execute(
                f"INSERT INTO messages ({_MESSAGE}) VALUES ({','.join('?' * _MARKS)})",  # noqa: S608
                (
                    message.message_id,
                    message.chat_id,
                    message.parent_id,
                    message.role,
                    message.text,
                    message.state,
                    message.created_s,
                    msgspec.json.encode(message.figures).decode(),
                    array("i", message.token_ids).tobytes(),
                ),
            )

    def grow_message(self, message_id: str, text: str, token_ids: tuple[int, ...]) -> None:
        """Add to an answer that runs.

        Args:
            message_id: Of it.
            text: That came since the last time.
            token_ids: Of that text.
        """
        with self._change(reaches_disk=False):
            self._connection.execute(
                "UPDATE messages SET text = text || ?, "
                "token_ids = CAST(token_ids || ? AS BLOB) WHERE message_id = ?",
                (text, array("i", token_ids).tobytes(), message_id),
            )

    def end_message(self, message_id: str, state: State, figures: Figures) -> None:
        """Say how an answer ended, or that it goes on.

        Args:
            message_id: Of it.
            state: Which it has now.
            figures: As far as they are known.
        """
        with self._change():
            self._connection.execute(
                "UPDATE messages SET state = ?, figures = ? WHERE message_id = ?",
                (state, msgspec.json.encode(figures).decode(), message_id),
            )


def _folded(text: object) -> str:
    return str(text).casefold()


def _chat(row: tuple[object, ...]) -> Chat:
    chat_id, title, is_titled, system_prompt, sampling, leaf_id, created_s, changed_s = row
    return msgspec.convert(
        {
            "chat_id": chat_id,
            "title": title,
            "is_titled": bool(is_titled),
            "system_prompt": system_prompt,
            "sampling": _decoded(sampling, Sampling),
            "leaf_id": leaf_id,
            "created_s": created_s,
            "changed_s": changed_s,
        },
        Chat,
    )


def _message(row: tuple[object, ...]) -> Message:
    fields = dict(zip(_MESSAGE.split(", "), row, strict=True))
    ids = array("i")
    written = bytes(fields["token_ids"] or b"")  # type: ignore[call-overload]
    ids.frombytes(written[: len(written) // ids.itemsize * ids.itemsize])
    fields["token_ids"] = tuple(ids)
    fields["figures"] = _decoded(fields["figures"], Figures)
    return msgspec.convert(fields, Message)


def _decoded(written: object, kind: type[Sampling] | type[Figures]) -> Sampling | Figures:
    """Return what was written, or what holds where it can't be read: a chat is worth more."""
    try:
        return msgspec.json.decode(str(written), type=kind)
    except msgspec.MsgspecError:
        return kind()
