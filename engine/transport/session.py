"""One connection as a state machine: who the peer is, whether it lives, and how it ends.

Two rules. Everything that changes a connection's state is in this file. Nothing in it reads a
clock or a socket: frames and the time come in as arguments, events and frames go out.

The connecting side says hello first. The listening side answers only a hello it understood, so a
stranger learns nothing, and nothing but a hello can reach it before it is ready for more. From
then on both sides are equal. Whatever arrives proves that the peer lives; when nothing has for a
while it is asked (``Ping``), and when nothing comes of that it is given up. A side that does not
read can't tell: while its own receiver is full, it counts no silence against the peer.

What a peer, the program and time may do in each state stands in ``TRANSITIONS``; a pair that is
not there is an error of whoever did it. ``docs/protocol.md`` draws the same table.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from engine.errors import (
    LocalProtocolError,
    PeerTimeoutError,
    RemoteProtocolError,
    VersionMismatchError,
)
from engine.messages.codec import decode, encode_control, peek_type, peek_version, shown
from engine.messages.control import (
    PROTOCOL_VERSION,
    Goodbye,
    Hello,
    MessageType,
    Ping,
    Pong,
)
from engine.messages.limits import MAX_HELLO_BYTES

if TYPE_CHECKING:
    from engine.messages.codec import Received


class State(Enum):
    """Where a connection stands."""

    AWAITING = "awaiting"  # listening side: no hello has come, none was sent
    GREETING = "greeting"  # connecting side: our hello is sent, the answer has not come
    OPEN = "open"
    LEAVING = "leaving"  # we said goodbye; what still arrives is dropped
    CLOSED = "closed"


class Input(Enum):
    """What can happen to a connection."""

    HELLO = "hello received"
    PING = "ping received"
    PONG = "pong received"
    GOODBYE = "goodbye received"
    FRAME = "frame received"
    SEND = "send"
    LEAVE = "leave"
    SILENCE = "deadline passed"
    FAULT = "protocol broken"
    LOST = "connection lost"


_LOCAL = frozenset({Input.SEND, Input.LEAVE})

TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.AWAITING, Input.HELLO): State.OPEN,
    (State.AWAITING, Input.GOODBYE): State.CLOSED,
    (State.AWAITING, Input.LEAVE): State.CLOSED,
    (State.AWAITING, Input.SILENCE): State.CLOSED,
    (State.AWAITING, Input.FAULT): State.CLOSED,
    (State.AWAITING, Input.LOST): State.CLOSED,
    (State.GREETING, Input.HELLO): State.OPEN,
    (State.GREETING, Input.GOODBYE): State.CLOSED,
    (State.GREETING, Input.LEAVE): State.LEAVING,
    (State.GREETING, Input.SILENCE): State.CLOSED,
    (State.GREETING, Input.FAULT): State.CLOSED,
    (State.GREETING, Input.LOST): State.CLOSED,
    (State.OPEN, Input.PING): State.OPEN,
    (State.OPEN, Input.PONG): State.OPEN,
    (State.OPEN, Input.FRAME): State.OPEN,
    (State.OPEN, Input.SEND): State.OPEN,
    (State.OPEN, Input.GOODBYE): State.CLOSED,
    (State.OPEN, Input.LEAVE): State.LEAVING,
    (State.OPEN, Input.SILENCE): State.CLOSED,
    (State.OPEN, Input.FAULT): State.CLOSED,
    (State.OPEN, Input.LOST): State.CLOSED,
    (State.LEAVING, Input.HELLO): State.LEAVING,
    (State.LEAVING, Input.PING): State.LEAVING,
    (State.LEAVING, Input.PONG): State.LEAVING,
    (State.LEAVING, Input.FRAME): State.LEAVING,
    (State.LEAVING, Input.LEAVE): State.LEAVING,
    (State.LEAVING, Input.GOODBYE): State.CLOSED,
    (State.LEAVING, Input.SILENCE): State.CLOSED,
    (State.LEAVING, Input.FAULT): State.CLOSED,
    (State.LEAVING, Input.LOST): State.CLOSED,
    (State.CLOSED, Input.LEAVE): State.CLOSED,
    (State.CLOSED, Input.SILENCE): State.CLOSED,
    (State.CLOSED, Input.LOST): State.CLOSED,
}

_INPUT_OF_TYPE = {
    MessageType.HELLO: Input.HELLO,
    MessageType.PING: Input.PING,
    MessageType.PONG: Input.PONG,
    MessageType.GOODBYE: Input.GOODBYE,
}


class Liveness(NamedTuple):
    """How long a connection waits, in seconds."""

    hello_within_s: float = 3.0  # a healthy PC answers in milliseconds; who doesn't holds a slot
    ping_after_s: float = 5.0  # silence after which the peer is asked
    dead_after_s: float = 15.0  # three pings unanswered
    goodbye_within_s: float = 1.0  # a stop must reach everyone within a second


class PeerGreeted(NamedTuple):
    """The peer is known; frames may be sent."""

    hello: Hello


class FrameReceived(NamedTuple):
    """A frame for the program; ``frame`` is what was received, undecoded."""

    type: MessageType
    frame: Received


class PeerLeft(NamedTuple):
    """The peer said goodbye; nothing follows."""

    reason: str


Event: TypeAlias = PeerGreeted | FrameReceived | PeerLeft


class Session:
    """One connection, without its socket.

    Attributes:
        state: Where it stands; set here only.
        peer: The other side's hello; None until it came.
        round_trip_s: Seconds from the last answered ping to its pong; None before the first.
    """

    def __init__(
        self,
        hello: Hello,
        *,
        is_listener: bool,
        now_s: float,
        liveness: Liveness | None = None,
    ) -> None:
        """Begin; the connecting side's hello is ready to send at once.

        Args:
            hello: What this side says of itself.
            is_listener: The side that was connected to; it answers instead of beginning.
            now_s: The time, from any steady clock; the same clock throughout.
            liveness: The waits; the defaults of ``Liveness`` when left out.
        """
        self.state = State.AWAITING if is_listener else State.GREETING
        self.peer: Hello | None = None
        self.round_trip_s: float | None = None
        self._is_listener = is_listener
        self._hello = encode_control(hello)
        self._outgoing: list[bytes] = [] if is_listener else [self._hello]
        self._pong: bytes | None = None  # the newest ping is answered; older ones prove no more
        self._liveness = liveness if liveness is not None else Liveness()
        self._received_s = now_s
        self._ping_due_s = now_s + self._liveness.ping_after_s
        self._give_up_s = now_s + self._liveness.hello_within_s  # in every state but OPEN
        self._pinged_s = now_s
        self._num_pings = 0
        self._num_pongs = 0  # the number of the last one, if it answered the last ping
        self._is_reading = True

    # ---- what the peer did -------------------------------------------------------------

    def receive(self, data: Received, now_s: float) -> list[Event]:
        """Take one received frame in.

        Args:
            data: The whole frame.
            now_s: When it was received.

        Returns:
            What it means to the program: one event, or none.

        Raises:
            VersionMismatchError: The peer's hello is of another protocol version.
            RemoteProtocolError: The frame is none, or has no place here. The session is closed.
        """
        try:
            if self.peer is None:
                self._check_greeting(data)
            number = peek_type(data)
            own = decode(data) if number in _INPUT_OF_TYPE else None
            self._check_own(own)
        except (RemoteProtocolError, VersionMismatchError):
            self._apply(Input.FAULT)
            raise
        self._apply(Input.FRAME if number is None else _INPUT_OF_TYPE.get(number, Input.FRAME))
        self._received_s = now_s
        self._ping_due_s = now_s + self._liveness.ping_after_s
        if own is not None:
            return self._take_own(own, now_s)
        if number is None or self.state is State.LEAVING:
            return []
        return [FrameReceived(number, data)]

    def lose(self) -> None:
        """Note that the connection under the session is gone."""
        self._apply(Input.LOST)

    # ---- what the program does --------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue one frame.

        Raises:
            LocalProtocolError: The connection is not open, or the frame is not the program's to
                send: hello, goodbye, ping and pong are the session's own.
        """
        try:
            number = peek_type(frame)
        except RemoteProtocolError as exc:
            raise LocalProtocolError(f"A frame of this PC's own is wrong. {exc.what}") from exc
        if number in _INPUT_OF_TYPE:
            raise LocalProtocolError(f"{number.name} is sent by the session alone.")
        self._apply(Input.SEND)
        self._outgoing.append(frame)

    def leave(self, reason: str, now_s: float) -> None:
        """Say goodbye, unless nothing has been said yet; a second time does nothing.

        Args:
            reason: One sentence for the other side's log.
            now_s: The time.
        """
        was = self.state
        self._apply(Input.LEAVE)
        if self.state is State.LEAVING and was is not State.LEAVING:
            self._outgoing.append(encode_control(Goodbye(reason=reason)))
            self._give_up_s = now_s + self._liveness.goodbye_within_s

    def stop_reading(self) -> None:
        """Count no silence against the peer: it is this side that does not read."""
        self._is_reading = False

    def resume_reading(self, now_s: float) -> None:
        """Count silence again, from now on."""
        self._is_reading = True
        self._received_s = now_s

    def data_to_send(self) -> list[bytes]:
        """Return the frames to send now, in order; each is returned once."""
        frames, self._outgoing = self._outgoing, []
        if self._pong is not None:
            frames.append(self._pong)
            self._pong = None
        return frames

    # ---- time -------------------------------------------------------------------------

    @property
    def next_deadline_s(self) -> float | None:
        """When ``tick`` has something to do, if nothing arrives before; None when closed."""
        if self.state is State.CLOSED:
            return None
        if self.state is not State.OPEN:
            return self._give_up_s
        if not self._is_reading:
            return self._ping_due_s
        return min(self._ping_due_s, self._received_s + self._liveness.dead_after_s)

    def tick(self, now_s: float) -> None:
        """Let time pass: ask a silent peer, give up a dead one.

        Raises:
            PeerTimeoutError: The peer said no hello, or nothing at all, for too long. The session
                is closed.
        """
        deadline_s = self.next_deadline_s
        if deadline_s is None or now_s < deadline_s:
            return
        if self.state is State.LEAVING:
            self._apply(Input.SILENCE)
        elif self.state is not State.OPEN:
            self._apply(Input.SILENCE)
            raise PeerTimeoutError(
                f"It did not introduce itself within {self._liveness.hello_within_s:g} s."
            )
        elif self._is_reading and now_s >= self._received_s + self._liveness.dead_after_s:
            self._apply(Input.SILENCE)
            raise PeerTimeoutError(
                f"Nothing has been heard from it for {now_s - self._received_s:.0f} s."
            )
        else:
            self._ping(now_s)

    def measure(self, now_s: float) -> None:
        """Ask the peer, silent or not, for ``round_trip_s``; not while an answer may come."""
        is_waiting = now_s < self._pinged_s + self._liveness.ping_after_s
        is_asked = is_waiting and self._num_pongs < self._num_pings
        if self.state is State.OPEN and not is_asked:
            self._ping(now_s)

    def _ping(self, now_s: float) -> None:
        self._num_pings += 1
        self._pinged_s = now_s
        self._ping_due_s = now_s + self._liveness.ping_after_s
        self._outgoing.append(encode_control(Ping(number=self._num_pings)))

    # ---- inside -----------------------------------------------------------------------

    def _apply(self, happened: Input) -> None:
        """Change the state as the table says.

        Raises:
            LocalProtocolError: The program did what it may not do in this state.
            RemoteProtocolError: The peer did. The session is closed.
        """
        after = TRANSITIONS.get((self.state, happened))
        if after is not None:
            self.state = after
            return
        before = self.state
        if happened in _LOCAL:
            raise LocalProtocolError(f"Nothing can be sent: the connection is {before.value}.")
        self.state = State.CLOSED
        raise RemoteProtocolError(f"It is not the time for this: {happened.value}, {before.value}.")

    def _check_greeting(self, data: Received) -> None:
        """Check what must be true of the first frame before it is read as this version's.

        Raises:
            RemoteProtocolError: It is longer than any hello.
        """
        if len(data) > MAX_HELLO_BYTES:
            raise RemoteProtocolError(
                f"Its first message has {len(data)} bytes; a hello has at most {MAX_HELLO_BYTES}."
            )
        self._check_version(peek_version(data))

    def _check_version(self, theirs: int) -> None:
        """Refuse another version, and let the peer see ours if it has not.

        Raises:
            VersionMismatchError: Always, for another version.
        """
        if theirs == PROTOCOL_VERSION:
            return
        if self.state is State.AWAITING:
            self._outgoing.append(self._hello)
        raise VersionMismatchError(
            f"It speaks protocol version {theirs}, and this PC version {PROTOCOL_VERSION}."
        )

    def _check_own(self, message: object) -> None:
        """Check what a message for the session says, before it changes anything.

        Raises:
            RemoteProtocolError: It answers a ping that was not sent.
        """
        if isinstance(message, Hello):
            self._check_version(message.protocol_version)
        elif isinstance(message, Pong) and not 1 <= message.number <= self._num_pings:
            raise RemoteProtocolError(f"It answers ping {message.number}, which was not sent.")

    def _take_own(self, message: object, now_s: float) -> list[Event]:
        """Act on a message for the session itself."""
        match message:
            case Hello():
                return self._greet(message)
            case Goodbye(reason=reason):
                return [PeerLeft(shown(reason))]
            case Ping() if self.state is State.OPEN:
                self._pong = encode_control(Pong(number=message.number))
            case Pong() if message.number == self._num_pings:
                self.round_trip_s = now_s - self._pinged_s
                self._num_pongs = message.number
        return []

    def _greet(self, hello: Hello) -> list[Event]:
        self.peer = hello
        if self.state is State.LEAVING:
            return []
        if self._is_listener:
            self._outgoing.append(self._hello)
        return [PeerGreeted(hello)]
