import io
import json
import re
import zipfile

import pytest
from msgspec.structs import replace
from PySide6.QtGui import QGuiApplication

from app.bridge.node_link import LinkState
from app.doctor import trials
from app.doctor.bundle import status_for_bundle, without_names, write_bundle
from app.doctor.page import DoctorPage
from app.doctor.words import _WHY, DoctorWords
from app.places import WORDING
from app.wording.wording import Wording
from engine.cli.doctor_words import FINDINGS, FIREWALLS
from engine.errors import StorageError
from engine.pool import adapters as engine_adapters
from engine.pool.findings import Finding, findings_of, hearing_of
from tests.app.pools import (
    DESK,
    LAPTOP,
    OLD,
    hearing_all,
    model,
    node,
    pool,
    progress,
    report,
    three_pcs,
    trouble,
    wish,
)
from tests.app.rooms import surroundings


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def page(shared, qtbot):
    page = DoctorPage(shared)
    qtbot.addWidget(page)
    page.resize(900, 900)
    page.show()
    page.shown()
    return page


def keys(status):
    return [found.code for found in findings_of(status)]


def deaf_laptop():
    """Return a pool in which LAPTOP does not hear DESK."""
    desk, laptop = hearing_all(node(DESK), node(LAPTOP))
    return pool(
        desk,
        replace(laptop, hears=()),
        notes=(
            "bbbbbbbb does not hear aaaaaaaa: a firewall stands between them, "
            "or the network is one-way.",
        ),
    )


def test_a_pool_that_is_well_says_so():
    status = pool(*hearing_all(node(DESK), node(LAPTOP)))

    assert keys(status) == ["all_well"]


def test_a_one_way_link_names_both_and_tells_where_to_open_the_firewall(page, shared):
    shared.status.changed.emit(deaf_laptop())

    assert page.sentences[0] == (
        "Not right: DESK hears LAPTOP, but LAPTOP does not hear DESK. On LAPTOP, allow Daisy in "
        "the firewall for private networks; on Windows, set the network to Private."
    )
    assert len([s for s in page.sentences if "hear" in s]) == 1  # the engine's note is the same


def test_pcs_that_do_not_hear_each_other_at_all_are_named():
    assert "no_link" in keys(pool(node(DESK), node(LAPTOP)))


def test_the_matrix_tells_who_hears_whom():
    hearing = hearing_of(deaf_laptop())

    assert hearing.names == ("DESK", "LAPTOP")
    assert hearing.cells == ((None, True), (False, None))


def test_the_matrix_on_the_page_is_read_out_cell_by_cell(page, shared):
    shared.status.changed.emit(deaf_laptop())
    grid = page.grids["hearing"]

    assert grid.texts()[1:] == [["DESK", "·", "\u2713"], ["LAPTOP", "\u2717", "·"]]
    assert grid._cells[2, 1].accessibleName() == "LAPTOP does not hear DESK"


def test_adapters_used_and_left_alone_are_shown_with_the_reason(page, shared):
    shared.status.changed.emit(three_pcs())

    assert page.grids["adapters"].texts()[1:] == [
        ["eth0", "used (cable)", "192.0.2.97", "not tested yet", ""],
        ["docker0", "left alone", "172.17.0.1", "", "It belongs to containers."],
    ]
    shared.wording.choose("zh")
    assert page.grids["adapters"].texts()[2] == [
        "docker0",
        "不用",
        "172.17.0.1",
        "",
        "用于容器。",
    ]


def test_every_reason_the_engine_has_for_leaving_an_adapter_alone_has_its_words():
    shapes = [
        {"name": "eth0", "addresses": ("192.0.2.1",), "is_up": False},
        {"name": "eth1"},
        {"name": "eth2", "addresses": ("169.254.1.1",)},
        {"name": "lo", "addresses": ("127.0.0.1",), "is_loopback": True},
        {"name": "ptp0", "addresses": ("192.0.2.3",), "is_point_to_point": True},
        {"name": "docker0", "addresses": ("172.17.0.1",)},
    ]
    interfaces = tuple(engine_adapters.Interface(**shape) for shape in shapes)
    ranked = engine_adapters.rank_adapters(interfaces)
    used = (engine_adapters.Interface("eth9", ("192.0.2.9",)),)
    chosen = engine_adapters.rank_adapters((*interfaces, *used), ("eth9",))
    reasons = {reason for _, reason in engine_adapters._NOT_FOR_THE_POOL}
    reasons |= {one.reason for one in (*ranked.ignored, *chosen.ignored)}

    assert reasons == set(_WHY)


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"state": "silent"}, "silent"),
        ({"state": "offline"}, "offline"),
        ({"notes": ("its protocol version is 2, this PC's is 1",)}, "node_note"),
        ({"own": report(LAPTOP, on_battery=True)}, "on_battery"),
        ({"own": report(LAPTOP, link_kind="wireless")}, "wireless"),
        ({"own": report(LAPTOP, devices=())}, "no_device"),
    ],
)
def test_what_is_odd_about_a_pc_is_found(changed, key):
    assert key in keys(pool(*hearing_all(node(DESK), node(LAPTOP, **changed))))


