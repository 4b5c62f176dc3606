"""What a request may ask of the sampler, and what is refused by name."""

import json
import math
from pathlib import Path

import msgspec
import pytest

from engine.errors import UsageError
from engine.sampling.parameters import MAX_SEED, SamplingParameters

K18 = json.loads(
    (Path(__file__).parents[2] / "vectors" / "cases" / "K18.json").read_text(encoding="utf-8")
)
DESCRIBED_IN_WORDS = {"NaN (bare literal in the body)"}
ROWS = [
    ({name: value for name, value in row.items() if name != "right"}, row["right"])
    for row in K18["rows"]
    if row["temperature"] not in DESCRIBED_IN_WORDS
]


def refusal(settings):
    """Return the sentence that refuses the settings, None where they are taken."""
    try:
        msgspec.json.decode(json.dumps(settings), type=SamplingParameters).checked()
    except (UsageError, msgspec.ValidationError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(("settings", "right"), ROWS, ids=str)
def test_every_row_of_the_table_is_either_taken_or_refused_by_name(settings, right):
    """No setting of the table is taken half: decoding, then checking, settles it."""
    sentence = refusal(settings)
    if sentence is None:
        assert right.startswith(("greedy", "full distribution"))
    else:
        assert "400" in right
        assert any(name in sentence for name in settings)


def test_a_bare_nan_is_not_json():
    """``{"temperature": NaN}`` is refused by the decoder."""
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(b'{"temperature": NaN}', type=SamplingParameters)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 1e39),
        ("temperature", 100.0001),
        ("top_p", -1e-9),
        ("top_p", 1.0000001),
        ("top_p", math.nan),
        ("min_p", -0.5),
        ("min_p", 1.5),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.nan),
        ("repetition_penalty", -1.0),
        ("presence_penalty", math.inf),
        ("frequency_penalty", -101.0),
        ("seed", -1),
        ("seed", MAX_SEED + 1),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name_and_value(name, value):
    """The sentence tells which setting it was and what it was."""
    with pytest.raises(UsageError) as caught:
        SamplingParameters(**{name: value}).checked()
    assert name in caught.value.what
    assert str(value) in caught.value.what


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.0),
        ("temperature", 1e-45),
        ("temperature", 100.0),
        ("top_p", 0.0),
        ("top_p", 1.0),
        ("min_p", 1.0),
        ("top_k", 0),
        ("top_k", 10**12),
        ("repetition_penalty", 0.01),
        ("seed", MAX_SEED),
    ],
)
def test_the_ends_of_each_range_are_allowed(name, value):
    """The ranges are closed."""
    parameters = SamplingParameters(**{name: value})
    assert parameters.checked() is parameters


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "top_k", "seed"])
@pytest.mark.parametrize("value", [True, "1", None, [1]])
def test_booleans_and_strings_are_not_numbers(name, value):
    """Strict decoding refuses them; ``true`` is not 1."""
    with pytest.raises(msgspec.ValidationError, match=name):
        msgspec.convert({name: value}, type=SamplingParameters)


def test_an_unknown_setting_is_refused_by_name():
    """A misspelt setting is not silently ignored."""
    with pytest.raises(msgspec.ValidationError, match="temprature"):
        msgspec.json.decode(b'{"temprature": 1}', type=SamplingParameters)


def test_defaults_are_greedy_without_penalties():
    """A request that asks for nothing gets the reference answer."""
    assert SamplingParameters().is_greedy
    assert not SamplingParameters().has_penalties


@pytest.mark.parametrize(
    "parameters",
    [
        SamplingParameters(temperature=1e-6),
        SamplingParameters(temperature=1e-45),
        SamplingParameters(temperature=1.0, top_k=1),
        SamplingParameters(temperature=1.0, min_p=1.0),
    ],
)
def test_settings_that_leave_one_token_are_greedy(parameters):
    """They need neither exponents nor a random number."""
    assert parameters.is_greedy


@pytest.mark.parametrize(
    "parameters",
    [
        SamplingParameters(repetition_penalty=1.1),
        SamplingParameters(presence_penalty=0.1),
        SamplingParameters(frequency_penalty=-0.1),
    ],
)
def test_each_penalty_alone_asks_for_the_history(parameters):
    """The last stage keeps token ids only for these."""
    assert parameters.has_penalties


def test_ordinary_sampling_is_not_greedy():
    """A temperature of 0.8 draws."""
    assert not SamplingParameters(temperature=0.8, top_k=40, top_p=0.9, min_p=0.05).is_greedy
