"""Rosters that meet: who is believed, what counts, and that nobody removed ever comes back."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import NotTrustedError, UsageError
from engine.pool import roster_changes
from engine.pool.roster import appoint, decode_roster, sign_roster
from engine.pool.roster_changes import (
    add_member,
    appoint_owner,
    found_pool,
    remove_member,
    rename_member,
    sign_all_known,
)
from engine.pool.roster_merge import (
    MAX_LEAP,
    KnownRoster,
    decode_known,
    encode_known,
    known_from,
    learn,
)
from engine.transport.certificates import point_of
from tests.unit.pool.people import POOL, crowd, entropy, pool_of

ANNA, BEN, CARL, DORA, EVE, FAY, GUS, HAL = crowd(8)
DRAW = entropy(11)


def members(known):
    return {member.node_id for member in known.members}


def ids(*people):
    return {person.node_id for person in people}


def add(known, owner, newcomer, role="member"):
    return add_member(known, owner, newcomer.certificate, "new", role, DRAW)


def remove(known, owner, who):
    return remove_member(known, owner, who.node_id, DRAW)


def owners_of(*people):
    """A pool of owners."""
    return pool_of(*people, role="owner")


def renamed_twice(known, owner):
    """A roster two versions later."""
    for name in "bc":
        known = rename_member(known, owner, owner.node_id, name, DRAW)
    return known


# ---- in order ----------------------------------------------------------------------------------


def test_a_newer_roster_replaces_an_older_one_and_the_older_one_is_no_news():
    old = pool_of(ANNA, BEN)
    new = add(old, ANNA, CARL)
    learned = learn(old, new.roster)
    assert (learned.known.roster, learned.is_news, learned.is_incomplete) == (
        new.roster,
        True,
        False,
    )
    again = learn(learned.known, old.roster)
    assert (again.known.roster, again.is_news, again.is_incomplete) == (new.roster, False, False)


def test_the_same_roster_is_no_news():
    known = pool_of(ANNA, BEN)
    assert learn(known, decode_roster(known.roster.signed)).is_news is False


def test_a_pc_that_slept_through_everything_believes_the_owner_of_an_owner():
    """It knows one owner; that one appointed another, who removed the first and appointed more."""
    held = pool_of(ANNA, BEN, CARL)
    later = appoint_owner(held, ANNA, BEN.node_id, DRAW)
    later = remove(later, BEN, ANNA)
    later = add(later, BEN, DORA, "owner")
    later = remove(later, DORA, BEN)
    later = rename_member(later, DORA, CARL.node_id, "still here", DRAW)
    learned = learn(held, later.roster)
    assert members(learned.known) == ids(CARL, DORA)
    assert learned.known.roster.secret_for(CARL) == later.roster.secret_for(DORA)


# ---- who may sign ------------------------------------------------------------------------------


def test_a_roster_of_another_pool_is_refused():
    with pytest.raises(NotTrustedError, match="another pool"):
        learn(pool_of(ANNA, BEN), found_pool(ANNA, "x", "z" * 20, DRAW).roster)


def test_s07_a_roster_that_a_stranger_signed_is_refused():
    known = pool_of(ANNA, BEN)
    with pytest.raises(NotTrustedError, match=EVE.node_id):
        learn(known, found_pool(EVE, "x", POOL, DRAW).roster)


def taken_over(known, thief, **fields):
    """A roster in which somebody who is no owner made itself one, and signed it."""
    content = known.roster.content
    entries = {m.node_id: m.entry for m in known.roster.members}
    own = msgspec.structs.replace(entries[thief.node_id], role="owner")
    own_point = point_of(thief.key.public_key())
    appointments = {o.node_id: o.entry for o in known.roster.owners}
    appointments[thief.node_id] = fields.pop("appointment", None) or appoint(own_point, POOL, thief)
    entries[thief.node_id] = own
    changed = msgspec.structs.replace(
        content,
        version=content.version + 1,
        signer=thief.node_id,
        members=tuple(entries[node_id] for node_id in sorted(entries)),
        appointments=tuple(appointments[node_id] for node_id in sorted(appointments)),
    )
    return sign_roster(changed, thief)


def test_s07_a_member_that_makes_itself_an_owner_is_refused():
    known = pool_of(ANNA, BEN)
    with pytest.raises(NotTrustedError):
        learn(known, taken_over(known, BEN))


def test_s07_an_appointment_of_another_pool_or_another_pc_makes_no_owner():
    known = pool_of(ANNA, BEN)
    point = point_of(BEN.key.public_key())
    elsewhere = appoint(point, "z" * 20, ANNA)
    of_carl = msgspec.structs.replace(
        appoint(point_of(CARL.key.public_key()), POOL, ANNA), point=point
    )
    claimed = msgspec.structs.replace(appoint(point, POOL, BEN), by=ANNA.node_id)
    for appointment in (elsewhere, of_carl, claimed):
        with pytest.raises(NotTrustedError):
            learn(known, taken_over(known, BEN, appointment=appointment))


def test_s25_what_a_removed_owner_signs_is_refused_however_new_it_says_it_is():
    before = owners_of(ANNA, BEN, CARL)
    known = remove(before, ANNA, BEN)
    theirs = before
    for _ in range(5):
        theirs = rename_member(theirs, BEN, BEN.node_id, "me", DRAW)
    assert theirs.roster.content.version > known.roster.content.version
    with pytest.raises(NotTrustedError, match=BEN.node_id):
        learn(known, theirs.roster)


def test_s25_nor_can_a_removed_owner_appoint_somebody_who_signs():
    before = owners_of(ANNA, BEN, CARL)
    known = remove(before, ANNA, BEN)
    theirs = rename_member(add(before, BEN, EVE, "owner"), EVE, EVE.node_id, "hello", DRAW)
    with pytest.raises(NotTrustedError, match=EVE.node_id):
        learn(known, theirs.roster)


def test_s25_a_removal_that_lost_to_a_newer_roster_still_ends_its_owners_say():
    """CARL's roster counts and has BEN as an owner; ANNA's older one removed BEN."""
    before = owners_of(ANNA, BEN, CARL)
    removed = remove(before, ANNA, BEN)
    known = learn(removed, renamed_twice(before, CARL).roster).known
    assert known.roster.member(BEN.node_id).is_owner
    theirs = renamed_twice(renamed_twice(before, BEN), BEN)
    with pytest.raises(NotTrustedError, match=BEN.node_id):
        learn(known, theirs.roster)


def test_a_version_far_beyond_is_refused():
    known = pool_of(ANNA, BEN)
    far = sign_roster(
        msgspec.structs.replace(
            known.roster.content, version=known.roster.content.version + MAX_LEAP + 1
        ),
        ANNA,
    )
    with pytest.raises(NotTrustedError, match="far beyond"):
        learn(known, far)


# ---- removals stay -----------------------------------------------------------------------------


def test_s25_an_older_roster_does_not_bring_back_who_was_removed():
    old = pool_of(ANNA, BEN, CARL)
    known = remove(old, ANNA, BEN)
    assert BEN.node_id not in members(learn(known, old.roster).known)


def test_s25_a_newer_roster_by_somebody_who_does_not_know_does_not_either():
    both = owners_of(ANNA, BEN, CARL, DORA)
    removed = remove(both, ANNA, CARL)
    other = rename_member(
        rename_member(both, BEN, BEN.node_id, "b", DRAW), BEN, BEN.node_id, "c", DRAW
    )
    assert other.roster.order > removed.roster.order
    for known, offered in ((removed, other.roster), (other, removed.roster)):
        learned = learn(known, offered)
        assert learned.known.roster is other.roster
        assert members(learned.known) == ids(ANNA, BEN, DORA)
        assert learned.is_incomplete
        assert learned.known.member(CARL.node_id) is None


def test_s25_an_owner_that_learns_of_a_removal_signs_it_with_a_new_secret():
    both = owners_of(ANNA, BEN, CARL, DORA)
    removed = remove(both, ANNA, CARL)
    other = rename_member(
        rename_member(both, BEN, BEN.node_id, "b", DRAW), BEN, BEN.node_id, "c", DRAW
    )
    signed = sign_all_known(learn(other, removed.roster), BEN, DRAW)
    assert signed.roster.removed == ids(CARL)
    assert members(signed) == ids(ANNA, BEN, DORA)
    secrets = {known.roster.secret_for(DORA) for known in (both, removed, other, signed)}
    assert len(secrets) == 3  # both and other have one secret, and CARL knows it


def test_s25_a_removal_reaches_an_owner_through_a_member_though_a_newer_roster_lacks_it():
    """Anna removes Carl, tells Dora alone, and is gone; Ben renames meanwhile and hears of nobody.

    Dora may sign nothing, and holds Ben's newer roster: what it tells must have the removal.
    """
    four = add(add(owners_of(ANNA, BEN), ANNA, CARL), ANNA, DORA)
    removed, other = remove(four, ANNA, CARL), renamed_twice(four, BEN)
    for heard in ((removed, other), (other, removed)):
        dora = four
        for one in heard:
            dora = learn(dora, one.roster).known
        assert dora.roster is other.roster
        assert dora.proofs == (removed.roster,)
        again = decode_known(encode_known(dora))
        assert (again.all_signed, again.removed) == (dora.all_signed, dora.removed)
        ben = other
        for signed in again.all_signed:
            learned = learn(ben, decode_roster(signed))
            ben = learned.known
            if learned.is_incomplete:
                ben = sign_all_known(learned, BEN, DRAW)
        assert members(ben) == ids(ANNA, BEN, DORA)
        assert ben.proofs == ()
        settled = learn(dora, ben.roster).known
        assert (settled.proofs, settled.removed) == ((), ids(CARL))


def test_s25_as_few_rosters_are_kept_for_their_removals_as_say_them_all():
    pool = owners_of(ANNA, BEN)
    for person in (CARL, DORA, EVE):
        pool = add(pool, ANNA, person)
    newest = renamed_twice(renamed_twice(renamed_twice(pool, BEN), BEN), BEN)
    known, said = newest, []
    removing = pool
    for person in (CARL, DORA, EVE):
        removing = remove(removing, ANNA, person)
        said.append(removing.roster)
        known = learn(known, removing.roster).known
    assert known.roster is newest.roster
    assert known.proofs == (said[-1],)
    assert members(known) == ids(ANNA, BEN)


# ---- side by side ------------------------------------------------------------------------------


def test_two_owners_who_add_at_once_lose_nobody():
    both = owners_of(ANNA, BEN)
    one, two = add(both, ANNA, CARL), add(both, BEN, DORA)
    learned = [learn(one, two.roster), learn(two, one.roster)]
    assert learned[0].known.roster.digest == learned[1].known.roster.digest
    assert all(each.is_incomplete for each in learned)
    signed = [
        sign_all_known(each, owner, DRAW) for each, owner in zip(learned, (ANNA, BEN), strict=True)
    ]
    for known in signed:
        assert members(known) == ids(ANNA, BEN, CARL, DORA)
        assert known.roster.secret_for(CARL) == known.roster.secret_for(DORA)
    met = [learn(signed[0], signed[1].roster), learn(signed[1], signed[0].roster)]
    assert met[0].known.roster.digest == met[1].known.roster.digest
    assert not any(each.is_incomplete for each in met)  # and nobody signs again


def test_of_two_names_given_at_once_one_stays_and_it_is_the_same_everywhere():
    both = owners_of(ANNA, BEN)
    one = rename_member(both, ANNA, BEN.node_id, "one", DRAW)
    two = rename_member(both, BEN, BEN.node_id, "two", DRAW)
    ends = []
    for known, offered, owner in ((one, two, ANNA), (two, one, BEN)):
        learned = learn(known, offered.roster)
        signed = sign_all_known(learned, owner, DRAW) if learned.is_incomplete else learned.known
        ends.append(signed.member(BEN.node_id).entry.name)
    assert ends[0] == ends[1]


def test_a_name_that_an_owner_got_is_not_lost_to_a_newer_roster():
    both = owners_of(ANNA, BEN, CARL)
    one = rename_member(both, ANNA, BEN.node_id, "new name", DRAW)
    two = both
    for name in "xyz":
        two = rename_member(two, BEN, CARL.node_id, name, DRAW)
    signed = sign_all_known(learn(two, one.roster), BEN, DRAW)
    names = {member.node_id: member.entry.name for member in signed.members}
    assert (names[BEN.node_id], names[CARL.node_id]) == ("new name", "z")
    assert signed.roster.secret_for(CARL) == both.roster.secret_for(ANNA)


def test_two_owners_who_appoint_and_rename_at_once_keep_the_owner():
    both = owners_of(ANNA, BEN)
    both = add(both, ANNA, CARL)
    one = appoint_owner(both, ANNA, CARL.node_id, DRAW)
    two = both
    for name in "xyz":
        two = rename_member(two, BEN, CARL.node_id, name, DRAW)
    signed = sign_all_known(learn(two, one.roster), BEN, DRAW)
    assert signed.member(CARL.node_id).is_owner
    assert members(add(signed, CARL, DORA)) == ids(ANNA, BEN, CARL, DORA)


def test_a_member_can_not_sign_what_two_owners_said():
    both = owners_of(ANNA, BEN)
    both = add(both, ANNA, CARL)
    learned = learn(add(both, ANNA, DORA), add(both, BEN, EVE).roster)
    with pytest.raises(NotTrustedError):
        sign_all_known(learned, CARL, DRAW)


def test_more_than_a_pool_holds_is_said_and_both_keep_what_counts(monkeypatch):
    monkeypatch.setattr(roster_changes, "MAX_MEMBERS", 3)
    both = owners_of(ANNA, BEN)
    learned = learn(add(both, ANNA, CARL), add(both, BEN, DORA).roster)
    with pytest.raises(UsageError, match="3 PCs"):
        sign_all_known(learned, ANNA, DRAW)


def test_s25_owners_who_remove_each_other_are_both_out_for_whoever_hears_both():
    three = owners_of(ANNA, BEN, CARL)
    one, two = remove(three, ANNA, BEN), remove(three, BEN, ANNA)
    known = learn(three, one.roster).known
    with pytest.raises(NotTrustedError):
        learn(known, two.roster)  # the first that was heard counts, and the other is no owner
    assert members(known) == ids(ANNA, CARL)


# ---- any order, any loss -------------------------------------------------------------------------


@dataclass
class Pc:
    """One PC, and what it knows; None before it joined."""

    identity: object
    known: KnownRoster | None = None

    @property
    def is_in(self):
        return self.known is not None and self.known.member(self.identity.node_id) is not None

    @property
    def is_owner(self):
        return self.is_in and self.known.member(self.identity.node_id).is_owner

    def trusts(self, other):
        return self.is_in and self.known.member(other.identity.node_id) is not None

    def hear(self, roster):
        try:
            learned = learn(self.known, roster)
        except NotTrustedError:
            return False
        self.known = learned.known
        if learned.is_incomplete and self.is_owner:
            self.known = sign_all_known(learned, self.identity, DRAW)
            return True
        return learned.is_news


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "rename", "appoint", "remove", "hear", "hear", "hear"]),
        st.integers(0, 6),
        st.integers(0, 6),
    ),
    max_size=30,
)


def act(pcs, action, actor, target):
    if action == "hear":
        if actor.trusts(target) and target.is_in:
            actor.hear(target.known.roster)
        return
    if not actor.is_owner:
        return
    own, node_id = actor.identity, target.identity.node_id
    if action == "add" and target.known is None:
        if node_id not in actor.known.removed:
            role = "owner" if pcs.index(target) % 2 else "member"
            actor.known = add_member(
                actor.known, own, target.identity.certificate, "new", role, DRAW
            )
            target.known = known_from(actor.known.roster)
    elif actor is target or actor.known.member(node_id) is None:
        return
    elif action == "rename":
        actor.known = rename_member(actor.known, own, node_id, f"by {own.node_id[:4]}", DRAW)
    elif action == "appoint":
        actor.known = appoint_owner(actor.known, own, node_id, DRAW)
    elif action == "remove" and not target.is_owner:
        actor.known = remove_member(actor.known, own, node_id, DRAW)


def all_talk(pcs):
    """Let everybody hear everybody it trusts and that trusts it; return whether it was news."""
    pairs = [(a, b) for a in pcs for b in pcs if a is not b]
    news = [a.hear(b.known.roster) for a, b in pairs if a.trusts(b) and b.trusts(a)]
    return any(news)


@given(ACTIONS)
@settings(max_examples=80, deadline=None)
def test_whatever_happens_everybody_agrees_in_the_end_and_nobody_removed_is_back(actions):
    pcs = [Pc(person) for person in crowd(7)]
    pcs[0].known = found_pool(pcs[0].identity, "founder", POOL, DRAW)
    ever_removed = set()
    for action, actor, target in actions:
        act(pcs, action, pcs[actor], pcs[target])
        for pc in pcs:
            if pc.known is not None:
                assert pc.known.roster.removed <= pc.known.removed
                assert not {m.node_id for m in pc.known.members} & pc.known.removed
                ever_removed |= pc.known.removed
    for _ in range(12):
        if not all_talk(pcs):
            break
    assert not all_talk(pcs)
    staying = [pc for pc in pcs if pc.is_in and pc.identity.node_id not in ever_removed]
    assert pcs[0] in staying
    assert len({pc.known.roster.digest for pc in staying}) == 1
    assert not members(staying[0].known) & ever_removed
    assert len({pc.known.roster.secret_for(pc.identity) for pc in staying}) == 1
