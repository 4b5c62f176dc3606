"""The tables chats are kept in, and how older files become the newest kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

# One script a version: a file of version n has been through the first n of them. Never changed.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE chats (
        chat_id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        is_titled INTEGER NOT NULL,
        system_prompt TEXT NOT NULL,
        sampling TEXT NOT NULL,
        leaf_id TEXT,
        created_s REAL NOT NULL,
        changed_s REAL NOT NULL,
        deleted_s REAL
    ) STRICT;
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY,
        message_id TEXT NOT NULL UNIQUE,
        chat_id TEXT NOT NULL REFERENCES chats ON DELETE CASCADE,
        parent_id TEXT,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        state TEXT NOT NULL,
        created_s REAL NOT NULL,
        figures TEXT NOT NULL,
        token_ids BLOB NOT NULL
    ) STRICT;
    CREATE INDEX messages_of_chat ON messages (chat_id);
    """,
)
NEWEST = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """Return which version a file has; 0 for an empty one.

    Args:
        connection: To it.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring a file to the newest version; each step is whole or not made at all.

    Args:
        connection: To it, with no transaction open.
        version: That it has.
    """
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;"
        )
