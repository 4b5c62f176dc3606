"""How far an answer is, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.bridge.node_link import LinkState
from app.bridge.node_process import NodeState

if TYPE_CHECKING:
    from app.chat.live import LiveTurn
    from app.chat.pool_facts import PoolFacts
    from app.wording.wording import Wording

SEPARATOR = " · "
SECONDS_FROM_S = 2.0  # before that, nobody wonders
_NODE_KEYS = {
    NodeState.ABSENT: "chat.node_absent",
    NodeState.STARTING: "chat.node_starting",
    NodeState.SLOW: "chat.node_slow",
    NodeState.REFUSING: "chat.node_refusing",
    NodeState.FAILED: "chat.node_failed",
}


def node_sentence(state: NodeState, wording: Wording) -> str:
    """Return what is to be said of this PC's node; empty where it runs.

    Args:
        state: Of it.
        wording: In the language that is chosen.
    """
    key = _NODE_KEYS.get(state)
    return "" if key is None else wording.text(key)


class ProgressWords:
    """Says how far answers are."""

    def __init__(self, wording: Wording) -> None:
        """Begin.

        Args:
            wording: In the language that is chosen.
        """
        self._wording = wording

    def sentence(
        self, turn: LiveTurn, facts: PoolFacts, link: LinkState, node: NodeState, now_s: float
    ) -> str:
        """Return the sentence; empty while text comes.

        Args:
            turn: The answer.
            facts: Of the pool.
            link: To this PC's node.
            node: This PC's node.
            now_s: Of the monotonic clock.
        """
        if turn.phase == "writing":
            return ""
        sentence = self._of_phase(turn, facts, link, node)
        elapsed_s = now_s - turn.began_s
        if elapsed_s >= SECONDS_FROM_S and turn.phase != "interrupted":
            seconds = self._wording.locale.toString(int(elapsed_s))
            sentence += SEPARATOR + self._wording.text("chat.seconds", s=seconds)
        return sentence

    def _of_phase(self, turn: LiveTurn, facts: PoolFacts, link: LinkState, node: NodeState) -> str:
        text, number = self._wording.text, self._wording.locale.toString
        if turn.phase == "keeping":
            return text("chat.phase_keeping")
        if turn.phase == "reading":
            return self._of_reading(turn)
        if link is not LinkState.OPEN:
            return node_sentence(node, self._wording) or text("chat.phase_node")
        if facts.phase != "ready":
            return self._of_loading(facts)
        if turn.phase == "interrupted":
            return text("chat.phase_interrupted")
        num = facts.num_before
        key = "chat.phase_waiting_behind" if num else "chat.phase_waiting"
        return text(key, n=num, num=number(num))

    def _of_reading(self, turn: LiveTurn) -> str:
        text, number = self._wording.text, self._wording.locale.toString
        num = turn.answer.figures.prompt_tokens
        if turn.queue_place and turn.wait_s is not None and turn.wait_s >= 1.0:
            place, wait = number(turn.queue_place), number(int(turn.wait_s))
            return text("chat.phase_queued_for", place=place, wait=wait)
        if turn.queue_place:
            return text("chat.phase_queued", place=number(turn.queue_place))
        if 0 < turn.num_read < num:
            return text("chat.phase_reading_on", read=number(turn.num_read), num=number(num))
        return text("chat.phase_reading", n=num, num=number(num))

    def _of_loading(self, facts: PoolFacts) -> str:
        text, share = self._wording.text, facts.done_share
        percent = None if share is None else str(int(share * 100))
        if not facts.is_loaded:
            if not facts.is_known:
                return text("chat.phase_waiting")
            if percent is None:
                return text("chat.phase_preparing")
            return text("chat.phase_preparing_share", share=percent)
        step = text(f"chat.step_{facts.phase}")
        if percent is None:
            return text("chat.phase_loading", model=facts.model, step=step)
        return text("chat.phase_loading_share", model=facts.model, step=step, share=percent)
