"""The tokenizer of a folder that has none but openvino_tokenizer.xml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import openvino
import openvino_genai

from engine.errors import TokenizerError
from engine.models.files import read_text
from engine.models.ir_header import check_ir
from engine.models.special_tokens import special_tokens_of
from engine.models.tokenizer import byte_ids_of, require_whole_characters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from engine.models.files import ModelFiles


class OpenVinoTokenizer:
    """A ``Tokenizer`` over openvino_tokenizer.xml and openvino_detokenizer.xml."""

    def __init__(self, inner: openvino_genai.Tokenizer, special_tokens: Mapping[str, str]) -> None:
        """Take over a tokenizer.

        Args:
            inner: The tokenizer.
            special_tokens: Tokens by their role; those it names itself are added.
        """
        self._inner = inner
        own = {"bos_token": inner.get_bos_token(), "eos_token": inner.get_eos_token()}
        self._special_tokens = {role: token for role, token in own.items() if token}
        self._special_tokens.update(special_tokens)
        self._vocabulary: dict[str, int] = {
            token if isinstance(token, str) else bytes(token).decode(errors="replace"): index
            for token, index in inner.get_vocab().items()
        }
        self._tokens = {index: token for token, index in self._vocabulary.items()}
        self._byte_ids = byte_ids_of(self._vocabulary)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._vocabulary.values(), default=-1) + 1

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Tokens by their role."""
        return self._special_tokens

    @property
    def byte_ids(self) -> frozenset[int]:
        """Ids of tokens that stand for one byte each."""
        return self._byte_ids

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text.

        Args:
            text: Any text.
            add_special_tokens: True for raw completion, False for a rendered chat.

        Returns:
            The ids.
        """
        require_whole_characters(text)
        if not text and not add_special_tokens:
            return []
        encoded = self._inner.encode(text, add_special_tokens=add_special_tokens)
        return [int(token_id) for token_id in encoded.input_ids.data.reshape(-1)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without control tokens.

        Args:
            ids: Those that aren't in the vocabulary are left out.
        """
        known = [token_id for token_id in ids if 0 <= token_id < self.vocab_size]
        return str(self._inner.decode(known, skip_special_tokens=True)) if known else ""

    def token_id(self, token: str) -> int | None:
        """Return a token's id; None if it isn't in the vocabulary.

        Args:
            token: As the vocabulary writes it.
        """
        return self._vocabulary.get(token)

    def token(self, token_id: int) -> str | None:
        """Return an id's token; None if it isn't in the vocabulary.

        Args:
            token_id: Any number from 0.
        """
        return self._tokens.get(token_id)

    def is_special(self, token_id: int) -> bool:
        """Return whether an id is a control token's: one that decodes to nothing.

        Args:
            token_id: Any number.
        """
        if not 0 <= token_id < self.vocab_size:
            return False
        kept = self._inner.decode([token_id], skip_special_tokens=False)
        return bool(kept) and not self.decode([token_id])


def load_openvino_tokenizer(files: ModelFiles) -> OpenVinoTokenizer:
    """Load the tokenizer and detokenizer of a folder, checked before OpenVINO sees them.

    Args:
        files: The model's files, with ``openvino_tokenizer``.

    Returns:
        The tokenizer.

    Raises:
        TokenizerError: A part is missing, or OpenVINO can't load it.

    Fails with ``ModelFileError`` if a file is cut short.
    """
    if files.openvino_tokenizer is None or files.openvino_detokenizer is None:
        raise TokenizerError(f"{files.name} has no openvino_detokenizer.xml.")
    # From memory: given the folder, it would also read settings files, and fail on some of them.
    texts, weights = zip(
        *(_checked(xml) for xml in (files.openvino_tokenizer, files.openvino_detokenizer)),
        strict=True,
    )
    try:
        inner = openvino_genai.Tokenizer(texts[0], weights[0], texts[1], weights[1])
        return OpenVinoTokenizer(inner, special_tokens_of(files))
    except RuntimeError as exc:
        why = " ".join(str(exc).split())[:300]
        raise TokenizerError(f"The tokenizer of {files.name} can't be loaded: {why}") from exc


def _checked(xml: Path) -> tuple[str, openvino.Tensor]:
    check_ir(xml, xml.with_suffix(".bin"))
    return read_text(xml), openvino.Tensor(np.fromfile(xml.with_suffix(".bin"), np.uint8))