def test_wrong_things_come_first_and_nothing_is_fine_beside_them():
    status = pool(*hearing_all(node(DESK), node(LAPTOP, state="silent", notes=("odd",))))
    severities = [found.severity for found in findings_of(status)]

    assert severities == sorted(severities, key=["wrong", "hint", "good"].index)
    assert "good" not in severities


def test_alone_without_network_and_without_coordinator_are_said():
    found = keys(pool(node(DESK, addresses=()), coordinator=None))

    assert {"no_adapter", "alone", "no_coordinator"} <= set(found)


def test_without_a_node_it_says_so_and_offers_to_start_it(page, shared):
    assert page._told.text() == "Asking this PC's engine…"
    page._on_late()

    assert page.sentences[0].startswith("Not right: No engine of Daisy answers")
    assert page.start.isVisible()
    shared.status.changed.emit(three_pcs())
    assert not page.start.isVisible()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_finding_has_a_sentence_and_an_advice_in_both_languages(language):
    words = DoctorWords(Wording(WORDING, language))
    odd = node(
        OLD,
        report(OLD, on_battery=True, link_kind="wireless", devices=()),
        state="silent",
        notes=("x",),
    )
    statuses = (
        None,
        deaf_laptop(),
        pool(node(DESK, addresses=()), odd, coordinator=None, notes=("y",)),
        pool(node(DESK), node(LAPTOP, state="offline")),
        pool(*hearing_all(node(DESK), node(LAPTOP))),
    )
    seen = set()
    for status in statuses:
        for found in findings_of(status):
            what, advice = words.finding(found)
            assert what
            assert "{" not in what + advice
            seen.add(found.code)

    assert len(seen) >= 14


def test_the_whole_page_can_be_copied_as_text(page, shared):
    shared.status.changed.emit(three_pcs())
    page.copy.click()
    text = QGuiApplication.clipboard().text()

    assert "Network adapters of this PC" in text
    assert "docker0" in text
    assert "DESK: \u2713 LAPTOP, \u2713 OLD-PC" in text
    assert "Daisy " in text
    assert page.copy.text().strip() == "Copied"


# ---- what is tried ------------------------------------------------------------------------------

PATIENCE_MS = 15_000


def test_the_tests_are_run_and_what_fails_is_told_with_what_to_do(page, shared, qtbot, start_node):
    start_node()
    shared.status.changed.emit(three_pcs())
    assert page.grids["tried"].texts() == [["not tested yet"]]
    page.run.click()
    assert not page.run.isEnabled()
    qtbot.waitUntil(lambda: page.trials.tried.devices is not None, timeout=PATIENCE_MS)

    assert page.run.isEnabled()
    assert page.grids["tried"].texts()[1:] == [
        ["CPU", "Intel Core Ultra 7", "one token in 1.5 ms, ready after 0.5 s"],
        ["NPU", "Intel AI Boost", "failed: A device could not prepare its part of the model."],
    ]
    assert page.grids["tried"]._cells[2, 2].toolTip().endswith(" NPU can't compile it.")
    assert page.grids["adapters"].texts()[1][3] == "no"
    told = "\n".join(page.sentences)
    assert "On eth0 (192.0.2.97) this PC does not hear its own announcements." in told
    assert "sudo ufw allow 7420/tcp" in told
    assert "NPU did not compute a token." in told
    shared.wording.choose("zh")
    assert page.grids["tried"].texts()[1][2] == "1.5 毫秒算出一个词元，准备用时 0.5 秒"
    page.copy.click()
    copied = QGuiApplication.clipboard().text()
    assert "在 eth0（192.0.2.97）上，本机收不到自己的广播。" in copied
    assert "NPU: NPU can't compile it." in copied  # for whoever is asked for help


@pytest.mark.parametrize("kind", ["none", "silent", "killed"])
def test_a_node_that_tries_nothing_is_not_waited_for(
    page, shared, qtbot, start_node, monkeypatch, kind
):
    monkeypatch.setattr(trials, "NODE_WITHIN_MS", 200)
    monkeypatch.setattr(trials, "NETWORK_WITHIN_MS", 200 if kind == "silent" else PATIENCE_MS)
    started = None if kind == "none" else start_node(tries=False)
    shared.status.changed.emit(three_pcs())
    page.run.click()
    if kind == "killed":
        qtbot.waitUntil(lambda: page.trials._link.state is LinkState.OPEN, timeout=PATIENCE_MS)
        started.kill()
    qtbot.waitUntil(lambda: not page.trials.is_running, timeout=PATIENCE_MS)

    assert any(s.startswith("Not right: Something could not be tried.") for s in page.sentences)
    assert page.run.isEnabled()


