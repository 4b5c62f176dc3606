"""Whether two models mean the same tokens by the same ids.

A draft model's guesses are ids. With another vocabulary each of them means something else, and not
one would hold; nothing else would tell, since a wrong guess is no error.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from engine.errors import ModelFileError, OtherVocabularyError
from engine.models.files import read_text

if TYPE_CHECKING:
    from pathlib import Path

    from engine.models.tokenizer import Tokenizer

VOCABULARY_JSON = "vocabulary.json"
_MAX_NAMED = 3  # of the tokens that differ


class VocabularyStamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a draft model without a tokenizer of its own says of itself.

    Attributes:
        vocab_size: One more than the largest id.
        sha256: From ``vocabulary_sha256``.
        num_layers: Checked when it is loaded.
        hidden_size: Of its own.
    """

    vocab_size: int
    sha256: str
    num_layers: int
    hidden_size: int


def vocabulary_sha256(tokenizer: Tokenizer) -> str:
    """Return a hash of all tokens in the order of their ids, as 64 hexadecimal digits.

    Args:
        tokenizer: Its chat template and settings do not count.
    """
    digest = hashlib.sha256()
    for token_id in range(tokenizer.vocab_size):
        token = tokenizer.token(token_id)
        data = b"" if token is None else token.encode("utf-8", "surrogatepass")
        digest.update(f"{token_id}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def check_same_tokens(target: Tokenizer, draft: Tokenizer) -> None:
    """Check that both tokenizers mean the same by each id.

    Args:
        target: Of the model that answers.
        draft: Of the one that guesses.

    Raises:
        OtherVocabularyError: They do not; the sentence names the first ids that differ.
    """
    different: list[str] = []
    for token_id in range(max(target.vocab_size, draft.vocab_size)):
        ours, theirs = target.token(token_id), draft.token(token_id)
        if ours != theirs:
            different.append(f"token {token_id} is {_shown(ours)} and {_shown(theirs)}")
        if len(different) == _MAX_NAMED:
            break
    if different:
        raise OtherVocabularyError(
            f"The model and the draft model mean different tokens: {', '.join(different)}."
        )


def check_same_size(target_vocab_size: int, draft_vocab_size: int) -> None:
    """Check that both models have logits for as many ids.

    Raises:
        OtherVocabularyError: They have not.
    """
    if target_vocab_size != draft_vocab_size:
        raise OtherVocabularyError(
            f"The model has a vocabulary of {target_vocab_size} tokens and the draft model one of "
            f"{draft_vocab_size}."
        )


def check_stamp(target: Tokenizer, stamp: VocabularyStamp) -> None:
    """Check that a tokenizer is the one that a draft model without any was made for.

    Raises:
        OtherVocabularyError: It is not.
    """
    check_same_size(target.vocab_size, stamp.vocab_size)
    if vocabulary_sha256(target) != stamp.sha256:
        raise OtherVocabularyError("The draft model was made for other tokens than the model's.")


def read_stamp(folder: Path) -> VocabularyStamp | None:
    """Read what a draft model's folder says of its vocabulary; None if it says nothing.

    Args:
        folder: Of a draft model.

    Raises:
        ModelFileError: It is damaged, or can't be looked at.
    """
    file = folder / VOCABULARY_JSON
    try:
        if not file.is_file():
            return None
        return msgspec.json.decode(read_text(file), type=VocabularyStamp)
    except OSError as exc:
        raise ModelFileError(f"{VOCABULARY_JSON} can't be read: {exc.strerror}.") from exc
    except msgspec.MsgspecError as exc:
        raise ModelFileError(f"{VOCABULARY_JSON} of a draft model is damaged: {exc}.") from exc


def _shown(token: str | None) -> str:
    return "nothing" if token is None else repr(token)
