"""Two PCs that know one code become a host and its new member; pure.

The joiner is connected by TLS to somebody, and does not know to whom. Both put the code, and the
certificates *as each of them sees them*, into a key exchange (SPAKE2), and prove to each other
that the keys are the same. Somebody in the middle shows each side a certificate of its own, so the
keys differ, and it has used up one guess. The joiner proves first: a wrong guess learns nothing
but that it is wrong.

    joiner                                      host
    JoinerGreets    its half, certificate  ──▶
                                           ◀──  HostAnswers     its half, the pool
    JoinerConfirms  HMAC, signature, name  ──▶  (a wrong one is counted)
                                           ◀──  HostWelcomes    HMAC, roster

Everything after the halves hangs on one transcript: both certificates and the bytes of both halves
as they were sent, in which are the pool and the invitation. A key is used once, so there is
nothing to replay.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import InvalidSignature

from engine.errors import (
    LocalProtocolError,
    NotJoinableError,
    NotTakenInError,
    NotTrustedError,
    PairingError,
    RemoteProtocolError,
    WrongCodeError,
)
from engine.transport.certificates import SIGNATURE, Certificate, parse_certificate
from engine.transport.code_exchange import CodeExchange
from engine.transport.pairing_keys import PairingKeys, keys_of, transcript_of
from engine.transport.pairing_messages import (
    MAX_FROM_HOST_BYTES,
    MAX_FROM_JOINER_BYTES,
    PAIRING_VERSION,
    HostAnswers,
    HostWelcomes,
    Introduction,
    JoinerConfirms,
    JoinerGreets,
    Membership,
    Refusal,
    Refused,
    decode_pairing,
    encode_pairing,
    refusal_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.messages.codec import Received
    from engine.transport.identity import Identity
    from engine.transport.invited import Invited
    from engine.transport.pairing_door import Invitation, PairingDoor

RUN_WITHIN_S = 10.0  # from a greeting to its confirmation: two messages
# The arithmetic takes a time that depends on secrets; an answer leaves when this much has gone by
# since the question came, which is more than it ever takes.
REPLY_AFTER_S = 0.25

_REASONS: dict[Refusal, str] = {
    "closed": "The other PC is not waiting for one to join, or no longer.",
    "wrong": "The code is wrong, or somebody stands between the two PCs.",
    "late": "The other PC waited too long for an answer of this one.",
    "version": "The other PC pairs in another version of the protocol.",
    "stopped": "The other PC could not write this one into its roster.",
}

_KINDS: dict[Refusal, type[PairingError]] = {
    "closed": NotJoinableError,
    "wrong": WrongCodeError,
    "stopped": NotTakenInError,
}


class State(Enum):
    """Where one side of a pairing stands."""

    GREETING = "nothing was received"
    CONFIRMING = "both halves are there"
    PROVED = "the joiner has proved itself"
    OVER = "over"


class Welcome(NamedTuple):
    """What a new member has to know.

    Attributes:
        pool_id: Of the pool that it joined.
        roster: Signed, as the pool has it; the host has proved itself, the roster is not checked.
        host: Who let it in.
    """

    pool_id: str
    roster: bytes
    host: Certificate


class Newcomer(NamedTuple):
    """Who has proved to know the code, and to have the key of a certificate.

    Attributes:
        certificate: To be written into the roster.
        name: As its owner calls it; cleaned before it is shown.
    """

    certificate: Certificate
    name: str


class HostStep(NamedTuple):
    """What the host does about a message.

    Attributes:
        reply: To be sent, not before ``REPLY_AFTER_S`` after the question; None where the roster
            is asked for first.
        newcomer: Who is to be written into it; ``Host.welcome`` is due.
        failure: Why it came to nothing; the connection ends after the reply.
    """

    reply: bytes | None = None
    newcomer: Newcomer | None = None
    failure: PairingError | None = None


class Joiner:
    """The side that wants to be a member.

    Attributes:
        greeting: The first message, to be sent at once.
        state: Where it stands.
    """

    def __init__(
        self,
        identity: Identity,
        host_certificate: bytes,
        invited: Invited,
        name: str,
        entropy: Callable[[int], bytes],
    ) -> None:
        """Begin.

        Args:
            identity: This PC's.
            host_certificate: DER, as TLS showed it.
            invited: By a code or a link.
            name: What this PC is called.
            entropy: Gives as many random bytes as it is asked for.

        Raises:
            RemoteProtocolError: What answers has no certificate of Daisy's.
            NotTrustedError: It is not the PC that made the link.
        """
        self.state = State.GREETING
        self._identity = identity
        self._host = parse_certificate(host_certificate)
        if invited.certificate_sha256 not in {None, self._host.sha256}:
            raise NotTrustedError("What answers there is not the PC that made the invite link.")
        self._name = name
        ids = (identity.certificate.sha256, self._host.sha256)
        self._exchange = CodeExchange("joiner", invited.password, *ids, entropy)
        self.greeting = encode_pairing(
            JoinerGreets(
                version=PAIRING_VERSION,
                invitation=invited.link_id,
                share=self._exchange.share,
                certificate=identity.certificate.der,
            )
        )
        self._pool_id = ""
        self._keys: PairingKeys | None = None

    def receive(self, data: Received) -> bytes | Welcome:
        """Take what the host sent.

        Args:
            data: One message.

        Returns:
            What to send, or in the end the welcome.

        Raises:
            PairingError: The host refuses, or does not know the code itself.
            RemoteProtocolError: It sent something else.
            LocalProtocolError: The pairing was over.
        """
        before, self.state = self.state, State.OVER  # unless it goes on
        why = refusal_in(data)
        if why is not None:
            raise _KINDS.get(why, PairingError)(_REASONS[why])
        if before is State.GREETING:
            return self._confirm(data)
        if before is State.CONFIRMING and self._keys is not None:
            return self._finish(data, self._keys)
        raise LocalProtocolError("A pairing went on after its end.")

    def _confirm(self, data: Received) -> bytes:
        answer = decode_pairing(data, HostAnswers, MAX_FROM_JOINER_BYTES)
        transcript = transcript_of(
            self._identity.certificate, self._host, self.greeting, bytes(data)
        )
        keys = keys_of(self._exchange.key(answer.share), transcript)
        proof = self._identity.sign(transcript)
        sealed = keys.joiner.seal(encode_pairing(Introduction(name=self._name)))
        self._keys, self._pool_id = keys, answer.pool_id
        self.state = State.CONFIRMING
        return encode_pairing(
            JoinerConfirms(
                confirmation=keys.joiner.confirmation(proof, sealed), proof=proof, sealed=sealed
            )
        )

    def _finish(self, data: Received, keys: PairingKeys) -> Welcome:
        message = decode_pairing(data, HostWelcomes, MAX_FROM_HOST_BYTES)
        if not keys.host.confirms(message.confirmation, message.sealed):
            raise PairingError("The other PC does not know the code itself.")
        membership = decode_pairing(
            keys.host.opened(message.sealed), Membership, MAX_FROM_HOST_BYTES
        )
        if membership.pool_id != self._pool_id:
            raise RemoteProtocolError("The other PC speaks of two pools.")
        return Welcome(membership.pool_id, membership.roster, self._host)


class _Run(NamedTuple):
    """What the host keeps between its two answers."""

    invitation: Invitation
    joiner: Certificate
    keys: PairingKeys
    until_s: float


class Host:
    """The side that lets a member in; one for each connection.

    Attributes:
        state: Where it stands.
        link_id: Of the link that was named; None for a code, or before anything was.
    """

    def __init__(
        self,
        own: Certificate,
        pool_id: str,
        door: PairingDoor,
        entropy: Callable[[int], bytes],
    ) -> None:
        """Begin to wait.

        Args:
            own: The certificate that this PC's port shows.
            pool_id: Of the pool.
            door: The node's only one: guesses are counted there.
            entropy: Gives as many random bytes as it is asked for.
        """
        self.state = State.GREETING
        self.link_id: str | None = None
        self._own = own
        self._pool_id = pool_id
        self._door = door
        self._entropy = entropy
        self._run: _Run | None = None

    def receive(self, data: Received, now_s: float) -> HostStep:
        """Take what somebody sent who is no member.

        Args:
            data: One message.
            now_s: The time, by the door's clock.

        Raises:
            RemoteProtocolError: It is no message of pairing, or not the one that is due. The
                connection ends without a word.
        """
        before, self.state = self.state, State.OVER  # unless it goes on
        if before is State.GREETING:
            return self._answer(data, now_s)
        if before is State.CONFIRMING and self._run is not None:
            return self._judge(data, self._run, now_s)
        raise RemoteProtocolError("Something was sent after the end of a pairing.")

    def welcome(self, roster: bytes) -> bytes:
        """Return the last message, once the newcomer stands in the roster.

        Args:
            roster: Signed, with the newcomer in it.

        Raises:
            LocalProtocolError: Nobody has proved to know the code.
        """
        if self.state is not State.PROVED or self._run is None:
            raise LocalProtocolError("Somebody would be welcomed who has proved nothing.")
        self.state = State.OVER
        own = self._run.keys.host
        sealed = own.seal(encode_pairing(Membership(pool_id=self._pool_id, roster=roster)))
        confirmation = own.confirmation(sealed)
        return encode_pairing(HostWelcomes(confirmation=confirmation, sealed=sealed))

    @property
    def grants(self) -> str:
        """What the invitation that is being used grants; empty before one was named."""
        return "" if self._run is None else self._run.invitation.grants

    def turn_away(self) -> bytes:
        """Return the last message where the newcomer can't be written into the roster."""
        self.state = State.OVER
        return encode_pairing(Refused(why="stopped"))

    def _answer(self, data: Received, now_s: float) -> HostStep:
        greeting = decode_pairing(data, JoinerGreets, MAX_FROM_JOINER_BYTES)
        if greeting.version != PAIRING_VERSION:
            return _refused("version")
        joiner = parse_certificate(greeting.certificate)
        self.link_id = greeting.invitation
        invitation = self._door.begin(greeting.invitation, now_s)
        if invitation is None:
            return _refused("closed")
        ids = (joiner.sha256, self._own.sha256)
        exchange = CodeExchange("host", invitation.password, *ids, self._entropy)
        answer = encode_pairing(HostAnswers(pool_id=self._pool_id, share=exchange.share))
        transcript = transcript_of(joiner, self._own, bytes(data), answer)
        keys = keys_of(exchange.key(greeting.share), transcript)
        self._run = _Run(invitation, joiner, keys, now_s + RUN_WITHIN_S)
        self.state = State.CONFIRMING
        return HostStep(answer)

    def _judge(self, data: Received, run: _Run, now_s: float) -> HostStep:
        message = decode_pairing(data, JoinerConfirms, MAX_FROM_JOINER_BYTES)
        own = run.keys.joiner
        # Others may have guessed meanwhile: what is closed is not compared with.
        if not self._door.is_still_open(run.invitation, now_s):
            return _refused("closed")
        if now_s > run.until_s:
            return _refused("late")
        if not own.confirms(message.confirmation, message.proof, message.sealed):
            self._door.guessed_wrong(run.invitation, now_s)
            return _refused("wrong")
        self._check_proof(run.joiner, message.proof, own.transcript)
        introduction = decode_pairing(
            own.opened(message.sealed), Introduction, MAX_FROM_JOINER_BYTES
        )
        self._door.used(run.invitation)
        self.state = State.PROVED
        return HostStep(newcomer=Newcomer(run.joiner, introduction.name))

    @staticmethod
    def _check_proof(joiner: Certificate, proof: bytes, transcript: bytes) -> None:
        """Return if the joiner has the key of its certificate.

        Raises:
            RemoteProtocolError: It knows the code and shows somebody else's certificate.
        """
        try:
            joiner.public_key.verify(proof, transcript, SIGNATURE)
        except InvalidSignature as exc:
            raise RemoteProtocolError(
                "Somebody joins with a certificate that is not its own."
            ) from exc


def _refused(why: Refusal) -> HostStep:
    failure = PairingError(f"Somebody who wanted to join was refused. {_TOLD[why]}")
    return HostStep(encode_pairing(Refused(why=why)), failure=failure)


_TOLD: dict[Refusal, str] = {
    "closed": "No code or link of that kind waits to be used.",
    "wrong": "The code was wrong, or somebody stands between the two PCs.",
    "late": "It answered too late.",
    "version": "It pairs in another version of the protocol.",
    "stopped": "It could not be written into the roster.",
}
