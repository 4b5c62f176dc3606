from engine.messages.pool_status import AdapterStatus
from engine.pool.adapters import Interface, rank_adapters
from engine.pool.status import adapter_lines


def test_adapters_are_told_with_what_they_are_for():
    ranked = rank_adapters((
        Interface("docker0", ("172.17.0.1",)),
        Interface("eth0", ("192.0.2.7",)),
        Interface("lan7", ("192.0.2.8",), is_wireless=None),
    ))

    lines = adapter_lines(ranked)

    assert lines[0] == AdapterStatus(
        name="eth0", addresses=("192.0.2.7",), is_used=True, link="wired"
    )
    assert [(line.name, line.is_used) for line in lines] == [
        ("eth0", True),
        ("lan7", True),
        ("docker0", False),
    ]
    assert lines[1].link is None
    assert lines[2].reason == "It belongs to containers."
