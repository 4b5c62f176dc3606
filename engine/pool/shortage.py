"""Why a model has no place, by how much, and what would help; pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from engine.domain import LayerRange
from engine.errors import InsufficientMemoryError, in_binary_units
from engine.pool.chain_search import can_hold
from engine.pool.plan import GIB, gib_option, in_gib
from engine.pool.private_chain import home_shares, middle_sizes
from engine.pool.sentences import sentence
from engine.pool.stage_memory import (
    HEADROOM_DIVISOR,
    capacity_for,
    stage_memory,
    stage_sizes,
    usable_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.domain import ModelDescription
    from engine.pool.chain_choice import PlacementQuestion
    from engine.pool.plan import NodeFacts
    from engine.pool.stage_memory import StageSizes, Workload

CONTEXT_STEP_TOKENS = 256
_TENTH_GIB = GIB // 10
_BITS = {"f32": 32, "f16": 16, "bf16": 16, "i8": 8, "u8": 8}
_FORMATS = ((8, 8.5), (4, 4.5))  # bits as they are called, and with their scales


def shortage(question: PlacementQuestion) -> InsufficientMemoryError:
    """Return the error for a question without an answer.

    Args:
        question: Whose sizes no PCs hold.
    """
    available = sum(node.usable_bytes for node in question.allowed)
    required = usable_for(question.sizes.whole)
    extra = _one_more_pc(question)
    if required <= available:
        # Enough in all, but not where a layer, the embedding or the head would have to be.
        required = available + (extra or usable_for(max(question.sizes.layers)))
    error = InsufficientMemoryError(required, available, _kv_part(question, required))
    ways = list(_ways_out(question, extra))
    if ways:
        error.advice = sentence("ways", ways="; ".join(ways))
    return error


def _kv_part(question: PlacementQuestion, required: int) -> str:
    """Return what of the need is for the context, where that is most of it; else nothing."""
    workload = question.workload
    kv_bytes = stage_memory(
        question.model, workload, LayerRange(0, question.model.num_layers)
    ).kv_bytes
    with_headroom = kv_bytes + kv_bytes // HEADROOM_DIVISOR
    if 2 * with_headroom < required:
        return ""
    users = _users(workload.max_sequences)
    return (
        f"{in_binary_units(with_headroom)} of it for a context of {workload.context_tokens} "
        f"tokens for {users}"
    )


def _users(number: int) -> str:
    return sentence("user") if number == 1 else sentence("users", number=str(number))


def _ways_out(question: PlacementQuestion, extra: int | None) -> Iterator[str]:
    model, workload = question.model, question.workload
    context = _longest(question, "context_tokens", CONTEXT_STEP_TOKENS)
    if context:
        yield sentence("way_context", context=str(context), option=str(context))
    users = _longest(question, "max_sequences", 1)
    if users:
        yield sentence("way_users", users=_users(users), option=str(users))
    yield from _higher_limit(question)
    if extra is not None:
        yield sentence("way_pc", memory=in_gib(extra))
    for node in question.nodes:
        if node.exclusions and _holds(question, question.sizes, (*question.allowed, node)):
            remedy = " ".join(e.remedy for e in node.exclusions).rstrip(".")
            yield f"{node.name} ({remedy})"
    for bits, real_bits in _FORMATS:
        smaller = _in_format(model, bits, real_bits)
        if smaller and _holds(question, stage_sizes(smaller, workload), question.allowed):
            yield sentence("way_weights", bits=str(bits))
            return


def _higher_limit(question: PlacementQuestion) -> Iterator[str]:
    """Find the smallest raise of one PC's limit that is enough, or else that of all of them.

    Yields:
        It in words, once; nothing where no limit stands in the way.
    """
    limited = [n for n in question.nodes if not n.exclusions and _unlimited(n) != n]
    raises = [
        (raised - (node.cap_bytes or 0), raised, node)
        for node in limited
        if (raised := _enough_limit(question, node))
    ]
    if raises:
        _, raised, node = min(raises, key=lambda r: (r[0], r[2].name))
        option = gib_option(raised)
        yield sentence("way_limit", limit=in_gib(raised), pc=node.name, option=option)
    elif limited and _holds(
        question, question.sizes, _in_place_of(question, *map(_unlimited, limited))
    ):
        yield sentence("way_limits", pcs=", ".join(node.name for node in limited))


def _enough_limit(question: PlacementQuestion, node: NodeFacts) -> int | None:
    """Return the limit of one PC, in tenths of a GiB, with which there is a place; None if none."""
    highest = _unlimited(node).usable_bytes // _TENTH_GIB

    def is_enough(tenths: int) -> bool:
        raised = msgspec.structs.replace(node, cap_bytes=tenths * _TENTH_GIB)
        return _holds(question, question.sizes, _in_place_of(question, raised))

    counts = range(1, highest + 1)
    found = bisect_left(counts, x=True, key=is_enough)
    return counts[found] * _TENTH_GIB if found < len(counts) else None


def _unlimited(node: NodeFacts) -> NodeFacts:
    """Return a PC without its owner's limit; itself where the limit takes nothing away."""
    free = msgspec.structs.replace(node, cap_bytes=None)
    return free if free.usable_bytes > node.usable_bytes else node


