//! The contract between a store and everything above it.
//!
//! Implement [`LeaseBackend`] and run the conformance suite against it; that
//! suite, not this page, is the last word. `Leases` turns any
//! implementation into what an application uses.
//!
//! # To be correct, every operation
//! * is atomic at the store, has exactly one point at which it takes effect,
//!   and checks the owner *there*, never by reading first and writing later;
//! * takes one round trip in the usual case;
//! * judges time by **the store's clock** only;
//! * answers [`StoreErrorKind::UnknownOutcome`] when it may have taken effect
//!   and no answer says so, and [`StoreErrorKind::Unavailable`] only when it
//!   certainly had none;
//! * may be dropped at any `.await`: the request may or may not take effect
//!   then, and nothing else (a connection, a later request of another caller)
//!   is harmed. Callers above clean up with [`LeaseBackend::abandon`];
//! * does not retry behind the caller's back unless the retry cannot take
//!   effect twice, and never panics on what a server answers.
//!
//! [`StoreErrorKind::UnknownOutcome`]: crate::StoreErrorKind::UnknownOutcome
//! [`StoreErrorKind::Unavailable`]: crate::StoreErrorKind::Unavailable

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::diagnosis::Diagnosis;
use crate::error::{InvalidInput, StoreError};
use crate::guarantees::Guarantees;
use crate::key::{Key, Label};
use crate::owner::Owner;
use crate::rounded::Rounded;
use crate::token::{Token, TokenRule};
use crate::ttl::Ttl;

/// How long a store remembers an abandoned owner unless configured otherwise:
/// longer than any request can still be under way.
pub const TOMBSTONE_RETENTION: Duration = Duration::from_secs(600);

/// What [`LeaseBackend::acquire`] asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    /// The key.
    pub key: Key,
    /// This acquisition's owner.
    pub owner: Owner,
    /// How long the grant lasts.
    pub ttl: Ttl,
    /// For people.
    pub label: Label,
    /// Which token.
    pub rule: TokenRule,
    /// Whether whoever asks waits for the key: it asks again, as the same owner, within
    /// this time at the latest, until it is granted or abandons the owner. `None`: it
    /// does not wait. Only a store that serves waiters
    /// [in order](crate::WaiterOrder::Fifo) looks at it.
    pub waits: Option<Duration>,
}

/// Who holds a key, as a store sees it: hints for people, not promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The holder's label.
    pub label: Label,
    /// The holder's token.
    pub token: Token,
    /// How long ago the grant was made, by the store's clock.
    pub age: Duration,
    /// How long it still lasts, by the store's clock.
    pub remaining: Duration,
}

/// What [`LeaseBackend::acquire`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The key is this owner's.
    Granted(Granted),
    /// Another owner's grant stands in the way: it is live, or it was revoked
    /// and its holder may not have learnt of that yet.
    ///
    /// To a request that does not wait, a store with waiters
    /// [in line](crate::WaiterOrder::Fifo) answers the same for a free key that is kept for
    /// them: with the label of the first, how long it has waited, the key's mark for a
    /// token, and how long it takes until the key goes to anybody.
    Held(Holder),
    /// Not now, or not ever, and not because somebody holds it.
    Refused(RefusedReason),
}

/// A grant, as the store made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token.
    pub token: Token,
    /// Whose grant ended without a release right before this one, as far as
    /// the store can tell: it expired or was revoked. A hint for people.
    pub taken_over: Option<TakenOver>,
    /// The store asked its server more than once, and an earlier copy of the
    /// request may still be under way. Whoever ends the grant abandons its owner as
    /// well, so that the copy grants nothing later. (A store that asked more than
    /// once and was not granted the key answers with an unknown outcome.)
    pub repeated: bool,
}

impl Granted {
    /// A grant that took nothing over.
    #[must_use]
    pub const fn new(token: Token) -> Self {
        Self {
            token,
            taken_over: None,
            repeated: false,
        }
    }
}

