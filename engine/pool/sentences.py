"""What a node tells people, sentence by sentence, each with a code and its fields; pure.

A node writes English; a window in another language says the same again. It need not be told more
than the text for that: ``recognised`` finds the code and the fields of every sentence that
``sentence`` made, and a window that has words for the code fills them with the fields.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

SENTENCES: dict[str, str] = {
    # ---- a plan, and why a PC is in it or not
    "room": "It has room for these layers.",
    "standby": "It is not needed now; it can take over.",
    "waiting": "It can take layers as soon as the whole model has a place.",
    "not_lent": "Its owner does not lend it at the moment.",
    "not_lent_remedy": "Lend it there again.",
    "unreached": "It can't be reached.",
    "unreached_remedy": "Check that it is on and in the same network.",
    "no_device": "It has no device that can hold a stage.",
    "no_device_remedy": "Update its drivers.",
    "small": "It may give {usable}, and the smallest stage of this model needs {needed}.",
    "limit_remedy": "Raise its memory limit by {missing}.",
    "programs_remedy": "Close programs there that hold {missing}.",
    "restart_remedy": "Then restart Daisy there.",
    "why_fewest": "No PC holds the model alone; these are the fewest that do.",
    "why_one": "One PC holds the model.",
    "why_faster": "One PC would do, but these are faster.",
    "why_private": (
        "The first and the last stage stay on one PC; the fewest others hold the rest."
    ),
    "why_kept": "The placement is as good as it was.",
    "why_gain": "Another placement is {gain} times as fast.",
    "why_same_cuts": "Others took over the layers of a PC that was lost.",
    "why_gone": "The PC {pc} is gone.",
    "why_excluded": "{pc} can't go on: {reason}",
    "why_shrunk": "{pc} may give {usable} now, and its layers take {needed}.",
    "why_moved": "The first and the last stage must be on the PC that asks.",
    "why_device": "{pc} has no device {device} any more.",
    # ---- a model that has no place
    "private_away": "{pc} is away, and the model was loaded for it alone to see the text.",
    "private_away_advice": "Bring it back, or load the model again without --private.",
    "no_place": "The model needs {required}, and {available} may be used: {missing} too few.",
    "no_place_context": (
        "The model needs {required} ({kv} of it for a context of {context} tokens for {users}), "
        "and {available} may be used: {missing} too few."
    ),
    "ways": "Any one of these is enough: {ways}.",
    "way_context": "a context of {context} tokens (--context {option})",
    "way_users": "{users} (--users {option})",
    "way_limit": "a limit of {limit} on {pc} (daisy node --memory {option})",
    "way_limits": "higher limits on {pcs} (daisy node --memory)",
    "way_pc": "another PC that can give {memory}",
    "way_weights": "the same model with {bits}-bit weights",
    "user": "1 user at once",
    "users": "{number} users at once",
    # ---- what became of a PC while a model was brought up
    "lost": "{pc} can't be reached any more.",
    "ended": "{pc} was ended.",
    "ended_remedy": "Start Daisy there again if it is to take part.",
    "withheld": "{pc} is not lent at the moment.",
    "withheld_remedy": "Nothing need be done if the other PCs have room for its layers.",
    "unlinked": "The connection to {pc} was lost.",
    "restarted": "Daisy was restarted on {pc}.",
    "restarted_remedy": "Nothing need be done: the model is loaded again.",
    "silent_splitting": "{pc} did not get on with cutting the model for {seconds} seconds.",
    "silent_loading": "{pc} did not get on with loading its layers for {seconds} seconds.",
    "silent_warming": (
        "{pc} did not get on with sending the first token round for {seconds} seconds."
    ),
    "stage_gone": "{pc} no longer runs its layers.",
    "stage_gone_remedy": "Nothing need be done: the layers are loaded again.",
    "no_keeper": "None of the PCs that have the files of {model} is here.",
    "no_keeper_named": "None of the PCs that have the files of {model} is here: {pcs}.",
    "no_keeper_remedy": "Switch one of them on, or load the model on another PC.",
    "cannot_cut": "{pc} could not cut the model.",
    # ---- a PC, as another sees it
    "note_ended": "it was ended",
    "note_not_running": "Daisy does not run there any more",
    "note_lost": "nothing comes from it any more: it is off, or the network to it is cut",
    "note_clone": "another PC runs with the same identity",
    "note_version": "its version of Daisy is {theirs}, this PC's is {ours}",
    "note_protocol": "its protocol version is {theirs}, this PC's is {ours}",
    "note_shard_format": "its shard format is {theirs}, this PC's is {ours}",
    # ---- this PC's own folder and port
    "file_damaged": "{file} was damaged; it was set aside as {aside}.",
    "file_of_another": "{file} is of another identity; it was set aside as {aside}.",
    "not_renamed": "Only an owner can rename this PC; it is called {name}.",
    "port_taken": "Port {port} is taken by another program.",
    "port_taken_by": "Port {port} is taken by {program}.",
    "other_port": "This node listens on port {port} instead.",
    # ---- the network
    "no_network": "There is no network: this PC works alone.",
    "one_way": (
        "{deaf} does not hear {hearer}: a firewall stands between them, or the network is one-way."
    ),
    "no_link": "{one} and {other} do not hear each other.",
    "stranger": "{pc} can't take part: {why}.",
    "double": "Another PC has a copy of this PC's identity; one of the two takes a new one.",
    "not_at": "Daisy does not run at {address}, or listens at another port.",
    "unknown_there": (
        "The PCs that this one was paired with do not know it any more: it was removed from the "
        "pool. To pair again: daisy leave, then daisy join."
    ),
    "untrusted": (
        "{pc} at {address} does not know this PC: one of both was removed from the pool. To pair "
        "again: daisy leave, then daisy join."
    ),
    "announced": "{pc} was announced at {address}, and Daisy does not run there now.",
    "no_way": (
        "{pc} is announced at {address} and can't be reached from this PC: it is off, a firewall "
        "stands between them, or the network is one-way. {problem}"
    ),
    "mdns": "mDNS does not work: {problem}.",
}
MAX_CHARACTERS = 1000  # a peer may send anything
_FORMATTER = string.Formatter()
_ENDS = re.compile(r"[.?!] ")


class Said(NamedTuple):
    """One sentence that was recognised.

    Attributes:
        code: Of it.
        fields: As texts.
    """

    code: str
    fields: dict[str, str]


def sentence(code: str, /, **fields: str) -> str:
    """Return a sentence.

    Args:
        code: Of it.
        fields: All it has.

    Raises:
        KeyError: There is no such sentence, or a field is missing.
    """
    return _FORMATTER.vformat(SENTENCES[code], (), fields)


def recognised(text: str) -> tuple[Said, ...] | None:
    """Return the sentences a text is made of; None if one of them is none of these.

    Args:
        text: One sentence, or several with a space between them; one that is longer than nodes
            write is not looked at.
    """
    if not text:
        return ()
    if len(text) > MAX_CHARACTERS:
        return None
    for end in _ENDS.finditer(text):
        first = _one(text[: end.end()].rstrip())
        rest = None if first is None else recognised(text[end.end() :])
        if first is not None and rest is not None:
            return first, *rest
    whole = _one(text)
    return None if whole is None else (whole,)


def _one(text: str) -> Said | None:
    for code, pattern in _PATTERNS:
        match = pattern.fullmatch(text)
        if match:
            return Said(code, match.groupdict())
    return None


def fields_of(code: str) -> frozenset[str]:
    """Return the names of a sentence's fields.

    Args:
        code: Of it.
    """
    return frozenset(name for _, name, _, _ in _FORMATTER.parse(SENTENCES[code]) if name)


def _pattern(template: str) -> re.Pattern[str]:
    parts = []
    for literal, name, _, _ in _FORMATTER.parse(template):
        parts.append(re.escape(literal))
        if name is not None:
            parts.append(f"(?P<{name}>.+?)")
    return re.compile("".join(parts))


def _num_literals(template: str) -> int:
    return sum(len(literal) for literal, _, _, _ in _FORMATTER.parse(template))


# What has most words of its own first: it leaves least to chance.
_PATTERNS = tuple(
    (code, _pattern(template))
    for code, template in sorted(SENTENCES.items(), key=lambda item: -_num_literals(item[1]))
)
