"""The layout of the two frames that carry arrays: a micro-batch, and the tokens drawn for it.

Both begin with the same 32 bytes, little-endian, so that a node can see what a frame is and
forward it without decoding it:

    offset  size  field         MICRO_BATCH                     SAMPLED_TOKENS
    0       2     magic         "DZ"                            "DZ"
    2       1     version       protocol version                protocol version
    3       1     flags         0                               0
    4       2     type          0x100                           0x102
    6       2     reserved      0                               0
    8       4     batch_id      as the head counted it          of the batch answered
    12      4     epoch         of the placement                of the batch answered
    16      2     num_entries   steps, 1 or more                rows, 0 or more
    18      1     dtype         0 none, 1 f32, 2 f16, 3 int8     0
    19      1     reserved      0                               0
    20      4     num_tokens    rows of the batch, 1 or more    ids, over all rows
    24      4     hidden_size   values a row; 0 if dtype is 0   0
    28      4     compute_us    microseconds computed for it so far, all stages together

    32            the table     16 bytes a step: sequence_id,   12 bytes a row: sequence_id,
                                past_len, num_tokens,           first_position, count
                                num_logits                      (all u32)
    then          token ids     int32 [num_tokens]              int32 [num_tokens]
    then          row scales    float32 [num_tokens]            none; the frame ends here
                                (where dtype is 3)
    then          padding       zeros, to a multiple of 64
                                (where dtype is not 0)
    then          hidden        [num_tokens, hidden_size],
                                row-major

Nothing follows. Every length is checked against the frame's before anything is made from it, and
the arrays are views of the frame. Knows no socket and no control message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from engine.domain import MicroBatch, SampledRow, SampledTokens, SequenceId, SequenceStep
from engine.errors import LocalProtocolError, RemoteProtocolError
from engine.messages.control import PROTOCOL_VERSION, MessageType
from engine.messages.limits import (
    MAX_FRAME_BYTES,
    MAX_HIDDEN_SIZE,
    MAX_POSITION,
    MAX_ROW_SCALE,
    MAX_STEPS,
    MAX_TOKENS_PER_FRAME,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MAGIC = b"DZ"
PREFIX = struct.Struct("<2sBBHH")  # magic, version, flags, type, reserved: of every frame
HIDDEN_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register

_HEADER = struct.Struct("<2sBBHHIIHBBIII")
_STEP = struct.Struct("<IIII")
_ROW = struct.Struct("<III")
_TOKEN_DTYPE = np.dtype("<i4")
_SCALE_DTYPE = np.dtype("<f4")
_F32, _F16, _INT8 = 1, 2, 3
_DTYPE_OF_CODE = {n: np.dtype(kind) for n, kind in ((_F32, "<f4"), (_F16, "<f2"), (_INT8, "i1"))}
_CODE_OF_DTYPE = {dtype: code for code, dtype in _DTYPE_OF_CODE.items()}
_FEW_IDS = 64
_F16_NO_NUMBER = 0xF800  # its bits without the sign, moved up by one: this or more
_BATCH_TYPES = {int(t): t for t in (MessageType.MICRO_BATCH, MessageType.SAMPLED_TOKENS)}
_PADDING = tuple(bytes(n) for n in range(HIDDEN_ALIGNMENT))

# Whose fault a broken rule is: ours when encoding, the peer's when decoding.
_Fault: TypeAlias = type[LocalProtocolError] | type[RemoteProtocolError]


class FrameHead(NamedTuple):
    """The header of a data frame: enough to route, count and drop it undecoded.

    Attributes:
        type: ``MICRO_BATCH`` or ``SAMPLED_TOKENS``.
        batch_id: u32.
        epoch: Of the placement, u32.
        num_entries: Steps of a micro-batch, or rows of sampled tokens.
        num_tokens: Rows of a micro-batch, or ids of sampled tokens.
        compute_us: Microseconds computed for this batch so far, all stages together.
    """

    type: MessageType
    batch_id: int
    epoch: int
    num_entries: int
    num_tokens: int
    compute_us: int


class _DataHeader(NamedTuple):
    magic: bytes
    version: int
    flags: int
    type: int
    reserved: int
    batch_id: int
    epoch: int
    num_entries: int
    dtype: int
    reserved2: int
    num_tokens: int
    hidden_size: int
    compute_us: int


def encode_micro_batch(batch: MicroBatch, compute_us: int = 0) -> bytes:
    """Lay a micro-batch out as one frame; the arrays are copied once.

    Args:
        batch: ``token_ids`` int32 ``[num_tokens]``; ``hidden_states`` None, or float32, float16
            or int8 ``[num_tokens, hidden_size]``, the last with ``row_scales`` float32
            ``[num_tokens]``. An array that is not C-contiguous is copied twice.
        compute_us: Microseconds computed so far, this stage included, 0 to 2**32 - 1.

    Raises:
        LocalProtocolError: The batch contradicts itself, or a number is out of its range.
    """
    ids, steps, hidden = batch.token_ids, batch.steps, batch.hidden_states
    if ids.ndim != 1 or ids.dtype != _TOKEN_DTYPE:
        raise LocalProtocolError(
            f"Token ids are {ids.dtype} with {ids.ndim} axes; they must be int32 with one."
        )
    dtype, hidden_size = _hidden_kind(batch)
    _check_counts(len(steps), len(ids), hidden_size, LocalProtocolError)
    table_end, start, total = _micro_batch_extent(len(steps), len(ids), dtype, hidden_size)
    _check_total(total, LocalProtocolError)
    header = (batch.batch_id, batch.epoch, len(steps), dtype, 0, len(ids), hidden_size, compute_us)
    parts: list[bytes | memoryview] = [_pack_header(MessageType.MICRO_BATCH, *header)]
    parts += _pack_table(
        _STEP, ((s.sequence_id, s.past_len, s.num_tokens, s.num_logits) for s in steps)
    )
    _check_steps(steps, len(ids), LocalProtocolError)
    _check_token_ids(ids, LocalProtocolError)
    parts.append(np.ascontiguousarray(ids).data)
    if hidden is not None:
        if len(hidden) != len(ids):
            raise LocalProtocolError(f"{len(hidden)} rows of hidden states for {len(ids)} tokens.")
        if batch.row_scales is not None:
            _check_scales(batch.row_scales, LocalProtocolError)
            parts.append(np.ascontiguousarray(batch.row_scales).data)
        values = np.ascontiguousarray(hidden)
        if dtype == _F16:
            _check_f16(values, LocalProtocolError)
        parts += [_PADDING[start - table_end], values.data]
    return b"".join(parts)


def decode_micro_batch(frame: memoryview) -> MicroBatch:
    """Read a micro-batch; its arrays are read-only views of the frame.

    Args:
        frame: A whole frame whose prefix has been checked, as a read-only view of bytes.

    Returns:
        ``token_ids`` int32 ``[num_tokens]``; ``hidden_states`` float32, float16 or int8
        ``[num_tokens, hidden_size]``, or None; ``row_scales`` float32 ``[num_tokens]`` beside int8.

    Raises:
        RemoteProtocolError: The frame breaks a rule of the layout.
    """
    head = _unpack_header(frame)
    num_steps, num_tokens, hidden_size = head.num_entries, head.num_tokens, head.hidden_size
    if head.dtype > _INT8:
        raise RemoteProtocolError(f"A micro-batch has dtype {head.dtype}; 0 to {_INT8} are known.")
    if (head.dtype == 0) != (hidden_size == 0):
        raise RemoteProtocolError(
            f"A micro-batch has dtype {head.dtype} with hidden size {hidden_size}."
        )
    _check_counts(num_steps, num_tokens, hidden_size, RemoteProtocolError)
    end, start, total = _micro_batch_extent(num_steps, num_tokens, head.dtype, hidden_size)
    _check_length(frame, total)
    ids_start = _HEADER.size + num_steps * _STEP.size
    table = _STEP.iter_unpack(frame[_HEADER.size : ids_start])
    steps = tuple(SequenceStep(SequenceId(row[0]), *row[1:]) for row in table)
    _check_steps(steps, num_tokens, RemoteProtocolError)
    ids = np.frombuffer(frame, _TOKEN_DTYPE, num_tokens, ids_start)
    _check_token_ids(ids, RemoteProtocolError)
    if head.dtype == 0:
        return MicroBatch(head.batch_id, head.epoch, steps, ids)
    if any(frame[end:start]):
        raise RemoteProtocolError("A micro-batch has padding that is not zero.")
    scales = None
    if head.dtype == _INT8:
        scales = np.frombuffer(frame, _SCALE_DTYPE, num_tokens, ids_start + 4 * num_tokens)
        _check_scales(scales, RemoteProtocolError)
    hidden = np.frombuffer(frame, _DTYPE_OF_CODE[head.dtype], num_tokens * hidden_size, start)
    hidden = hidden.reshape(num_tokens, hidden_size)
    if head.dtype == _F16:
        _check_f16(hidden, RemoteProtocolError)
    return MicroBatch(head.batch_id, head.epoch, steps, ids, hidden, scales)


def encode_sampled_tokens(tokens: SampledTokens, compute_us: int = 0) -> bytes:
    """Lay the last stage's answer out as one frame.

    Args:
        tokens: At most ``MAX_STEPS`` rows; a row may be empty.
        compute_us: Microseconds all stages computed, 0 to 2**32 - 1.

    Raises:
        LocalProtocolError: A number is out of its range, or a sequence is named twice.
    """
    ids = [token_id for row in tokens.rows for token_id in row.token_ids]
    _check_row_counts(len(tokens.rows), len(ids), LocalProtocolError)
    header = (tokens.batch_id, tokens.epoch, len(tokens.rows), 0, 0, len(ids), 0, compute_us)
    parts = [_pack_header(MessageType.SAMPLED_TOKENS, *header)]
    parts += _pack_table(
        _ROW, ((row.sequence_id, row.first_position, len(row.token_ids)) for row in tokens.rows)
    )
    _check_rows(tokens.rows, LocalProtocolError)
    try:
        parts.append(struct.pack(f"<{len(ids)}i", *ids))
    except struct.error as exc:
        raise LocalProtocolError(f"A sampled token id is not an int32: {exc}.") from exc
    if min(ids, default=0) < 0:
        raise LocalProtocolError(f"Token id {min(ids)} is negative.")
    return b"".join(parts)


def decode_sampled_tokens(frame: memoryview) -> SampledTokens:
    """Read the last stage's answer.

    Args:
        frame: A whole frame whose prefix has been checked, as a read-only view of bytes.

    Raises:
        RemoteProtocolError: The frame breaks a rule of the layout.
    """
    head = _unpack_header(frame)
    if head.dtype or head.hidden_size:
        raise RemoteProtocolError("Sampled tokens have a dtype or a hidden size; they carry none.")
    num_rows, num_ids = head.num_entries, head.num_tokens
    _check_row_counts(num_rows, num_ids, RemoteProtocolError)
    ids_start = _HEADER.size + num_rows * _ROW.size
    _check_length(frame, ids_start + 4 * num_ids)
    ids = struct.unpack_from(f"<{num_ids}i", frame, ids_start)
    if min(ids, default=0) < 0:
        raise RemoteProtocolError(f"Token id {min(ids)} is negative.")
    rows, taken = [], 0
    for sequence_id, first_position, count in _ROW.iter_unpack(frame[_HEADER.size : ids_start]):
        if count > num_ids - taken:
            raise RemoteProtocolError(f"The rows claim more than the {num_ids} ids there are.")
        row_ids = ids[taken : taken + count]
        rows.append(SampledRow(SequenceId(sequence_id), first_position, row_ids))
        taken += count
    if taken != num_ids:
        raise RemoteProtocolError(f"The rows claim {taken} of {num_ids} sampled ids.")
    _check_rows(rows, RemoteProtocolError)
    return SampledTokens(head.batch_id, head.epoch, tuple(rows))


def peek_header(frame: memoryview) -> FrameHead:
    """Read the header of a data frame and nothing after it.

    Args:
        frame: A micro-batch or sampled tokens, whose prefix has been checked.

    Raises:
        RemoteProtocolError: The header is cut short or its reserved byte is not 0.
    """
    head = _unpack_header(frame)
    counts = (head.num_entries, head.num_tokens, head.compute_us)
    return FrameHead(_BATCH_TYPES[head.type], head.batch_id, head.epoch, *counts)


# ---- one rule each; both directions use the same ones -----------------------------------------


def _pack_header(message_type: MessageType, *fields: int) -> bytes:
    try:
        return _HEADER.pack(MAGIC, PROTOCOL_VERSION, 0, message_type, 0, *fields)
    except struct.error as exc:
        raise LocalProtocolError(f"A number of a frame's header is out of range: {exc}.") from exc


def _pack_table(entry: struct.Struct, rows: Iterable[tuple[int, ...]]) -> list[bytes]:
    try:
        return [entry.pack(*row) for row in rows]
    except struct.error as exc:
        raise LocalProtocolError(f"A number of a frame's table is not a u32: {exc}.") from exc


def _unpack_header(frame: memoryview) -> _DataHeader:
    if len(frame) < _HEADER.size:
        raise RemoteProtocolError(
            f"A data frame has {len(frame)} bytes; its header alone has {_HEADER.size}."
        )
    head = _DataHeader._make(_HEADER.unpack_from(frame))
    if head.reserved2:
        raise RemoteProtocolError(f"Byte 19 of a data frame is {head.reserved2}; it must be 0.")
    return head


def _hidden_kind(batch: MicroBatch) -> tuple[int, int]:
    """Return the dtype's code and the values of a row; 0 and 0 where there are none.

    Raises:
        LocalProtocolError: The dtype has no code, or the shapes are not those of rows.
    """
    hidden, scales = batch.hidden_states, batch.row_scales
    code = 0 if hidden is None else _CODE_OF_DTYPE.get(hidden.dtype)
    if (scales is not None) != (code == _INT8) or (
        scales is not None
        and (scales.dtype != _SCALE_DTYPE or scales.shape != (len(batch.token_ids),))
    ):
        raise LocalProtocolError("Hidden states have one float32 scale a row if they are int8.")
    if hidden is None:
        return 0, 0
    if code is None or hidden.ndim != 2 or hidden.shape[1] == 0:
        raise LocalProtocolError(
            f"Hidden states are {hidden.dtype} {list(hidden.shape)}; they must be float32, "
            f"float16 or int8 with two axes."
        )
    return code, hidden.shape[1]


def _micro_batch_extent(
    num_steps: int, num_tokens: int, dtype: int, hidden_size: int
) -> tuple[int, int, int]:
    """Return where the numbers of steps and rows end, where hidden states begin, and the length."""
    end = _HEADER.size + num_steps * _STEP.size + 4 * num_tokens
    if dtype == 0:
        return end, end, end
    if dtype == _INT8:
        end += _SCALE_DTYPE.itemsize * num_tokens
    start = -(-end // HIDDEN_ALIGNMENT) * HIDDEN_ALIGNMENT
    return end, start, start + num_tokens * hidden_size * _DTYPE_OF_CODE[dtype].itemsize


def _check_counts(num_steps: int, num_tokens: int, hidden_size: int, fault: _Fault) -> None:
    if not 1 <= num_steps <= MAX_STEPS:
        raise fault(f"A micro-batch has {num_steps} steps; it must have 1 to {MAX_STEPS}.")
    if not 1 <= num_tokens <= MAX_TOKENS_PER_FRAME:
        raise fault(
            f"A micro-batch has {num_tokens} tokens; it must have 1 to {MAX_TOKENS_PER_FRAME}."
        )
    if hidden_size > MAX_HIDDEN_SIZE:
        raise fault(f"A micro-batch has hidden size {hidden_size}; at most {MAX_HIDDEN_SIZE}.")


def _check_row_counts(num_rows: int, num_ids: int, fault: _Fault) -> None:
    if num_rows > MAX_STEPS:
        raise fault(f"Sampled tokens have {num_rows} rows; at most {MAX_STEPS} are allowed.")
    if num_ids > MAX_TOKENS_PER_FRAME:
        raise fault(f"There are {num_ids} sampled tokens; at most {MAX_TOKENS_PER_FRAME} may be.")


def _check_total(total: int, fault: _Fault) -> None:
    if total > MAX_FRAME_BYTES:
        raise fault(f"A micro-batch takes {total} bytes; a frame has at most {MAX_FRAME_BYTES}.")


def _check_length(frame: memoryview, total: int) -> None:
    if len(frame) != total:
        raise RemoteProtocolError(
            f"A data frame has {len(frame)} bytes; by its header it must have {total}."
        )


def _check_steps(steps: tuple[SequenceStep, ...], num_tokens: int, fault: _Fault) -> None:
    total = 0
    for step in steps:
        if not 1 <= step.num_tokens <= num_tokens:
            raise fault(f"A step has {step.num_tokens} of the batch's {num_tokens} tokens.")
        if not 0 <= step.num_logits <= step.num_tokens:
            raise fault(f"A step wants {step.num_logits} logits of {step.num_tokens} tokens.")
        if step.past_len + step.num_tokens > MAX_POSITION:
            raise fault(f"A step begins at {step.past_len}; positions end at {MAX_POSITION}.")
        total += step.num_tokens
    if total != num_tokens:
        raise fault(f"The steps have {total} tokens together, and the batch has {num_tokens}.")
    if len(steps) > 1:
        _check_unique([step.sequence_id for step in steps], fault)


def _check_rows(rows: Iterable[SampledRow], fault: _Fault) -> None:
    for row in rows:
        if row.first_position + len(row.token_ids) > MAX_POSITION:
            raise fault(f"A row begins at {row.first_position}; positions end at {MAX_POSITION}.")
    _check_unique([row.sequence_id for row in rows], fault)


def _check_unique(sequence_ids: list[SequenceId], fault: _Fault) -> None:
    if len(set(sequence_ids)) != len(sequence_ids):
        raise fault("A frame names the same sequence twice.")


def _check_f16(hidden: NDArray[np.generic], fault: _Fault) -> None:
    # What is no finite number has all bits of the exponent, behind the sign.
    if np.left_shift(hidden.view(np.uint16), 1).max() >= _F16_NO_NUMBER:
        raise fault("Hidden states in f16 have a value that is not a number.")


def _check_token_ids(ids: NDArray[np.int32], fault: _Fault) -> None:
    # A decode's few ids are looked at one by one: numpy takes ten times as long to get started.
    lowest = min(ids.tolist()) if len(ids) <= _FEW_IDS else ids.min()
    if lowest < 0:
        raise fault(f"Token id {lowest} is negative.")


def _check_scales(scales: NDArray[np.float32], fault: _Fault) -> None:
    # A NaN is neither.
    if not (scales.min() > 0 and scales.max() <= MAX_ROW_SCALE):
        raise fault(f"A row's scale is not between 0 and {MAX_ROW_SCALE:g}.")
