"""What a model's settings files say: kind, context length, and the ids that end an answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.errors import ChatTemplateError, UsageError
from engine.models.special_tokens import read_json_object, special_tokens_of
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from engine.models.chat_template import ChatTemplate
    from engine.models.files import ModelFiles

UNKNOWN = "unknown"
_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
)
_PROBE = "probe7f3a"
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What the settings files say.

    Attributes:
        model_type: As in config.json; ``unknown`` where there is none.
        context_length: Tokens the model was made for; None where it doesn't say.
        sliding_window: Tokens some or all layers look back; None if all look back to the start.
        vocab_size: Ids the model knows; None where neither config.json nor a tokenizer says.
        eos_token_ids: Ids that end an answer, sorted; the union of what generation_config.json,
            the tokenizer and the chat template say. 0 is an id like any other.
        notes: What was ignored and why, one sentence each.
    """

    model_type: str
    context_length: int | None
    sliding_window: int | None
    vocab_size: int | None
    eos_token_ids: tuple[int, ...]
    notes: tuple[str, ...]


def read_settings(
    files: ModelFiles,
    tokenizer: Tokenizer | None = None,
    template: ChatTemplate | None = None,
) -> ModelSettings:
    """Read a model's settings files.

    Args:
        files: The model's files.
        tokenizer: Its tokenizer, if it was loaded before; else loaded here if there is one.
        template: Its chat template, likewise.

    Returns:
        What they say.

    Fails with ``ModelFileError`` if a settings file is damaged, and with ``TokenizerError`` if
    the tokenizer is.
    """
    config = _text_config(read_json_object(files.config)) if files.config else {}
    has_tokenizer = files.tokenizer_json or files.openvino_tokenizer
    if tokenizer is None and has_tokenizer:
        tokenizer = load_tokenizer(files)
    if template is None:
        template = load_chat_template(files)
    vocab_size = _positive(config.get("vocab_size"))
    if vocab_size is None and tokenizer is not None:
        vocab_size = tokenizer.vocab_size
    ends, notes = _eos_token_ids(files, config, tokenizer, template)
    usable, ignored = _usable(ends, vocab_size)
    model_type = config.get("model_type")
    return ModelSettings(
        model_type=model_type if isinstance(model_type, str) and model_type else UNKNOWN,
        context_length=_first_positive(config, _CONTEXT_KEYS),
        sliding_window=_sliding_window(config),
        vocab_size=vocab_size,
        eos_token_ids=usable,
        notes=(*notes, *ignored),
    )


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    # Models that also see or hear keep what concerns text in a section of its own.
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        return config
    return {**config, **{key: value for key, value in inner.items() if value is not None}}


def _positive(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and isinstance(value, int) and value > 0 else None


def _first_positive(config: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    found = (_positive(config.get(key)) for key in keys)
    return next((value for value in found if value is not None), None)


def _sliding_window(config: dict[str, Any]) -> int | None:
    if config.get("use_sliding_window") is False:
        return None
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" not in kinds:
        return None
    return _positive(config.get("sliding_window"))


def _eos_token_ids(
    files: ModelFiles,
    config: dict[str, Any],
    tokenizer: Tokenizer | None,
    template: ChatTemplate,
) -> tuple[list[object], list[str]]:
    ends: list[object] = []
    notes: list[str] = []
    generation = read_json_object(files.generation_config) if files.generation_config else {}
    ends += _listed(generation.get("eos_token_id"))
    if not ends:
        ends += _listed(config.get("eos_token_id"))
    if tokenizer is not None:
        names = {**special_tokens_of(files), **tokenizer.special_tokens}
        eos = tokenizer.token_id(names["eos_token"]) if "eos_token" in names else None
        ends += _listed(eos)
        ends += _listed(_template_end(template, tokenizer))
    if not ends:
        notes.append("No end of an answer is known; it ends only at its greatest length.")
    return ends, notes


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _usable(ends: list[object], vocab_size: int | None) -> tuple[tuple[int, ...], list[str]]:
    usable: set[int] = set()
    notes: list[str] = []
    for end in ends:
        is_number = isinstance(end, int) and not isinstance(end, bool)
        if not isinstance(end, int) or not is_number:
            notes.append(f"The end id {end!r} is no number and is ignored.")
        elif end < 0 or (vocab_size is not None and end >= vocab_size):
            notes.append(f"The end id {end} is outside the vocabulary and is ignored.")
        else:
            usable.add(end)
    return tuple(sorted(usable)), notes


def _template_end(template: ChatTemplate, tokenizer: Tokenizer) -> int | None:
    """Return the control token the template writes after an answer, if it does."""
    messages = [
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": _PROBE},
    ]
    try:
        text = template.render(messages, now=_ANY_DAY, add_generation_prompt=False)
    except (ChatTemplateError, UsageError):
        return None  # said where a chat is wanted
    _, found, tail = text.rpartition(_PROBE)
    ids = tokenizer.encode(tail.lstrip(), add_special_tokens=False) if found else []
    return ids[0] if ids and tokenizer.is_special(ids[0]) else None
