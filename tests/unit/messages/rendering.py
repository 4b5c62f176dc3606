"""Renders from the code what docs/protocol.md and tests/vectors/wire say of it.

``python -m tests.unit.messages.rendering`` writes both anew. Run it in the commit that changes a
message, and read the difference: a changed vector is a changed protocol.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from engine.messages import frames, limits, ranges
from engine.messages.codec import (
    encode_chunk,
    encode_chunk_list,
    encode_control,
    encode_micro_batch,
    encode_sampled_tokens,
)
from engine.messages.control import CONTROL_TYPES, MessageType
from engine.transport import admission, endpoint, websocket
from engine.transport.session import TRANSITIONS, Liveness, State
from tests.unit.messages.examples import (
    CHUNK,
    CHUNK_LIST,
    COMPUTE_US,
    CONTROL,
    INT8_BATCH,
    MICRO_BATCH,
    SAMPLED_TOKENS,
)

if TYPE_CHECKING:
    from engine.domain import MicroBatch

CHECKOUT = Path(__file__).parents[3]
DOCUMENT = CHECKOUT / "docs" / "protocol.md"
VECTORS = CHECKOUT / "tests" / "vectors" / "wire"
INT8_NAME = "micro_batch_int8"  # a second example of the message: another layout of its rows

SIMPLE_TYPES = {
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.FloatType: "float",
    msgspec.inspect.StrType: "text",
    msgspec.inspect.BytesType: "bytes",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.NoneType: "nil",
    msgspec.inspect.CustomType: "any JSON value",  # object
}

LIMITS: dict[str, tuple[float, str]] = {
    "MAX_FRAME_BYTES": (
        limits.MAX_FRAME_BYTES,
        "bytes of any frame; one prefill chunk of 2048 rows, 8192 wide, in f32",
    ),
    "MAX_CONTROL_BYTES": (
        limits.MAX_CONTROL_BYTES,
        "bytes of a control message; a prompt of 128k tokens is about 600 KB of text",
    ),
    "MAX_HELLO_BYTES": (
        limits.MAX_HELLO_BYTES,
        "bytes of the first frame; who has not said hello is a stranger",
    ),
    "MAX_STEPS": (limits.MAX_STEPS, "steps of a micro-batch, rows of sampled tokens"),
    "MAX_TOKENS_PER_FRAME": (
        limits.MAX_TOKENS_PER_FRAME,
        "rows of a micro-batch, ids of sampled tokens",
    ),
    "MAX_HIDDEN_SIZE": (limits.MAX_HIDDEN_SIZE, "values of a row"),
    "MAX_ROW_SCALE": (limits.MAX_ROW_SCALE, "of a row of int8; times 128 it is still a float32"),
    "MAX_POSITION": (
        limits.MAX_POSITION,
        "`past_len + num_tokens`, `first_position + count`",
    ),
    "MAX_TOKEN_ID": (limits.MAX_TOKEN_ID, "token ids are int32 and never negative"),
    "MAX_NESTING": (limits.MAX_NESTING, "depth of a value of type *any JSON value*"),
    "MAX_CHUNK_BYTES": (limits.MAX_CHUNK_BYTES, "bytes of a chunk; every one but a file's last"),
    "MAX_PIECE_BYTES": (limits.MAX_PIECE_BYTES, "bytes of a piece; every one but a file's last"),
    "MAX_CHUNKS": (limits.MAX_CHUNKS, "chunks of a file: 256 GiB"),
    "MAX_CHUNK_LIST_BYTES": (limits.MAX_CHUNK_LIST_BYTES, "bytes of an encoded chunk list"),
    "MAX_STRANGERS": (
        admission.MAX_STRANGERS,
        "connections that have not said hello; of more, the oldest goes, of the address with most",
    ),
    "MAX_STRANGERS_PER_ADDRESS": (
        admission.MAX_STRANGERS_PER_ADDRESS,
        "of them from one address",
    ),
    "MAX_CONNECTIONS": (admission.MAX_CONNECTIONS, "connections of a listener in all"),
    "HIDDEN_ALIGNMENT": (frames.HIDDEN_ALIGNMENT, "bytes; where hidden states begin"),
    "WRITE_BUFFER_BYTES": (
        websocket.WRITE_BUFFER_BYTES,
        "bytes a sender may have on their way before it waits",
    ),
    "CONNECT_WITHIN_S": (
        endpoint.CONNECT_WITHIN_S,
        "seconds for TCP, websocket and hello together",
    ),
    "CLOSE_WITHIN_S": (websocket.CLOSE_WITHIN_S, "seconds for the closing handshake"),
    "hello_within_s": (Liveness().hello_within_s, "seconds for the peer's hello"),
    "ping_after_s": (
        Liveness().ping_after_s,
        "seconds of silence after which the peer is asked",
    ),
    "dead_after_s": (
        Liveness().dead_after_s,
        "seconds of silence after which it is given up",
    ),
    "goodbye_within_s": (Liveness().goodbye_within_s, "seconds from a goodbye to the end"),
}


# ---- the document ------------------------------------------------------------------------------


def type_name(kind: msgspec.inspect.Type) -> str:
    """Say a field's type in the words of the document."""
    match kind:
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f'"{value}"' for value in values)
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(map(type_name, types))
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return f"array of {type_name(kind.item_type)}"
        case msgspec.inspect.DictType(value_type=value):
            return f"map from text to {type_name(value)}"
        case msgspec.inspect.StructType(cls=cls):
            return f"`{cls.__name__}`"
        case _:
            return SIMPLE_TYPES[type(kind)]


