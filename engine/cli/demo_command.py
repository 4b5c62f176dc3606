"""``daisy demo``: the main job, start to finish, held against the unsplit model."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from engine.cli.arguments import data_dir, division, pool_options
from engine.cli.commands import chat_message, new_request_id, tell_answer, tell_stages
from engine.cli.local_pool import open_local_pool
from engine.cli.preparation import open_source, shards_for
from engine.errors import StageError
from engine.messages.control import TextDelta
from engine.messages.request_body import RequestBody, as_generate
from engine.pipeline.asking import ask
from engine.pipeline.chat_text import load_chat_text
from engine.process_ending import describe_ending

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from engine.cli.local_pool import LocalPool
    from engine.cli.output import Output
    from engine.messages.control import Generate


async def demo_command(given: argparse.Namespace, output: Output) -> None:
    """Cut, chain, answer, and compare with the unsplit model, token by token.

    Args:
        given: Parsed options.
        output: Told everything.

    Raises:
        StageError: The tokens differ.
    """
    given.exact = True  # the comparison is about tokens, and only exact mode promises them
    folder = await shards_for(given.model, division(given, 2), data_dir(given), output)
    options = pool_options(given, folder)
    body = RequestBody(messages=[chat_message("user", given.question)], max_tokens=given.max_tokens)
    output.say(f"\nQuestion: {given.question}\n")
    async with open_local_pool(
        folder, options, lambda done, total: output.progress("Loading stages", done, total)
    ) as pool:
        tell_stages(pool, output)
        await tell_answer(pool, as_generate(body, new_request_id()), output)
        tokens = await _token_ids(pool, as_generate(body, new_request_id()))
    text = await asyncio.to_thread(load_chat_text, folder)
    prompt = text.prompt_ids(as_generate(body, new_request_id()), datetime.now().astimezone())
    await _compare(given, prompt, tokens, output)


async def _token_ids(pool: LocalPool, request: Generate) -> list[int]:
    ids: list[int] = []
    async for event in ask(pool.head, request):
        if isinstance(event, TextDelta):
            ids.extend(event.token_ids)
    return ids


async def _compare(
    given: argparse.Namespace, prompt: list[int], tokens: list[int], output: Output
) -> None:
    output.say("Running the unsplit model for comparison ...")
    files = await open_source(given.model, data_dir(given), output)
    unsplit = await _unsplit_tokens(files.xml, prompt, len(tokens))
    same = [a == b for a, b in zip(tokens, unsplit, strict=True)]
    output.event("compared", tokens=len(tokens), equal=sum(same))
    if not all(same):
        raise StageError(
            f"The shards' tokens differ from the unsplit model's at token {same.index(False)}.",
            "Report it with the text above.",
        )
    output.say(
        f"The shards' {len(tokens)} greedy tokens are the unsplit model's, every one of them."
    )


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