/// Whose grant ended without a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// The former holder's label.
    pub label: Label,
    /// The former holder's token.
    pub token: Token,
}

/// Why a store refuses to grant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedReason {
    /// `Exactly(T)` stands below the key's high-water mark.
    BelowMark {
        /// The mark.
        high_water: Token,
    },
    /// This owner was abandoned.
    Abandoned,
    /// This owner's grant was revoked.
    Revoked,
    /// The store started anew and may have forgotten grants that are still
    /// believed in; it grants again after `remaining`.
    Quarantine {
        /// How long it goes on.
        remaining: Duration,
    },
    /// The key's tokens are used up.
    TokensExhausted,
    /// The key is free, and kept for those who are ahead
    /// [in line](crate::WaiterOrder::Fifo). Whoever asked has a place.
    InLine {
        /// How many they are.
        ahead: u64,
        /// When it is the turn of whoever asked, if none of them comes.
        remaining: Duration,
    },
}

impl fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BelowMark { high_water } => {
                write!(f, "the token stands below the high-water mark {high_water}")
            }
            Self::Abandoned => f.write_str("this owner was abandoned"),
            Self::Revoked => f.write_str("this owner's grant was revoked"),
            Self::Quarantine { remaining } => write!(
                f,
                "the store has started anew, may have forgotten grants, and grants nothing for another \
                 {}",
                Rounded(*remaining)
            ),
            Self::TokensExhausted => f.write_str("the key's fencing tokens are used up"),
            Self::InLine { ahead, remaining } => write!(
                f,
                "the key is kept for those who wait in line ({ahead} ahead) for another {}",
                Rounded(*remaining)
            ),
        }
    }
}

/// One grant, for [`renew`](LeaseBackend::renew).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewRequest {
    /// The key.
    pub key: Key,
    /// The grant's owner.
    pub owner: Owner,
    /// The grant's token.
    pub token: Token,
    /// How long it shall last from now on.
    pub ttl: Ttl,
}

/// A client's session with its store, by its number: each is above the one before
/// it. See [`LeaseBackend::ping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(u64);

impl Session {
    /// Of a store without sessions, and of a client that has none yet.
    pub const NONE: Self = Self(0);

    /// The session of this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What [`LeaseBackend::renew`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The grant is live and lasts at least the TTL from now on.
    Renewed,
    /// The grant is not live, and this renewal changed nothing.
    Lost(LostCause),
}

/// Why a grant is no longer live, as far as the store can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// Its time ran out, and nobody has taken the key since.
    Expired,
    /// Somebody else has the key, or had it since.
    TakenOver,
    /// It was released or abandoned.
    Released,
    /// It was revoked by a fence.
    Revoked,
    /// The store knows no such grant (any more).
    Unknown,
}

impl LostCause {
    /// A stable word for logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TakenOver => "taken_over",
            Self::Released => "released",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "it expired",
            Self::TakenOver => "somebody else took the key over",
            Self::Released => "it was released",
            Self::Revoked => "it was revoked by a fence",
            Self::Unknown => "the store knows no such grant",
        })
    }
}

/// What [`LeaseBackend::release`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The grant was live and the key is free now.
    Released,
    /// Exactly this grant is not live; nothing was changed.
    NotHeld,
}

/// When a fence frees the key of a grant that it revokes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum FenceWhen {
    /// At the grant's old expiry, so that its holder has learnt of it: at most
    /// one believes at any time.
    #[default]
    AtExpiry,
    /// At once: two may believe for a moment, and only the token protects.
    Immediately,
}

/// A key as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The key.
    pub key: Key,
    /// The highest token ever granted or honoured; `None` for a key that was
    /// never granted nor fenced.
    pub high_water: Option<Token>,
    /// The live grant's holder, if there is one.
    pub holder: Option<Holder>,
    /// How long the key stays blocked by a grant that was revoked and whose
    /// holder may not know it yet. `None` when nothing of that kind blocks it.
    pub blocked_for: Option<Duration>,
}

