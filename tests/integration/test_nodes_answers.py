"""Answers through real nodes: the right tokens, whatever is asked, by whoever, at the same time."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from engine.cli.local_pool import PoolOptions
from engine.cli.preparation import Division
from engine.errors import ContextTooLongError, DaisyError, UsageError, error_class_for
from engine.messages.codec import decode, encode_control
from engine.messages.control import Cancel, Finished
from engine.messages.request_body import parse_request
from engine.models.tokenizer import load_tokenizer
from engine.models.unsplit import UnsplitModel
from tests.integration.pool import RunningPool, chat, request, shards

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

# One thread a stage: the stages of a pool, and another file's beside it, would fight for cores.
EXACT = PoolOptions(mode="exact", context_tokens=512, max_sequences=4, num_threads=1)
FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."
ALPHABET = "Here is the English alphabet: ABC"


def case(name, cases):
    return json.loads((cases / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def two_stages(embedded, data_dir):
    pool = RunningPool(shards(None, Division(num_stages=2), data_dir), EXACT)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def one_stage(embedded, data_dir):
    pool = RunningPool(shards(None, Division(num_stages=1), data_dir), EXACT)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def unsplit(embedded):
    return UnsplitModel(embedded.xml)


def works(pool):
    """A normal request still gets its answer."""
    answer = pool.ask(chat(FRANCE, max_tokens=16))
    assert (answer.text, answer.finish_reason) == (PARIS, "stop")


# ---- the tokens are the unsplit model's -----------------------------------------------------


def test_every_greedy_token_is_the_unsplit_models(one_stage, two_stages, unsplit, embedded):
    asked = {"prompt": ALPHABET, "max_tokens": 64, "ignore_eos": True}
    one, two = one_stage.ask(request(**asked)), two_stages.ask(request(**asked))
    prompt = load_tokenizer(embedded).encode(ALPHABET, add_special_tokens=True)
    assert one.prompt_tokens == two.prompt_tokens == len(prompt)
    assert one.token_ids == two.token_ids == unsplit.generate(prompt, 64).tokens
    assert one.text == two.text


def test_developer_messages_count_as_instructions(two_stages, cases):
    expected = case("K03.expected.json", cases)
    answer = two_stages.ask(parse_request((cases / "K03.json").read_bytes(), "k03"))
    assert answer.prompt_tokens == expected["values"]["prompt_tokens"]["embedded_template_right"]
    # Eight tokens were asked for; the expected reply is longer.
    assert answer.token_ids == expected["exact_mode_reply"]["tokens"][:8]
    assert answer.finish_reason == "length"
    body = case("K03.json", cases) | {"max_tokens": 16}
    whole = two_stages.ask(parse_request(json.dumps(body).encode(), "k03"))
    assert whole.token_ids == expected["exact_mode_reply"]["tokens"]
    assert whole.text == expected["exact_mode_reply"]["text"]
    assert whole.finish_reason == "stop"


def test_all_text_parts_of_a_message_reach_the_model(two_stages, cases, unsplit):
    expected = case("K05.expected.json", cases)
    answer = two_stages.ask(parse_request((cases / "K05.json").read_bytes(), "k05"))
    assert answer.prompt_tokens == expected["values"]["prompt_tokens"]
    assert answer.token_ids == expected["exact_mode_reply"]["tokens"]
    assert answer.text == expected["exact_mode_reply"]["text"]
    prompt = expected["values"]["right_ids"]
    assert unsplit.generate(prompt, 16).tokens == answer.token_ids


# ---- sampling at its edges, and lengths -------------------------------------------------------


def asked_or_refused(pool, body):
    try:
        return pool.ask(parse_request(body.encode(), "asked")), None
    except UsageError as error:
        return None, error


def test_every_edge_of_the_sampling_settings(two_stages, cases):
    expected = case("K18.expected.json", cases)["values"]["same as greedy"]
    outcomes = {}
    for row in case("K18.json", cases)["rows"]:
        settings = {key: value for key, value in row.items() if key != "right"}
        if isinstance(settings["temperature"], str):
            settings["temperature"] = math.nan
        body = json.dumps({"prompt": ALPHABET, "max_tokens": 12, **settings})
        answer, refusal = asked_or_refused(two_stages, body)
        if refusal is not None:
            outcomes[body] = "refused"
            assert "400" in row["right"] or "off" in row["right"], body
            assert all(name in refusal.what for name in settings if name in row["right"]), body
        else:
            greedy = answer.token_ids == expected["tokens"] and answer.text == expected["text"]
            outcomes[body] = "greedy" if greedy else "drawn"
            assert greedy or not row["right"].startswith("greedy"), body
            assert row["right"] not in {"400 naming temperature", "400 naming top_p"}, body
            assert len(answer.token_ids) <= 12
        works(two_stages)
    assert len(outcomes) == 15
    assert list(outcomes.values()).count("greedy") >= 7


@pytest.mark.parametrize("row", range(14))
def test_every_length_that_may_be_asked_for(row, two_stages, cases):
    settings = dict(case("K22.json", cases)["rows"][row])
    right = settings.pop("right")
    body = {"messages": [{"role": "user", "content": FRANCE}], "temperature": 0, **settings}

    def asked():
        return two_stages.ask(parse_request(json.dumps(body).encode(), f"k22-{row}"))

    if "400" in right:
        with pytest.raises(UsageError) as refusal:
            asked()
        assert any(name in refusal.value.what for name in settings)
    else:
        answer = asked()
        text = "The" if right.startswith('"The",') else PARIS
        assert answer.text == text
        assert answer.finish_reason == ("length" if right.endswith("length") else "stop")
    works(two_stages)


def test_stop_strings_end_the_answer_and_are_not_shown(two_stages):
    answer = two_stages.ask(chat(FRANCE, stop=[" is Par"]))
    assert (answer.text, answer.finish_reason) == ("The capital of France", "stop")
    answer = two_stages.ask(chat(FRANCE, stop=["no such words", "Paris"]))
    assert (answer.text, answer.finish_reason) == ("The capital of France is ", "stop")


# ---- seeds ---------------------------------------------------------------------------------


def drawn(seed=None, text="Tell me something about the sea."):
    return chat(text, temperature=0.8, max_tokens=16, seed=seed)


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.8, "seed": 5},
        {"temperature": 1.0, "repetition_penalty": 1.2, "seed": 6},
    ],
    ids=["greedy", "sampled", "with a penalty"],
)
def test_guessing_ahead_changes_no_token_alone_and_beside_others(two_stages, sampling):
    """Text that repeats itself is guessed; with it three askers, of whom one wants no guesses."""
    asked = {"prompt": f"{ALPHABET}\n{ALPHABET}\n{ALPHABET}", "max_tokens": 24, "ignore_eos": True}
    plain = two_stages.ask(request(**asked, **sampling, speculate=False))
    guessed = two_stages.ask(request(**asked, **sampling))
    assert guessed.token_ids == plain.token_ids

    async def together():
        return await asyncio.gather(
            *(
                two_stages.asked(request(**asked, **sampling, speculate=s))
                for s in (True, False, True)
            )
        )

    assert [answer.token_ids for answer in two_stages.run(together())] == [plain.token_ids] * 3


def test_a_seed_gives_the_same_text_whoever_shares_the_batch(one_stage, two_stages):
    async def together(pool, *asked):
        tasks = [pool.asked(a) for a in asked]
        return [answer.token_ids for answer in await asyncio.gather(*tasks)]

    alone = two_stages.ask(drawn(42))
    assert len(alone.token_ids) == 16
    expected = alone.token_ids
    other = "And what do you know about mountains, rivers and the wind?"
    for pool in (two_stages, one_stage):
        assert pool.ask(drawn(42)).token_ids == expected
        first = pool.run(together(pool, drawn(42), drawn(), drawn(text=other), drawn()))
        assert first[0] == expected
        last = pool.run(together(pool, drawn(1), drawn(2, other), drawn(3), drawn(42)))
        assert last[3] == expected
        twice = pool.run(together(pool, drawn(42), drawn(42)))
        assert twice == [expected, expected]
        # The seed matters, and none given is another each time.
        assert expected not in last[:3]
        unseeded = {tuple(pool.ask(drawn()).token_ids) for _ in range(3)}
        assert len(unseeded) == 3
    assert two_stages.ask(drawn(alone.seed)).token_ids == expected


# ---- several at once ------------------------------------------------------------------------


def test_more_requests_than_places_are_all_answered_right(two_stages):
    async def many():
        asked = [chat(FRANCE, max_tokens=16) for _ in range(9)]
        return await asyncio.gather(*(two_stages.asked(a) for a in asked))

    answers = two_stages.run(many())
    assert {(a.text, a.finish_reason) for a in answers} == {(PARIS, "stop")}


def test_two_askers_may_use_the_same_request_id(two_stages):
    """A request's name is its connection's own: stopping one does not stop the other."""

    async def both():
        long = request(prompt=ALPHABET, max_tokens=40, ignore_eos=True)
        mine, theirs = await two_stages.connect(), await two_stages.connect()
        for connection in (mine, theirs):
            await connection.send(encode_control(long))
        await mine.send(encode_control(Cancel(request_id=long.request_id)))
        ends = []
        for connection in (mine, theirs):
            while not isinstance(message := decode(await connection.receive()), Finished):
                pass
            ends.append((message.finish_reason, message.completion_tokens))
            await connection.close("Done.")
        return ends

    (mine, _), (theirs, count) = two_stages.run(both())
    assert mine == "cancelled"
    assert (theirs, count) == ("length", 40)


# ---- the context ------------------------------------------------------------------------------


def test_a_prompt_one_too_long_is_refused_and_one_shorter_gets_one_token(two_stages):
    def padded(words):
        return request(prompt="word " * words, ignore_eos=True)

    fixed = two_stages.ask(padded(10)).prompt_tokens - 10
    just = two_stages.ask(padded(511 - fixed))
    assert just.prompt_tokens == 511
    assert (len(just.token_ids), just.finish_reason) == (1, "length")
    for words, tokens in ((512 - fixed, 512), (9000, 9000 + fixed)):
        with pytest.raises(UsageError) as refusal:
            two_stages.ask(padded(words), within_s=5)
        assert refusal.value.code == ContextTooLongError.code
        assert f"{tokens} tokens" in refusal.value.what
        assert "512" in refusal.value.what
        assert f"{tokens - 511} too many" in refusal.value.what
    works(two_stages)


def test_every_refusal_has_a_known_code(two_stages):
    bad = [
        {"messages": [{"role": "nobody"}]},
        {"messages": []},
        {"messages": [{"role": "user", "content": 5}]},
        {"prompt": ""},
    ]
    for body in bad:
        with pytest.raises(DaisyError) as refusal:
            two_stages.ask(request(**body, max_tokens=1), within_s=5)
        assert error_class_for(refusal.value.code) is type(refusal.value)
        assert refusal.value.code != "internal"
        assert refusal.value.what
        assert refusal.value.advice
    works(two_stages)
