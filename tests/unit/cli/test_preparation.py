"""Shards for a command: what the options ask for and the model can't give is the options' fault."""

import asyncio

import pytest

from engine.cli.output import Output
from engine.cli.preparation import Division, shards_for
from engine.errors import PlacementError, UsageError
from tests.unit.splitter.cutting import MODELS


def shards(data, division):
    return asyncio.run(shards_for(str(MODELS / "llama"), division, data, Output(as_json=True)))


@pytest.mark.parametrize("division", [Division(num_stages=99), Division(cuts=(1, 99))], ids=str)
def test_more_stages_than_layers_and_a_cut_beyond_them_end_alike(tmp_path, capfd, division):
    with pytest.raises(UsageError, match="layers") as caught:
        shards(tmp_path, division)
    assert caught.value.exit_code == 2


def test_a_number_of_stages_nobody_asked_for_is_nobodys_mistake(tmp_path, capfd):
    with pytest.raises(PlacementError):
        shards(tmp_path, Division(num_stages=99, is_asked=False))


def test_a_pattern_is_said_to_be_one_before_anything_is_read(tmp_path):
    with pytest.raises(UsageError, match="is a pattern"):
        asyncio.run(
            shards_for(str(tmp_path / "*"), Division(num_stages=1), tmp_path, Output(as_json=True))
        )
