import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from app.bridge.problem import Problem
from app.devices import invite_card
from app.devices.code import shown_code, time_left, typed_code
from app.devices.page import DevicesPage
from app.devices.pairing import Invitation
from app.wording.problems import problem_words
from engine.messages.roster_control import PcLine, PoolNearby
from tests.app.fake_node import LINK
from tests.app.pools import ATTIC, DESK, LAPTOP
from tests.app.rooms import surroundings

PATIENCE_MS = 15_000
OFFICE = PoolNearby(name="Office", address="192.0.2.9:7420")
HOME = PoolNearby(name="家", address="192.0.2.8:7420")
OWN = PcLine(node_id=DESK, name="DESK", role="owner", is_own=True, is_online=True)
OTHER = PcLine(node_id=LAPTOP, name="LAPTOP", role="member", is_own=False, is_online=True)
THIRD = PcLine(node_id=ATTIC, name="书房的电脑", role="owner", is_own=False, is_online=False)


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def open_page(shared, qtbot, start_node):
    pages = []

    def opened(**script):
        node = start_node(**script)
        page = DevicesPage(shared)
        pages.append(page)
        page.pairing._look.setInterval(40)
        qtbot.addWidget(page)
        page.resize(700, 1200)
        page.show()
        page.shown()
        qtbot.waitUntil(lambda: page.pcs.num_pcs > 0, timeout=PATIENCE_MS)
        return page, node

    yield opened
    for page in pages:
        page.hidden()
        for questions in (page.pairing._desk, page.pairing._joining):
            questions._link.close()


@pytest.fixture
def wait(qtbot):
    return lambda condition: qtbot.waitUntil(lambda: bool(condition()), timeout=PATIENCE_MS)


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


# ---- letting others in -------------------------------------------------------------------------


def test_a_code_is_shown_with_its_countdown_and_can_be_withdrawn_by_key(open_page, wait):
    page, node = open_page()
    page.invite.show_code.setFocus()
    QTest.keyClick(page.invite.show_code, Qt.Key.Key_Space)
    wait(lambda: page.invite.is_open)

    assert page.invite.code.text() == "482 915"
    assert page.invite.code.accessibleName() == "Pairing code 4 8 2 9 1 5"
    assert page.invite.left.text().startswith(("Valid for 2:0", "Valid for 1:"))
    assert "192.0.2.1:7420" in page.invite.address.text()
    QTest.keyClick(page.invite.hide_code, Qt.Key.Key_Space)
    wait(lambda: not page.invite.is_open)
    assert [told["asked"] for told in node.asked_of_members()] == ["Invite", "WithdrawInvitation"]
    assert not page.invite.code.isVisible()
    assert page.invite.code.text() == ""
    assert page.invite.ended.text() == "The code was withdrawn."


def test_an_old_code_is_gone_by_itself_even_if_the_node_says_nothing(open_page, wait, monkeypatch):
    page, _ = open_page()
    page.pairing._look.stop()
    page.invite._on_invited(Invitation("482915", 120.0))
    monkeypatch.setattr(invite_card.time, "monotonic", lambda: page.invite._until_s + 0.1)
    page.invite._count()

    assert not page.invite.is_open
    assert page.invite.code.text() == ""
    assert page.invite.ended.text() == "The code is no longer valid."
    assert page.invite.show_code.text() == "Show a new code"


@pytest.mark.parametrize(
    ("how", "name", "told"),
    [
        ("used", "ATTIC", "ATTIC is in the pool now."),
        ("guessed", None, "three times"),
        ("expired", None, "no longer valid"),
        (None, None, "restarted"),
    ],
)
def test_what_became_of_the_code_is_told(open_page, wait, how, name, told):
    page, node = open_page()
    page.invite.show_code.click()
    wait(lambda: page.invite.is_open)
    node.members.end_code(how, name)
    wait(lambda: not page.invite.is_open)

    assert told in page.invite.ended.text()


