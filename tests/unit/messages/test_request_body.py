"""A request as programs write it: refused by the field that is wrong, and never by accident."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.messages.codec import decode, encode_control
from engine.messages.control import Generate
from engine.messages.request_body import MAX_BODY_BYTES, RequestBody, as_generate, parse_request

CASES = Path(__file__).parents[2] / "vectors" / "cases"
USER = [{"role": "user", "content": "What is the capital of France?"}]


def rows(name):
    document = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    return document["rows"] if isinstance(document, dict) else document


def shown(row):
    return json.dumps({k: v for k, v in row.items() if k != "right"})[:60]


def parse(**fields):
    """Read a body; what is taken must also fit through a connection, unchanged."""
    request = parse_request(json.dumps(fields).encode(), "r1")
    assert decode(encode_control(request)) == request
    return request


def outcome(body):
    """Return the request, or the sentence of its refusal."""
    try:
        return parse_request(body, "r1"), None
    except UsageError as error:
        return None, error.what


# ---- the cases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows("K22"), ids=shown)
def test_k22_numbers_of_tokens(row):
    fields = {key: value for key, value in row.items() if key != "right"}
    if "400" in row["right"]:
        with pytest.raises(UsageError, match=next(iter(fields))):
            parse(messages=USER, **fields)
        return
    request = parse(messages=USER, **fields)
    wanted = fields.get("max_completion_tokens", fields.get("max_tokens"))
    if wanted is None:
        assert request.max_tokens is None
    else:
        assert request.max_tokens == min(wanted, 2**31 - 1)


@pytest.mark.parametrize("row", rows("K18"), ids=shown)
def test_k18_settings_of_sampling(row):
    fields = {key: value for key, value in row.items() if key != "right"}
    right = row["right"]
    body = json.dumps({"prompt": "x", **fields}).encode()
    if isinstance(fields.get("temperature"), str):
        body = b'{"prompt":"x","temperature":NaN}'
    request, refusal = outcome(body)
    if request is None:
        assert "400" in right
        assert "JSON" in right or any(name in refusal for name in fields)
    elif "top_p" not in fields:  # its greedy rows are so by the candidates left, not by setting
        assert request.sampling.is_greedy == right.startswith("greedy")
    else:
        assert request.sampling.top_p == fields["top_p"]


@pytest.mark.parametrize("row", rows("K34"), ids=lambda row: row["name"])
def test_k34_bodies_that_programs_send(row):
    right = row["right"]
    if right.startswith("400 naming"):
        with pytest.raises(UsageError, match=right.split()[-1]):
            parse(**row["body"])
        return
    request = parse(**row["body"])
    assert request.messages == tuple(row["body"]["messages"])
    assert request.tools is None
    assert request.sampling.is_greedy


def raw_body(row):
    if "raw_repeat" in row:
        text, times = row["raw_repeat"]
        return (text * min(times, MAX_BODY_BYTES + 1)).encode()
    if "raw_hex" in row:
        return bytes.fromhex(row["raw_hex"])
    return row["raw"].encode()


# What is in a message's content is the template's to judge, and is refused when it is rendered.
JUDGED_LATER = {"content is a number", "image part", "text/plain with JSON inside"}


@pytest.mark.parametrize("row", rows("K35"), ids=lambda row: row["name"])
def test_k35_bodies_that_are_broken(row):
    request, refusal = outcome(raw_body(row))
    if request is None:
        assert "\n" not in refusal
        assert len(refusal) < 300
        assert not row["right"].startswith("200") or "400" in row["right"]
    else:
        encode_control(request)
        assert (
            row["right"].startswith("200")
            or "last wins" in row["right"]
            or (row["name"] in JUDGED_LATER)
        )


# ---- each field ---------------------------------------------------------------------------------


def test_nothing_given_is_greedy_without_limit():
    request = parse(messages=USER)
    assert request == Generate(request_id="r1", messages=tuple(USER))
    assert request.sampling.is_greedy
    assert not request.seed_given


def test_everything_given_arrives():
    request = parse(
        prompt="x",
        max_tokens=5,
        stop=["a", "b"],
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        seed=2**64 - 1,
        ignore_eos=True,
        speculate=False,
    )
    assert not request.speculate
    assert parse(prompt="x").speculate
    assert (request.prompt, request.messages, request.max_tokens) == ("x", None, 5)
    assert (request.stop, request.ignore_eos, request.seed_given) == (("a", "b"), True, True)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.9, 40)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.05, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.2, -0.3)
    assert sampling.seed == 2**64 - 1


def test_seed_0_is_a_seed():
    request = parse(prompt="x", seed=0)
    assert (request.seed_given, request.sampling.seed) == (True, 0)
    assert not parse(prompt="x", seed=None).seed_given


@pytest.mark.parametrize(
    ("stop", "taken"), [("END", ("END",)), (["END"], ("END",)), ([], ()), (None, ()), ("", ("",))]
)
def test_one_stop_string_or_several(stop, taken):
    assert parse(prompt="x", stop=stop).stop == taken


def test_tools_are_passed_on_and_none_is_no_tools():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": [1, 2.5, None]}}}]
    assert parse(messages=USER, tools=tools).tools == tuple(tools)
    assert parse(messages=USER, tools=[]).tools is None


@pytest.mark.parametrize("fields", [{}, {"messages": USER, "prompt": "x"}, {"messages": None}])
def test_messages_or_a_prompt_and_not_both(fields):
    with pytest.raises(UsageError, match="either messages or a prompt"):
        parse(**fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("messages", "hello"),
        ("messages", [5]),
        ("messages", [[]]),
        ("prompt", 5),
        ("prompt", ["x"]),
        ("tools", [1]),
        ("max_tokens", "16"),
        ("max_tokens", True),
        ("max_tokens", 1.0),
        ("max_tokens", -1),
        ("max_completion_tokens", 0),
        ("n", 2),
        ("n", 0),
        ("n", "1"),
        ("stop", 5),
        ("stop", [5]),
        ("stop", [None]),
        ("temperature", "0.5"),
        ("temperature", True),
        ("temperature", -0.1),
        ("temperature", 100.1),
        ("top_p", 1.0000001),
        ("top_p", -1e-9),
        ("min_p", 2),
        ("top_k", -1),
        ("top_k", 1.5),
        ("repetition_penalty", 0),
        ("presence_penalty", 1e300),
        ("frequency_penalty", -101),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("seed", -(10**4000)),
        ("n", 10**4000),
        ("top_k", -(10**4000)),
        ("ignore_eos", 1),
        ("speculate", 1),
        ("ignore_eos", "true"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(name, value):
    fields = {name: value} if name in {"messages", "prompt"} else {"prompt": "x", name: value}
    with pytest.raises(UsageError, match=name) as caught:
        parse(**fields)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "top_k"])
def test_more_than_any_model_has_is_all_there_is(name):
    """And is no number that a message can't carry."""
    request = parse(prompt="x", **{name: 10**30})
    taken = request.sampling.top_k if name == "top_k" else request.max_tokens
    assert taken == 2**31 - 1


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x", "number": 10**30},
        {"role": "user", "content": json.loads("[" * 200 + "]" * 200)},
    ],
    ids=["a number beyond 64 bits", "200 deep"],
)
def test_what_no_message_can_carry_is_the_senders_fault(message):
    """Not a bug of ours, and not a broken connection later on."""
    with pytest.raises(UsageError, match="can't be passed on"):
        parse(messages=[message])


def test_a_body_that_is_too_long_is_refused_unread():
    with pytest.raises(UsageError, match=f"{MAX_BODY_BYTES + 1} bytes; at most"):
        parse_request(b" " * (MAX_BODY_BYTES + 1), "r1")


def test_fields_as_the_command_line_gives_them_are_checked_alike():
    assert as_generate(RequestBody(prompt="x", max_tokens=3), "r2") == Generate(
        request_id="r2", prompt="x", max_tokens=3
    )
    with pytest.raises(UsageError, match="top_p"):
        as_generate(RequestBody(prompt="x", top_p=3.0), "r2")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(RequestBody.__struct_fields__)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, JUNK, max_size=5))
def test_any_fields_are_a_request_that_can_be_sent_or_refused(fields):
    try:
        request = parse_request(json.dumps(fields).encode(), "r1")
    except UsageError:
        return
    assert decode(encode_control(request)) == request


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data):
    with pytest.raises(UsageError):
        parse_request(data, "r1")
