"""The door: how long a code holds, what closes it, and how long it then stays closed."""

from __future__ import annotations

import secrets

import pytest

from engine.errors import PairingError, UsageError
from engine.transport.pairing_door import (
    CODE_WITHIN_S,
    FIRST_PAUSE_S,
    LAST_PAUSE_S,
    MAX_GREETINGS,
    MAX_GUESSES,
    MAX_LINKS,
    PairingDoor,
    checked_code,
    password_of_code,
    password_of_link,
)

NOW_S = 50.0


def guess_wrong(door, now_s, link_id=None):
    for _ in range(MAX_GUESSES):
        door.guessed_wrong(door.begin(link_id, now_s), now_s)


def test_a_door_is_closed_until_somebody_opens_it():
    door = PairingDoor()
    assert not door.is_open(NOW_S)
    assert door.begin(None, NOW_S) is None
    assert door.closes_at_s() is None


def test_a_code_is_six_digits_and_holds_for_two_minutes():
    door = PairingDoor()
    code = door.show_code(secrets.randbelow, NOW_S)
    assert checked_code(code) == code
    assert door.closes_at_s() == NOW_S + CODE_WITHIN_S
    assert door.is_open(NOW_S + CODE_WITHIN_S - 0.1)
    assert not door.is_open(NOW_S + CODE_WITHIN_S)
    assert door.begin(None, NOW_S + CODE_WITHIN_S) is None


@pytest.mark.parametrize(("drawn", "code"), [(0, "000000"), (7, "000007"), (999_999, "999999")])
def test_every_number_is_a_code_of_six_digits(drawn, code):
    asked = []

    def below(limit):
        asked.append(limit)
        return drawn

    assert PairingDoor().show_code(below, NOW_S) == code
    assert asked == [1_000_000]


def test_an_invitation_that_ended_while_somebody_was_at_it_is_no_longer_open():
    door = PairingDoor()
    door.show_code(secrets.randbelow, NOW_S)
    invitation = door.begin(None, NOW_S)
    assert door.is_still_open(invitation, NOW_S + CODE_WITHIN_S - 1)
    assert not door.is_still_open(invitation, NOW_S + CODE_WITHIN_S)


def test_a_new_code_ends_the_one_before():
    door = PairingDoor()
    door.show_code(lambda _: 1, NOW_S)
    first = door.begin(None, NOW_S)
    door.show_code(lambda _: 2, NOW_S)
    assert not door.is_still_open(first, NOW_S)
    assert door.begin(None, NOW_S).password == password_of_code("000002")


def test_a_code_can_be_taken_back():
    door = PairingDoor()
    door.show_code(secrets.randbelow, NOW_S)
    door.hide_code()
    door.hide_code()
    assert not door.is_open(NOW_S)


def test_s06_each_time_the_door_was_guessed_at_it_stays_closed_twice_as_long():
    door, now_s, pauses = PairingDoor(), NOW_S, []
    for _ in range(9):
        door.show_code(secrets.randbelow, now_s)
        guess_wrong(door, now_s)
        assert not door.is_open(now_s)
        with pytest.raises(PairingError) as refused:
            door.show_code(secrets.randbelow, now_s + 1)
        assert "Wait" in refused.value.advice
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                door.show_code(secrets.randbelow, now_s + pause_s)
            except PairingError:
                pause_s *= 2
            else:
                break
        pauses.append(pause_s)
        door.hide_code()
        now_s += pause_s
    assert pauses[:7] == [30, 60, 120, 240, 480, 960, 1920]
    assert LAST_PAUSE_S <= pauses[8] < 2 * LAST_PAUSE_S


def test_s06_a_pc_that_joined_ends_the_suspicion():
    door = PairingDoor()
    door.show_code(secrets.randbelow, NOW_S)
    guess_wrong(door, NOW_S)
    door.show_code(secrets.randbelow, NOW_S + FIRST_PAUSE_S)
    door.used(door.begin(None, NOW_S + FIRST_PAUSE_S))
    door.show_code(secrets.randbelow, NOW_S + FIRST_PAUSE_S)
    guess_wrong(door, NOW_S + FIRST_PAUSE_S)
    door.show_code(secrets.randbelow, NOW_S + 2 * FIRST_PAUSE_S)


