"""What a placement allows its head's scheduler."""

import msgspec
import pytest

from engine.domain import RowTime
from engine.pipeline.head_limits import limits_of
from engine.scheduler.limits import PrefixReuse
from engine.scheduler.row_costs import RowCosts
from tests.unit.pipeline.scripted import placement

MEASURED = RowCosts([RowTime(1, 0.01), RowTime(4, 0.02)])


def on(*devices, kind="paged"):
    placed = placement(num_stages=len(devices))
    places = tuple(
        msgspec.structs.replace(place, device=device, kind=kind)
        for place, device in zip(placed.stages, devices, strict=True)
    )
    return msgspec.structs.replace(placed, stages=places)


def test_chunks_are_as_long_as_what_rows_cost_lets_them():
    """As they were measured; without, as if nothing were known."""
    limits = limits_of(on("CPU", "GPU"), 100, MEASURED)
    assert limits.row_costs is MEASURED
    assert limits.num_stages == limits.max_chunks_in_flight == 2
    assert not limits_of(on("CPU"), 100).row_costs.is_measured


def test_an_npu_is_given_its_first_chunk_whole():
    """Whatever was measured: short chunks would all be computed a few rows at a time."""
    assert not limits_of(on("CPU", "NPU"), 100, MEASURED).row_costs.is_measured


@pytest.mark.parametrize(
    ("devices", "kind", "reuse"),
    [
        (("CPU", "GPU"), "paged", PrefixReuse.SHARED),
        (("CPU",), "stateful", PrefixReuse.TAKEN_OVER),
        (("CPU", "NPU"), "stateful", PrefixReuse.NONE),
    ],
)
def test_a_prefix_is_reused_as_all_stages_can(devices, kind, reuse):
    """One that can do less decides."""
    assert limits_of(on(*devices, kind=kind), 100).prefix_reuse is reuse