def test_a_code_goes_on_being_watched_while_another_page_is_shown(open_page, wait):
    page, node = open_page()
    page.invite.show_code.click()
    wait(lambda: page.invite.is_open)
    page.hidden()
    node.members.end_code("used", "ATTIC")
    wait(lambda: not page.invite.is_open)
    assert page.invite.ended.text() == "ATTIC is in the pool now."
    assert not page.pairing._look.isActive()


def test_a_link_can_be_copied_and_is_put_away_with_the_page_but_still_counts(open_page, wait):
    page, node = open_page()
    page.link.make.click()
    wait(page.link.link.text)
    page.link.copy.click()

    assert QGuiApplication.clipboard().text() == LINK
    assert "One link waits" in page.link.waiting.text()
    page.hidden()
    assert page.link.link.text() == ""
    page.shown()
    node.members.use_link("ATTIC")
    wait(page.link.used.isVisible)
    assert page.link.used.text() == "ATTIC is in the pool now."
    assert not page.link.withdraw.isVisible()


def test_links_that_wait_can_be_withdrawn(open_page, wait):
    page, node = open_page()
    page.link.make.click()
    wait(page.link.withdraw.isVisible)
    page.link.withdraw.click()
    wait(lambda: not page.link.withdraw.isVisible())

    assert node.asked_of_members()[-1] == {"asked": "WithdrawInvitation", "is_link": True}
    assert page.link.link.text() == ""


def test_too_many_wrong_codes_are_told_with_the_time_to_wait(open_page, wait):
    trouble = {
        "code": "pairing_guessed",
        "what": "Wrong codes were sent 3 times: somebody may be guessing.",
        "advice": "Wait 27 s, then run daisy invite again; or use daisy invite --link.",
    }
    page, _ = open_page(pairing_trouble={"Invite": trouble})
    page.invite.show_code.click()
    wait(page.invite.refusal.isVisible)

    assert "three times" in page.invite.refusal.sentence
    assert "27 seconds" in page.invite.refusal._advice.text()


# ---- joining -----------------------------------------------------------------------------------


def test_a_pc_nearby_is_chosen_and_joined_with_enter(open_page, wait, qtbot):
    page, node = open_page(nearby=(OFFICE, HOME))
    wait(lambda: page.join.pools.count() == 2)
    assert [page.join.pools.item(row).text() for row in range(2)] == [
        "Office · 192.0.2.9:7420",
        "家 · 192.0.2.8:7420",
    ]
    page.join.pools.setCurrentRow(1)
    page.join.code.setText("482 915")
    qtbot.keyClick(page.join.code, Qt.Key.Key_Return)
    assert page.join.code.text() == ""
    assert page.join.told.text() == "Joining 家…"
    wait(page.join.join.isEnabled)

    (asked,) = node.asked_of_members()
    assert (asked["code"], asked["address"]) == ("482915", "192.0.2.8:7420")
    assert page.join.told.text() == "This PC is in the pool of ATTIC now."


def test_the_only_pc_nearby_need_not_be_chosen(open_page, wait):
    page, node = open_page(nearby=(HOME,))
    wait(lambda: page.join.pools.count() == 1)
    page.join.code.setText("482915")
    page.join.join.click()
    wait(node.asked_of_members)
    assert node.asked_of_members()[0]["address"] == HOME.address


def test_an_address_that_was_written_counts_more_than_the_list(open_page, wait):
    page, node = open_page(nearby=(OFFICE, HOME))
    wait(lambda: page.join.pools.count() == 2)
    page.join.pools.setCurrentRow(0)
    page.join.address.setText(" 192.0.2.77:7420 ")
    page.join.code.setText("000000")
    page.join.join.click()
    wait(node.asked_of_members)

    (asked,) = node.asked_of_members()
    assert (asked["code"], asked["address"]) == ("000000", "192.0.2.77:7420")


def test_a_link_says_itself_where_to_join(open_page, wait):
    page, node = open_page(nearby=(OFFICE, HOME))
    page.join.code.setText(f"  {LINK}\n")
    page.join.join.click()
    wait(node.asked_of_members)

    (asked,) = node.asked_of_members()
    assert (asked["link"], asked["code"], asked["address"]) == (LINK, None, None)
    assert page.join.code.text() == ""


