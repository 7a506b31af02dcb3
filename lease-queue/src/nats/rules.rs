//! What each operation makes of a record: no waiting, no network.

use std::time::Duration;

use lease_core::{
    AcquireOutcome, FenceWhen, Granted, Key, KeyState, Label, LostCause, Moment, Owner,
    RefusedReason, TakenOver, Token, TokenRule, Ttl,
};

use super::line::keeps_out;
use super::record::{Grant, Nonce, Record, Standing, Why};
use super::sight::View;

/// What comes of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step<T> {
    /// This, without a change.
    Answer(T),
    /// This, once the record was replaced by the other.
    Write(Box<Record>, T),
    /// This, and for a place in line the record is to be replaced; where it cannot be, it
    /// costs the place and no more.
    Join(Box<Record>, T),
    /// This, once the record was replaced by the other, which may wait for its turn.
    Leave(Box<Record>, T),
    /// The record is to be written again, so that the server's stamp tells which places
    /// are over; and then another look. This if it cannot be.
    Stamp(Box<Record>, T),
}

/// One try of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    /// When its caller asked.
    pub(super) asked: Moment,
    /// Of what it writes.
    pub(super) nonce: Nonce,
}

/// What came of a renewal or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Done,
    /// Released by its owner before.
    Before,
    Lost(LostCause),
}

/// An acquire's part that is not its key.
#[derive(Clone, Debug)]
pub(super) struct Ask<'a> {
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    pub(super) label: &'a Label,
    pub(super) rule: TokenRule,
    /// Within what time a waiter asks again.
    pub(super) waits: Option<Duration>,
    /// How large a message the server takes, in bytes.
    pub(super) max_payload: usize,
}

pub(super) fn acquire(view: &View, ask: &Ask<'_>, this: Try) -> Step<AcquireOutcome> {
    use AcquireOutcome::{Granted as Yes, Held, Refused};
    match view.record.is_gone(ask.owner) {
        Some(Why::Abandoned) => return Step::Answer(Refused(RefusedReason::Abandoned)),
        Some(Why::Revoked) => return Step::Answer(Refused(RefusedReason::Revoked)),
        None => {}
    }
    if let Some(grant) = view.grant()
        && view.blocks()
    {
        if grant.owner != ask.owner {
            let held = Held(view.holder(grant));
            let joined = ask.waits.and_then(|waits| {
                let mut line = view.line();
                line.joins(ask, waits, this.nonce).then_some(line.places)
            });
            return match joined {
                Some(line) => Step::Join(Box::new(view.with(line)), held),
                None => Step::Answer(held),
            };
        }
        return again(view, grant, ask, this);
    }
    let token = match next_token(ask.rule, view.record.mark) {
        Ok(token) => token,
        Err(reason) => return Step::Answer(Refused(reason)),
    };
    if let Some(step) = keeps_out(view, ask, this.nonce) {
        return step;
    }
    let taken_over = view
        .grant()
        .filter(|last| last.standing != Standing::Released)
        .map(|last| TakenOver {
            label: last.label.clone(),
            token: last.token,
        });
    let mut line = view.line();
    line.is_served(ask.owner);
    let mut record = Box::new(view.with(line.places));
    record.mark = Some(token);
    record.grant = Some(Grant {
        owner: ask.owner,
        token,
        label: ask.label.clone(),
        stamp: this.nonce,
        lasts_ms: ask.ttl.as_millis(),
        standing: Standing::Granted,
    });
    let granted = Granted {
        taken_over,
        ..Granted::new(token)
    };
    Step::Write(record, Yes(granted))
}

/// The owner of a grant that stands asks for it again.
fn again(view: &View, grant: &Grant, ask: &Ask<'_>, this: Try) -> Step<AcquireOutcome> {
    use AcquireOutcome::{Granted as Yes, Refused};
    if grant.standing != Standing::Granted {
        return Step::Answer(Refused(RefusedReason::Revoked));
    }
    let mut token = grant.token;
    if let TokenRule::Exactly(exactly) = ask.rule {
        if let Some(high_water) = view.record.mark
            && exactly < high_water
        {
            return Step::Answer(Refused(RefusedReason::BelowMark { high_water }));
        }
        token = exactly;
    }
    if token == grant.token && view.lasts_from(this.asked, ask.ttl) {
        return Step::Answer(Yes(Granted::new(token)));
    }
    let mut record = view.draft();
    record.mark = record.mark.max(Some(token));
    if let Some(own) = &mut record.grant {
        own.token = token;
        own.stamp = this.nonce;
        own.lasts_ms = ceil_ms(view.remaining()).max(ask.ttl.as_millis());
    }
    Step::Write(record, Yes(Granted::new(token)))
}

