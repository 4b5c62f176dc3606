"""The record: which of two counts, and who takes requests."""

import msgspec

from engine.messages.deployment import Deployment
from engine.messages.pool import Term
from tests.unit.messages.examples import DEPLOYMENT, TERM


def test_the_first_stages_node_is_the_head():
    assert DEPLOYMENT.head == "a1"
    assert msgspec.structs.replace(DEPLOYMENT, stages=()).head is None


def test_a_later_term_counts_more_than_a_later_version():
    newer = msgspec.structs.replace(DEPLOYMENT, version=5)
    elsewhere = Deployment(term=Term(TERM.counter + 1, TERM.claimant, 1), version=1, phase="failed")
    records = [elsewhere, DEPLOYMENT, newer]
    assert sorted(records, key=lambda r: r.order) == [DEPLOYMENT, newer, elsewhere]
