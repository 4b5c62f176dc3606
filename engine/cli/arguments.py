"""The command line's options, and the values they become."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import engine
from engine.cli.local_pool import PoolOptions
from engine.cli.preparation import Division
from engine.config import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_MAX_TOKENS,
    MAX_DEFAULT_CONTEXT_TOKENS,
    data_folder,
)
from engine.errors import UsageError
from engine.splitter.partition import check_ascending

if TYPE_CHECKING:
    from engine.pipeline.shard_folder import ShardFolder

_SAMPLING_OPTIONS: tuple[tuple[str, type, str], ...] = (
    ("temperature", float, "0 is greedy (the default)"),
    ("top-k", int, "keep the k likeliest tokens; 0 is off"),
    ("top-p", float, "keep the likeliest tokens up to this share; 1 is off"),
    ("min-p", float, "drop tokens below this share of the likeliest; 0 is off"),
    ("repetition-penalty", float, "above 1 discourages what prompt and answer hold already"),
    ("presence-penalty", float, "discourages what the answer holds already"),
    ("frequency-penalty", float, "discourages by how often the answer holds it"),
    ("seed", int, "the same seed gives the same answer"),
)


def _text(word: str) -> str:
    """Return a word of the command line as text, which is UTF-8 whatever the locale says."""
    return os.fsencode(word).decode("utf-8", "replace")


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that every error leaves by one door."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message[0].upper()}{message[1:]}.", f"See {self.prog} --help.")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``daisy``."""
    parser = _Parser(prog="daisy", description="Runs a language model over several PCs.")
    parser.add_argument("--version", action="version", version=f"daisy {engine.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    split = commands.add_parser("split", help="cut a model into shards")
    split.add_argument("model", metavar="MODEL", help="a folder with an OpenVINO IR, or a GGUF")
    split.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to make")
    _add_common(split)
    _add_division(split)
    ask = commands.add_parser("ask", help="ask one question")
    ask.add_argument("question", nargs="?", type=_text, metavar="QUESTION")
    ask.add_argument("--request", type=Path, metavar="FILE", help="a JSON body instead")
    ask.add_argument("--raw", action="store_true", help="continue the text; no chat template")
    chat = commands.add_parser("chat", help="talk, turn by turn")
    demo = commands.add_parser("demo", help="the main job, start to finish, with figures")
    demo.add_argument(
        "question", nargs="?", type=_text, default="Why is the sky blue?", metavar="QUESTION"
    )
    demo.add_argument("--max-tokens", type=int, default=64, metavar="N", help="of the answer")
    _add_node(commands.add_parser("node", help="make this PC part of the pool"))
    status = commands.add_parser("status", help="how the pool looks from this PC")
    status.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    _add_common(status)
    for command in (ask, chat, demo):
        command.add_argument("--model", metavar="MODEL", help="a model or a folder of shards")
        _add_common(command)
        _add_division(command)
        _add_pool(command)
    for command in (ask, chat):
        _add_sampling(command)
    return parser


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"where models and shards are kept; {data_folder()} where left out",
    )
    command.add_argument("--json", action="store_true", help="lines of JSON on standard output")


def _add_node(node: argparse.ArgumentParser) -> None:
    node.add_argument("--name", type=_text, help="as the others are shown it")
    node.add_argument("--memory", metavar="SIZE", help="lend at most this much: 6GiB")
    node.add_argument("--port", type=int, default=0, metavar="N", help="to listen on")
    node.add_argument("--interface", action="append", default=[], metavar="NAME")
    node.add_argument("--peer", action="append", default=[], metavar="HOST:PORT")
    _add_common(node)


def _add_division(command: argparse.ArgumentParser) -> None:
    group = command.add_mutually_exclusive_group()
    group.add_argument("--stages", type=int, metavar="N", help="how many shards")
    group.add_argument("--cuts", metavar="L,L", help="the layers to cut before: 10,20")


def _add_pool(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kind", choices=["paged", "stateful"], help="how stages run")
    command.add_argument("--exact", action="store_true", help="f32 everywhere: reference tokens")
    command.add_argument("--context", type=int, metavar="N", help="tokens a chat may have")
    command.add_argument("--threads", type=int, metavar="N", help="of each stage")
    command.add_argument("--port", type=int, default=0, metavar="N", help="of the first node")


def _add_sampling(command: argparse.ArgumentParser) -> None:
    command.add_argument("--system", type=_text, metavar="TEXT", help="the system prompt")
    command.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help=f"of the answer; {DEFAULT_MAX_TOKENS} where left out",
    )
    command.add_argument("--stop", action="append", type=_text, default=[], metavar="TEXT")
    command.add_argument("--ignore-eos", action="store_true", help=argparse.SUPPRESS)
    for name, kind, text in _SAMPLING_OPTIONS:
        command.add_argument(f"--{name}", type=kind, metavar="X", help=text)


def sampling_fields(given: argparse.Namespace) -> dict[str, object]:
    """Return the sampling options a person gave, by their names in a request's body."""
    names = [name.replace("-", "_") for name, _, _ in _SAMPLING_OPTIONS]
    return {name: value for name in names if (value := getattr(given, name)) is not None}


def division(given: argparse.Namespace, default_stages: int = 1) -> Division:
    """Return how to divide the model.

    Args:
        given: Parsed options.
        default_stages: Where neither stages nor cuts are given.

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
    stages = given.stages if given.stages is not None else default_stages
    if stages < 1:
        raise UsageError(f"--stages is {stages}; it must be 1 or more.")
    return Division(num_stages=stages, is_asked=given.stages is not None)


def pool_options(given: argparse.Namespace, folder: ShardFolder) -> PoolOptions:
    """Return how the stages run.

    Args:
        given: Parsed options.
        folder: The shards; they know the model's context.

    Raises:
        UsageError: The context or a number of threads makes no sense.
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
    return PoolOptions(
        kind=given.kind,
        mode="exact" if given.exact else "fast",
        context_tokens=context,
        num_threads=given.threads,
        base_port=given.port,
    )


def data_dir(given: argparse.Namespace) -> Path:
    """Return Daisy's data folder, as given or the platform's."""
    return (given.data or data_folder()).absolute()
