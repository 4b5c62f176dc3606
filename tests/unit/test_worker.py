"""Work in a process that may die: its answers, its end, and that nothing of it stays."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from engine.errors import (
    DaisyError,
    ModelFileError,
    RequestCancelledError,
    StorageError,
    UsageError,
)
from engine.worker import STOP_DEADLINE_S, run_worker, run_worker_blocking
from tests.unit.obedient_worker import Order, Result, Step

pytestmark = pytest.mark.processes

ENDS_WITHIN_S = STOP_DEADLINE_S + 1.0  # a kill and a loaded machine
SHORT_DEADLINE_S = 0.6  # where only a kill is to be seen, and not when
BABBLING = "tests.unit.babbling_worker"


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch):
    """Run from the checkout, and see that no process is left, not even a dead one.

    Yields:
        While the test runs.
    """
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setattr("engine.worker.STOP_DEADLINE_S", SHORT_DEADLINE_S)
    yield
    assert psutil.Process(os.getpid()).children() == []


async def run(what, number=0, on_progress=lambda _: None, module="tests.unit.obedient_worker"):
    async with asyncio.timeout(20):
        return await run_worker(module, Order(what, number), Step | Result, on_progress)


def outcome(*arguments, **changes):
    return asyncio.run(run(*arguments, **changes))


def test_progress_arrives_in_order_and_then_the_result():
    told = []
    assert outcome("count", 500, told.append) == Result("done")
    assert [step.done for step in told] == list(range(500))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE])
def test_a_worker_that_dies_by_a_signal_is_an_error_that_names_it(number):
    told = []
    with pytest.raises(ModelFileError) as caught:
        outcome("signal", number, told.append)
    assert (
        f"was ended by {signal.Signals(number).name}; its last words: about to end"
        in caught.value.what
    )
    assert told == [Step(0)]


def test_a_worker_that_exits_without_an_answer_is_quoted():
    with pytest.raises(ModelFileError, match="exit status 7; its last words: the last words"):
        outcome("exit", 7)


def test_an_exit_without_fault_and_without_answer_is_an_error_too():
    with pytest.raises(ModelFileError, match="ended by itself"):
        outcome("exit", 0)


def test_an_error_of_ours_keeps_its_class_and_both_sentences():
    with pytest.raises(StorageError) as caught:
        outcome("fail")
    assert (caught.value.what, caught.value.advice) == ("The disk is full.", "Free some space.")


def test_any_other_error_ends_the_worker_and_is_quoted():
    with pytest.raises(
        ModelFileError, match="exit status 1; its last words: ZeroDivisionError: by zero"
    ):
        outcome("fault")


def test_what_a_library_prints_is_no_answer():
    assert outcome("print") == Result("done")


@pytest.mark.parametrize(
    ("what", "stays"),
    [
        ("no json", 0),
        ("not utf-8", 0),
        ("another tag", 0),
        ("a wrong field", 0),
        ("too long", 0),
        ("no json", 1),
        ("too long", 1),
    ],
)
def test_a_worker_that_writes_garbage_is_ended(what, stays):
    """Whether it goes on living or not."""
    begin = time.monotonic()
    with pytest.raises(ModelFileError, match="something that is no answer"):
        outcome(what, stays, module=BABBLING)
    assert time.monotonic() - begin < ENDS_WITHIN_S + 1


@pytest.mark.parametrize("what", ["half a line", "nothing"])
def test_half_an_answer_is_the_word_of_a_dying_process(what):
    with pytest.raises(ModelFileError, match="ended by itself"):
        outcome(what, module=BABBLING)


def test_a_module_that_is_not_there_is_an_error_that_says_so():
    with pytest.raises(ModelFileError, match=r"exit status 1.*No module named"):
        outcome("count", module="tests.unit.no_such_worker")


def test_what_progress_raises_ends_the_worker_and_comes_through():
    def disturbed(_):
        raise DaisyError("The asker is gone.")

    with pytest.raises(DaisyError, match="The asker is gone"):
        outcome("wait", on_progress=disturbed)


@pytest.mark.parametrize("what", ["wait", "hang"])
def test_a_cancelled_worker_ends_soon(what, monkeypatch):
    """By being told, or by force where it does not listen; with no zombie."""
    monkeypatch.setattr("engine.worker.STOP_DEADLINE_S", STOP_DEADLINE_S)
    pids = []

    async def cancelled():
        started = asyncio.Event()

        def note(step):
            pids.append(step.done)
            started.set()

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            task = group.create_task(run(what, on_progress=note))
            await started.wait()
            begin = time.monotonic()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            return time.monotonic() - begin

    took_s = asyncio.run(cancelled())
    assert took_s < (1.0 if what == "wait" else ENDS_WITHIN_S)
    assert not psutil.pid_exists(pids[0])


@pytest.mark.parametrize("after_s", [0.0, 0.02])
def test_a_cancel_at_any_time_of_the_start_ends_it(after_s):
    async def cancelled():
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            task = group.create_task(run("hang"))
            await asyncio.sleep(after_s)
            task.cancel()

    asyncio.run(cancelled())


def test_a_thread_without_a_loop_is_served_as_well():
    told = []
    order = Order("count", 5)
    answer = run_worker_blocking(
        "tests.unit.obedient_worker", order, Step | Result, told.append, lambda: False
    )
    assert answer == Result("done")
    assert [step.done for step in told] == [0, 1, 2, 3, 4]


def test_a_thread_stops_its_worker():
    told = []
    with pytest.raises(RequestCancelledError):
        run_worker_blocking(
            "tests.unit.obedient_worker",
            Order("hang"),
            Step | Result,
            told.append,
            lambda: bool(told),
        )


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(UsageError, match="no text"):
        outcome("\udcff")
