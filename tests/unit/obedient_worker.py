"""A worker for tests: does what its order says, some of it badly."""

import os
import sys
import time

import msgspec

from engine.errors import StorageError
from engine.worker import serve_order


class Order(msgspec.Struct, frozen=True):
    what: str
    number: int = 0


class Step(msgspec.Struct, frozen=True, tag="progress"):
    done: int


class Result(msgspec.Struct, frozen=True, tag="result"):
    text: str


def count(order, report, _):
    for done in range(order.number):
        report(Step(done))


def end_by_signal(order, report, _):
    report(Step(0))
    sys.stderr.write("about to end\n")
    os.kill(os.getpid(), order.number)
    time.sleep(10)


def leave(order, *_):
    sys.stderr.write("the last words\n\n")
    sys.stderr.flush()
    os._exit(order.number)


def fail(*_):
    raise StorageError("The disk is full.", "Free some space.")


def fault(*_):
    raise ZeroDivisionError("by zero")


def print_lines(*_):
    print("a library says hello", flush=True)  # noqa: T201
    os.write(1, b'{"type":"result","text":"forged"}\n')


def wait(_, report, check_cancelled):
    report(Step(os.getpid()))
    while True:
        check_cancelled()
        time.sleep(0.01)


def hang(_, report, __):
    report(Step(os.getpid()))
    time.sleep(60)


WORK = {
    "count": count,
    "signal": end_by_signal,
    "exit": leave,
    "fail": fail,
    "fault": fault,
    "print": print_lines,
    "wait": wait,
    "hang": hang,
}


def work(order, report, check_cancelled):
    WORK[order.what](order, report, check_cancelled)
    return Result("done")


if __name__ == "__main__":
    sys.exit(serve_order(Order, work))
