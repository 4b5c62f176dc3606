"""The model's own tokenizer, from its tokenizer.json."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

import tokenizers

from engine.errors import TokenizerError, UsageError
from engine.models.files import read_text
from engine.models.special_tokens import special_tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.models.files import ModelFiles

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class Tokenizer(Protocol):
    """Text to token ids and back. Safe to use from several threads."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Tokens by their role: ``bos_token``, ``eos_token``, and so on."""
        ...

    @property
    def byte_ids(self) -> frozenset[int]:
        """Ids of tokens that stand for one byte each (SentencePiece's ``<0x0A>``)."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text; control tokens written out in it become their ids.

        Args:
            text: Any text.
            add_special_tokens: True for raw completion; False for a rendered chat, because the
                template has written what belongs there.

        Raises:
            UsageError: The text holds half a character.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids as the model wrote it, without control tokens.

        Args:
            ids: Ids that aren't in the vocabulary are left out.
        """
        ...

    def token_id(self, token: str) -> int | None:
        """Return a token's id; None if it isn't in the vocabulary.

        Args:
            token: As the vocabulary writes it.
        """
        ...

    def token(self, token_id: int) -> str | None:
        """Return an id's token as the vocabulary writes it; None if it isn't in the vocabulary.

        Args:
            token_id: Any number from 0.
        """
        ...

    def is_special(self, token_id: int) -> bool:
        """Return whether an id is a control token's, which is no text.

        Args:
            token_id: Any number.
        """
        ...


class JsonTokenizer:
    """A ``Tokenizer`` over a tokenizer.json."""

    def __init__(self, inner: tokenizers.Tokenizer, special_tokens: Mapping[str, str]) -> None:
        """Take over a tokenizer.

        Args:
            inner: Changed: what it says of truncation and padding is switched off, and the
                special tokens are made control tokens if they weren't.
            special_tokens: Tokens by their role.
        """
        inner.no_truncation()
        inner.no_padding()
        known = inner.get_added_tokens_decoder().values()
        control = {token.content for token in known if token.special}
        for token in dict.fromkeys(special_tokens.values()):
            if token not in control and inner.token_to_id(token) is not None:
                added = tokenizers.AddedToken(token, special=True, normalized=False)
                inner.add_special_tokens([added])
        vocabulary = inner.get_vocab(with_added_tokens=True)
        self._inner = inner
        self._special_tokens = dict(special_tokens)
        self._vocab_size = max(vocabulary.values(), default=-1) + 1
        self._special_ids = frozenset(
            token_id
            for token_id, token in inner.get_added_tokens_decoder().items()
            if token.special
        )
        self._byte_ids = byte_ids_of(vocabulary)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return self._vocab_size

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
        try:
            return list(self._inner.encode(text, add_special_tokens=add_special_tokens).ids)
        except BaseException as exc:
            _raise_if_damaged(exc, "can't encode a text")
            raise

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without control tokens.

        Args:
            ids: Those that aren't in the vocabulary are left out.
        """
        # clean_up_tokenization_spaces is a matter of transformers, not of this library: a model
        # that wrote "x != y" keeps its blanks whatever tokenizer_config.json says.
        try:
            return str(self._inner.decode(list(ids), skip_special_tokens=True))
        except BaseException as exc:
            _raise_if_damaged(exc, "can't decode ids")
            raise

    def token_id(self, token: str) -> int | None:
        """Return a token's id; None if it isn't in the vocabulary.

        Args:
            token: As the vocabulary writes it.
        """
        return self._inner.token_to_id(token)

    def token(self, token_id: int) -> str | None:
        """Return an id's token; None if it isn't in the vocabulary.

        Args:
            token_id: Any number from 0.
        """
        return self._inner.id_to_token(token_id)

    def is_special(self, token_id: int) -> bool:
        """Return whether an id is a control token's.

        Args:
            token_id: Any number.
        """
        return token_id in self._special_ids


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """Load a model's own tokenizer: its tokenizer.json, or else its openvino_tokenizer.xml.

    Args:
        files: The model's files.

    Returns:
        The tokenizer.

    Raises:
        TokenizerError: There is none, or it is damaged.

    Fails with ``ModelFileError`` if a file of it can't be read.
    """
    if files.tokenizer_json is not None:
        special_tokens = special_tokens_of(files)
        text = read_text(files.tokenizer_json)
        try:
            return JsonTokenizer(tokenizers.Tokenizer.from_str(text), special_tokens)
        except BaseException as exc:
            _raise_if_damaged(exc, f"of {files.name} is damaged")
            raise
    if files.openvino_tokenizer is not None:
        # Loads OpenVINO, which takes longer than everything else here, and few models need it.
        from engine.models.openvino_tokenizer import load_openvino_tokenizer  # noqa: PLC0415

        return load_openvino_tokenizer(files)
    raise TokenizerError(
        f"{files.name} has no tokenizer: neither tokenizer.json nor openvino_tokenizer.xml."
    )


def _raise_if_damaged(exc: BaseException, how: str) -> None:
    # A panic of the library is no Exception, and its class can't be imported.
    if isinstance(exc, Exception) or type(exc).__name__ == "PanicException":
        raise TokenizerError(f"tokenizer.json {how}: {exc}.") from exc


def byte_ids_of(vocabulary: Mapping[str, int]) -> frozenset[int]:
    """Return the ids of tokens that stand for one byte each.

    Args:
        vocabulary: Ids by token.
    """
    found = frozenset(index for token, index in vocabulary.items() if _BYTE_TOKEN.fullmatch(token))
    return found if len(found) == 256 else frozenset()


def require_whole_characters(text: str) -> None:
    """Check that a text can be encoded.

    Args:
        text: Any text.

    Raises:
        UsageError: It holds half a character (a lone surrogate).
    """
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"The text holds half a character at position {exc.start}.") from exc
