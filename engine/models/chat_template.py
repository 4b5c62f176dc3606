"""The model's own chat template, rendered as transformers renders it.

The environment - sandbox, filters, extensions - is transformers' own. What differs: the clock is
an argument, the role ``developer`` counts as ``system``, and parts of text reach every template.
"""

from __future__ import annotations

import logging
import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jinja2

from engine.errors import ChatTemplateError
from engine.models.chat_messages import ContentForms, prepared
from engine.models.clock_text import strftime_english

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

DEFAULT = "default"
TOOL_USE = "tool_use"
MAX_CHARACTERS = 32 * 1024 * 1024
MAX_RENDER_S = 20.0  # looked at between two pieces of output
_PROBES = ("probe7f3a", "probe9c1e")
_WRITTEN_OUT = re.compile(r"""["']text["']\s*:\s*["']probe""")

Message = dict[str, Any]


class ChatTemplate:
    """A model's chat templates by name; there may be none."""

    def __init__(self, templates: Mapping[str, str], special_tokens: Mapping[str, str]) -> None:
        """Keep them; nothing is compiled yet, so that a bad one does no harm to raw completion.

        Args:
            templates: Template text by name.
            special_tokens: Tokens by role; the templates see them as variables.
        """
        self._templates = dict(templates)
        self._special_tokens = dict(special_tokens)
        self._forms: dict[str, ContentForms] = {}

    def render(
        self,
        messages: Sequence[Message],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a chat.

        Args:
            messages: Plain JSON data: ``role``, ``content`` (text, or a list of parts), and what
                else the template knows. Not changed.
            now: Local time of this turn, for templates that write the date.
            tools: Tool definitions; an empty list counts as none.
            add_generation_prompt: Whether the text ends where the model's answer begins.
            variables: More variables for the template, e.g. ``enable_thinking``.

        Returns:
            The text to encode with ``add_special_tokens=False``.

        Fails with ``ChatTemplateError`` if there is no template, it fails, or it refuses these
        messages (the sentence has the template's line), and with ``UsageError`` if a message is
        not one.

        Thread: any. Cancellation: none; ends after at most ``MAX_RENDER_S`` or ``MAX_CHARACTERS``.
        """
        template_text = self._chosen(has_tools=bool(tools))
        template = _compiled(template_text)
        context: dict[str, Any] = {
            **self._special_tokens,
            **(variables or {}),
            "tools": [dict(tool) for tool in tools] if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": lambda layout: strftime_english(now, layout),
        }
        if template_text not in self._forms:
            self._forms[template_text] = _content_forms(template, context)
        context["messages"] = prepared(messages, self._forms[template_text])
        return _rendered(template, context)

    def _chosen(self, *, has_tools: bool) -> str:
        if not self._templates:
            raise ChatTemplateError("This model has no chat template.")
        if has_tools and TOOL_USE in self._templates:
            return self._templates[TOOL_USE]
        if DEFAULT not in self._templates:
            names = ", ".join(sorted(self._templates))
            raise ChatTemplateError(f"This model has no default chat template, only {names}.")
        return self._templates[DEFAULT]


@lru_cache(maxsize=16)
def _compiled(template_text: str) -> jinja2.Template:
    # Importing transformers takes most of a second, and only chats need it.
    logging.getLogger("transformers").addFilter(_is_no_advice_on_torch)
    from transformers.utils.chat_template_utils import _compile_jinja_template  # noqa: PLC0415

    try:
        template: jinja2.Template = _compile_jinja_template(template_text)
    except jinja2.TemplateSyntaxError as exc:
        raise ChatTemplateError(
            f"The chat template has an error in line {exc.lineno}: {exc.message}."
        ) from exc
    except Exception as exc:
        raise ChatTemplateError(f"The chat template can't be compiled: {exc}.") from exc
    return template


def _is_no_advice_on_torch(record: logging.LogRecord) -> bool:
    return "PyTorch was not found" not in record.getMessage()


def _rendered(template: jinja2.Template, context: dict[str, Any]) -> str:
    try:
        return "".join(_within_limits(template.generate(**context)))
    except ChatTemplateError:
        raise
    except Exception as exc:
        if type(exc) is jinja2.TemplateError:  # what raise_exception in a template raises
            raise ChatTemplateError(
                f"The chat template refuses this chat in line {_line(exc)}: {exc}",
                "Change the messages or their order, or use raw completion.",
            ) from exc
        raise ChatTemplateError(
            f"The chat template fails in line {_line(exc)}: {type(exc).__name__}: {exc}"
        ) from exc


def _within_limits(pieces: Iterator[str]) -> Iterator[str]:
    num_characters = 0
    deadline = time.monotonic() + MAX_RENDER_S
    for piece in pieces:
        num_characters += len(piece)
        if num_characters > MAX_CHARACTERS:
            raise ChatTemplateError(
                f"The chat template writes more than {MAX_CHARACTERS} characters."
            )
        if time.monotonic() > deadline:
            raise ChatTemplateError(f"The chat template runs longer than {MAX_RENDER_S} s.")
        yield piece


def _line(exc: Exception) -> int | str:
    # Jinja rewrites tracebacks so that frames of the template have its own line numbers.
    line: int | None = None
    traceback = exc.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line if line is not None else "?"


def _content_forms(template: jinja2.Template, context: dict[str, Any]) -> ContentForms:
    # Some templates add content to a text, some walk over its parts, some do either, and some take
    # only the first part: try it. A list that was written out shows its keys.
    parts = [{"type": "text", "text": probe} for probe in _PROBES]
    as_text = _probed(template, context, _PROBES[0])
    as_parts = _probed(template, context, parts)
    has_all = all(probe in as_parts for probe in _PROBES)
    takes_parts = has_all and _WRITTEN_OUT.search(as_parts) is None
    takes_text = _PROBES[0] in as_text or not takes_parts
    return ContentForms(takes_text=takes_text, takes_parts=takes_parts)


def _probed(template: jinja2.Template, context: dict[str, Any], content: object) -> str:
    messages = [{"role": "user", "content": content}]
    try:
        return _rendered(template, {**context, "messages": messages})
    except ChatTemplateError:
        return ""
