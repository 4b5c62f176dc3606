"""What the options say of a chain on this PC: how it is divided, and how its stages run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.arguments import compute_choices
from engine.cli.local_pool import PoolOptions
from engine.cli.preparation import Division
from engine.config import DEFAULT_CONTEXT_TOKENS, MAX_DEFAULT_CONTEXT_TOKENS
from engine.errors import UsageError
from engine.models.shown_path import shown_path
from engine.pipeline.draft_keeper import AUTO
from engine.splitter.partition import check_ascending

if TYPE_CHECKING:
    import argparse

    from engine.pipeline.shard_folder import ShardFolder


def division(given: argparse.Namespace) -> Division:
    """Return how to divide the model.

    Args:
        given: Parsed options.

    Raises:
        UsageError: The cuts are no numbers, or there are fewer than one stage.
    """
    if given.cuts is not None:
        try:
            cuts = tuple(int(part) for part in given.cuts.split(","))
        except ValueError as exc:
            raise UsageError(
                f"--cuts {given.cuts} is no list of layers.", "Write it like --cuts 10,20."
            ) from exc
        # Before anything is read; whether they fit the model shows when its layers are known.
        check_ascending(cuts)
        return Division(cuts=cuts)
    stages = given.stages if given.stages is not None else 1
    if stages < 1:
        raise UsageError(f"--stages is {stages}; it must be 1 or more.")
    return Division(num_stages=stages, is_asked=given.stages is not None)


def draft_word(given: argparse.Namespace) -> str:
    """Return the draft model that was chosen, as nodes take it.

    Args:
        given: Parsed options.
    """
    if given.draft is None:
        return AUTO
    # The node may be started anywhere.
    return "none" if given.draft == "none" else shown_path(Path(given.draft).absolute())


def pool_options(given: argparse.Namespace, folder: ShardFolder) -> PoolOptions:
    """Return how the stages run.

    Args:
        given: Parsed options.
        folder: The shards; they know the model's context.

    Raises:
        UsageError: The context or a number of threads makes no sense, or exact mode is to send
            less than f32.
    """
    longest = folder.manifest.model.context_length
    context = given.context
    if context is None:
        context = min(longest or DEFAULT_CONTEXT_TOKENS, MAX_DEFAULT_CONTEXT_TOKENS)
    if context < 2 or (longest is not None and context > longest):
        upper = longest if longest is not None else "any number"
        raise UsageError(f"--context is {context}; this model takes from 2 to {upper} tokens.")
    if given.threads is not None and given.threads < 1:
        raise UsageError(f"--threads is {given.threads}; it must be 1 or more.")
    highest = 65536 - len(folder.manifest.shards)  # each node takes the next port
    if not 0 <= given.port <= highest:
        raise UsageError(f"--port is {given.port}; it must be from 0 to {highest}.")
    mode, links = compute_choices(given)
    return PoolOptions(
        kind=given.kind,
        mode=mode,
        link_precision=links,
        context_tokens=context,
        num_threads=given.threads,
        base_port=given.port,
        draft=draft_word(given),
    )
