"""Every error of the engine.

The first paragraph of a docstring is what happened, the second what to do; the rim prints both.
An error carries fields, never a prepared sentence of another layer.

    DaisyError                      code, exit_code, retryable
    ├─ UsageError                   the request itself is wrong (a bad option, a bad parameter)
    │   ├─ ContextTooLongError
    │   ├─ InviteLinkError
    │   ├─ InOtherPoolError         this PC can't join one before it leaves another
    │   └─ IdentityCopiedError      two PCs run with one data folder's identity
    ├─ ModelError                   the model, or a file of it, can't be used
    │   ├─ ModelNotFoundError
    │   ├─ ModelFileError           a file is missing, cut short, or contradicts another
    │   ├─ UnsupportedModelError    whole, but of a kind that can't be cut or run
    │   ├─ OtherVocabularyError     a draft model's tokens are not the model's
    │   ├─ TokenizerError
    │   ├─ ChatTemplateError
    │   └─ ShardCorruptError
    ├─ StorageError                 no space, no permission
    ├─ PlacementError
    │   ├─ LendingPausedError       its owner doesn't lend that PC now
    │   ├─ ModelInUseError
    │   └─ InsufficientMemoryError
    ├─ StageError
    │   ├─ CompileError
    │   ├─ InferenceError
    │   ├─ KVCacheFullError
    │   ├─ GoldenStepError
    │   └─ StageProcessDiedError
    ├─ TransportError
    │   ├─ PortInUseError
    │   ├─ PeerUnreachableError
    │   ├─ PeerTimeoutError
    │   ├─ VersionMismatchError
    │   ├─ NotTrustedError          the peer is not of this pool, or this PC no longer is
    │   │   └─ NotKnownThereError   a PC of this pool does not know this one
    │   ├─ PairingError
    │   │   ├─ WrongCodeError
    │   │   ├─ NotJoinableError     it shows no code, or no longer
    │   │   ├─ GuessedCodeError     it shows none for a while
    │   │   └─ NotTakenInError      it could not write the newcomer down
    │   ├─ LocalProtocolError       we misused the protocol: a bug of ours
    │   └─ RemoteProtocolError      the peer did
    └─ RequestError
        ├─ RequestCancelledError
        └─ PipelineBrokenError
"""

from __future__ import annotations

from typing import ClassVar


class DaisyError(Exception):
    """Something went wrong inside Daisy.

    Run the command again; if it happens again, report it with the text above.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, what: str, advice: str | None = None) -> None:
        """Keep the two sentences a person reads.

        Args:
            what: What happened, one sentence, naming the file, tensor, node or number.
            advice: What to do about it; the class's own advice when left out.
        """
        super().__init__(what)
        self.what = what
        self.advice = advice if advice is not None else self.default_advice()

    @classmethod
    def default_advice(cls) -> str:
        """Return the second paragraph of the class's docstring on one line."""
        paragraphs = (cls.__doc__ or "").split("\n\n")
        return " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else ""


class UsageError(DaisyError):
    """The request can't be understood as it stands.

    Correct it and try again.
    """

    code = "usage"
    exit_code = 2


class InviteLinkError(UsageError):
    """The line is no invite link of this version, or only a part of one.

    Copy all of it, as the other PC shows it.
    """

    code = "invite_link"


class InOtherPoolError(UsageError):
    """This PC is in a pool with others already.

    Leave it first: daisy leave, then daisy join.
    """

    code = "in_other_pool"