def test_without_a_pc_or_with_half_a_code_nothing_is_sent(open_page, wait):
    page, node = open_page(nearby=(OFFICE, HOME))
    wait(lambda: page.join.pools.count() == 2)
    page.join.code.setText("482915")
    page.join.join.click()
    assert page.join.told.text() == "Choose a PC above, or write its address."
    page.join.pools.setCurrentRow(0)
    page.join.code.setText("4829")
    page.join.join.click()
    assert page.join.told.text().startswith("A code has six digits")
    assert node.asked_of_members() == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("pairing_wrong_code", "The code is wrong."),
        ("pairing_closed", "The other PC lets nobody in at the moment."),
        ("pairing_not_taken_in", "The other PC could not take this one in."),
        ("in_other_pool", "This PC is in a pool with others already."),
        ("invite_link", "This is no invite link, or only a part of one."),
        ("not_trusted", "That PC is not of this pool."),
        ("peer_timeout", "There was no answer in time."),
    ],
)
def test_every_refusal_is_said_in_the_persons_language_beside_the_code(
    open_page, wait, shared, code, words
):
    trouble = {"code": code, "what": "Engine's own words.", "advice": "Its advice."}
    page, _ = open_page(nearby=(HOME,), pairing_trouble={"JoinPool": trouble})
    wait(lambda: page.join.pools.count() == 1)
    page.join.code.setText("482915")
    page.join.join.click()
    wait(page.join.refusal.isVisible)

    assert page.join.refusal.sentence == words
    assert "Engine's own words." in page.join.refusal._detail.text()
    assert page.join.join.isEnabled()
    assert page.join.told.text() == ""
    shared.wording.choose("zh")
    assert page.join.refusal.sentence == shared.wording.text(f"errors.{code}") != words


def test_the_chosen_pc_stays_chosen_while_others_come_and_go(open_page, wait):
    page, node = open_page(nearby=(OFFICE, HOME))
    wait(lambda: page.join.pools.count() == 2)
    page.join.pools.setCurrentRow(1)
    node.members.nearby = (replace(HOME, name="Home"),)
    wait(lambda: page.join.pools.count() == 1)
    assert page.join.pools.currentItem().text() == "Home · 192.0.2.8:7420"
    node.members.nearby = ()
    wait(lambda: page.join.pools.count() == 0)
    assert page.join._none.isVisible()


def test_names_from_the_network_are_text(open_page, wait):
    page, _ = open_page(nearby=(PoolNearby(name="<b>x</b>\u202e", address="192.0.2.8:7420"),))
    wait(lambda: page.join.pools.count() == 1)
    assert page.join.pools.item(0).text().startswith("<b>x</b>⟦U+202E⟧")


# ---- the PCs of the pool -----------------------------------------------------------------------


def test_the_pcs_are_listed_with_this_one_first_and_what_each_may(open_page):
    page, _ = open_page(pcs=(THIRD, OTHER, OWN))
    rows = page.pcs._list
    names = [rows.itemAt(i).widget().name.text() for i in range(rows.count())]

    assert names == ["DESK", "LAPTOP", "书房的电脑"]
    assert page.pcs.pcs[LAPTOP].facts.text() == "Online · may not change who is in the pool"
    assert page.pcs.pcs[ATTIC].facts.text().startswith("Offline")
    assert page.pcs._heading.text() == "3 PCs in this pool"


def test_a_pc_is_renamed_by_key_and_esc_leaves_its_name(open_page, wait, qtbot):
    page, node = open_page(pcs=(OWN, OTHER))
    row = page.pcs.pcs[LAPTOP]
    qtbot.keyClick(row.rename, Qt.Key.Key_Space)
    row.field.setText("Nothing")
    qtbot.keyClick(row.field, Qt.Key.Key_Escape)
    assert not row.field.isVisible()
    qtbot.keyClick(row.rename, Qt.Key.Key_Space)
    assert row.field.text() == "LAPTOP"
    qtbot.wait(120)  # the list comes again meanwhile, and takes nothing away
    row.field.setText("  Kitchen\u202e  table ")
    qtbot.keyClick(row.field, Qt.Key.Key_Return)
    wait(lambda: row.name.text() == "Kitchen table")

    (asked,) = node.asked_of_members()
    assert asked == {"asked": "RenamePc", "node_id": LAPTOP, "name": "Kitchen table"}


