"""The text side that the pipeline's tests use."""

from tests.unit.pipeline.conftest import chat_text

__all__ = ["chat_text"]