def test_leaving_the_page_ends_what_is_tried(page, shared, start_node):
    start_node(tries=False)
    shared.status.changed.emit(three_pcs())
    page.run.click()
    page.hidden()

    assert not page.trials.is_running
    assert page.run.isEnabled()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_finding_of_the_engine_has_its_words_with_all_fields(language):
    words = DoctorWords(Wording(WORDING, language))
    fields = {
        name: "⟨x⟩"
        for names in FINDINGS
        for name in re.findall(r"\{(\w+)\}", "".join(FINDINGS[names]))
    }
    for code in FINDINGS:
        for firewall in FIREWALLS:
            what, advice = words.finding(Finding("wrong", code, fields, firewall=firewall), 7420)
            assert what
            assert "{" not in what + advice
            assert "7420" in advice


# ---- the bundle ---------------------------------------------------------------------------------

PC_NAMES = ("DESK", "LAPTOP", "OLD-PC")
SECRETS = ("tok3n-0f-the-control-port", "my secret prompt", "Private key of mine")
NAMES = ("alice-tax-2025.gguf", "/home/alice/models/alice-tax-2025.gguf")


def told_too_much():
    """Return a status with as much in it as a node could tell."""
    status = three_pcs()
    record = replace(
        status.deployment,
        wish=wish(model=model(name=NAMES[0])),
        trouble=trouble(what=f"{NAMES[1]} can't be read.", advice="See C:\\Users\\alice\\x."),
    )
    step = progress(DESK, "convert", 1, 2, epoch=0, detail=NAMES[0])
    return replace(
        status,
        deployment=record,
        progress=(step,),
        notes=(f"The file {NAMES[1]} was taken out.", "DESK and LAPTOP differ."),
    )


def everything_in(file):
    with zipfile.ZipFile(file) as bundle:
        assert bundle.testzip() is None
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def test_s28_the_bundle_has_state_and_versions_and_nothing_that_is_somebodys(
    page, shared, tmp_path
):
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "reach.json").write_text(SECRETS[0], encoding="utf-8")
    (tmp_path / "node" / "key.pem").write_text(SECRETS[2], encoding="utf-8")
    (tmp_path / "app").mkdir(exist_ok=True)
    (tmp_path / "app" / "chats.sqlite").write_text(SECRETS[1], encoding="utf-8")
    shared.status.changed.emit(told_too_much())
    page.save_to(str(tmp_path / "out.zip"))
    told = everything_in(tmp_path / "out.zip")

    assert set(told) == {"report.txt", "versions.json", "pool.json"}
    whole = "\n".join(told.values())
    for secret in (*SECRETS, *NAMES, *PC_NAMES, "alice", str(tmp_path)):
        assert secret not in whole, secret
    assert json.loads(told["pool.json"])["nodes"][0]["report"]["layer_ms"] == 1.6
    assert "Daisy" in told["versions.json"]
    assert page._told.text().startswith("Saved to")


def test_a_name_that_is_a_word_of_ours_costs_the_bundle_nothing():
    desk = node(DESK, report(DESK, name="stage"))
    told = without_names(pool(desk, node(LAPTOP, report(LAPTOP, name=" ")), notes=("stage left.",)))

    assert told.nodes[0].report.name == "PC aaaaaa"
    assert told.nodes[0].state == "online"
    assert told.notes == ("PC aaaaaa left.",)


def test_the_bundle_keeps_what_helps_to_find_a_fault():
    told = status_for_bundle(told_too_much())

    assert told["deployment"]["phase"] == "ready"
    assert told["deployment"]["wish"]["model"]["num_layers"] == 40
    assert told["deployment"]["trouble"]["what"] == "<path> can't be read."
    assert told["progress"][0]["step"] == "convert"
    assert told["adapters"][1]["reason"] == "It belongs to containers."


def test_an_address_or_a_rate_is_not_taken_for_a_path():
    status = pool(node(DESK, addresses=("192.0.2.1:7420",)), notes=("60 MB/s and 2/b1/x9 hops",))
    told = status_for_bundle(status)

    assert told["nodes"][0]["addresses"] == ["192.0.2.1:7420"]
    assert told["notes"][0].startswith("60 MB/s")


def test_a_bundle_that_cannot_be_written_is_said_and_leaves_nothing(page, tmp_path):
    (tmp_path / "folder").mkdir()
    page.save_to(str(tmp_path / "folder"))

    assert page._told.text().startswith("The bundle could not be written")
    assert sorted(path.name for path in tmp_path.glob("folder*")) == ["folder"]
    with pytest.raises(StorageError):
        write_bundle(tmp_path / "none" / "x.zip", "", None, {})


def test_a_bundle_without_a_node_has_the_page_and_the_versions(tmp_path):
    write_bundle(tmp_path / "x.zip", "No engine", None, {"Window": "Daisy"})

    assert set(everything_in(io.BytesIO((tmp_path / "x.zip").read_bytes()))) == {
        "report.txt",
        "versions.json",
    }


def test_hidden_it_asks_nothing(page, shared):
    page.hidden()

    assert not shared.status._watchers
    assert not page._patience.isActive()