def default_of(field: msgspec.inspect.Field) -> str:
    """Say what a missing field means."""
    if field.required:
        return "must be there"
    if isinstance(field.default, msgspec.Struct):
        return "if missing: its own defaults"
    value = json.dumps(msgspec.to_builtins(field.default)).replace("null", "nil")
    return f"if missing: {value}"


def field_table(cls: type[msgspec.Struct]) -> str:
    """Render the fields of a message or structure."""
    fields = msgspec.inspect.type_info(cls).fields
    if not fields:
        return "No fields."
    rows = [f"| `{f.name}` | {type_name(f.type)} | {default_of(f)} |" for f in fields]
    return "\n".join(["| field | type | |", "|---|---|---|", *rows])


def structures(cls: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    """Find the structures a message is made of, at any depth."""
    found: set[type[msgspec.Struct]] = set()

    def visit(kind: object) -> None:
        if isinstance(kind, msgspec.inspect.StructType):
            found.add(kind.cls)
            for field in kind.fields:
                visit(field.type)
        for inner in getattr(kind, "types", ()):
            visit(inner)
        if hasattr(kind, "item_type"):
            visit(kind.item_type)

    visit(msgspec.inspect.type_info(cls))
    return found - {cls}


def message_sections() -> str:
    """Render every control message."""
    sections = [
        f"### {int(number)} `{number.name}`\n\n{cls.__doc__}\n\n{field_table(cls)}"
        for number, cls in CONTROL_TYPES.items()
    ]
    return "\n\n".join(sections)


def structure_sections() -> str:
    """Render every structure that is part of a message."""
    parts = set().union(*map(structures, CONTROL_TYPES.values()))
    sections = []
    for cls in sorted(parts, key=lambda c: c.__name__):
        is_strict = cls.__struct_config__.forbid_unknown_fields
        unknown = "an error" if is_strict else "ignored"
        sections.append(f"### `{cls.__name__}`\n\n{field_table(cls)}\n\nOther fields: {unknown}.")
    return "\n\n".join(sections)


def state_diagram() -> str:
    """Render the transitions of a connection."""
    lines = [f"    [*] --> {state.value}" for state in (State.AWAITING, State.GREETING)]
    lines += [
        f"    {before.value} --> {after.value}: {happened.value}"
        for (before, happened), after in TRANSITIONS.items()
        if before is not State.CLOSED
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def limit_table() -> str:
    """Render every limit and wait."""
    rows = [f"| `{name}` | {value} | {what} |" for name, (value, what) in LIMITS.items()]
    return "\n".join(["| name | value | of what |", "|---|---|---|", *rows])


def range_table() -> str:
    """Render how much a field may say, by its name; the same wherever the name stands."""
    rules: dict[str, list[str]] = {}
    for name, most in ranges.HIGHEST.items():
        rules.setdefault(name, []).append(f"at most {most}")
    for name, most in ranges.LONGEST.items():
        rules.setdefault(name, []).append(f"no longer than {most}")
    for name, most in ranges.MOST.items():
        rules.setdefault(name, []).append(f"no more than {most} entries")
    for name in ranges.DIGESTS:
        rules.setdefault(name, []).append("a SHA-256 in lower-case hex")
    files = ", ".join(f"`{cls.__name__}`" for cls in ranges.NAMING_FILES)
    rules["name"].append(f"in {files}: a SHA-256 in lower-case hex")
    rows = [f"| `{name}` | {'; '.join(rules[name])} |" for name in sorted(rules)]
    return "\n".join(["| field | its value, or each of its values |", "|---|---|", *rows])


PARTS = {
    "states": state_diagram,
    "messages": message_sections,
    "structures": structure_sections,
    "ranges": range_table,
    "limits": limit_table,
}


def marked(name: str) -> re.Pattern[str]:
    """Match one rendered part of the document, between its marks."""
    return re.compile(rf"(?<=<!-- rendered: {name} -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)


# ---- golden bytes ------------------------------------------------------------------------------


def hex_lines(data: bytes, says: str) -> list[str]:
    """Render bytes, 24 a line, with what they say after the first line."""
    pieces = [data[i : i + 24].hex(" ") for i in range(0, len(data), 24)]
    return [f"{pieces[0]}  # {says}", *pieces[1:]]


class Explained:
    """A frame taken apart from its beginning, each piece with what it says."""

    def __init__(self, number: MessageType, frame: bytes) -> None:
        self.frame = frame
        self.position = 0
        self.lines = [
            f"# {number.name}: the example of tests/unit/messages/examples.py.",
            "# Hex bytes up to the #; what they say after it.",
        ]
        self.take(2, 'magic "DZ"')
        self.take(1, "protocol version")
        self.take(1, "flags")
        self.take(2, f"type {number:#x}" if number >= 0x100 else f"type {int(number)}")
        self.take(2, "reserved")

    def take(self, size: int, says: str) -> None:
        piece = self.frame[self.position : self.position + size]
        self.lines += hex_lines(piece, says)
        self.position += size

    def take_number(self, name: str, size: int = 4) -> int:
        piece = self.frame[self.position : self.position + size]
        value = int.from_bytes(piece, "little")
        self.take(size, f"{name} {value}")
        return value

    def text(self) -> str:
        if self.position != len(self.frame):
            raise ValueError(f"{len(self.frame) - self.position} bytes are not explained")
        return "\n".join(self.lines) + "\n"


def control_text(number: MessageType) -> str:
    """Explain a control message's bytes."""
    message = CONTROL[number]
    explained = Explained(number, encode_control(message))
    fields = message.__struct_fields__
    explained.take(1 if len(fields) < 16 else 3, f"a map of {len(fields)} fields")
    for name in fields:
        value = getattr(message, name)
        explained.take(len(msgspec.msgpack.encode(name)), f'"{name}"')
        shown = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        if isinstance(value, bytes):
            shown = f"bytes {value.hex(' ')}"
        explained.take(len(msgspec.msgpack.encode(value)), shown)
    return explained.text()


def data_text(
    number: MessageType,
    frame: bytes,
    entry: str,
    columns: tuple[str, ...],
    batch: MicroBatch = MICRO_BATCH,
) -> str:
    """Explain a data frame's bytes."""
    explained = Explained(number, frame)
    explained.take_number("batch_id")
    explained.take_number("epoch")
    num_entries = explained.take_number("num_entries", 2)
    dtype = explained.take_number("dtype", 1)
    explained.take_number("reserved", 1)
    num_tokens = explained.take_number("num_tokens")
    hidden_size = explained.take_number("hidden_size")
    explained.take_number("compute_us")
    for index in range(num_entries):
        for column in columns:
            explained.take_number(f"{entry} {index}: {column}")
    for _ in range(num_tokens):
        explained.take_number("token id")
    if dtype:
        size = {1: 4, 2: 2, 3: 1}[dtype]
        for scale in () if batch.row_scales is None else batch.row_scales:
            explained.take(4, f"row scale {scale}")
        explained.take(-explained.position % frames.HIDDEN_ALIGNMENT, "padding")
        for row in batch.hidden_states:
            explained.take(size * hidden_size, f"hidden states {row.tolist()}")
    return explained.text()


def chunk_text(number: MessageType, frame: bytes, data: memoryview) -> str:
    """Explain the bytes of a chunk or of a chunk list."""
    explained = Explained(number, frame)
    explained.take(32, "name: SHA-256 of the file")
    if number is MessageType.CHUNK:
        explained.take_number("index")
        explained.take_number("piece")
    explained.take_number("num_bytes")
    explained.take(len(data), "data")
    return explained.text()


def golden_texts() -> dict[str, str]:
    """Render the golden bytes of every message, by the name of their file."""
    texts = {number.name.lower(): control_text(number) for number in CONTROL}
    for name, batch in (("micro_batch", MICRO_BATCH), (INT8_NAME, INT8_BATCH)):
        texts[name] = data_text(
            MessageType.MICRO_BATCH,
            encode_micro_batch(batch, COMPUTE_US),
            "step",
            ("sequence_id", "past_len", "num_tokens", "num_logits"),
            batch,
        )
    texts["sampled_tokens"] = data_text(
        MessageType.SAMPLED_TOKENS,
        encode_sampled_tokens(SAMPLED_TOKENS, COMPUTE_US),
        "row",
        ("sequence_id", "first_position", "count"),
    )
    chunk = encode_chunk(CHUNK.name, CHUNK.index, CHUNK.piece, CHUNK.data)
    texts["chunk"] = chunk_text(MessageType.CHUNK, chunk, CHUNK.data)
    chunk_list = encode_chunk_list(CHUNK_LIST.name, CHUNK_LIST.data)
    texts["chunk_list"] = chunk_text(MessageType.CHUNK_LIST, chunk_list, CHUNK_LIST.data)
    return texts


def write_all() -> None:
    """Write the rendered parts of the document, and the golden bytes."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for name, render in PARTS.items():
        before, _, after = marked(name).sub("\0", document).partition("\0")
        document = f"{before}{render()}{after}"
    DOCUMENT.write_text(document, encoding="utf-8")
    for name, text in golden_texts().items():
        (VECTORS / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_all()
