"""What a worker of the splitter is told, and what it answers; imports no OpenVINO."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.domain import ModelDescription

SCRATCH_PREFIX = ".daisy-split-"

Phase = Literal["analyse", "cut", "golden", "hash"]


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far a worker is: ``done`` of ``total`` layers or bytes of a phase."""

    phase: Phase
    done: int
    total: int


class DescribeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to describe, and what is known about the model from beside the graph.

    Attributes:
        xml: The model's IR; header already checked.
        name: Shown to people.
        architecture: config.json's model_type.
        context_length: Tokens; None where not said.
        eos_token_ids: The union of all sources.
    """

    xml: str
    name: str
    architecture: str
    context_length: int | None
    eos_token_ids: tuple[int, ...]


class Described(msgspec.Struct, frozen=True, tag="result"):
    """What a model is.

    Attributes:
        model: Its description.
        paged_refusal: Why its layers can't be paged; None if they can. Each shard is asked again
            when it is cut.
    """

    model: ModelDescription
    paged_refusal: str | None

    @property
    def can_be_paged(self) -> bool:
        """Whether every layer can."""
        return self.paged_refusal is None


class SplitOrder(DescribeOrder, frozen=True, kw_only=True):
    """What to split and how.

    Attributes:
        out: The folder to make; must not exist.
        text_files: Tokenizer, template and settings to carry along: plain name, and file.
        cuts: Layers before which to cut; None to divide evenly.
        num_stages: Shards wanted, where no cuts are given.
        has_golden: Whether to make golden vectors.
        scratch: The folder to write in before it is renamed to ``out``; beside it, and not there
            yet. None for one of a name of its own.
    """

    out: str
    text_files: tuple[tuple[str, str], ...]
    cuts: tuple[int, ...] | None = None
    num_stages: int | None = None
    has_golden: bool = True
    scratch: str | None = None


class SplitResult(msgspec.Struct, frozen=True, tag="result"):
    """Where the shards are."""

    folder: str
    manifest_sha256: str
