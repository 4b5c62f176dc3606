"""Answers under way: the question put on disk, the request sent, what comes kept and told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.problem import Problem, problem_of
from app.chat.pool_facts import PoolFacts
from app.chat.request import build_request, next_start, num_to_leave_out, read_too_long
from engine.errors import DaisyError, PipelineBrokenError

if TYPE_CHECKING:
    from app.bridge.answering import Answering
    from app.bridge.loading import Loading
    from app.bridge.status_feed import StatusFeed
    from app.chat.live import LiveTurn
    from app.chat.records import State
    from app.chat.store import ChatStore
    from engine.messages.control import Accepted, AnswerProgress, Finished

SAVE_EVERY_MS = 250
LOOK_EVERY_MS = 1000  # for a model, where none is loaded
RECORD_WITHIN_S = 8.0  # of a pool that knows one: a node that was restarted hears it by then
LOAD_WITHIN_S = 900.0
SEEN_WITHIN_S = 5.0  # of a model that was loaded: the pool's state tells of it by then
WATCHER = "answers"
TOO_LONG = "context_length_exceeded"
NO_MODEL = "placement"


class Turns(QObject):
    """Every answer of this window that runs.

    Attributes:
        changed: Carries the message's id: its phase or figures are others.
        grew: Carries the message's id and the text that came.
        ended: Carries the message's id; ``answer_of`` no longer knows it, the argument does.

    Thread: the main one.
    """

    changed = Signal(str)
    grew = Signal(str, str)
    ended = Signal(str, object)

    def __init__(
        self,
        store: ChatStore,
        answering: Answering,
        loading: Loading,
        status: StatusFeed,
        parent: QObject | None = None,
    ) -> None:
        """Begin with none.

        Args:
            store: Keeps what comes.
            answering: Carries requests.
            loading: Loads a model where none runs.
            status: Says what runs.
            parent: Owns it.
        """
        super().__init__(parent)
        self._store = store
        self._answering = answering
        self._loading = loading
        self._status = status
        self._turns: dict[str, LiveTurn] = {}
        self._waiting: dict[str, tuple[Problem, float]] = {}  # for a model, and since when
        self._loaded_s = -SEEN_WITHIN_S  # when a model was loaded from here
        answering.accepted.connect(self._on_accepted)
        answering.text_came.connect(self._on_text)
        answering.progressed.connect(self._on_progressed)
        answering.interrupted.connect(self._on_interrupted)
        answering.resumed.connect(self._on_resumed)
        answering.finished.connect(self._on_finished)
        answering.failed.connect(self._on_failed)
        loading.failed.connect(self._on_load_failed)
        loading.done.connect(self._on_load_done)
        status.changed.connect(self._on_status)
        self._saving = QTimer(self)
        self._saving.setInterval(SAVE_EVERY_MS)
        self._saving.timeout.connect(self.save)
        self._looking = QTimer(self)
        self._looking.setInterval(LOOK_EVERY_MS)
        self._looking.timeout.connect(self._look_for_model)

    @property
    def facts(self) -> PoolFacts:
        """What the pool runs, as far as it is known."""
        return PoolFacts(self._status.status)

    def live(self, message_id: str) -> LiveTurn | None:
        """Return an answer that runs; None for one that doesn't.

        Args:
            message_id: Of it.
        """
        return self._turns.get(message_id)

    def live_in(self, chat_id: str) -> LiveTurn | None:
        """Return the answer that runs in a chat; None where none does.

        Args:
            chat_id: Of it.
        """
        return next((t for t in self._turns.values() if t.chat.chat_id == chat_id), None)

    @property
    def num_live(self) -> int:
        """Answers that run."""
        return len(self._turns)

    def begin(self, turn: LiveTurn) -> None:
        """Ask; what is asked is on disk already.

        Args:
            turn: New; its answer is on disk, or is given to the store before anything else.
        """
        self._turns[turn.message_id] = turn
        self._status.watch(WATCHER)
        self._saving.start()
        turn.phase = "waiting"
        facts = self.facts
        num = num_to_leave_out(
            turn.asked, turn.chat.system_prompt, facts.context_tokens, turn.measure
        )
        turn.note(num_left_out=num)
        self._send(turn)

    def stop(self, message_id: str) -> None:
        """Want no more of an answer.

        Args:
            message_id: Of it.
        """
        turn = self._turns.get(message_id)
        if turn is None:
            return
        if self._waiting.pop(message_id, None) is not None:
            self._end(turn, "stopped")
        else:
            self._answering.stop(turn.request_id)

    def save(self) -> None:
        """Put what came since the last time on disk."""
        for turn in self._turns.values():
            self._save(turn)

    # ---- asking -------------------------------------------------------------------------------

    def _send(self, turn: LiveTurn) -> None:
        turn.num_requests += 1
        sent = turn.asked[turn.answer.figures.num_left_out :]
        request = build_request(turn.request_id, turn.chat, sent, turn.answer)
        try:
            self._answering.ask(request)
        except DaisyError as error:
            self._fail(turn, problem_of(error))
        else:
            self.changed.emit(turn.message_id)

    def _turn_of(self, request_id: str) -> LiveTurn | None:
        turn = self._turns.get(request_id.rpartition("/")[0])
        return turn if turn is not None and turn.request_id == request_id else None

    def _on_accepted(self, request_id: str, message: Accepted) -> None:
        turn = self._turn_of(request_id)
        if turn is None:
            return
        turn.phase, turn.queue_place, turn.num_read = "reading", 0, 0
        turn.note(prompt_tokens=message.prompt_tokens, seed=message.seed)
        self._note_facts(turn)
        self.changed.emit(turn.message_id)
        self._keep(turn, "growing")

    def _note_facts(self, turn: LiveTurn) -> None:
        """Note who answers, once that is known: a pool's state may come after an answer began."""
        facts, figures = self.facts, turn.answer.figures
        if figures.seed is not None and not figures.model_sha256 and facts.model_sha256:
            turn.note(
                model=facts.model,
                model_sha256=facts.model_sha256,
                context_tokens=facts.context_tokens,
                pcs=facts.chain,
            )

    def _on_status(self) -> None:
        for turn in self._turns.values():
            self._note_facts(turn)

    def _on_text(self, request_id: str, text: str, token_ids: tuple[int, ...]) -> None:
        turn = self._turn_of(request_id)
        if turn is None:
            return
        was = turn.phase
        turn.take(text, token_ids, time.monotonic())
        self.grew.emit(turn.message_id, text)
        if was != turn.phase:
            self.changed.emit(turn.message_id)

    def _on_progressed(self, request_id: str, message: AnswerProgress) -> None:
        turn = self._turn_of(request_id)
        if turn is not None:
            turn.queue_place, turn.wait_s = message.queue_place, message.wait_s
            turn.num_read = message.num_read
            self.changed.emit(turn.message_id)

    def _on_interrupted(self, request_id: str, _what: str) -> None:
        turn = self._turn_of(request_id)
        if turn is not None:
            turn.phase = "interrupted"
            self.changed.emit(turn.message_id)

    def _on_resumed(self, request_id: str, pause_s: float) -> None:
        turn = self._turn_of(request_id)
        if turn is None:
            return
        turn.phase = "writing" if turn.answer.text else "reading"
        chain = tuple(dict.fromkeys((*turn.answer.figures.pcs, *self.facts.chain)))
        turn.note(pauses_s=(*turn.answer.figures.pauses_s, pause_s), pcs=chain)
        self.changed.emit(turn.message_id)

    # ---- the end ------------------------------------------------------------------------------

    def _on_finished(self, request_id: str, message: Finished) -> None:
        turn = self._turn_of(request_id)
        if turn is None:
            return
        turn.note(
            finish_reason=message.finish_reason,
            prompt_tokens=message.prompt_tokens or turn.answer.figures.prompt_tokens,
        )
        self._end(turn, "stopped" if message.finish_reason == "cancelled" else "whole")

    def _on_failed(self, request_id: str, problem: Problem) -> None:
        turn = self._turn_of(request_id)
        if turn is None:
            return
        if problem.code == TOO_LONG and self._leave_out_more(turn, problem):
            self._send(turn)
        elif problem.code == NO_MODEL and not self.facts.is_unloaded:
            self._waiting[turn.message_id] = (problem, time.monotonic())
            turn.phase = "waiting"
            self._looking.start()
            self._look_for_model()
            self.changed.emit(turn.message_id)
        else:
            self._fail(turn, problem)

    def _leave_out_more(self, turn: LiveTurn, problem: Problem) -> bool:
        """Leave out earlier messages until the rest fits; return whether any could be."""
        so_far = turn.answer.figures.num_left_out
        if so_far >= len(turn.asked) - 1 or turn.answer.token_ids:
            return False
        told = read_too_long(problem.what)
        num = next_start(turn.asked, so_far)
        if told is not None:
            prompt = turn.chat.system_prompt
            turn.measure.correct(turn.asked[so_far:], prompt, told.prompt_tokens)
            turn.note(context_tokens=told.context_tokens)
            wanted = num_to_leave_out(turn.asked, prompt, told.context_tokens, turn.measure)
            num = max(num, wanted)
        turn.note(num_left_out=num)
        return True

    def _fail(self, turn: LiveTurn, problem: Problem) -> None:
        turn.note(code=problem.code, what=problem.what, advice=problem.advice)
        self._end(turn, "failed")

    def _end(self, turn: LiveTurn, state: State) -> None:
        self._note_facts(turn)
        self._save(turn)
        turn.answer = replace(turn.answer, state=state)
        self._keep(turn, state)
        del self._turns[turn.message_id]
        self._waiting.pop(turn.message_id, None)
        if not self._turns:
            self._saving.stop()
            self._looking.stop()
            self._status.unwatch(WATCHER)
        self.ended.emit(turn.message_id, turn.answer)

    def _save(self, turn: LiveTurn) -> None:
        text, ids = turn.take_unsaved()
        if text or ids:
            message_id = turn.message_id
            self._store.do(lambda database: database.grow_message(message_id, text, ids))

    def _keep(self, turn: LiveTurn, state: State) -> None:
        answer = turn.answer
        self._store.do(
            lambda database: database.end_message(answer.message_id, state, answer.figures)
        )

    # ---- a model to answer --------------------------------------------------------------------

    def _look_for_model(self) -> None:
        """Ask again once the pool has a model; load the last one where it has none."""
        now_s = time.monotonic()
        for message_id, (problem, since_s) in list(self._waiting.items()):
            turn = self._turns[message_id]
            facts = self.facts
            if facts.is_loaded and not self._loading.is_busy:
                self._resume(turn, facts)
            elif now_s - since_s > LOAD_WITHIN_S:
                self._fail(turn, problem)
            elif facts.is_known and not facts.is_loaded and not self._loading.is_busy:
                wait_s = RECORD_WITHIN_S if facts.num_others or turn.answer.token_ids else 0.0
                if now_s - max(since_s, self._loaded_s + SEEN_WITHIN_S) >= wait_s:
                    self._loading.load(self._loading.last_source)
        if not self._waiting:
            self._looking.stop()

    def _resume(self, turn: LiveTurn, facts: PoolFacts) -> None:
        """Ask again; an answer that has begun goes on only with the model that began it."""
        figures = turn.answer.figures
        if turn.answer.token_ids and facts.model_sha256 != figures.model_sha256:
            error = PipelineBrokenError(f"Another model is loaded now: {facts.model}.")
            self._fail(turn, problem_of(error))
        else:
            del self._waiting[turn.message_id]
            self._send(turn)

    def _on_load_done(self) -> None:
        self._loaded_s = time.monotonic()
        self._status.refresh()

    def _on_load_failed(self, problem: Problem) -> None:
        for message_id in list(self._waiting):
            self._fail(self._turns[message_id], problem)
