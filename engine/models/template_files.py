"""Find a model's chat templates among its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import ChatTemplateError
from engine.models.chat_template import DEFAULT, ChatTemplate
from engine.models.files import read_text
from engine.models.special_tokens import read_json_object, special_tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.models.files import ModelFiles


def load_chat_template(
    files: ModelFiles, special_tokens: Mapping[str, str] | None = None
) -> ChatTemplate:
    """Load a model's own chat templates; none is ever made up.

    Template files count before tokenizer_config.json, which isn't looked into if there are any.

    Args:
        files: The model's files.
        special_tokens: Tokens by role, from the tokenizer; from the settings files if left out.

    Returns:
        The templates; empty if there are none.

    Fails with ``ModelFileError`` if a file can't be read, and with ``ChatTemplateError`` if
    tokenizer_config.json has something else in the template's place.
    """
    if special_tokens is None:
        special_tokens = special_tokens_of(files)
    templates = {name: read_text(path) for name, path in files.additional_chat_templates}
    if files.chat_template is not None:
        templates[DEFAULT] = read_text(files.chat_template)
    if not templates and files.tokenizer_config is not None:
        templates = _from_settings(read_json_object(files.tokenizer_config).get("chat_template"))
    return ChatTemplate(templates, special_tokens)


def _from_settings(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list):
        value = {
            entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)
        }
    if isinstance(value, dict):
        pairs = value.items()
        if all(isinstance(name, str) and isinstance(text, str) for name, text in pairs):
            return dict(value)
    raise ChatTemplateError(
        "tokenizer_config.json has a chat_template that is neither a text nor a list of named ones."
    )
