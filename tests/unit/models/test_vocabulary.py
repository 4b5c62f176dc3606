"""Two models go together only if every id means the same token to both."""

import json

import pytest
import tokenizers

from engine.errors import ModelFileError, OtherVocabularyError
from engine.models.tokenizer import JsonTokenizer
from engine.models.vocabulary import (
    VOCABULARY_JSON,
    VocabularyStamp,
    check_same_size,
    check_same_tokens,
    check_stamp,
    read_stamp,
    vocabulary_sha256,
)

WORDS = ["<s>", "a", "b", "Paris", "London", "\ud7ff", "Ġ"]


def tokenizer_of(words, special_tokens=None):
    vocabulary = {word: index for index, word in enumerate(words) if word is not None}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="a")  # noqa: S106 - a word, no secret
    return JsonTokenizer(tokenizers.Tokenizer(model), special_tokens or {})


def stamp_of(tokenizer):
    return VocabularyStamp(tokenizer.vocab_size, vocabulary_sha256(tokenizer), 4, 64)


def exchanged(words, one, other):
    words = list(words)
    words[one], words[other] = words[other], words[one]
    return words


def test_the_same_tokens_go_together():
    """What else the tokenizers say does not matter."""
    target, draft = tokenizer_of(WORDS), tokenizer_of(WORDS, {"bos_token": "<s>"})
    check_same_tokens(target, draft)
    check_stamp(target, stamp_of(draft))


@pytest.mark.parametrize(
    ("words", "token_id", "theirs"),
    [
        (exchanged(WORDS, 3, 4), 3, "'London'"),
        (WORDS[:-1], 6, "nothing"),
        ([*WORDS[:2], None, *WORDS[3:]], 2, "nothing"),
    ],
)
def test_the_first_token_that_differs_is_named(words, token_id, theirs):
    """With what it is to each of them."""
    with pytest.raises(OtherVocabularyError, match=rf": token {token_id} is .* and {theirs}"):
        check_same_tokens(tokenizer_of(WORDS), tokenizer_of(words))


def test_no_more_than_three_are_named():
    """Another family's vocabulary differs almost everywhere."""
    with pytest.raises(OtherVocabularyError) as caught:
        check_same_tokens(tokenizer_of(WORDS), tokenizer_of(list(reversed(WORDS))))
    assert caught.value.what.count("token ") == 3


def test_more_tokens_than_the_model_has_differ_as_well():
    """The other way round than fewer."""
    with pytest.raises(OtherVocabularyError, match="token 7 is nothing and 'c'"):
        check_same_tokens(tokenizer_of(WORDS), tokenizer_of([*WORDS, "c"]))


def test_sizes_are_named():
    """Both of them."""
    check_same_size(512, 512)
    with pytest.raises(OtherVocabularyError, match=r"49152 tokens and the draft model one of 512"):
        check_same_size(49152, 512)


def test_a_stamp_tells_other_tokens():
    """Of the same number, or of another."""
    stamp = stamp_of(tokenizer_of(WORDS))
    with pytest.raises(OtherVocabularyError, match="other tokens"):
        check_stamp(tokenizer_of(exchanged(WORDS, 1, 2)), stamp)
    with pytest.raises(OtherVocabularyError, match="one of 7"):
        check_stamp(tokenizer_of([*WORDS, "c"]), stamp)


def test_tokens_do_not_run_into_each_other():
    """The hash knows where one ends, and which ids are none."""
    hashes = {
        vocabulary_sha256(tokenizer_of(words))
        for words in (["a", "bc", "d"], ["a", "b", "cd"], ["a", None, "d"], ["a", "bcd"])
    }
    assert len(hashes) == 4


def test_a_folder_may_say_nothing(tmp_path):
    """Then it has a tokenizer, or can't be used."""
    assert read_stamp(tmp_path) is None


def test_a_stamp_is_read(tmp_path):
    """As it was written."""
    known = {"vocab_size": 7, "sha256": "ab", "num_layers": 4, "hidden_size": 64}
    text = json.dumps(known)
    (tmp_path / VOCABULARY_JSON).write_text(text, encoding="utf-8")
    assert read_stamp(tmp_path) == VocabularyStamp(7, "ab", 4, 64)


@pytest.mark.parametrize("text", ["", "[]", '{"vocab_size": "7", "sha256": "ab"}', '{"x": 1}'])
def test_a_damaged_stamp_is_said_to_be_one(tmp_path, text):
    """And is never taken for one that fits."""
    (tmp_path / VOCABULARY_JSON).write_text(text, encoding="utf-8")
    with pytest.raises(ModelFileError, match="damaged"):
        read_stamp(tmp_path)


def test_a_stamp_that_cannot_be_looked_at(tmp_path):
    """A file's name has a length."""
    with pytest.raises(ModelFileError, match="can't be read"):
        read_stamp(tmp_path / ("x" * 5000))
