"""The last report of each node is kept, and not of more nodes than there may be."""

from __future__ import annotations

from engine.domain import NodeId
from engine.messages.pool import NodeReport
from engine.pool.report_book import MAX_REPORTS, ReportBook


def report(name: str, uptime_s: float = 1.0) -> NodeReport:
    return NodeReport(
        node_id=NodeId(name),
        name=name,
        memory_total_bytes=2,
        memory_free_bytes=1,
        memory_cap_bytes=None,
        memory_lent_bytes=0,
        devices=("CPU",),
        uptime_s=uptime_s,
        layers=None,
        model=None,
    )


def filled() -> ReportBook:
    book = ReportBook()
    for number in range(MAX_REPORTS):
        book.keep(report(f"n{number:02}"), frozenset())
    return book


def test_the_last_one_of_a_node_counts() -> None:
    book = ReportBook()
    book.keep(report("a"), frozenset())
    book.keep(report("a", 2.0), frozenset())
    assert {name: one.uptime_s for name, one in book.all().items()} == {"a": 2.0}


def test_of_too_many_the_one_heard_of_longest_ago_goes() -> None:
    book = filled()
    book.keep(report("n00"), frozenset())  # heard of again
    book.keep(report("new"), frozenset())
    assert len(book.all()) == MAX_REPORTS
    assert "n01" not in book.all()
    assert {"n00", "new"} <= book.all().keys()


def test_a_node_with_a_session_goes_last() -> None:
    book = filled()
    present = frozenset(book.all()) - {"n40"} | {NodeId("new")}
    book.keep(report("new"), present)
    assert "n40" not in book.all()
    book.keep(report("newer"), present | {NodeId("newer")})
    assert "n00" not in book.all()
    assert len(book.all()) == MAX_REPORTS
