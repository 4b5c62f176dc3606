"""A wish is followed by its own id, through whatever else the pool does."""

from msgspec.structs import replace

from engine.cli.wish_watch import LoadWatch, Outcome, UnloadWatch, model_name, trouble_of
from tests.unit.cli.records import NO_ROOM, nothing_to_run, record, report, wish


def outcomes(watch, *reports):
    return [watch.see(each) for each in reports]


def test_a_wish_is_made_recorded_and_done():
    phases = ("planning", "splitting", "loading", "warming", "ready")
    seen = outcomes(
        LoadWatch(), report(None, wish_id=None), *(report(record(phase)) for phase in phases)
    )
    assert seen == [Outcome.MAKING] + [Outcome.RECORDED] * 4 + [Outcome.DONE]


def test_the_model_that_ran_before_is_not_the_one_that_was_asked_for():
    """Also the same model, asked for again: its record carries another wish."""
    before = record("ready", wish=wish("another"))
    watch = LoadWatch()
    assert watch.see(report(before, wish_id=None)) is Outcome.MAKING
    assert watch.see(report(before)) is Outcome.MAKING
    assert not watch.is_recorded
    assert watch.see(report(record("ready"))) is Outcome.DONE


def test_what_goes_wrong_is_told_apart():
    assert LoadWatch().see(report(None, trouble=NO_ROOM, wish_id=None)) is Outcome.REFUSED
    failed = report(record("failed", trouble=NO_ROOM))
    assert LoadWatch().see(failed) is Outcome.FAILED
    assert trouble_of(failed) == NO_ROOM
    # A trouble the pool gets over by itself ends nothing.
    assert LoadWatch().see(report(record("planning", trouble=NO_ROOM))) is Outcome.RECORDED


def test_somebody_elses_wish_ends_the_watch():
    for other in (record("planning", wish=wish("another")), nothing_to_run(), None):
        watch = LoadWatch()
        watch.see(report(record("loading")))
        assert watch.see(report(other, wish_id=None)) is Outcome.REPLACED


def test_unloading_ends_when_nothing_is_to_run():
    for last in (nothing_to_run(), None):
        watch = UnloadWatch()
        assert watch.see(report(record("ready"))) is Outcome.RECORDED
        assert watch.see(report(last)) is Outcome.DONE
    assert UnloadWatch().see(report(None)) is Outcome.DONE


def test_unloading_gives_way_to_a_new_wish():
    watch = UnloadWatch()
    watch.see(report(record("ready")))
    assert watch.see(report(record("planning", wish=wish("another")))) is Outcome.REPLACED
    assert UnloadWatch().see(report(None, trouble=NO_ROOM)) is Outcome.REFUSED


def test_a_record_names_its_model():
    assert model_name(record("ready")) == "Small"
    assert model_name(nothing_to_run()) is None
    assert model_name(replace(record("ready"), wish=None)) is None
    assert model_name(None) is None
