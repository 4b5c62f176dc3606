"""A long prompt keeps nobody waiting, and is read soon where nobody waits."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain import RowTime
from engine.scheduler.limits import PrefixReuse, SchedulerLimits
from engine.scheduler.prompt_rows import CHUNK_ROWS, MAX_SLOWDOWN, PromptRows
from engine.scheduler.row_costs import RowCosts
from engine.scheduler.scheduler import Scheduler
from tests.timed_chain import TimedChain

# Seconds: half of a model of half a billion parameters on one core, and a device that has rows to
# spare until it computes 64 of them.
CORE = {1: 0.0152, 4: 0.018, 8: 0.029, 16: 0.049, 64: 0.163, 256: 0.641}
WIDE = {1: 0.020, 4: 0.020, 8: 0.022, 16: 0.026, 64: 0.050, 256: 0.150}
DEVICES = pytest.mark.parametrize("times", [CORE, WIDE], ids=["core", "wide"])
USERS = pytest.mark.parametrize("num_users", [1, 2, 3, 5, 8])
STAGES = pytest.mark.parametrize("num_stages", [1, 2, 3])
LINK_S = 0.002
PROMPT = 2048


def costs_of(times, share=1.0):
    return RowCosts(RowTime(rows, seconds * share) for rows, seconds in times.items())


def rows_of(times, num_stages=2, max_rows=256):
    return PromptRows(costs_of(times), num_stages, max_rows)


MEASURED = st.dictionaries(
    st.sampled_from([2, 4, 8, 16, 64, 256]), st.floats(0.001, 9.0), min_size=1
).map(lambda times: {1: 0.001, **times})


# ---- beside decodes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "num_decode_rows", "num_rows"),
    [(CORE, 1, 6), (CORE, 4, 6), (CORE, 8, 8), (CORE, 16, 16), (WIDE, 1, 32), (WIDE, 8, 32)],
)
def test_rows_beside_decodes(times, num_decode_rows, num_rows):
    """Those that make a pass take twice as long at most."""
    assert rows_of(times).beside(num_decode_rows) == num_rows


def test_where_one_row_costs_too_much_already_as_many_as_cost_no_more():
    """Each pass has a row at least; on a device that computes 16 at a time, 15."""
    assert rows_of({1: 1.0, 2: 5.0}).beside(1) == 1
    steps = {1: 1.0, 2: 5.0, 16: 5.0, 17: 9.0}
    assert rows_of(steps).beside(1) == 12  # the largest size below


@given(MEASURED, st.integers(1, 80), st.integers(1, 300))
def test_a_pass_takes_twice_as_long_at_most(times, num_decode_rows, max_rows):
    """Unless a single row does; no larger size would fit."""
    cost = costs_of(times).cost
    chosen = rows_of(times, max_rows=max_rows).beside(num_decode_rows)
    assert chosen in CHUNK_ROWS
    assert chosen <= max_rows
    most = max(MAX_SLOWDOWN * cost(num_decode_rows), cost(num_decode_rows + 1))
    assert cost(num_decode_rows + chosen) <= most
    larger = [size for size in CHUNK_ROWS if chosen < size <= max_rows]
    assert not larger or cost(num_decode_rows + larger[0]) > most


def gaps_after(chain, users, began_s):
    times = [chain.token_times_s[user] for user in users]
    return sorted(b - a for each in times for a, b in pairwise(each) if b > began_s)


def decoding(num_stages, times, num_users, **limits):
    """Return a chain whose users have some tokens each, and them."""
    chain = TimedChain(num_stages, costs_of(times), LINK_S, **limits)
    users = [chain.ask(20, 10_000) for _ in range(num_users)]
    chain.run_until(lambda: all(len(chain.token_times_s[user]) > 8 for user in users))
    return chain, users


def usual_gap_s(num_stages, times, num_users):
    chain, users = decoding(num_stages, times, num_users)
    began_s = chain.now_s
    chain.run_until(lambda: chain.now_s > began_s + 2.0)
    return gaps_after(chain, users, began_s)[-1]


@DEVICES
@STAGES
@USERS
def test_a_long_prompt_keeps_those_waiting_little_who_are_being_answered(
    times, num_stages, num_users
):
    """Twice as long as without it, give or take the frames it comes between; none of them skips."""
    chain, users = decoding(num_stages, times, num_users)
    began_s = chain.now_s
    asked = chain.ask(PROMPT, 2)
    chain.run_until(lambda: chain.token_times_s[asked])
    gaps = gaps_after(chain, users, began_s)
    usual_s = usual_gap_s(num_stages, times, num_users)
    assert gaps[int(0.99 * len(gaps))] <= 2.2 * usual_s
    assert gaps[-1] <= 2.4 * usual_s
    assert {each.num_prompt_rows for each in chain.passes[-40:-2]} <= {0, *CHUNK_ROWS}


@DEVICES
def test_without_what_rows_cost_a_long_prompt_keeps_them_waiting(times):
    """Chunks are as long as they may be then, as for every device before it was measured."""
    chain, users = decoding(2, times, 3, row_costs=RowCosts())
    began_s = chain.now_s
    asked = chain.ask(PROMPT, 2)
    chain.run_until(lambda: chain.token_times_s[asked])
    assert gaps_after(chain, users, began_s)[-1] > 5 * usual_gap_s(2, times, 3)
    assert max(each.num_prompt_rows for each in chain.passes) == 256


@STAGES
def test_prompts_share_the_rows_and_none_starves(num_stages):
    """Three come at once beside two who are answered: they are read side by side."""
    chain, users = decoding(num_stages, CORE, 2)
    asked = [chain.ask(600, 1) for _ in range(3)]
    chain.run_until(lambda: all(chain.token_times_s[each] for each in asked))
    first_s = [chain.token_times_s[each][0] for each in asked]
    assert max(first_s) < 1.05 * min(first_s)
    most = PromptRows(costs_of(CORE), num_stages, 256).beside(2)
    assert max(each.num_prompt_rows for each in chain.passes[20:]) <= most
    assert all(chain.scheduler.standing(user)[1] > 20 for user in users)


# ---- with nobody to wait ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_stages", "num_tokens", "num_rows"),
    [(1, 512, 256), (2, 128, 32), (2, 512, 64), (2, 2048, 128), (4, 512, 32), (4, 2048, 64)],
)
def test_chunks_of_a_prompt_alone(num_stages, num_tokens, num_rows):
    """The shorter the prompt and the longer the chain, the smaller; on one stage they are large."""
    assert rows_of(CORE, num_stages).alone(num_tokens) == num_rows


@given(MEASURED, st.integers(1, 4), st.integers(1, 5000), st.integers(1, 300))
def test_no_size_reads_a_prompt_clearly_sooner(times, num_stages, num_tokens, max_rows):
    """By all sizes, on a chain that takes what was measured."""
    chosen = rows_of(times, num_stages, max_rows).alone(num_tokens)
    assert chosen in CHUNK_ROWS
    assert chosen <= max_rows
    cost = costs_of(times).cost

    def read_after(size):
        chunks = [size] * (num_tokens // size) + [num_tokens % size] * (num_tokens % size > 0)
        return sum(map(cost, chunks)) + (num_stages - 1) * max(map(cost, chunks))

    soonest = min(read_after(size) for size in CHUNK_ROWS if size <= max_rows)
    assert read_after(chosen) <= 1.031 * soonest


def first_token_s(num_stages, times, num_tokens, share):
    chain = TimedChain(num_stages, costs_of(times, share), LINK_S)
    asked = chain.ask(num_tokens, 1)
    chain.run_until()
    assert max(each.num_rows for each in chain.passes) <= 256
    return chain.token_times_s[asked][0]


@pytest.mark.parametrize(
    ("num_stages", "num_tokens", "gain"), [(2, 512, 1.7), (2, 2048, 1.85), (4, 2048, 3.4)]
)
def test_stages_read_a_prompt_at_once(num_stages, num_tokens, gain):
    """Against one stage that takes as long as all of them."""
    unsplit_s = first_token_s(1, CORE, num_tokens, num_stages)
    assert unsplit_s / first_token_s(num_stages, CORE, num_tokens, 1.0) >= gain


def test_links_are_hidden_while_nobody_waits():
    """A chunk more than there are stages is under way, but not where anybody decodes."""
    chain = TimedChain(2, costs_of(CORE))
    chain.ask(PROMPT, 1)
    sent = [chain.scheduler.next_micro_batch() for _ in range(4)]
    assert [batch is not None for batch in sent] == [True, True, True, False]
    chain, _ = decoding(2, CORE, 1)
    chain.ask(PROMPT, 1)
    chain.run_until(lambda: len(chain.passes) > 40)
    sent = [chain.scheduler.next_micro_batch() for _ in range(2)]
    assert None in sent
    assert chain.scheduler.load().num_batches_in_flight == 2
    in_order = TimedChain(2, costs_of(CORE), max_chunks_in_flight=1)
    in_order.ask(PROMPT, 1)
    assert in_order.scheduler.next_micro_batch() is not None
    assert in_order.scheduler.next_micro_batch() is None


def test_what_is_in_the_caches_does_not_count_as_to_be_read():
    """A prompt of 2048 tokens of which 128 are new is read like one of 128."""
    costs = costs_of(CORE)
    chain = TimedChain(2, costs, prefix_reuse=PrefixReuse.SHARED)
    first = chain.ask(1920, 1)
    chain.run_until()
    num_before = len(chain.passes)
    chain.ask(2048, 1)
    chain.run_until()
    assert chain.token_times_s[first]
    assert max(each.num_rows for each in chain.passes[num_before:]) == 32


@pytest.mark.parametrize("times", [{1: 0.010, 2: 0.021}, {1: 0.010, 4: 0.041}])
def test_nothing_is_sent_where_nothing_runs(times):
    """Also where a second row costs more than the first: no prompt is there to be weighed."""
    limits = SchedulerLimits(
        max_tokens=1024,
        block_tokens=32,
        max_sequences=4,
        num_stages=2,
        max_chunks_in_flight=2,
        row_costs=costs_of(times),
    )
    assert Scheduler(limits, 1).next_micro_batch() is None
