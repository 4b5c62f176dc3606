"""Every run is found where it ended, also after tokens were taken back or overwritten."""

import numpy as np
import pytest

from engine.scheduler.token_index import Match, TokenIndex

RUN = 3


def index_of(*parts, max_tokens=4096):
    index = TokenIndex(RUN, max_tokens)
    for part in parts:
        index.append(np.array(part, np.int32))
    return index


def found(index, suffix, max_candidates=1000):
    return list(index.matches(suffix, max_candidates))


def expected(tokens, suffix, oldest=0):
    """All occurrences with something behind them, by looking at every place; newest first."""
    matches = []
    for end in range(len(tokens) - 1, oldest, -1):
        length = 0
        while (
            length < len(suffix)
            and end - 1 - length >= oldest
            and tokens[end - 1 - length] == suffix[-1 - length]
        ):
            length += 1
        if length >= RUN:
            matches.append(Match(end, length))
    return matches


@pytest.mark.parametrize("piece", [1, 2, 7, 63, 64, 65, 500, 3000])
def test_finds_what_a_search_of_the_whole_text_finds(piece):
    """However the tokens came: one at a time, in small pieces, in large ones, beyond growth."""
    tokens = np.random.default_rng(piece).integers(0, 4, 3000)
    index = index_of(*(tokens[i : i + piece] for i in range(0, len(tokens), piece)))
    for end in (RUN, 500, 1500, 3000):
        suffix = tokens[max(0, end - 9) : end].tolist()
        assert found(index, suffix, 3000) == expected(tokens.tolist(), suffix)


def test_taken_back_tokens_are_not_found_and_leave_no_trace():
    """After guesses were withdrawn the index is the one without them."""
    generator = np.random.default_rng(1)
    tokens = generator.integers(0, 3, 400).tolist()
    index = index_of(tokens[:200])
    for start in range(200, 400, 4):
        guesses = generator.integers(0, 3, 70 if start % 3 else 5)
        index.append(guesses.astype(np.int32))
        index.truncate(start)
        index.append(np.array(tokens[start : start + 4], np.int32))
    assert len(index) == 400
    for end in range(100, 400, 50):
        suffix = tokens[end - 6 : end]
        assert found(index, suffix) == expected(tokens, suffix)


def test_emptied_and_begun_again():
    """Taking back everything leaves nothing to find."""
    index = index_of([1, 2, 3, 4])
    index.truncate(0)
    assert found(index, [1, 2, 3]) == []
    index.append(np.array([1, 2, 3, 5], np.int32))
    assert [index.token(match.end) for match in found(index, [1, 2, 3])] == [5]


@pytest.mark.parametrize("piece", [3, 100, 700])
def test_a_full_index_forgets_the_oldest(piece):
    """And only those; memory does not grow."""
    tokens = np.random.default_rng(2).integers(0, 5, 2100)
    index = index_of(*(tokens[i : i + piece] for i in range(0, 2100, piece)), max_tokens=512)
    size = index.num_bytes
    suffix = tokens[-8:].tolist()
    assert found(index, suffix) == expected(tokens.tolist(), suffix, oldest=2100 - 512)
    index.append(tokens.astype(np.int32))
    assert index.num_bytes == size
    assert len(index) == 4200


def test_more_than_all_it_may_keep_at_once():
    """What does not fit counts as having been there."""
    tokens = np.random.default_rng(3).integers(0, 4, 3000)
    index = index_of(tokens, max_tokens=1024)
    assert len(index) == 3000
    suffix = tokens[-6:].tolist()
    assert found(index, suffix)[0] == expected(tokens.tolist(), suffix)[0]
    assert index.tail(2990).tolist() == tokens[2990:].tolist()


def test_looks_at_no_more_than_it_may():
    """The newest come first."""
    index = index_of([1, 2, 3] * 20)
    assert [match.end for match in found(index, [1, 2, 3], 2)] == [57, 54]


def test_separated_texts_do_not_flow_into_each_other():
    """A separator agrees with no token."""
    index = index_of([7, 8], [-1], [9, 1, -1])
    assert found(index, [7, 8, 9]) == []


@pytest.mark.parametrize("num_tokens", [0, 1, 2])
def test_too_short_a_text_holds_no_run(num_tokens):
    """Also when it came at once."""
    assert found(index_of(range(num_tokens)), [0, 1, 2]) == []
