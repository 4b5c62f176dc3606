"""However a file is damaged, it is whole or it is an error of ours: nothing else comes out."""

import contextlib
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ModelError
from engine.models.gguf_header import read_gguf_header
from engine.models.gguf_settings import (
    chat_templates_from,
    config_from,
    generation_config_from,
    tokenizer_config_from,
)
from engine.models.gguf_support import check_supported
from engine.models.gguf_tokenizer import build_tokenizer
from engine.models.ir_header import check_ir, check_language_model

MODEL = Path(__file__).parents[2] / "fixtures" / "models" / "llama"
XML = (MODEL / "openvino_model.xml").read_bytes()
WEIGHTS = MODEL / "openvino_model.bin"

EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # where, as a share of the file
        st.integers(0, 20),  # bytes taken out there
        st.binary(max_size=9),  # bytes put in their place
    ),
    min_size=1,
    max_size=4,
)
PATIENT = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _damaged(content, edits, end):
    for share, num_removed, inserted in edits:
        at = int(share * min(end, len(content)))
        content = content[:at] + inserted + content[at + num_removed :]
    return content


@PATIENT
@given(edits=EDITS)
def test_a_damaged_ir_is_whole_or_an_error(edits, tmp_path):
    xml = tmp_path / "openvino_model.xml"
    xml.write_bytes(_damaged(XML, edits, len(XML)))
    with contextlib.suppress(ModelError):
        check_language_model(check_ir(xml, WEIGHTS), "damaged")


@PATIENT
@given(edits=EDITS)
def test_a_damaged_gguf_is_whole_or_an_error(edits, tmp_path, tiny_gguf):
    content = tiny_gguf.write().read_bytes()
    path = tmp_path / "damaged.gguf"
    path.write_bytes(_damaged(content, edits, 9000))  # the header and a little more
    with contextlib.suppress(ModelError):
        header = read_gguf_header(path)
        check_supported(header)
        build_tokenizer(header)
        for settings_of in (
            *(config_from, generation_config_from),
            *(tokenizer_config_from, chat_templates_from),
        ):
            settings_of(header)
