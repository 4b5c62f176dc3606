"""How many rows of prompts a pass may have: few beside decodes, and else what is soonest read.

Everybody whose next token is in the chain waits for every pass that goes through it. While any
sequence decodes, a pass with rows of prompts in it therefore takes about twice what the decodes
alone take, and no more: half of the chain's time goes to those who read. With nobody to wait, the
chunks of a prompt follow each other down the chain, and the last stage begins when the first chunk
comes to it: small ones keep all stages busy for longer, large ones cost less for each row.

Both are weighed by what rows cost as it was measured. Chunks have few different sizes, since a
device keeps something for each number of rows that it has computed. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.scheduler.row_costs import RowCosts

CHUNK_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MAX_SLOWDOWN = 2.0  # of a pass, by the rows of prompts in it; against its decodes alone
_AS_SOON = 1.03  # a frame costs a little that no row does, so the fewer the better


class PromptRows:
    """Chooses among ``CHUNK_ROWS`` for one placement."""

    def __init__(self, costs: RowCosts, num_stages: int, max_rows: int) -> None:
        """Take what is known of a chain.

        Args:
            costs: Of the head's own stage; the others are taken to be of its kind.
            num_stages: Of the chain.
            max_rows: Of a chunk; 1 or more.
        """
        self._costs = costs
        self._num_stages = num_stages
        self._sizes = [size for size in CHUNK_ROWS if size <= max_rows]

    def beside(self, num_decode_rows: int) -> int:
        """Return how many rows of prompts a pass may have while others decode.

        Args:
            num_decode_rows: Of a pass, 1 or more, drafts included.

        Returns:
            The largest size that keeps the pass within ``MAX_SLOWDOWN``. Where no size does, not
            even 1, the largest that takes no longer than 1 does: there is always some progress.
        """
        cost = self._costs.cost
        limit = max(MAX_SLOWDOWN * cost(num_decode_rows), cost(num_decode_rows + 1))
        return max(size for size in self._sizes if cost(num_decode_rows + size) <= limit)

    def alone(self, num_tokens: int) -> int:
        """Return how many rows of prompts a pass may have while nobody decodes.

        Args:
            num_tokens: That are to be read in all, from where their computing began; 1 or more.

        Returns:
            The largest size by which the last stage has read them about as soon as by any.
        """
        times = {size: self._read_after(num_tokens, size) for size in self._sizes}
        limit = _AS_SOON * min(times.values())
        return max(size for size, time in times.items() if time <= limit)

    def _read_after(self, num_tokens: int, size: int) -> float:
        """Return when the last chunk leaves the last stage, in passes of one row by one stage."""
        num_whole, num_left = divmod(num_tokens, size)
        first_stage = num_whole * self._costs.cost(size)
        if num_left:
            first_stage += self._costs.cost(num_left)
        return first_stage + (self._num_stages - 1) * self._costs.cost(min(size, num_tokens))
