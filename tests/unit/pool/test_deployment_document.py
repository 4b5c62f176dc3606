"""docs/deployment.md says what the code does: ``python -m tests.unit.pool.deployment_document``."""

from __future__ import annotations

import pytest

from tests.unit.pool.deployment_document import DOCUMENT, PARTS, marked


@pytest.mark.parametrize("part", PARTS)
def test_a_rendered_part_of_the_document_is_current(part: str) -> None:
    found = marked(part).findall(DOCUMENT.read_text(encoding="utf-8"))
    assert found == [PARTS[part]()]
