"""The text side of a model on the head: requests to ids, ids to text."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from engine.errors import ChatTemplateError, UsageError
from engine.messages.codec import shown
from engine.models.detokenizer import IncrementalDetokenizer
from engine.models.files import open_text_folder
from engine.models.stopping import StopStrings
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import Tokenizer, load_tokenizer
from engine.pipeline.reply import Reply

if TYPE_CHECKING:
    from engine.messages.control import Generate
    from engine.models.chat_template import ChatTemplate
    from engine.pipeline.shard_folder import ShardFolder

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChatText:
    """A model's tokenizer, template and ends.

    Attributes:
        tokenizer: The model's own.
        template: Its chat templates; there may be none.
        stop_ids: The ids that end an answer.
        vocab_size: Ids below it have an embedding; some of them may be no token.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    stop_ids: frozenset[int]
    vocab_size: int

    def prompt_ids(self, request: Generate, now: datetime) -> list[int]:
        """Return the ids of a request's prompt.

        Args:
            request: Messages, or a raw prompt.
            now: Local time, for templates that write the date; the request's own counts, if it
                has one, so that an answer goes on from the prompt it began with.

        Raises:
            UsageError: It has both or neither, is empty, or its time is none.
            ChatTemplateError: The model has no template for it, or the template fails.

        Thread: any; may take a second for a very long text.
        """
        if (request.messages is None) == (request.prompt is None):
            raise UsageError("A request has either messages or a prompt.")
        if request.messages == ():
            raise UsageError("messages is empty; it must have one at least.")
        if request.messages is None:
            ids = self.tokenizer.encode(request.prompt or "", add_special_tokens=True)
        else:
            now = _asked_at(request.asked_at) if request.asked_at else now
            text = self.template.render(request.messages, now=now, tools=request.tools)
            ids = self.tokenizer.encode(text, add_special_tokens=False)
        if not ids:
            raise UsageError("The prompt is empty.", "Write something.")
        return ids

    def new_reply(self, request: Generate, prompt_ids: list[int], max_tokens: int) -> Reply:
        """Begin the answer to a request, or go on with it after what is committed.

        Args:
            request: Its stop strings count, what is committed, and whether it is a raw completion.
            prompt_ids: A raw completion's text goes on where the prompt's ends.
            max_tokens: From ``check_max_tokens``.

        Raises:
            UsageError: An id that is committed is none of this model's.
        """
        wrong = next((i for i in request.committed_ids if not 0 <= i < self.vocab_size), None)
        if wrong is not None:
            raise UsageError(
                f"The answer that is to go on has token {wrong}, and the model knows 0 to "
                f"{self.vocab_size - 1}.",
                "Ask again from the beginning.",
            )
        context = [] if request.messages is not None else prompt_ids
        reply = Reply(
            IncrementalDetokenizer(self.tokenizer.decode, context, self.tokenizer.byte_ids),
            StopStrings(request.stop),
            frozenset() if request.ignore_eos else self.stop_ids,
            max_tokens,
        )
        reply.resume(request.committed_ids)
        return reply


def load_chat_text(folder: ShardFolder) -> ChatText:
    """Load the text side of the model whose shards a folder holds.

    Args:
        folder: With the text files the splitter carried along.

    Raises:
        TokenizerError: There is no tokenizer, or it is damaged.

    Thread: any; takes about a second.
    """
    model = folder.manifest.model
    files = open_text_folder(folder.text_folder, model.name)
    tokenizer = load_tokenizer(files)
    text = ChatText(
        tokenizer, load_chat_template(files), frozenset(model.eos_token_ids), model.vocab_size
    )
    _warm_up(text)
    return text


def _asked_at(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise UsageError(f"asked_at is {shown(text)!r}; it must be a time in ISO 8601.") from exc


def _warm_up(text: ChatText) -> None:
    """Compile the template now, so that the first question does not wait for it."""
    try:
        text.template.render([{"role": "user", "content": ""}], now=datetime.now().astimezone())
    except (ChatTemplateError, UsageError) as error:
        _logger.debug("chat template: not warmed up, %s", error.what)
