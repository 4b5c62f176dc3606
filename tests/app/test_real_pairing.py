"""Two real nodes, paired, renamed and parted as people do it: in two windows."""

import pytest
from PySide6.QtCore import Qt

from app.devices.page import DevicesPage
from tests.app.real_nodes import RealNode
from tests.app.rooms import surroundings

PATIENCE_MS = 60_000

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


class Pc:
    def __init__(self, folder, name, owner, qtbot):
        folder.mkdir()
        self.node = RealNode(folder, "--name", name)
        self.about = surroundings(folder, owner)
        self.page = DevicesPage(self.about)
        self.page.pairing._look.setInterval(200)
        qtbot.addWidget(self.page)
        self.page.resize(700, 1200)
        self.page.show()
        self.page.shown()

    @property
    def names(self):
        """What the PCs are called that its window shows."""
        return {row.name.text() for row in self.page.pcs.pcs.values()}

    def row(self, name):
        return next(row for row in self.page.pcs.pcs.values() if row.name.text() == name)

    def close(self):
        self.page.hidden()
        for questions in (self.page.pairing._desk, self.page.pairing._joining):
            questions._link.close()
        self.node.kill()


@pytest.fixture
def pcs(tmp_path, owner, qtbot):
    made = [Pc(tmp_path / name, name, owner, qtbot) for name in ("DESK", "LAPTOP")]
    yield made
    for pc in made:
        pc.close()


@pytest.fixture
def wait(qtbot):
    return lambda condition: qtbot.waitUntil(lambda: bool(condition()), timeout=PATIENCE_MS)


def test_two_pcs_are_paired_renamed_and_parted_in_their_windows(pcs, qtbot, wait):
    pair_by_code(*pcs, qtbot, wait)
    rename_and_remove(*pcs, qtbot, wait)
    leave_and_come_back_by_link(*pcs, wait)


def pair_by_code(desk, laptop, qtbot, wait):
    """Show a code on one and type it on the other: wrong first, then right."""
    wait(lambda: desk.names == {"DESK"} and laptop.names == {"LAPTOP"})
    desk.page.invite.show_code.click()
    wait(lambda: desk.page.invite.is_open)
    code = desk.page.invite.code.text()
    join = laptop.page.join
    join.address.setText(desk.page.invite.address.text().split()[-1])
    join.code.setText(f"{(int(code.replace(' ', '')) + 1) % 10**6:06}")
    qtbot.keyClick(join.code, Qt.Key.Key_Return)
    wait(join.refusal.isVisible)
    assert join.refusal.sentence == "The code is wrong."
    join.code.setText(code)
    qtbot.keyClick(join.code, Qt.Key.Key_Return)
    wait(lambda: desk.names == laptop.names == {"DESK", "LAPTOP"})
    assert join.told.text() == "This PC is in the pool of DESK now."
    wait(lambda: desk.page.invite.ended.text() == "LAPTOP is in the pool now.")
    assert not desk.page.invite.is_open
    wait(lambda: desk.row("LAPTOP").facts.text().startswith("Online"))


def rename_and_remove(desk, laptop, qtbot, wait):
    """Call one otherwise, which the other shows; then remove it, which it can't undo itself."""
    row = desk.row("LAPTOP")
    row.rename.click()
    row.field.setText("KITCHEN")
    qtbot.keyClick(row.field, Qt.Key.Key_Return)
    wait(lambda: laptop.names == {"DESK", "KITCHEN"})
    desk.row("KITCHEN").remove.click()
    desk.row("KITCHEN").confirm.click()
    wait(lambda: desk.names == {"DESK"})


def leave_and_come_back_by_link(desk, laptop, wait):
    """Leave what it was removed from, and join again by a link that is good for one time."""
    join = laptop.page.join
    wait(lambda: not laptop.row("DESK").facts.text().startswith("Online"))
    laptop.row("KITCHEN").remove.click()
    laptop.row("KITCHEN").confirm.click()
    wait(lambda: len(laptop.names) == 1 and join.isVisible())
    desk.page.link.make.click()
    wait(desk.page.link.link.text)
    link = desk.page.link.link.text()
    assert link.startswith("daisy://")
    join.code.setText(link)
    join.join.click()
    wait(lambda: len(desk.names) == len(laptop.names) == 2)
    wait(desk.page.link.used.isVisible)
    assert not desk.page.link.withdraw.isVisible()
    wait(lambda: not join.isVisible())
