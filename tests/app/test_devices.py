import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from app.bridge.problem import Problem
from app.devices import invite_card
from app.devices.code import shown_code, time_left, typed_code
from app.devices.page import DevicesPage
from app.devices.pairing import Invitation, NearbyPool, Pairing
from tests.app.rooms import surroundings

LINK = "daisy://join?pool=p&at=192.0.2.1:7420&cert=c&link=l&secret=s&until=9"


class ScriptedPairing(Pairing):
    """A node that pairs, as far as a page can tell."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def invite(self):
        self.asked.append(("invite",))
        self.invited.emit(Invitation("482915", 120.0))

    def withdraw(self):
        self.asked.append(("withdraw",))
        self.invitation_ended.emit("closed")

    def make_link(self):
        self.link_made.emit(LINK)

    def look_around(self):
        pools = (NearbyPool("Office", "192.0.2.9:7420", 3), NearbyPool("家", "192.0.2.8:7420", 1))
        self.pools_seen.emit(pools)

    def join(self, address, code):
        self.asked.append(("join", address, code))


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def pairing():
    return ScriptedPairing()


@pytest.fixture
def page(shared, pairing, qtbot):
    page = DevicesPage(shared, pairing=pairing)
    qtbot.addWidget(page)
    page.resize(700, 900)
    page.show()
    page.shown()
    return page


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("482915", "482915"),
        (" 482 915 ", "482915"),
        ("482-915", "482915"),
        ("４８２９１５", "482915"),
        ("48291", None),
        ("4829155", None),
        ("48291a", None),
        ("", None),
    ],
)
def test_a_code_is_understood_as_people_type_it(typed, code):
    assert typed_code(typed) == code


def test_a_code_is_shown_in_two_groups():
    assert shown_code("482915") == "482 915"


def test_the_time_that_is_left_is_never_less_than_it_is():
    assert time_left(120.0, 0.0) == "2:00"
    assert time_left(120.0, 17.5) == "1:43"
    assert time_left(120.0, 119.9) == "0:01"
    assert time_left(120.0, 120.0) is None


def test_a_code_is_shown_with_its_countdown_and_can_be_withdrawn(page, pairing, qtbot):
    qtbot.mouseClick(page.invite.show_code, Qt.MouseButton.LeftButton)

    assert page.invite.code.text() == "482 915"
    assert page.invite.code.accessibleName() == "Pairing code 4 8 2 9 1 5"
    assert page.invite.left.text() in {"Valid for 2:00", "Valid for 1:59"}
    page.invite.hide_code.click()
    assert pairing.asked == [("invite",), ("withdraw",)]
    assert not page.invite.code.isVisible()
    assert page.invite.ended.text() == "The code was withdrawn."


def test_an_old_code_is_gone_by_itself_even_if_the_node_says_nothing(page, pairing, monkeypatch):
    page.invite.show_code.click()
    monkeypatch.setattr(invite_card.time, "monotonic", lambda: page.invite._until_s + 0.1)
    page.invite._count()

    assert not page.invite.is_open
    assert page.invite.code.text() == ""
    assert page.invite.ended.text() == "The code is no longer valid."
    assert page.invite.show_code.text() == "Show a new code"


def test_who_came_in_and_wrong_guesses_are_told(page, pairing):
    page.invite.show_code.click()
    pairing.let_in.emit("ATTIC")
    assert page.invite.ended.text() == "ATTIC is in the pool now."
    page.invite.show_code.click()
    pairing.invitation_ended.emit("guessed")
    assert "three times" in page.invite.ended.text()


def test_a_link_can_be_copied_and_is_put_away_with_the_page(page):
    page.link.make.click()
    page.link.copy.click()

    assert QGuiApplication.clipboard().text() == LINK
    page.hidden()
    assert page.link.link.text() == ""


def test_a_pool_nearby_is_chosen_and_joined_with_enter(page, pairing, qtbot):
    assert [page.join.pools.item(row).text() for row in range(2)] == [
        "Office · 3 PCs",
        "家 · one PC",
    ]
    page.join.pools.setCurrentRow(1)
    page.join.code.setText("482 915")
    qtbot.keyClick(page.join.code, Qt.Key.Key_Return)

    assert pairing.asked == [("join", "192.0.2.8:7420", "482915")]
    assert page.join.code.text() == ""
    assert page.join.told.text() == "Joining 家…"


def test_an_address_that_was_written_counts_more_than_the_list(page, pairing):
    page.join.pools.setCurrentRow(0)
    page.join.address.setText(" 192.0.2.77:7420 ")
    page.join.code.setText("000000")
    page.join.join.click()

    assert pairing.asked == [("join", "192.0.2.77:7420", "000000")]


def test_without_a_pool_or_with_half_a_code_nothing_is_sent(page, pairing):
    page.join.code.setText("482915")
    page.join.join.click()
    assert page.join.told.text() == "Choose a pool, or write an address."
    page.join.pools.setCurrentRow(0)
    page.join.code.setText("4829")
    page.join.join.click()
    assert page.join.told.text() == "The code has six digits."
    assert pairing.asked == []


def test_the_chosen_pool_stays_chosen_while_others_come_and_go(page, pairing):
    page.join.pools.setCurrentRow(1)
    pairing.pools_seen.emit((NearbyPool("家", "192.0.2.8:7420", 2),))

    assert page.join.pools.currentItem().text() == "家 · 2 PCs"
    pairing.pools_seen.emit(())
    assert page.join._none.text() == "No other pool is seen on this network."


def test_an_error_of_the_node_is_said_in_its_own_words(page, pairing, shared):
    pairing.refused.emit(Problem("pairing", "The code was wrong.", "Run daisy invite again."))

    assert page.notice.isVisible()
    assert page.invite.isVisible()
    assert "The code was wrong." in page.notice._detail.text()


def test_a_node_that_cannot_pair_is_not_pretended_about(shared, qtbot):
    page = DevicesPage(shared)
    qtbot.addWidget(page)
    page.show()
    assert page.invite.isVisible()  # nothing is said before it was asked
    page.shown()

    assert page.notice.sentence == "This version can't add PCs from the window yet."
    assert not page.invite.isVisible()
    went = []
    shared.navigation.asked.connect(went.append)
    page.notice._button.click()
    assert went == ["pool"]


def test_names_from_the_network_are_text(page, pairing):
    pairing.pools_seen.emit((NearbyPool("<b>x</b>\u202e", "192.0.2.8:7420", 1),))

    assert page.join.pools.item(0).text().startswith("<b>x</b>⟦U+202E⟧")


def test_the_language_is_switched_with_a_code_open(page, shared):
    page.invite.show_code.click()
    shared.wording.choose("zh")

    assert page.invite.code.text() == "482 915"
    assert page.invite.left.text().endswith("内有效")
    assert page.join.pools.item(0).text() == "Office · 3 台电脑"
