"""Who may try to join, how often, and for how long: codes that were shown and links that were made.

A code has six digits, so guesses are few: three wrong ones close the door, and it opens again only
after a while that doubles each time. A code or a link lets in one PC. Nothing is kept on disk: a
restart closes the door. Pure: the time and random numbers are arguments.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.errors import GuessedCodeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

CODE_DIGITS = 6
CODE_WITHIN_S = 120.0  # to walk to the other PC and type six digits
LINK_WITHIN_S = 24 * 3600.0  # a link has 128 bits: nobody guesses it
MAX_GUESSES = 3
MAX_GREETINGS = 16  # for one invitation: an exchange costs this PC 10 ms, and a person needs one
MAX_LINKS = 64  # as many as members
LINK_ID_BYTES = 8
LINK_SECRET_BYTES = 16
FIRST_PAUSE_S = 30.0
LAST_PAUSE_S = 3600.0

Ending = Literal["used", "guessed", "expired", "withdrawn"]


@dataclass(slots=True, eq=False)
class Invitation:
    """One code or one link that waits for its PC.

    Attributes:
        link_id: Names a link; None for a code.
        password: What both sides of the exchange must know.
        until_s: When it ends.
        grants: What whoever uses it may be, in words of whoever invites.
        num_wrong: Guesses that were wrong.
        num_greetings: How often somebody began.
        is_open: Whether it may still be used.
    """

    link_id: str | None
    password: bytes
    until_s: float
    grants: str = ""
    num_wrong: int = 0
    num_greetings: int = 0
    is_open: bool = True


class PairingDoor:
    """The invitations of one node; one code at a time, and some links.

    Attributes:
        code_ended: How the last code ended; None while one is shown, and before the first.

    Thread: the owner's only.
    """

    def __init__(self) -> None:
        """Begin closed."""
        self.code_ended: Ending | None = None
        self._code: Invitation | None = None
        self._links: dict[str, Invitation] = {}
        self._pause_s = FIRST_PAUSE_S
        self._opens_again_s: float | None = None

    def show_code(self, below: Callable[[int], int], now_s: float, grants: str = "") -> str:
        """Open for one PC whose user types a code; an earlier code ends.

        Args:
            below: Draws a number from 0 up to its argument, so that nobody can tell which.
            now_s: The time, from any steady clock.
            grants: What whoever uses it may be; kept with it and not looked at.

        Returns:
            The code, six digits, to be shown to a person and to nobody else.

        Raises:
            GuessedCodeError: Too many guesses were wrong; says how long to wait.
        """
        self._check_pause(now_s)
        code = f"{below(10**CODE_DIGITS):0{CODE_DIGITS}}"
        self.hide_code()
        self._code = Invitation(None, password_of_code(code), now_s + CODE_WITHIN_S, grants)
        self.code_ended = None
        return code

    def hide_code(self) -> None:
        """End the code that is shown, if one is."""
        if self._code is not None:
            self._end(self._code, "withdrawn")

    def withdraw_links(self) -> None:
        """End every link that waits to be used."""
        for invitation in tuple(self._links.values()):
            self._end(invitation, "withdrawn")

    def make_link(
        self, link_id: str, secret: bytes, within_s: float, now_s: float, grants: str = ""
    ) -> None:
        """Open for one PC that is given a link.

        Args:
            link_id: Drawn at random.
            secret: 16 random bytes.
            within_s: How long it may be used.
            now_s: The time.
            grants: As for a code.

        Raises:
            UsageError: Too many links wait already.
        """
        self._let_time_pass(now_s)
        if len(self._links) >= MAX_LINKS:
            raise UsageError(
                f"{MAX_LINKS} invite links wait to be used.", "Wait, or restart Daisy to end them."
            )
        password = password_of_link(secret)
        self._links[link_id] = Invitation(link_id, password, now_s + within_s, grants)

    def is_open(self, now_s: float) -> bool:
        """Return whether anybody may try to join now."""
        self._let_time_pass(now_s)
        return self._code is not None or bool(self._links)

    def shows_code(self, now_s: float) -> bool:
        """Return whether a code waits to be typed."""
        self._let_time_pass(now_s)
        return self._code is not None

    def code_left_s(self, now_s: float) -> float | None:
        """Return how long the code that is shown may still be typed; None where none is."""
        self._let_time_pass(now_s)
        return None if self._code is None else self._code.until_s - now_s

    def num_links(self, now_s: float) -> int:
        """Return how many links wait to be used."""
        self._let_time_pass(now_s)
        return len(self._links)

    def closes_at_s(self) -> float | None:
        """Return when the next invitation ends; None where there is none."""
        waiting = [*self._links.values(), *([self._code] if self._code is not None else [])]
        return min((invitation.until_s for invitation in waiting), default=None)

    def begin(self, link_id: str | None, now_s: float) -> Invitation | None:
        """Return the invitation somebody means, and count the attempt; None if it is not open.

        Args:
            link_id: As it was said; None for a code.
            now_s: The time.
        """
        self._let_time_pass(now_s)
        invitation = self._code if link_id is None else self._links.get(link_id)
        if invitation is None:
            return None
        invitation.num_greetings += 1
        if invitation.num_greetings > MAX_GREETINGS:
            self._end_badly(invitation, now_s)
            return None
        return invitation

    def is_still_open(self, invitation: Invitation, now_s: float) -> bool:
        """Return whether an invitation may still be used, so that a guess may be looked at."""
        self._let_time_pass(now_s)
        return invitation.is_open

    def guessed_wrong(self, invitation: Invitation, now_s: float) -> None:
        """Count a wrong guess; the last one that is allowed closes the door for a while."""
        invitation.num_wrong += 1
        if invitation.num_wrong >= MAX_GUESSES:
            self._end_badly(invitation, now_s)

    def used(self, invitation: Invitation) -> None:
        """End an invitation whose PC has joined."""
        self._end(invitation, "used")
        if invitation.link_id is None:
            self._pause_s, self._opens_again_s = FIRST_PAUSE_S, None

    def _end_badly(self, invitation: Invitation, now_s: float) -> None:
        if invitation.is_open and invitation.link_id is None:
            self._opens_again_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        self._end(invitation, "guessed")

    def _end(self, invitation: Invitation, how: Ending) -> None:
        invitation.is_open = False
        if invitation is self._code:
            self._code, self.code_ended = None, how
        if invitation.link_id is not None:
            self._links.pop(invitation.link_id, None)

    def _let_time_pass(self, now_s: float) -> None:
        waiting = [*self._links.values(), *([self._code] if self._code is not None else [])]
        for invitation in waiting:
            if now_s >= invitation.until_s:
                self._end(invitation, "expired")

    def _check_pause(self, now_s: float) -> None:
        """Return if a code may be shown.

        Raises:
            GuessedCodeError: Not yet.
        """
        if self._opens_again_s is not None and now_s < self._opens_again_s:
            wait_s = self._opens_again_s - now_s
            raise GuessedCodeError(
                f"Wrong codes were sent {MAX_GUESSES} times: somebody may be guessing.",
                f"Wait {wait_s:.0f} s, then run daisy invite again; or use daisy invite --link.",
            )


def checked_code(text: str) -> str:
    """Return a code as it was shown, from what a person typed.

    Args:
        text: Spaces and dashes do not count, and digits may be wide ones of an input method.

    Raises:
        UsageError: It is no code.
    """
    plain = unicodedata.normalize("NFKC", text[:64])
    code = "".join(c for c in plain if not c.isspace() and c not in "-\u2010\u2011\u2012\u2013")
    if len(code) != CODE_DIGITS or not (code.isascii() and code.isdigit()):
        raise UsageError(
            f"A code has {CODE_DIGITS} digits.", "Type it as the other PC shows it: 123 456."
        )
    return code


def password_of_code(code: str) -> bytes:
    """Return what both sides put into the exchange for a code."""
    return b"daisy code 1\0" + code.encode()


def password_of_link(secret: bytes) -> bytes:
    """Return what both sides put into the exchange for a link."""
    return b"daisy link 1\0" + secret