def test_s06_who_only_begins_again_and_again_closes_the_door():
    door = PairingDoor()
    door.show_code(secrets.randbelow, NOW_S)
    for _ in range(MAX_GREETINGS):
        assert door.begin(None, NOW_S) is not None
    assert door.begin(None, NOW_S) is None
    assert not door.is_open(NOW_S)


def test_links_and_codes_do_not_end_each_other():
    door = PairingDoor()
    door.show_code(secrets.randbelow, NOW_S)
    door.make_link("one1one1", b"1" * 16, 10.0, NOW_S)
    door.make_link("two2two2", b"2" * 16, 500.0, NOW_S)
    guess_wrong(door, NOW_S, "one1one1")
    assert door.begin("one1one1", NOW_S) is None
    assert door.begin(None, NOW_S) is not None
    assert door.begin("two2two2", NOW_S).password == password_of_link(b"2" * 16)
    assert door.is_open(NOW_S + CODE_WITHIN_S)
    assert not door.is_open(NOW_S + 500.0)


def test_a_link_lets_in_one_pc_and_wrong_ones_close_no_door_to_people():
    door = PairingDoor()
    door.make_link("one1one1", b"1" * 16, 10.0, NOW_S)
    door.used(door.begin("one1one1", NOW_S))
    assert door.begin("one1one1", NOW_S) is None
    door.make_link("two2two2", b"2" * 16, 10.0, NOW_S)
    guess_wrong(door, NOW_S, "two2two2")
    door.show_code(secrets.randbelow, NOW_S)


def test_only_so_many_links_wait_at_once():
    door = PairingDoor()
    for index in range(MAX_LINKS):
        door.make_link(f"link{index:04}", b"1" * 16, 10.0, NOW_S)
    with pytest.raises(UsageError, match=str(MAX_LINKS)):
        door.make_link("onemore1", b"1" * 16, 10.0, NOW_S)
    door.make_link("onemore1", b"1" * 16, 10.0, NOW_S + 10.0)


@pytest.mark.parametrize(
    "typed", ["123456", " 123 456 ", "123-456", "１２３４５６", "123\u2011456", "1 2 3 4 5 6\n"]
)
def test_a_code_is_understood_as_people_type_it(typed):
    assert checked_code(typed) == "123456"


@pytest.mark.parametrize("typed", ["", "12345", "1234567", "12345a", "١٢٣٤٥٦", "+12345", "9" * 500])
def test_what_is_no_code_is_said(typed):
    with pytest.raises(UsageError, match="6 digits"):
        checked_code(typed)


def test_a_code_is_never_the_password_of_a_link():
    assert password_of_code("123456") != password_of_link(b"123456")


def test_it_says_how_long_the_code_still_holds_and_how_the_last_one_ended():
    door = PairingDoor()
    assert door.code_left_s(NOW_S) is None
    assert door.code_ended is None
    door.show_code(secrets.randbelow, NOW_S)
    assert door.code_left_s(NOW_S + 20.0) == CODE_WITHIN_S - 20.0
    assert door.code_left_s(NOW_S + CODE_WITHIN_S) is None
    assert door.code_ended == "expired"
    door.show_code(secrets.randbelow, NOW_S)
    assert door.code_ended is None
    door.hide_code()
    assert door.code_ended == "withdrawn"
    door.show_code(secrets.randbelow, NOW_S)
    door.used(door.begin(None, NOW_S))
    assert door.code_ended == "used"
    door.show_code(secrets.randbelow, NOW_S)
    guess_wrong(door, NOW_S)
    assert door.code_ended == "guessed"


def test_links_that_wait_can_be_withdrawn_together_and_leave_the_code_alone():
    door = PairingDoor()
    door.show_code(secrets.randbelow, NOW_S)
    for name in ("a", "b"):
        door.make_link(name, bytes(16), 60.0, NOW_S)
    assert door.num_links(NOW_S) == 2
    door.withdraw_links()
    assert door.num_links(NOW_S) == 0
    assert door.begin("a", NOW_S) is None
    assert door.code_left_s(NOW_S) == CODE_WITHIN_S
    assert door.code_ended is None
