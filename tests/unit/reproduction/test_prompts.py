"""Prompts have exactly the tokens that were asked for, and share no beginning."""

from __future__ import annotations

from itertools import combinations

import pytest
import tokenizers
from prompts import PromptError, prompt_of

from engine.models.tokenizer import JsonTokenizer, Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One that has learnt a few words, and spells the others."""
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator([" a river and a bridge in the forest by a market"] * 9, trainer)
    return JsonTokenizer(raw, {})


@pytest.mark.parametrize("num_tokens", [32, 77, 300])
def test_a_prompt_has_the_tokens_asked_for(tokenizer: Tokenizer, num_tokens: int) -> None:
    ids = tokenizer.encode(prompt_of(tokenizer, num_tokens, 1), add_special_tokens=True)
    assert len(ids) == num_tokens


def test_no_two_prompts_begin_alike(tokenizer: Tokenizer) -> None:
    all_ids = [tokenizer.encode(prompt_of(tokenizer, 64, n), add_special_tokens=False)
               for n in range(8)]  # fmt: skip
    for one, other in combinations(all_ids, 2):
        assert one[:16] != other[:16]


def test_the_same_number_gives_the_same_prompt(tokenizer: Tokenizer) -> None:
    assert prompt_of(tokenizer, 64, 5) == prompt_of(tokenizer, 64, 5)


def test_a_prompt_shorter_than_a_word_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(PromptError):
        prompt_of(tokenizer, 1, 123456789)
