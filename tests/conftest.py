"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from engine.models.embedded import embedded_model

if TYPE_CHECKING:
    from engine.models.files import ModelFiles

CHECKOUT = Path(__file__).parents[1]

# How long an example takes says how busy the PC is, and nothing of what is tested. The short form
# tries the same examples every time, so that what passes once passes again; the long form draws new
# ones, and what it finds becomes an example of its own.
settings.register_profile(
    "any PC",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("DAISY_LONG"),
)
settings.load_profile("any PC")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The data folder that tests share: DAISY_TEST_DATA, or .daisy in the checkout."""
    return Path(os.environ.get("DAISY_TEST_DATA") or CHECKOUT / ".daisy")


@pytest.fixture(scope="session")
def embedded(data_dir: Path) -> ModelFiles:
    """The embedded model; fetched and converted the first time. Fails if it can't be had."""
    return embedded_model(data_dir)


@pytest.fixture(scope="session")
def fixture_models() -> Path:
    """The folder of small random models, one folder each."""
    return CHECKOUT / "tests" / "fixtures" / "models"


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of inputs and expected values, copied from what happened to others."""
    return CHECKOUT / "tests" / "vectors" / "cases"