def test_a_pc_is_removed_only_after_a_question_that_is_easily_denied(open_page, wait, qtbot):
    page, node = open_page(pcs=(OWN, OTHER, THIRD))
    row = page.pcs.pcs[LAPTOP]
    row.remove.click()
    assert row.question.isVisible()
    assert "LAPTOP" in row.question.text()
    wait(row.cancel.hasFocus)
    qtbot.keyClick(row.cancel, Qt.Key.Key_Space)
    assert not row.question.isVisible()
    row.remove.click()
    row.confirm.click()
    wait(lambda: LAPTOP not in page.pcs.pcs)

    assert [told["asked"] for told in node.asked_of_members()] == ["RemovePc"]
    assert set(page.pcs.pcs) == {DESK, ATTIC}


def test_leaving_asks_first_and_then_others_can_be_joined(open_page, wait):
    page, node = open_page(pcs=(OWN, OTHER))
    assert not page.join.isVisible()
    assert "leave this one first" in page.limit.text()
    row = page.pcs.pcs[DESK]
    row.remove.click()
    row.confirm.click()
    wait(page.join.isVisible)

    assert [told["asked"] for told in node.asked_of_members()] == ["LeavePool"]
    assert not page.limit.isVisible()
    assert not page.pcs.pcs[DESK].remove.isVisible()  # there is nothing to leave


def test_who_is_no_owner_may_leave_and_nothing_else(open_page):
    page, _ = open_page(pcs=(replace(OWN, role="member"), THIRD))

    assert not page.invite.isVisible()
    assert not page.link.isVisible()
    assert not page.pcs.pcs[ATTIC].remove.isVisible()
    assert not page.pcs.pcs[DESK].rename.isEnabled()
    assert page.pcs.pcs[DESK].remove.isVisible()
    assert "Only an owner" in page.limit.text()


def test_what_the_node_refuses_about_a_pc_is_said_below_the_list(open_page, wait):
    trouble = {"code": "not_trusted", "what": "No owner.", "advice": "Ask one."}
    page, _ = open_page(pcs=(OWN, OTHER), pairing_trouble={"RemovePc": trouble})
    row = page.pcs.pcs[LAPTOP]
    row.remove.click()
    row.confirm.click()
    wait(page.pcs.refusal.isVisible)
    assert LAPTOP in page.pcs.pcs


def test_without_a_node_the_page_offers_to_start_one(shared, qtbot):
    page = DevicesPage(shared)
    qtbot.addWidget(page)
    page.show()
    page.shown()
    assert page.notice.sentence == "Daisy's engine is not running on this PC."
    assert page.notice._button.text() == "Start it"
    page.hidden()
    page.pairing._desk._link.close()


def test_the_language_is_switched_with_a_code_open_and_a_name_half_written(open_page, wait, shared):
    page, _ = open_page(pcs=(OWN, OTHER))
    page.invite.show_code.click()
    wait(lambda: page.invite.is_open)
    row = page.pcs.pcs[LAPTOP]
    row.rename.click()
    row.field.setText("Kit")
    shared.wording.choose("zh")

    assert page.invite.code.text() == "482 915"
    assert page.invite.left.text().endswith("内有效")
    assert row.field.text() == "Kit"
    assert row.save.text() == "保存"


def test_a_wait_without_a_number_still_has_an_advice(shared):
    words = problem_words(Problem("pairing_guessed", "x", "Wait."), shared.wording)
    assert words.advice == "Show a new code, and type it again."


def test_who_came_by_a_link_is_told_though_the_name_comes_later_than_the_use(open_page, wait):
    page, node = open_page()
    page.link.make.click()
    wait(page.link.withdraw.isVisible)
    node.members.use_link(None)
    wait(lambda: not page.link.withdraw.isVisible())
    assert not page.link.used.isVisible()
    node.members.report = replace(node.members.report, let_in="ATTIC")
    wait(page.link.used.isVisible)
