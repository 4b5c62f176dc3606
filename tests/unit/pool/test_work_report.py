"""How far work is, as every node is told: each step at once, the rest a few times a second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.domain import NodeId
from engine.pool.work_report import REPORT_EVERY_S, WorkReport

if TYPE_CHECKING:
    from engine.messages.deployment import NodeProgress


@dataclass
class Told:
    """Work that goes on by a clock of its own, and what was told of it."""

    now_s: float = 100.0
    progress: list[NodeProgress] = field(default_factory=list)

    def report(self) -> WorkReport:
        return WorkReport(
            NodeId("a"),
            7,
            lambda message: self.progress.append(message.progress),
            lambda: self.now_s,
            "openvino_model.bin",
        )


def test_the_first_of_a_step_and_its_last_are_told_at_once_and_little_in_between():
    told = Told()
    report = told.report()
    for done in range(1001):
        report("fetch", done, 1000, "bytes")
        told.now_s += 0.001
    assert [p.done for p in told.progress][::4] == [0, 1000]
    assert len(told.progress) == 1.0 / REPORT_EVERY_S + 1
    report("load", 0, 4, "layers")
    first, last = told.progress[0], told.progress[-1]
    assert (first.node_id, first.epoch, first.step, first.detail) == (
        "a",
        7,
        "fetch",
        "openvino_model.bin",
    )
    assert (last.step, last.done, last.total, last.unit, last.rate_per_s) == (
        "load",
        0,
        4,
        "layers",
        0.0,
    )


def test_a_rate_is_that_of_the_last_seconds():
    told = Told()
    report = told.report()
    done = 0
    for speed in (10, 1000):
        for _ in range(100):
            report("fetch", done, 10**9, "bytes")
            told.now_s += 0.1
            done += speed
    assert 5_000 < told.progress[-1].rate_per_s <= 10_000.1
    assert 99 < told.progress[len(told.progress) // 2 - 2].rate_per_s < 101


def test_work_that_goes_back_has_no_rate():
    told = Told()
    report = told.report()
    report("fetch", 500, 1000, "bytes")
    told.now_s += 1.0
    report("fetch", 100, 1000, "bytes")
    assert told.progress[-1].rate_per_s == 0.0
