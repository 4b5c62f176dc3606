"""The embedded model's text side, loaded once."""

from __future__ import annotations

import pytest

from engine.models.settings import read_settings
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.chat_text import ChatText


@pytest.fixture(scope="session")
def chat_text(embedded) -> ChatText:
    settings = read_settings(embedded)
    tokenizer = load_tokenizer(embedded)
    return ChatText(
        tokenizer,
        load_chat_template(embedded),
        frozenset(settings.eos_token_ids),
        tokenizer.vocab_size,
    )