pub(super) fn renew(
    view: &View,
    (owner, token): (Owner, Token),
    ttl: Ttl,
    this: Try,
) -> Step<Kept> {
    if let Err(cause) = view.exact(owner, token) {
        return Step::Answer(Kept::Lost(cause));
    }
    if view.lasts_from(this.asked, ttl) {
        return Step::Answer(Kept::Done);
    }
    let mut record = view.draft();
    if let Some(own) = &mut record.grant {
        own.stamp = this.nonce;
        own.lasts_ms = ceil_ms(view.remaining()).max(ttl.as_millis());
    }
    Step::Write(record, Kept::Done)
}

pub(super) fn release(view: &View, owner: Owner, token: Token, this: Try) -> Step<Kept> {
    match view.exact(owner, token) {
        Ok(()) => {}
        Err(LostCause::Released) if view.grant().is_some_and(|g| g.owner == owner) => {
            return Step::Answer(Kept::Before);
        }
        Err(cause) => return Step::Answer(Kept::Lost(cause)),
    }
    let mut record = view.draft();
    if let Some(own) = &mut record.grant {
        own.stamp = this.nonce;
        own.standing = Standing::Released;
    }
    Step::Write(record, Kept::Done)
}

/// Gives owners up, and answers which. Writes even where nothing is to be freed: a request
/// of theirs that is under way expects the revision that this replaces.
pub(super) fn abandon(view: &View, owners: Vec<Owner>, this: Try) -> Step<Vec<Owner>> {
    let own = view.grant().is_some_and(|g| owners.contains(&g.owner)) && view.blocks();
    let mut record = view.draft();
    let waiting = record.line.len();
    record.line.retain(|place| !owners.contains(&place.owner));
    let mut gone = owners.iter().map(|owner| view.record.is_gone(*owner));
    if gone.all(|gone| gone.is_some()) && !own && record.line.len() == waiting {
        return Step::Answer(owners);
    }
    for owner in &owners {
        record.forbid(*owner, Why::Abandoned);
    }
    if own && let Some(grant) = &mut record.grant {
        grant.stamp = this.nonce;
        grant.standing = Standing::Released;
        return Step::Write(record, owners);
    }
    Step::Leave(record, owners)
}

/// The line stays as it is.
pub(super) fn fence(view: &View, at_least: Token, when: FenceWhen, this: Try) -> Step<Token> {
    let mark = view.record.mark.map_or(at_least, |mark| mark.max(at_least));
    let mut record = view.draft();
    record.mark = Some(mark);
    if let Some(grant) = &mut record.grant
        && view.blocks()
        && grant.token < mark
    {
        grant.standing = Standing::Revoked;
        if when == FenceWhen::Immediately {
            grant.stamp = this.nonce;
            grant.lasts_ms = 0;
        }
        let owner = grant.owner;
        record.forbid(owner, Why::Revoked);
    }
    let (old, new) = (&view.record, &record);
    match old.mark == new.mark && old.gone == new.gone && old.grant == new.grant {
        true => Step::Answer(mark),
        false => Step::Write(record, mark),
    }
}

pub(super) fn state(view: &View, key: &Key) -> KeyState {
    KeyState {
        key: key.clone(),
        high_water: view.record.mark,
        holder: view
            .grant()
            .filter(|_| view.is_live())
            .map(|grant| view.holder(grant)),
        blocked_for: (view.blocks() && !view.is_live()).then(|| view.remaining()),
    }
}

/// Whether somebody may be granted what this record is of, by what was just written:
/// that one more waits is no news to those who do.
pub(super) fn may_be_free(record: &Record) -> bool {
    let over = |grant: &Grant| grant.standing == Standing::Released || grant.lasts_ms == 0;
    !record.is_a_place() && record.grant.as_ref().is_none_or(over)
}

/// There is no clock in it: see the guarantees for what that means.
fn next_token(rule: TokenRule, mark: Option<Token>) -> Result<Token, RefusedReason> {
    match rule {
        TokenRule::Exactly(token) => match mark {
            Some(high_water) if token <= high_water => Err(RefusedReason::BelowMark { high_water }),
            _ => Ok(token),
        },
        TokenRule::Next { after } => match mark.max(after) {
            None => Ok(Token::MIN),
            Some(last) => last.next().ok_or(RefusedReason::TokensExhausted),
        },
    }
}

fn ceil_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