class ContextTooLongError(UsageError):
    """The text is longer than the model's context.

    Shorten it, or start a new chat.
    """

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        """Name both numbers.

        Args:
            prompt_tokens: Tokens of the rendered prompt.
            context_tokens: Tokens the model can hold, prompt and answer together.
        """
        super().__init__(
            f"The prompt is {prompt_tokens} tokens long, and the context holds {context_tokens} "
            f"with room for at least one token of answer: it is "
            f"{prompt_tokens - context_tokens + 1} too many."
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class IdentityCopiedError(UsageError):
    """Another PC runs with a copy of this PC's data folder; this one has taken a new identity.

    Start it again, and copy models only: each PC makes a data folder of its own.
    """

    code = "identity_copied"


class ModelError(DaisyError):
    """The model can't be used.

    Choose another model, or get a whole copy of this one.
    """

    code = "model"
    exit_code = 3


class ModelNotFoundError(ModelError):
    """There is no model there.

    Check the path; it must be a folder with an OpenVINO IR, or a GGUF file.
    """

    code = "model_not_found"


class ModelFileError(ModelError):
    """A file of the model is missing, cut short, or contradicts another.

    Download or copy the model again.
    """

    code = "model_file"


class UnsupportedModelError(ModelError):
    """The model is whole, but of a kind that can't be cut or run here.

    Choose another model; the README has the table of what works.
    """

    code = "model_unsupported"


class OtherVocabularyError(ModelError):
    """The draft model has another vocabulary than the model it is to guess for.

    Choose a draft model of the same family, or none.
    """

    code = "other_vocabulary"


class TokenizerError(ModelError):
    """The model's tokenizer can't be used.

    Put the model's own tokenizer.json beside it.
    """

    code = "tokenizer"


class ChatTemplateError(ModelError):
    """The model's chat template can't be used.

    Use raw completion, or put the model's own chat_template.jinja beside it.
    """

    code = "chat_template"


class ShardCorruptError(ModelError):
    """A shard on disk is not the one that was written.

    Delete the folder and split the model again.
    """

    code = "shard_corrupt"


class StorageError(DaisyError):
    """Files could not be written.

    Free some space, or choose another folder.
    """

    code = "storage"
    exit_code = 4


class PlacementError(DaisyError):
    """The model can't be divided that way.

    Choose other numbers of layers or stages.
    """

    code = "placement"
    exit_code = 5


class InsufficientMemoryError(PlacementError):
    """The model does not fit.

    Choose a smaller model, a shorter context, or add a PC.
    """

    code = "insufficient_memory"

    def __init__(self, required_bytes: int, available_bytes: int, largest_part: str = "") -> None:
        """Name both numbers.

        Args:
            required_bytes: What the model needs.
            available_bytes: What may be used.
            largest_part: Of the need, where that explains it: ``1.0 GiB of it for the context``.
        """
        explained = f" ({largest_part})" if largest_part else ""
        super().__init__(
            f"The model needs {in_binary_units(required_bytes)}{explained}, and "
            f"{in_binary_units(available_bytes)} may be used: "
            f"{in_binary_units(required_bytes - available_bytes)} too few."
        )
        self.required_bytes = required_bytes
        self.available_bytes = available_bytes


class LendingPausedError(PlacementError):
    """A PC is not lent to the pool at the moment.

    Lend it there: daisy lend now, or in the tray.
    """

    code = "lending_paused"


class ModelInUseError(PlacementError):
    """The pool is to run that model, or its files are being read.

    Unload it, or wait until that is done.
    """

    code = "model_in_use"


class StageError(DaisyError):
    """A stage of the model failed.

    Run it again; if it happens again, try another device or precision.
    """

    code = "stage"
    exit_code = 6
    retryable = True


class CompileError(StageError):
    """The device could not compile the shard.

    Try another device or precision.
    """

    code = "compile"


class InferenceError(StageError):
    """The device failed while computing; the caches of the batch must be filled again.

    Run it again.
    """

    code = "inference"


class KVCacheFullError(StageError):
    """There is no room for more tokens in the KV cache; nothing was run.

    Wait until another request ends, or choose a shorter context.
    """

    code = "kv_cache_full"

    def __init__(self, required_blocks: int, free_blocks: int) -> None:
        """Name both numbers.

        Args:
            required_blocks: Blocks the step needs beside those it has.
            free_blocks: Blocks that are free.
        """
        super().__init__(
            f"The step needs {required_blocks} more KV blocks and {free_blocks} are free."
        )
        self.required_blocks = required_blocks
        self.free_blocks = free_blocks


class GoldenStepError(StageError):
    """The stage computes something other than what was computed when the shard was made.

    Use another device for it, or update the device's driver.
    """

    code = "golden_step"
    retryable = False


class StageProcessDiedError(StageError):
    """The process that held the stage ended.

    The other requests go on; run this one again.
    """

    code = "stage_process_died"

    def __init__(self, what: str, exit_status: int | None = None) -> None:
        """Keep how it ended.

        Args:
            what: What happened, with the signal's name or the exit status.
            exit_status: As the operating system reports it; None if not yet known.
        """
        super().__init__(what)
        self.exit_status = exit_status


class TransportError(DaisyError):
    """The connection to another PC failed.

    Check that it is on and in the same network.
    """

    code = "transport"
    exit_code = 7
    retryable = True


class PortInUseError(TransportError):
    """The port is taken by another program.

    Choose another port, or end that program.
    """

    code = "port_in_use"
    retryable = False


class PeerUnreachableError(TransportError):
    """The other PC can't be reached.

    Check that Daisy runs there and that no firewall stops it.
    """

    code = "peer_unreachable"


class PeerTimeoutError(TransportError):
    """The other PC did not answer in time.

    Check its connection and try again.
    """

    code = "peer_timeout"


class VersionMismatchError(TransportError):
    """The other PC runs a version that can't talk to this one.

    Update the older of the two.
    """

    code = "version_mismatch"
    retryable = False


class NotTrustedError(TransportError):
    """The other PC and this one are not of the same pool.

    Pair them: daisy invite on a PC of the pool, daisy join on the other one.
    """

    code = "not_trusted"
    retryable = False


class NotKnownThereError(NotTrustedError):
    """The other PC is of this pool and does not know this one, or no longer.

    If this PC was removed from the pool, run daisy leave here, then daisy join.
    """

    code = "not_known_there"


class PairingError(TransportError):
    """The two PCs could not be paired.

    Run daisy invite again, and type the new code.
    """

    code = "pairing"
    retryable = False


class WrongCodeError(PairingError):
    """The code is wrong, or somebody stands between the two PCs.

    Type the code again, as the other PC shows it now.
    """

    code = "pairing_wrong_code"


class NotJoinableError(PairingError):
    """The other PC is not waiting for one to join, or no longer.

    Run daisy invite there, and join within two minutes.
    """

    code = "pairing_closed"


class GuessedCodeError(PairingError):
    """Wrong codes were sent too often: somebody may be guessing.

    Wait, then run daisy invite again; or use daisy invite --link.
    """

    code = "pairing_guessed"


class NotTakenInError(PairingError):
    """The other PC could not write this one into its roster.

    If this PC was removed from that pool, run daisy leave here first: it gets a new key.
    """

    code = "pairing_not_taken_in"


class LocalProtocolError(TransportError):
    """This PC broke its own protocol; the fault is Daisy's.

    Report it with the text above.
    """

    code = "local_protocol"
    retryable = False


class RemoteProtocolError(TransportError):
    """The other side sent something that is not Daisy's protocol.

    Check what program answers at that address.
    """

    code = "remote_protocol"
    retryable = False


class RequestError(DaisyError):
    """The request failed.

    Send it again.
    """

    code = "request"
    exit_code = 8
    retryable = True


class RequestCancelledError(RequestError):
    """The request was stopped.

    Send it again when you want it.
    """

    code = "cancelled"
    exit_code = 130
    retryable = False


class PipelineBrokenError(RequestError):
    """A PC that held part of the model went away.

    Send the request again.
    """

    code = "pipeline_broken"


def in_binary_units(num_bytes: int) -> str:
    """Return bytes as people read memory: ``1.48 GiB``, ``205 MiB``, ``900 bytes``.

    Args:
        num_bytes: 0 or more.
    """
    for unit, size, digits in (("GiB", 1 << 30, 2), ("MiB", 1 << 20, 0)):
        if num_bytes >= size:
            return f"{num_bytes / size:.{digits}f} {unit}"
    return f"{num_bytes} bytes"


def _subclasses(cls: type[DaisyError]) -> list[type[DaisyError]]:
    found = [cls]
    for child in cls.__subclasses__():
        found.extend(_subclasses(child))
    return found


def error_class_for(code: str) -> type[DaisyError]:
    """Return the class whose ``code`` is the given one; ``DaisyError`` for one we don't know.

    Args:
        code: A stable slug, as it came over a pipe or a connection.
    """
    by_code = {cls.code: cls for cls in _subclasses(DaisyError)}
    return by_code.get(code, DaisyError)


def rebuilt(code: str, what: str, advice: str) -> DaisyError:
    """Rebuild an error that crossed a process boundary, keeping its class and both sentences.

    Args:
        code: The error's ``code``.
        what: What happened.
        advice: What to do about it.
    """
    error = error_class_for(code).__new__(error_class_for(code))
    DaisyError.__init__(error, what, advice)
    return error


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of ours in a group, however deep, or else the first there is.

    Args:
        group: As a task group raises it; one error is enough to tell.
    """
    stack: list[BaseException] = [group]
    flat: list[BaseException] = []
    while stack:
        error = stack.pop(0)
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, DaisyError)), flat[0])