def _in_place_of(question: PlacementQuestion, *changed: NodeFacts) -> tuple[NodeFacts, ...]:
    ids = {node.node_id for node in changed}
    return (*(n for n in question.allowed if n.node_id not in ids), *changed)


def _longest(question: PlacementQuestion, field: str, step: int) -> int:
    """Return the largest smaller value of a workload's count that has a place; 0 if none has."""
    present: int = getattr(question.workload, field)

    def is_too_much(number: int) -> bool:
        smaller = msgspec.structs.replace(question.workload, **{field: number * step})
        return not _holds(question, _sizes(question, smaller), question.allowed)

    counts = range(1, -(-present // step))
    return step * bisect_left(counts, x=True, key=is_too_much)


def _one_more_pc(question: PlacementQuestion) -> int | None:
    """Return the memory one more PC would have to give, in tenths of a GiB; None if none helps."""

    def is_enough(tenths: int) -> bool:
        capacity = capacity_for(tenths * _TENTH_GIB)
        return _holds(question, question.sizes, question.allowed, (capacity,))

    counts = range(1, -(-usable_for(question.sizes.whole) // _TENTH_GIB) + 1)
    found = bisect_left(counts, x=True, key=is_enough)
    return counts[found] * _TENTH_GIB if found < len(counts) else None


def _holds(
    question: PlacementQuestion,
    sizes: StageSizes,
    nodes: Sequence[NodeFacts],
    more: tuple[int, ...] = (),
) -> bool:
    """Return whether PCs would hold a model; ``more`` are the capacities of PCs not there yet."""
    if not question.wishes.is_private:
        return can_hold(sizes, [*(node.capacity_bytes for node in nodes), *more])
    home = next((n for n in nodes if n.node_id == question.wishes.asker), None)
    if home is None:
        return False
    if home.capacity_bytes >= sizes.whole:
        return True
    shares = list(home_shares(sizes, capacity_for(home.usable_bytes, num_stages=2)))
    others = [node.capacity_bytes for node in nodes if node is not home]
    return bool(shares) and can_hold(middle_sizes(sizes, shares[-1]), [*others, *more])


def _sizes(question: PlacementQuestion, workload: Workload) -> StageSizes:
    return stage_sizes(question.model, workload)


def _in_format(model: ModelDescription, bits: int, real_bits: float) -> ModelDescription | None:
    """Return the model as it would be with other weights; None if its own are not larger."""
    own = _BITS.get(model.weight_precision, 0)
    if own <= bits:
        return None

    def smaller(num_bytes: int) -> int:
        return round(num_bytes * real_bits / own)

    return msgspec.structs.replace(
        model,
        layer_bytes=tuple(map(smaller, model.layer_bytes)),
        embedding_bytes=smaller(model.embedding_bytes),
        head_bytes=smaller(model.head_bytes),
    )
