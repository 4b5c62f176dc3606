"""The roster: one way to write it, signed by an owner, and refused where anything is off."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain import NodeId
from engine.errors import NotTrustedError, RemoteProtocolError, UsageError
from engine.messages.limits import MAX_ROSTER_BYTES
from engine.pool import roster_changes
from engine.pool.pool_secret import WRAPPED_BYTES, unwrapped, wrapped
from engine.pool.recognition import TOKEN_LENGTH, recognised, recognition_token
from engine.pool.roster import (
    MAX_APPOINTMENTS,
    MAX_MEMBERS,
    MAX_REMOVED,
    Removal,
    appoint,
    decode_roster,
    sign_roster,
)
from engine.pool.roster_changes import (
    add_member,
    appoint_owner,
    found_pool,
    remove_member,
    rename_member,
)
from engine.pool.roster_merge import KnownRoster, decode_known, encode_known, known_from
from engine.transport.certificates import node_id_of_key, point_of, public_key_of
from tests.unit.pool.people import POOL, crowd, entropy, pool_of

ANNA, BEN, CARL, DORA, EVE = crowd(5)
DRAW = entropy(7)


def ids(*people):
    return {person.node_id for person in people}


def names(known):
    return {member.node_id: member.entry.name for member in known.members}


def rewritten(known, **fields):
    """The content of a roster with other fields, signed by its signer as if it were right."""
    content = msgspec.structs.replace(known.roster.content, **fields)
    data = msgspec.msgpack.encode(content)
    signature = ANNA.sign(b"daisy roster 1\0" + data)
    return msgspec.msgpack.encode({"content": data, "signature": signature})


def refused(data):
    with pytest.raises(RemoteProtocolError) as error:
        decode_roster(data)
    return error.value.what


# ---- what an owner does -----------------------------------------------------------------------


def test_a_pool_begins_with_one_owner():
    known = found_pool(ANNA, "Küche", POOL, DRAW)
    (member,) = known.members
    assert (member.certificate, member.is_owner, member.entry.name) == (
        ANNA.certificate,
        True,
        "Küche",
    )
    assert (known.roster.content.version, known.removed) == (1, frozenset())


def test_what_is_signed_is_read():
    known = pool_of(ANNA, BEN, CARL)
    again = decode_roster(known.roster.signed)
    assert again.signed == known.roster.signed
    assert again.content == known.roster.content
    assert {member.node_id for member in again.members} == ids(ANNA, BEN, CARL)
    assert again.order == known.roster.order


def test_every_member_and_nobody_else_reads_the_secret():
    known = pool_of(ANNA, BEN)
    secret = known.roster.secret_for(ANNA)
    assert known.roster.secret_for(BEN) == secret
    assert len(secret) == 32
    with pytest.raises(NotTrustedError):
        known.roster.secret_for(EVE)


def test_who_is_added_learns_the_same_secret_and_the_others_entries_stay():
    before = pool_of(ANNA, BEN)
    after = add_member(before, ANNA, CARL.certificate, "new", "member", DRAW)
    assert after.roster.secret_for(CARL) == before.roster.secret_for(ANNA)
    assert after.member(BEN.node_id) == before.member(BEN.node_id)
    assert after.roster.content.version == before.roster.content.version + 1


def test_a_member_that_is_added_again_changes_nothing():
    known = pool_of(ANNA, BEN)
    assert add_member(known, ANNA, BEN.certificate, "again", "owner", DRAW) is known


def test_s25_a_removed_pc_is_out_and_the_secret_is_another_one():
    before = pool_of(ANNA, BEN, CARL)
    after = remove_member(before, ANNA, BEN.node_id, DRAW)
    assert {member.node_id for member in after.members} == ids(ANNA, CARL)
    assert after.member(BEN.node_id) is None
    assert after.removed == ids(BEN)
    assert after.roster.secret_for(CARL) == after.roster.secret_for(ANNA)
    assert after.roster.secret_for(ANNA) != before.roster.secret_for(ANNA)
    with pytest.raises(NotTrustedError):
        after.roster.secret_for(BEN)
    for member in after.roster.members:  # nor is it wrapped for anybody's key that BEN has
        with pytest.raises(RemoteProtocolError):
            unwrapped(member.entry.wrapped_secret, POOL, BEN.key)


def test_s25_a_removed_pc_can_not_be_added_again_with_its_key():
    known = remove_member(pool_of(ANNA, BEN), ANNA, BEN.node_id, DRAW)
    with pytest.raises(NotTrustedError) as error:
        add_member(known, ANNA, BEN.certificate, "back", "member", DRAW)
    assert "new key" in error.value.advice


def test_a_pc_gets_another_name_and_it_is_cleaned():
    known = rename_member(pool_of(ANNA, BEN), ANNA, BEN.node_id, "  my\u202e PC\n", DRAW)
    assert names(known)[BEN.node_id] == "my PC"
    assert known.roster.secret_for(BEN) == pool_of(ANNA, BEN).roster.secret_for(ANNA)


def test_an_owner_appoints_another_one_who_may_then_do_everything():
    known = appoint_owner(pool_of(ANNA, BEN, CARL), ANNA, BEN.node_id, DRAW)
    assert known.member(BEN.node_id).is_owner
    assert appoint_owner(known, ANNA, BEN.node_id, DRAW) is known
    known = remove_member(known, BEN, ANNA.node_id, DRAW)
    known = add_member(known, BEN, DORA.certificate, "d", "owner", DRAW)
    assert {member.node_id for member in known.members} == ids(BEN, CARL, DORA)
    assert {owner.node_id for owner in known.roster.owners} == ids(ANNA, BEN, DORA)
    assert decode_roster(known.roster.signed).content.signer == BEN.node_id


CHANGES = {
    "add": lambda known, who: add_member(known, who, EVE.certificate, "e", "member", DRAW),
    "rename": lambda known, who: rename_member(known, who, ANNA.node_id, "x", DRAW),
    "appoint": lambda known, who: appoint_owner(known, who, who.node_id, DRAW),
    "remove": lambda known, who: remove_member(known, who, ANNA.node_id, DRAW),
}


@pytest.mark.parametrize("who", [BEN, EVE], ids=["a member", "a stranger"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_who_is_no_owner_changes_nothing_and_is_told_where_to_do_it(change, who):
    with pytest.raises(NotTrustedError) as error:
        change(pool_of(ANNA, BEN), who)
    assert "founder" in error.value.advice


@pytest.mark.parametrize("change", [rename_member, appoint_owner, remove_member])
def test_a_pc_that_is_not_there_can_not_be_changed(change):
    more = ("x",) if change is rename_member else ()
    with pytest.raises(UsageError, match=EVE.node_id):
        change(pool_of(ANNA, BEN), ANNA, EVE.node_id, *more, DRAW)


def test_an_owner_can_not_remove_itself():
    with pytest.raises(UsageError, match="itself"):
        remove_member(pool_of(ANNA, BEN), ANNA, ANNA.node_id, DRAW)


# ---- bounds ------------------------------------------------------------------------------------


def test_a_pool_has_64_pcs_at_most():
    founder, *others = crowd(MAX_MEMBERS)
    known = pool_of(founder, *others)
    assert len(known.members) == MAX_MEMBERS
    with pytest.raises(UsageError, match=str(MAX_MEMBERS)):
        add_member(known, founder, crowd(MAX_MEMBERS + 1)[-1].certificate, "x", "member", DRAW)


def fullest():
    """A roster of the most members, owners and removals, with the longest names."""
    founder, *others = crowd(MAX_MEMBERS)
    known = pool_of(founder, *others, role="owner")
    content = known.roster.content
    more = crowd(MAX_APPOINTMENTS)[MAX_MEMBERS:]
    removed = sorted(
        [other.node_id for other in more]
        + [f"{'z' * 16}{a}{b}{c}z" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefg"]
    )
    content = msgspec.structs.replace(
        content,
        version=2**53,
        members=tuple(
            msgspec.structs.replace(entry, name="界" * 21, version=2**53)
            for entry in content.members
        ),
        removed=tuple(Removal(node_id=r, version=2**53) for r in removed[:MAX_REMOVED]),
        appointments=tuple(
            sorted(
                [
                    *content.appointments,
                    *(appoint(point_of(o.key.public_key()), POOL, founder) for o in more),
                ],
                key=lambda a: node_id_of_key(public_key_of(a.point)),
            )
        ),
    )
    return founder, content


def test_the_fullest_roster_fits_where_rosters_go():
    founder, content = fullest()
    roster = sign_roster(content, founder)
    assert len(roster.signed) <= MAX_ROSTER_BYTES
    assert len(roster.removed) == MAX_REMOVED
    assert len(roster.owners) == MAX_APPOINTMENTS


def test_what_is_more_than_a_roster_holds_is_said():
    founder, content = fullest()
    known = known_from(
        sign_roster(
            msgspec.structs.replace(
                content,
                version=9,
                members=tuple(
                    msgspec.structs.replace(entry, version=1) for entry in content.members
                ),
                removed=tuple(msgspec.structs.replace(r, version=1) for r in content.removed),
            ),
            founder,
        )
    )
    victim = next(m.node_id for m in known.members if m.node_id != founder.node_id)
    with pytest.raises(UsageError, match=str(MAX_REMOVED)):
        remove_member(known, founder, victim, DRAW)


def test_more_owners_than_a_roster_holds_are_said(monkeypatch):
    monkeypatch.setattr(roster_changes, "MAX_APPOINTMENTS", 2)
    known = pool_of(ANNA, BEN, role="owner")
    with pytest.raises(UsageError, match="2 owners"):
        add_member(known, ANNA, CARL.certificate, "c", "owner", DRAW)


# ---- reading -----------------------------------------------------------------------------------


def test_a_roster_that_is_too_long_is_not_looked_at():
    assert str(MAX_ROSTER_BYTES + 1) in refused(bytes(MAX_ROSTER_BYTES + 1))


GOOD = pool_of(ANNA, BEN, CARL)
ENTRIES = GOOD.roster.content.members
OWN = next(entry for entry in ENTRIES if entry.certificate == ANNA.certificate.der)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Kitchen\x1b[2J\x07", "Kitchen[2J"),
        ("evil\u202egpj.exe", "evilgpj.exe"),
        ("two\nlines\r\tand tabs", "two lines and tabs"),
        ("\x00\u200b", None),
    ],
)
def test_s23_a_name_that_an_owner_gone_bad_signed_is_shown_without_what_hides_or_commands(
    written, shown
):
    entries = tuple(
        msgspec.structs.replace(entry, name=written) if entry is OWN else entry for entry in ENTRIES
    )
    member = decode_roster(rewritten(GOOD, members=entries)).member(ANNA.node_id)
    assert member.name == (shown or f"PC {ANNA.node_id[:6]}")


OTHER = next(entry for entry in ENTRIES if entry.certificate == BEN.certificate.der)


def with_entry(old, **fields):
    new = msgspec.structs.replace(old, **fields)
    return tuple(new if entry is old else entry for entry in ENTRIES)


BROKEN = {
    "another format": {"format": 2},
    "version 0": {"version": 0},
    "version beyond all": {"version": 2**53 + 1},
    "a pool's name that is none": {"pool_id": "../../etc"},
    "a signer that is none": {"signer": "A" * 20},
    "a signer that is no owner": {"signer": BEN.node_id},
    "a signer that is no member": {"signer": EVE.node_id},
    "no members": {"members": ()},
    "members out of order": {"members": ENTRIES[::-1]},
    "a member twice": {"members": (ENTRIES[0], *ENTRIES)},
    "an owner nobody appointed": {"members": with_entry(OTHER, role="owner")},
    "an appointed one as plain member": {"members": with_entry(OWN, role="member")},
    "another role": {"members": with_entry(OTHER, role="king")},
    "a certificate that is none": {"members": with_entry(OTHER, certificate=b"x" * 362)},
    "a name of 64 bytes": {"members": with_entry(OTHER, name="é" * 32)},
    "an entry of a later version": {"members": with_entry(OTHER, version=99)},
    "half a wrapped secret": {"members": with_entry(OTHER, wrapped_secret=b"x" * 50)},
    "a member as removed": {"removed": (Removal(node_id=BEN.node_id, version=1),)},
    "a removal of a later version": {"removed": (Removal(node_id=EVE.node_id, version=99),)},
    "somebody removed twice": {"removed": (Removal(node_id=EVE.node_id, version=1),) * 2},
    "a removal of nobody": {"removed": (Removal(node_id="nobody", version=1),)},
    "an appointment without a key": {
        "appointments": (
            msgspec.structs.replace(GOOD.roster.content.appointments[0], point=bytes(65)),
        )
    },
    "no appointments": {"appointments": ()},
}


@pytest.mark.parametrize("fields", BROKEN.values(), ids=BROKEN)
def test_a_roster_that_breaks_a_rule_is_refused_although_it_is_signed(fields):
    assert refused(rewritten(GOOD, **fields)).endswith(".")


def test_the_helper_of_these_tests_signs_what_is_right():
    assert decode_roster(rewritten(GOOD)).content == GOOD.roster.content


def test_a_field_nobody_knows_is_refused():
    fields = msgspec.to_builtins(GOOD.roster.content, builtin_types=(bytes,))
    data = msgspec.msgpack.encode({**fields, "more": 1})
    signed = {"content": data, "signature": ANNA.sign(b"daisy roster 1\0" + data)}
    refused(msgspec.msgpack.encode(signed))


def test_another_way_to_write_the_same_is_refused():
    content, signature = (
        msgspec.msgpack.decode(GOOD.roster.signed)[k] for k in ("content", "signature")
    )
    assert "another way" in refused(
        msgspec.msgpack.encode({"signature": signature, "content": content})
    )
    assert "read" in refused(GOOD.roster.signed + b"\0")


def test_a_signature_of_somebody_else_is_refused():
    data = msgspec.msgpack.encode(GOOD.roster.content)
    for signature in (BEN.sign(b"daisy roster 1\0" + data), ANNA.sign(data), b"", b"x" * 72):
        signed = msgspec.msgpack.encode({"content": data, "signature": signature})
        assert "signature" in refused(signed)


@given(st.integers(0, len(GOOD.roster.signed) - 1), st.integers(0, 7))
def test_no_bit_of_a_roster_can_be_turned(at, bit):
    turned = bytearray(GOOD.roster.signed)
    turned[at] ^= 1 << bit
    refused(turned)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_our_error(data):
    refused(data)


def test_an_owner_can_not_sign_what_nobody_would_read():
    content = msgspec.structs.replace(GOOD.roster.content, signer=BEN.node_id)
    with pytest.raises(RemoteProtocolError):
        sign_roster(content, ANNA)


# ---- on disk -----------------------------------------------------------------------------------


def test_what_is_known_outlives_a_restart():
    known = KnownRoster(GOOD.roster, frozenset({BEN.node_id, EVE.node_id}))
    again = decode_known(encode_known(known))
    assert again.removed == known.removed
    assert again.roster.signed == known.roster.signed
    assert {member.node_id for member in again.members} == ids(ANNA, CARL)


@pytest.mark.parametrize("harm", [lambda d: b"", lambda d: d[:-1], lambda d: bytes(len(d))])
def test_a_file_that_is_damaged_is_said(harm):
    with pytest.raises(RemoteProtocolError):
        decode_known(harm(encode_known(GOOD)))


# ---- secrets and tokens ------------------------------------------------------------------------


def test_a_wrapped_secret_is_for_one_key_and_one_pool():
    content = wrapped(b"s" * 32, POOL, BEN.key.public_key(), DRAW)
    assert len(content) == WRAPPED_BYTES
    assert unwrapped(content, POOL, BEN.key) == b"s" * 32
    for pool_id, key in ((POOL, ANNA.key), ("z" * 20, BEN.key)):
        with pytest.raises(RemoteProtocolError):
            unwrapped(content, pool_id, key)


def test_a_secret_is_never_wrapped_alike():
    draw = entropy(3)
    made = {wrapped(b"s" * 32, POOL, BEN.key.public_key(), draw) for _ in range(20)}
    assert len(made) == 20
    assert not any(b"s" * 8 in content for content in made)


@given(st.integers(0, WRAPPED_BYTES - 1), st.integers(0, 7))
def test_no_bit_of_a_wrapped_secret_can_be_turned(at, bit):
    turned = bytearray(wrapped(b"s" * 32, POOL, BEN.key.public_key(), entropy(1)))
    turned[at] ^= 1 << bit
    with pytest.raises(RemoteProtocolError):
        unwrapped(bytes(turned), POOL, BEN.key)


@pytest.mark.parametrize("content", [b"", b"\x04" * 20, bytes(WRAPPED_BYTES), b"\x04" * 300])
def test_what_is_no_wrapped_secret_is_refused(content):
    with pytest.raises(RemoteProtocolError):
        unwrapped(content, POOL, BEN.key)


def test_a_secret_of_another_length_is_refused():
    content = wrapped(b"short", POOL, BEN.key.public_key(), DRAW)
    with pytest.raises(RemoteProtocolError):
        unwrapped(content, POOL, BEN.key)


OLD, NEW = b"old" * 11, b"new" * 11
MEMBERS = [person.node_id for person in crowd(5)]


def test_s28_members_know_each_other_by_a_token_that_says_nothing():
    token = recognition_token(NEW, BEN.node_id, "a1b2c3d4", 7420)
    assert len(token) == TOKEN_LENGTH
    assert token.isalnum()
    assert BEN.node_id[:4] not in token
    assert recognised(token, "a1b2c3d4", 7420, [NEW, OLD], MEMBERS) == BEN.node_id


def test_s28_a_token_of_another_start_is_another_one():
    tokens = {
        recognition_token(NEW, BEN.node_id, run, port)
        for run in ("a1b2c3d4", "e5f6a7b8")
        for port in (7420, 7421)
    }
    assert len(tokens) == 4


def test_s28_a_pc_that_slept_through_a_change_of_the_secret_is_recognised():
    token = recognition_token(OLD, BEN.node_id, "a1b2c3d4", 7420)
    assert recognised(token, "a1b2c3d4", 7420, [NEW, OLD], MEMBERS) == BEN.node_id
    assert recognised(token, "a1b2c3d4", 7420, [NEW], MEMBERS) is None


@pytest.mark.parametrize(
    ("run_id", "port", "members"),
    [("other", 7420, MEMBERS), ("a1b2c3d4", 1, MEMBERS), ("a1b2c3d4", 7420, MEMBERS[:1])],
)
def test_a_token_that_was_moved_or_of_somebody_else_is_a_strangers(run_id, port, members):
    token = recognition_token(NEW, BEN.node_id, "a1b2c3d4", 7420)
    assert recognised(token, run_id, port, [NEW], members) is None
    assert recognised("é" * 13, run_id, port, [NEW], [NodeId("x")]) is None
