"""What a pipeline does in steady state, as formulae; what the simulation is checked against; pure.

``T`` is the time of all stages for one row, ``tau`` the slowest stage's, ``l`` one hop's, ``N`` the
number of stages, ``c(r)`` the cost of r rows in units of one. The circuit has as many hops as
stages: one to each next stage, and one back to the head. Times are in milliseconds.
"""

from __future__ import annotations


def plain_tokens_per_s(
    stage_ms: tuple[float, ...], hop_ms: float, num_batches: int, rows: int, row_cost: float
) -> float:
    """Return what micro-batches of that many rows give: ``min(m / R(B), 1 / (tau c(B))) B``.

    Args:
        stage_ms: Of each stage, for one row.
        hop_ms: Of each hop.
        num_batches: In flight.
        rows: Of each micro-batch, one for each sequence.
        row_cost: ``c(rows)``.
    """
    circuit_ms = sum(stage_ms) * row_cost + len(stage_ms) * hop_ms
    slowest_ms = max(stage_ms) * row_cost
    return 1e3 * rows * min(num_batches / circuit_ms, 1 / slowest_ms)


def synchronous_tokens_per_s(
    stage_ms: tuple[float, ...], hop_ms: float, num_drafts: int, acceptance: float, row_cost: float
) -> float:
    """Return what one user gets who waits for each frame: ``g / (T c(k + 1) + N l)``.

    Args:
        stage_ms: Of each stage, for one row.
        hop_ms: Of each hop.
        num_drafts: ``k``, in each frame.
        acceptance: Chance of each draft, below 1.
        row_cost: ``c(k + 1)``.
    """
    gained = (1 - acceptance ** (num_drafts + 1)) / (1 - acceptance)
    return 1e3 * gained / (sum(stage_ms) * row_cost + len(stage_ms) * hop_ms)


def continuous_tpot_ms(
    stage_ms: tuple[float, ...], hop_ms: float, rows: int, acceptance: float, row_cost: float
) -> float:
    """Return one user's time per token where frames never wait for each other.

    ``(1 - a) (R(s) + tau c(s) a^s / (1 - a^s))``: a wrong draft costs a circuit.

    Args:
        stage_ms: Of each stage, for one row.
        hop_ms: Of each hop.
        rows: ``s``, of each frame.
        acceptance: Chance of each draft, from 0, below 1.
        row_cost: ``c(s)``.
    """
    circuit_ms = sum(stage_ms) * row_cost + len(stage_ms) * hop_ms
    right = acceptance**rows
    return (1 - acceptance) * (circuit_ms + max(stage_ms) * row_cost * right / (1 - right))


def prefill_ms(chunk_ms: float, num_chunks: int, num_stages: int, hop_ms: float) -> float:
    """Return the time to first token: ``(M + N - 1) p(C) / N + N l``.

    Args:
        chunk_ms: ``p(C)``, of one chunk through all stages.
        num_chunks: Of the prompt.
        num_stages: Alike.
        hop_ms: Of each hop.
    """
    return (num_chunks + num_stages - 1) * chunk_ms / num_stages + num_stages * hop_ms
