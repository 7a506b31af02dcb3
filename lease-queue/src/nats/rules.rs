//! What each operation makes of a record: no waiting, no network.

use std::time::Duration;

use lease_core::{
    AcquireOutcome, FenceWhen, Granted, Holder, Key, KeyState, Label, LostCause, Moment, Owner,
    RefusedReason, TakenOver, Token, TokenRule, Ttl,
};

use super::record::{Grant, Record, Standing, Why};
use super::sight::View;

/// What comes of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step<T> {
    /// This, without a change.
    Answer(T),
    /// This, once the record was replaced by the other.
    Write(Box<Record>, T),
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
}

impl View {
    fn grant(&self) -> Option<&Grant> {
        self.record.grant.as_ref()
    }

    /// How long the last grant still stands in the way; zero when it does not.
    fn remaining(&self) -> Duration {
        match self.grant() {
            Some(grant) if grant.standing != Standing::Released => {
                Duration::from_millis(grant.lasts_ms).saturating_sub(self.unchanged)
            }
            _ => Duration::ZERO,
        }
    }

    fn blocks(&self) -> bool {
        !self.remaining().is_zero()
    }

    fn is_live(&self) -> bool {
        self.blocks()
            && self
                .grant()
                .is_some_and(|g| g.standing == Standing::Granted)
    }

    /// Whether the grant lasts for as long from that moment on already, by another
    /// request of this client's own that was sent after it: copies of one request
    /// need not outdo each other.
    fn lasts_from(&self, asked: Moment, ttl: Ttl) -> bool {
        let long = self.grant().is_some_and(|g| g.lasts_ms >= ttl.as_millis());
        long && self.written.is_some_and(|sent| sent >= asked)
    }

    fn holder(&self, grant: &Grant) -> Holder {
        Holder {
            label: grant.label.clone(),
            token: grant.token,
            age: self.age,
            remaining: self.remaining(),
        }
    }

    /// The record to change. Its new revision starts every observer's time anew, so
    /// that the grant lasts from then on for what is left of it.
    fn draft(&self) -> Box<Record> {
        let mut record = self.record.clone();
        let left_ms = ceil_ms(self.remaining());
        if let Some(grant) = &mut record.grant {
            grant.lasts_ms = left_ms;
        }
        Box::new(record)
    }

    /// Whether this is the grant, live; if it is not, why.
    fn exact(&self, owner: Owner, token: Token) -> Result<(), LostCause> {
        let Some(grant) = self.grant() else {
            return Err(self.gone(owner).unwrap_or(LostCause::Unknown));
        };
        if grant.owner == owner && grant.token == token {
            return match grant.standing {
                Standing::Granted if self.blocks() => Ok(()),
                Standing::Granted => Err(LostCause::Expired),
                Standing::Released => Err(LostCause::Released),
                Standing::Revoked => Err(LostCause::Revoked),
            };
        }
        Err(self.gone(owner).unwrap_or(match grant.token > token {
            true => LostCause::TakenOver,
            false => LostCause::Unknown,
        }))
    }

    fn gone(&self, owner: Owner) -> Option<LostCause> {
        Some(match self.record.is_gone(owner)? {
            Why::Abandoned => LostCause::Released,
            Why::Revoked => LostCause::Revoked,
        })
    }
}

/// Of an acquire that was asked for at that moment.
pub(super) fn acquire(view: &View, ask: &Ask<'_>, asked: Moment) -> Step<AcquireOutcome> {
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
            return Step::Answer(Held(view.holder(grant)));
        }
        return again(view, grant, ask, asked);
    }
    let token = match next_token(ask.rule, view.record.mark) {
        Ok(token) => token,
        Err(reason) => return Step::Answer(Refused(reason)),
    };
    let taken_over = view
        .grant()
        .filter(|last| last.standing != Standing::Released)
        .map(|last| TakenOver {
            label: last.label.clone(),
            token: last.token,
        });
    let mut record = view.draft();
    record.mark = Some(token);
    record.grant = Some(Grant {
        owner: ask.owner,
        token,
        label: ask.label.clone(),
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
fn again(view: &View, grant: &Grant, ask: &Ask<'_>, asked: Moment) -> Step<AcquireOutcome> {
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
    if token == grant.token && view.lasts_from(asked, ask.ttl) {
        return Step::Answer(Yes(Granted::new(token)));
    }
    let mut record = view.draft();
    record.mark = record.mark.max(Some(token));
    if let Some(own) = &mut record.grant {
        own.token = token;
        own.lasts_ms = own.lasts_ms.max(ask.ttl.as_millis());
    }
    Step::Write(record, Yes(Granted::new(token)))
}

/// Of a renewal that was asked for at that moment.
pub(super) fn renew(
    view: &View,
    (owner, token): (Owner, Token),
    ttl: Ttl,
    asked: Moment,
) -> Step<Kept> {
    if let Err(cause) = view.exact(owner, token) {
        return Step::Answer(Kept::Lost(cause));
    }
    if view.lasts_from(asked, ttl) {
        return Step::Answer(Kept::Done);
    }
    let mut record = view.draft();
    if let Some(own) = &mut record.grant {
        own.lasts_ms = own.lasts_ms.max(ttl.as_millis());
    }
    Step::Write(record, Kept::Done)
}

pub(super) fn release(view: &View, owner: Owner, token: Token) -> Step<Kept> {
    match view.exact(owner, token) {
        Ok(()) => {}
        Err(LostCause::Released) if view.grant().is_some_and(|g| g.owner == owner) => {
            return Step::Answer(Kept::Before);
        }
        Err(cause) => return Step::Answer(Kept::Lost(cause)),
    }
    let mut record = view.draft();
    if let Some(own) = &mut record.grant {
        own.standing = Standing::Released;
    }
    Step::Write(record, Kept::Done)
}

/// Writes even where nothing is to be freed: a request of this owner that is under
/// way expects the revision that this replaces.
pub(super) fn abandon(view: &View, owner: Owner) -> Step<()> {
    let own = view.grant().is_some_and(|g| g.owner == owner) && view.blocks();
    if view.record.is_gone(owner).is_some() && !own {
        return Step::Answer(());
    }
    let mut record = view.draft();
    record.forbid(owner, Why::Abandoned);
    if own && let Some(grant) = &mut record.grant {
        grant.standing = Standing::Released;
    }
    Step::Write(record, ())
}

pub(super) fn fence(view: &View, at_least: Token, when: FenceWhen) -> Step<Token> {
    let mark = view.record.mark.map_or(at_least, |mark| mark.max(at_least));
    let mut record = view.draft();
    record.mark = Some(mark);
    if let Some(grant) = &mut record.grant
        && view.blocks()
        && grant.token < mark
    {
        grant.standing = Standing::Revoked;
        if when == FenceWhen::Immediately {
            grant.lasts_ms = 0;
        }
        let owner = grant.owner;
        record.forbid(owner, Why::Revoked);
    }
    let same = record.mark == view.record.mark
        && record.gone == view.record.gone
        && record.grant.as_ref().map(|g| (g.standing, g.lasts_ms == 0))
            == view.grant().map(|g| (g.standing, !view.blocks()));
    match same {
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

/// Whether somebody may be granted what this record is of, as it was just written.
pub(super) fn may_be_free(record: &Record) -> bool {
    record
        .grant
        .as_ref()
        .is_none_or(|grant| grant.standing == Standing::Released || grant.lasts_ms == 0)
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
