"""What the unsplit model answers, in a process of its own: the demo's reference."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from engine.errors import StageError
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.chat_text import ChatText
from engine.process_ending import describe_ending

if TYPE_CHECKING:
    from pathlib import Path

    from engine.messages.control import Generate
    from engine.models.files import ModelFiles


async def unsplit_answer(
    files: ModelFiles, vocab_size: int, request: Generate, num_tokens: int
) -> list[int]:
    """Return the greedy tokens of a whole model's answer, past any end.

    Args:
        files: Of the model.
        vocab_size: Its.
        request: What was asked.
        num_tokens: How many, at least one.

    Raises:
        StageError: The process ended.

    Fails with ``TokenizerError`` or ``ChatTemplateError`` where the request can't be rendered.

    Cancellation: ends the process.
    """
    prompt = await asyncio.to_thread(_prompt_ids, files, vocab_size, request)
    return await _unsplit_tokens(files.xml, prompt, num_tokens)


def _prompt_ids(files: ModelFiles, vocab_size: int, request: Generate) -> list[int]:
    text = ChatText(load_tokenizer(files), load_chat_template(files), frozenset(), vocab_size)
    return text.prompt_ids(request, datetime.now().astimezone())


async def _unsplit_tokens(xml: Path, prompt: list[int], num_tokens: int) -> list[int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "utf8", "-m", "engine.models.unsplit"),
        str(xml),
        str(num_tokens),
        *map(str, prompt),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise StageError(describe_ending("The unsplit model's process", process.returncode))
    return list(json.loads(out)["tokens"])