/// Checks the bound that every store shares for [`LeaseBackend::fence`].
///
/// # Errors
/// [`InvalidInput::FenceTooHigh`] above [`Token::MAX_FENCE`].
pub fn check_fence(at_least: Token) -> Result<(), InvalidInput> {
    if at_least > Token::MAX_FENCE {
        return Err(InvalidInput::FenceTooHigh { at_least });
    }
    Ok(())
}

/// A store of leases.
///
/// Read the module's page first: it holds what every operation must keep.
/// There are no default methods, so that a wrapper cannot lose one.
#[async_trait]
pub trait LeaseBackend: fmt::Debug + Send + Sync + 'static {
    /// Asks for the key.
    ///
    /// **Effect.** When no other owner's grant is live (or revoked and still
    /// blocking), `owner` holds the key for `ttl` from now on. Under
    /// [`TokenRule::Next`] the token is the greatest of high-water mark + 1,
    /// `after` + 1 and the store's clock in microseconds since the Unix epoch;
    /// under [`TokenRule::Exactly`] it is T, granted only if T is above the
    /// mark. The mark becomes the token.
    ///
    /// The same owner asking again while its grant is live gets the same
    /// grant, so that a retry is safe: `expires_at` becomes
    /// `max(expires_at, now + ttl)`, since a live grant is **never shortened**,
    /// and the token stays, except under `Exactly(T)` with T at least that
    /// token and no mark above T, where it becomes T.
    ///
    /// Where the guarantees say [`WaiterOrder::Fifo`](crate::WaiterOrder::Fifo), waiters
    /// are served in order, as it says there.
    ///
    /// **For correctness.** Once this returns `Granted`, the grant and the mark
    /// survive what [`guarantees`](Self::guarantees) says that they survive.
    ///
    /// **Outcomes.** `Granted`, `Held` with the holder as a hint, `Refused`
    /// with the reason.
    ///
    /// # Errors
    /// As on the module's page. A TTL outside the store's own range is
    /// `InvalidInput`.
    ///
    /// # Cancel safety
    /// A dropped call may have taken effect or may yet do so. The caller
    /// abandons the owner.
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError>;

    /// Gives an acquisition up.
    ///
    /// **Effect.** Frees any grant of this owner, whatever its token, and
    /// leaves a tombstone for the owner, **even for one never seen**, longer
    /// than any request can still be under way: an acquire of this owner that
    /// arrives later is refused and cannot block the key. An owner that waits in line
    /// leaves it.
    ///
    /// **Outcomes.** None to tell apart; idempotent.
    ///
    /// # Errors
    /// As on the module's page; retry until it succeeds or the retention has
    /// passed.
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeat it.
    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError>;

    /// Makes a live grant last longer.
    ///
    /// **Effect.** While exactly this grant (key, owner, token) is live,
    /// `expires_at` becomes `max(expires_at, now + ttl)`. An expired grant is
    /// dead: nothing brings it back, even when nobody took the key.
    ///
    /// **Outcomes.** `Renewed`; `Lost` with the cause as far as the store can
    /// tell.
    ///
    /// # Errors
    /// As on the module's page.
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeating it is safe.
    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError>;

    /// Renews many grants in one or a few round trips.
    ///
    /// **Effect.** As [`renew`](Self::renew) for each; one grant's outcome does
    /// not depend on another's.
    ///
    /// **Outcomes.** One per request, in the order of the requests.
    ///
    /// # Errors
    /// In each outcome, as [`renew`](Self::renew).
    ///
    /// # Cancel safety
    /// Any of them may have taken effect; repeating is safe.
    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>>;

    /// Frees the key if exactly this grant is live.
    ///
    /// **Effect.** The key is free at once. The high-water mark stays. Anything
    /// else (expired, taken over, revoked, released before) changes nothing.
    ///
    /// **Outcomes.** `Released`, `NotHeld`. A repeated release answers
    /// `NotHeld`.
    ///
    /// # Errors
    /// As on the module's page. Need not be durable: a lost release waits out
    /// its TTL.
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeating it is safe.
    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError>;

    /// Raises the key's high-water mark to at least `at_least`.
    ///
    /// **Effect.** Every later grant is above the mark; a live grant below it
    /// is revoked: its renewals are `Lost`, and its owner is refused from then
    /// on. The key of a revoked grant stays blocked until its old expiry or is
    /// freed at once, as `when` says; a later fence with
    /// [`FenceWhen::Immediately`] also frees a key that an earlier one left
    /// blocked. Never lowers anything.
    ///
    /// **Outcomes.** The mark after it.
    ///
    /// # Errors
    /// As on the module's page; above [`Token::MAX_FENCE`] it is
    /// `InvalidInput` ([`check_fence`]).
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeating it is safe.
    async fn fence(&self, key: &Key, at_least: Token, when: FenceWhen)
    -> Result<Token, StoreError>;

    /// Looks at one key.
    ///
    /// **Effect.** None.
    ///
    /// **Outcomes.** Its mark and, if live, its holder, by the store's clock.
    ///
    /// # Errors
    /// As on the module's page.
    ///
    /// # Cancel safety
    /// Safe.
    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError>;

    /// Every key that starts with `prefix` and has a mark, held or not.
    ///
    /// **Effect.** None; does not block the store (pages or a scan), and ends
    /// even while keys are being added. A key that stands unchanged meanwhile
    /// is given exactly once; the order is the store's own.
    ///
    /// # Errors
    /// As items of the stream, which ends after one. A store that cannot list
    /// gives one `Refusing` error and says so in its guarantees.
    ///
    /// # Cancel safety
    /// Dropping the stream ends it.
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>>;

    /// Hints that the key may be free.
    ///
    /// **Effect.** None that others can see. Returns once the subscription
    /// stands: a change after that is hinted at. A hint may be lost, late or
    /// spurious; callers also arm a timer. They go on looking while this takes its time,
    /// in a task of its own, and give it up after ten seconds: see
    /// [`Subscription`](crate::Subscription).
    ///
    /// **Outcomes.** A stream of hints, which may end at any time.
    ///
    /// # Errors
    /// As on the module's page.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream ends the subscription.
    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError>;

    /// Shows the store that this client lives, where grants end with its
    /// session.
    ///
    /// Where [`guarantees`](Self::guarantees) say
    /// [`SessionLost`](crate::CrashRelease::SessionLost), whoever holds a grant
    /// acts on it no longer than for the grace (without the drift allowance) after
    /// the **send** of the last request that was a sign of its life: the acquire or
    /// a renewal that was confirmed, or a ping that was answered with a session
    /// which a renewal sent **after** an earlier such answer has carried to the
    /// store. `Leases` sees to it.
    ///
    /// **Effect.** A session that was lost is replaced by a new one.
    ///
    /// **For correctness.** A renewal that is sent after the answer carries that
    /// session, or a later one, to its grant; and no request that arrives late
    /// carries an earlier one there any more. A lost session never comes back.
    ///
    /// **Outcomes.** The session that stood when this was sent or was made since
    /// then; [`Session::NONE`], without a round trip, from a store without any.
    ///
    /// # Errors
    /// As on the module's page. Nothing is known of the session then.
    ///
    /// # Cancel safety
    /// Safe; the session may be replaced.
    async fn ping(&self) -> Result<Session, StoreError>;

    /// What this store, as configured, promises. No round trip.
    fn guarantees(&self) -> Guarantees;

    /// Looks at the real store and says what follows for a lease of `ttl`.
    ///
    /// **Effect.** None that lasts.
    ///
    /// # Errors
    /// As on the module's page: what cannot be found out is a finding, not an
    /// error; only a store out of reach is one.
    ///
    /// # Cancel safety
    /// Safe.
    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError>;
}
