"""The mask shows exactly the slots that hold the sequence's tokens."""

from hypothesis import given
from hypothesis import strategies as st

from engine.stages.cache_slots import CacheSlots

MOVES = st.lists(
    st.tuples(st.sampled_from(["extend", "rewind", "compact"]), st.integers(1, 90)), max_size=30
)


@given(MOVES)
def test_the_mask_follows_any_extensions_rewinds_and_cuts(moves):
    """Against a plain list of which token each slot holds; None is a dropped one."""
    slots, held, length = CacheSlots(), [], 0
    for move, number in moves:
        past_len = number % (length + 1)
        if move == "extend":
            mask = slots.extend(number)
            held += range(length, length + number)
            length += number
            assert mask.shape == (1, len(held))
            assert mask[0].tolist() == [int(token is not None) for token in held]
        elif move == "rewind":
            slots.rewind(past_len)
            held = [t if t is not None and t < past_len else None for t in held]
            length = past_len
        else:
            kept = slots.kept_slots(past_len).tolist()
            assert [held[slot] for slot in kept] == list(range(past_len))
            slots.compact(past_len)
            held, length = list(range(past_len)), past_len
        assert (slots.num_tokens, slots.num_slots) == (length, len(held))
