"""Build a tokenizer from the metadata of a GGUF.

Two kinds exist: ``gpt2``, byte-level BPE with merges and a named pre-tokenizer, and ``llama``,
SentencePiece BPE whose merges follow from the scores of its pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from engine.errors import TokenizerError

if TYPE_CHECKING:
    from engine.models.gguf_header import GgufHeader

SPACE_MARK = "\u2581"
_SPECIAL = frozenset({2, 3})  # token types: unknown, control
_USER_DEFINED = 4

# The patterns the models were trained with, as their tokenizer.json files have them.
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_PATTERN = _LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
_SPLIT_PATTERNS = {
    "llama-bpe": _LLAMA3_PATTERN,
    "llama3": _LLAMA3_PATTERN,
    "llama-v3": _LLAMA3_PATTERN,
    "qwen2": _QWEN2_PATTERN,
    "deepseek-r1-qwen": _QWEN2_PATTERN,
}
_LLAMA3_NAMES = frozenset({"llama-bpe", "llama3", "llama-v3"})


def build_tokenizer(header: GgufHeader) -> Tokenizer:
    """Build the tokenizer a GGUF describes.

    Args:
        header: The GGUF's header.

    Returns:
        A tokenizer whose ids are those of the GGUF.

    Raises:
        TokenizerError: It is of a kind or with a pre-tokenizer that isn't known, or its lists
            contradict each other.
    """
    kind = header.text("tokenizer.ggml.model")
    tokens = _strings(header, "tokenizer.ggml.tokens")
    if len(set(tokens)) != len(tokens):
        raise TokenizerError(f"{header.file_name} lists a token twice.")
    if kind == "gpt2":
        tokenizer = _byte_level(header, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece(header, tokens)
    else:
        raise TokenizerError(
            f"{header.file_name} has a tokenizer of the kind {kind!r}; gpt2 and llama are known."
        )
    _add_special_tokens(header, tokenizer, tokens)
    _add_bos(header, tokenizer, tokens, default=_adds_bos_by_default(header, kind))
    return tokenizer


def _byte_level(header: GgufHeader, tokens: list[str]) -> Tokenizer:
    pre = _pre_tokenizer_name(header)
    merges = [_merge(header, line) for line in _strings(header, "tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre in _LLAMA3_NAMES)
    except Exception as exc:
        raise TokenizerError(f"{header.file_name} has an unusable vocabulary: {exc}.") from exc
    tokenizer = Tokenizer(model)
    if pre in _SPLIT_PATTERNS:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(_SPLIT_PATTERNS[pre]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
        if _SPLIT_PATTERNS[pre] == _QWEN2_PATTERN:
            tokenizer.normalizer = normalizers.NFC()
    elif pre == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
    elif pre in {"gpt-2", "default"}:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        raise TokenizerError(
            f"{header.file_name} splits text by the rules {pre!r}, which are not known."
        )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer_name(header: GgufHeader) -> str:
    pre = header.text("tokenizer.ggml.pre")
    if pre is not None:
        return pre
    if (header.text("general.architecture") or "").startswith("qwen"):
        return "qwen2"  # files older than the entry; all Qwen models split alike
    raise TokenizerError(
        f"{header.file_name} does not say by which rules it splits text (tokenizer.ggml.pre)."
    )


def _sentencepiece(header: GgufHeader, tokens: list[str]) -> Tokenizer:
    scores = header.array("tokenizer.ggml.scores") or []
    if len(scores) != len(tokens) or not all(isinstance(score, float) for score in scores):
        raise TokenizerError(
            f"{header.file_name} has {len(tokens)} tokens and {len(scores)} scores."
        )
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = header.integer("tokenizer.ggml.unknown_token_id")
    unknown_token = tokens[unknown] if unknown is not None and 0 <= unknown < len(tokens) else None
    model = models.BPE(
        vocab=vocabulary,
        merges=_merges_from_scores(vocabulary, [float(score) for score in scores]),
        unk_token=unknown_token,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    decoding: list[decoders.Decoder] = [
        decoders.Replace(SPACE_MARK, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if header.metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend(SPACE_MARK))
        decoding.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(decoding)
    return tokenizer


def _merges_from_scores(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, best piece first, as SentencePiece would merge."""
    ranked: list[tuple[float, int, int, int, tuple[str, str]]] = []
    for piece, index in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((
                    -scores[index],
                    index,
                    vocabulary[left],
                    vocabulary[right],
                    (left, right),
                ))
    return [pair for *_, pair in sorted(ranked)]


def _add_special_tokens(header: GgufHeader, tokenizer: Tokenizer, tokens: list[str]) -> None:
    kinds = header.array("tokenizer.ggml.token_type") or []
    if kinds and len(kinds) != len(tokens):
        raise TokenizerError(
            f"{header.file_name} has {len(tokens)} tokens and {len(kinds)} token types."
        )
    special = [token for token, kind in zip(tokens, kinds, strict=False) if kind in _SPECIAL]
    added = [token for token, kind in zip(tokens, kinds, strict=False) if kind == _USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(it, normalized=False, special=True) for it in special])
    tokenizer.add_tokens([AddedToken(it, normalized=False, special=False) for it in added])


def _adds_bos_by_default(header: GgufHeader, kind: str) -> bool:
    return kind == "llama" or header.text("tokenizer.ggml.pre") in _LLAMA3_NAMES


def _add_bos(header: GgufHeader, tokenizer: Tokenizer, tokens: list[str], *, default: bool) -> None:
    bos_id = header.integer("tokenizer.ggml.bos_token_id")
    if not header.metadata.get("tokenizer.ggml.add_bos_token", default) or bos_id is None:
        return
    if not 0 <= bos_id < len(tokens):
        raise TokenizerError(f"{header.file_name} begins texts with {bos_id}, which is no token.")
    bos = tokens[bos_id]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A"], pair=[bos, "$A", "$B"], special_tokens=[(bos, bos_id)]
    )


def _strings(header: GgufHeader, key: str) -> list[str]:
    values = header.array(key)
    if not values or not all(isinstance(value, str) for value in values):
        raise TokenizerError(f"{header.file_name} has no usable {key}.")
    return [str(value) for value in values]


def _merge(header: GgufHeader, line: str) -> tuple[str, str]:
    left, space, right = line.partition(" ")
    if not (left and space and right):
        raise TokenizerError(f"{header.file_name} has an unusable merge: {line[:80]!r}.")
    return left, right
