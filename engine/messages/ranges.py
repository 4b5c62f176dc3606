"""What the types of a control message can't say: ranges, and which fields go together.

Checked on both sides of every connection, after the types: no count is negative, no number is
infinite, what goes beside an array fits the array's u32, and free-form fields are plain JSON. Pure.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from engine.domain import LayerRange
from engine.errors import UsageError
from engine.messages.chain import StagePlace
from engine.messages.control import Generate, NodeHeartbeat
from engine.messages.deployment import Wish
from engine.messages.hidden_states import hidden_precision
from engine.messages.limits import (
    MAX_ADDRESS_LENGTH,
    MAX_CHUNKS,
    MAX_CONTEXT_TOKENS,
    MAX_COUNTER,
    MAX_HEADS,
    MAX_HEARD_COUNTER,
    MAX_ID_LENGTH,
    MAX_KEPT_MODELS,
    MAX_LAYERS,
    MAX_LINK_LENGTH,
    MAX_MEMORY_BYTES,
    MAX_NAME_LENGTH,
    MAX_NESTING,
    MAX_NODES,
    MAX_PIECES,
    MAX_PORT,
    MAX_PROGRESS,
    MAX_REQUEST_ID_LENGTH,
    MAX_ROSTER_BYTES,
    MAX_SENTENCE_LENGTH,
    MAX_SEQUENCES,
    MAX_SOURCE_LENGTH,
    MAX_STOPPING_IDS,
    MAX_TOKEN_ID,
    MAX_U32,
)
from engine.messages.pool_control import (
    AskChunk,
    AskChunkList,
    AskChunksThere,
    ChunksThere,
    DeploymentChanged,
    DeploymentKnown,
    MakeWish,
    ModelSplit,
)
from engine.messages.roster_control import Invited, JoinPool
from engine.sampling.parameters import SamplingParameters

if TYPE_CHECKING:
    from collections.abc import Sized

    from engine.messages.message import Message
    from engine.messages.pool import Term

HIGHEST = {
    **dict.fromkeys(("epoch", "batch_id", "sequence_id", "sequence_ids"), MAX_U32),
    **dict.fromkeys(("token_ids", "committed_ids", "eos_token_ids"), MAX_TOKEN_ID),
    **dict.fromkeys(("start", "stop", "num_layers"), MAX_LAYERS),
    **dict.fromkeys(("counter", "version", "done", "total"), MAX_COUNTER),
    **dict.fromkeys(("layer_bytes", "embedding_bytes", "head_bytes"), MAX_COUNTER),
    **dict.fromkeys(("usable_bytes", "needed_bytes"), MAX_COUNTER),
    **dict.fromkeys(("num_bytes", "freed_bytes"), MAX_COUNTER),
    **dict.fromkeys(("num_kv_heads", "head_size", "value_head_size"), MAX_HEADS),
    **dict.fromkeys(("memory_total_bytes", "memory_free_bytes"), MAX_MEMORY_BYTES),
    **dict.fromkeys(("memory_cap_bytes", "memory_lent_bytes"), MAX_MEMORY_BYTES),
    "context_tokens": MAX_CONTEXT_TOKENS,
    "max_sequences": MAX_SEQUENCES,
    "num_tokens": MAX_CONTEXT_TOKENS,
    "next_number": MAX_U32,
    "index": MAX_CHUNKS - 1,
    "piece": MAX_PIECES - 1,
    "port": MAX_PORT,
}
# Characters; bytes of a bitmap. Ids are 20, and nobody reads more of a name.
LONGEST = {
    **dict.fromkeys(
        ("node_id", "claimant", "coordinator", "hears", "sender", "pool_id", "asked_on", "wish_id"),
        MAX_ID_LENGTH,
    ),
    **dict.fromkeys(
        ("product", "devices", "link_kind", "code", "architecture", "asked_at", "token"),
        MAX_ID_LENGTH,
    ),
    "weight_precision": MAX_ID_LENGTH,
    "request_id": MAX_REQUEST_ID_LENGTH,
    **dict.fromkeys(("name", "model", "detail"), MAX_NAME_LENGTH),
    **dict.fromkeys(("what", "advice", "reason", "remedy"), MAX_SENTENCE_LENGTH),
    "source": MAX_SOURCE_LENGTH,
    "address": MAX_ADDRESS_LENGTH,
    "roster": MAX_ROSTER_BYTES,
    **dict.fromkeys(("link", "host_name", "let_in"), MAX_LINK_LENGTH),
    "bitmap": MAX_CHUNKS // 8,
}
# Entries of a list.
MOST = {
    **dict.fromkeys(("hears", "devices"), MAX_ID_LENGTH),
    **dict.fromkeys(("stages", "layers", "plan", "neighbours", "pcs", "pools"), MAX_NODES),
    **dict.fromkeys(("num_kv_heads", "head_size", "value_head_size", "layer_bytes"), MAX_LAYERS),
    "addresses": MAX_NODES,
    "eos_token_ids": MAX_STOPPING_IDS,
    **dict.fromkeys(("kept_models", "models"), MAX_KEPT_MODELS),
    "progress": MAX_PROGRESS,
}
# SHA-256 in lower-case hex, wherever they stand; what names a file is one too.
DIGESTS = frozenset({"model_sha256", "manifest_sha256", "kept_models"})
NAMING_FILES = (AskChunkList, AskChunksThere, ChunksThere, AskChunk)
_DIGEST = re.compile("[0-9a-f]{64}")


def check_ranges(message: Message) -> None:
    """Return if every value of a control message is in its range.

    Raises:
        ValueError: One is not; the sentence names the field and the value.
    """
    _check_struct(message)
    match message:
        case Generate():
            _check_one("messages", message.messages, "prompt", message.prompt)
        case ModelSplit():
            _check_one("manifest_sha256", message.manifest_sha256, "trouble", message.trouble)
        case Invited():
            _check_one("code", message.code, "link", message.link)
        case JoinPool():
            _check_one("code", message.code, "link", message.link)
        case MakeWish(wish=Wish(wish_id=wish_id)) if wish_id != message.wish_id:
            raise ValueError("wish_id is not that of the wish")


def check_heard(message: Message) -> None:
    """Return if a message that came may be believed, as far as ranges say.

    A term counts up by one; whoever tells one near the end of all counters wants that nobody can
    claim the next.

    Raises:
        ValueError: It may not.
    """
    terms: tuple[Term | None, ...] = ()
    match message:
        case NodeHeartbeat(heartbeat=heartbeat):
            terms = (heartbeat.term,)
        case DeploymentChanged(stamp=stamp, deployment=deployment):
            terms = (stamp.term, deployment.term)
        case DeploymentKnown(deployment=deployment):
            terms = (deployment.term,)
    if any(term is not None and term.counter > MAX_HEARD_COUNTER for term in terms):
        raise ValueError("counter is higher than any term can be")


def _check_one(name: str, value: object, other_name: str, other: object) -> None:
    if (value is None) == (other is None):
        raise ValueError(f"exactly one of {name} and {other_name} must be given")


def _check_struct(value: msgspec.Struct) -> None:
    for name in value.__struct_fields__:
        _check_field(name, getattr(value, name))
    if isinstance(value, NAMING_FILES):
        _check_digest("name", value.name)
    if isinstance(value, LayerRange) and value.start >= value.stop:
        raise ValueError(f"the layers {value.start} to {value.stop} are none")
    if isinstance(value, Wish | StagePlace):
        try:
            hidden_precision(value.mode, value.link_precision)
        except UsageError as exc:
            raise ValueError(exc.what) from exc
    if isinstance(value, SamplingParameters):
        try:
            value.checked()
        except UsageError as exc:
            raise ValueError(exc.what) from exc


def _check_field(name: str, value: object) -> None:
    match value:
        case int() | float():
            _check_number(name, value)
        case str() | bytes():
            _check_size(name, value, LONGEST, "letters" if isinstance(value, str) else "bytes")
            if name in DIGESTS:
                _check_digest(name, value)
        case tuple() | list():
            _check_size(name, value, MOST, "entries")
            for item in value:
                _check_field(name, item)
        case msgspec.Struct():
            _check_struct(value)
        case dict():
            _check_json(name, value, MAX_NESTING)


def _check_number(name: str, value: int | float) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, which is not a number")
    elif not 0 <= value <= HIGHEST.get(name, value):
        raise ValueError(f"{name} is {value}, which is out of its range")


def _check_size(name: str, value: Sized, most: dict[str, int], what: str) -> None:
    if len(value) > most.get(name, len(value)):
        raise ValueError(f"{name} has {len(value)} {what}, more than {most[name]}")


def _check_digest(name: str, value: object) -> None:
    if not isinstance(value, str) or _DIGEST.fullmatch(value) is None:
        raise ValueError(f"{name} is no SHA-256 in small hex digits")


def _check_json(name: str, value: object, depth: int) -> None:
    """Check a field of free form: msgpack can say more than JSON (bytes, dates, keys of any type).

    Its readers are JSON's: chat templates and tool schemas.

    Raises:
        ValueError: A value has no place in JSON, or lies too deep.
    """
    if depth == 0:
        raise ValueError(f"{name} is nested more than {MAX_NESTING} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{name} has a key that is not text")  # noqa: TRY004 - see Raises
            _check_json(name, item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check_json(name, item, depth - 1)
    elif isinstance(value, float):
        _check_field(name, value)
    elif not (value is None or isinstance(value, str | int)):
        raise ValueError(f"{name} has a value that JSON does not know")
