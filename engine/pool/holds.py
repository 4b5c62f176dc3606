"""Who needs which files of a store: a file is pinned as long as anybody does."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.pool.store import ShardStore


class Holds:
    """The pins of one store; any thread may use it.

    A holder is a name: a model's, a manifest's, or a word for work that is under way.
    """

    def __init__(self, store: ShardStore) -> None:
        """Begin with nothing held.

        Args:
            store: Has the files, or will have them.
        """
        self._store = store
        self._turn = threading.Lock()
        self._held: dict[str, frozenset[str]] = {}
        self._trying: Counter[str] = Counter()

    def names(self, holder: str) -> frozenset[str]:
        """Return the files somebody holds.

        Args:
            holder: Who.
        """
        return self._held.get(holder, frozenset())

    def all_names(self) -> frozenset[str]:
        """Return the files that anybody holds."""
        with self._turn:
            return frozenset[str]().union(*self._held.values())

    def __contains__(self, holder: str) -> bool:
        return holder in self._held

    def add(self, holder: str, names: Iterable[str]) -> None:
        """Let somebody hold files beside those they hold already.

        Args:
            holder: Who.
            names: SHA-256 of each file, in hex.
        """
        with self._turn:
            self._replace(holder, self.names(holder) | frozenset(names))

    def release(self, holder: str) -> None:
        """Let go of everything somebody holds and nobody else does.

        Args:
            holder: Who; nothing happens if they hold nothing.
        """
        with self._turn:
            self._replace(holder, frozenset())

    def release_all_but(self, holders: Iterable[str]) -> None:
        """Let go of everything that only others hold, apart from those who are trying something.

        Args:
            holders: Who goes on.
        """
        with self._turn:
            for holder in self._held.keys() - {*holders, *self._trying.elements()}:
                self._replace(holder, frozenset())

    @contextmanager
    def trying(self, holder: str) -> Iterator[None]:
        """Let somebody hold what they held before, if what is tried here fails.

        Args:
            holder: Who.

        Yields:
            Nothing.
        """
        with self._turn:
            before = self.names(holder)
            self._trying[holder] += 1
        try:
            yield
        except BaseException:
            with self._turn:
                self._replace(holder, before)
            raise
        finally:
            with self._turn:
                self._trying[holder] -= 1

    def _replace(self, holder: str, names: frozenset[str]) -> None:
        gone = self._held.pop(holder, frozenset()) - names
        if names:
            self._held[holder] = names
        others = frozenset[str]().union(*self._held.values())
        for name in names:
            self._store.pin(name)
        for name in gone - others:
            self._store.unpin(name)
