//! Acquiring: shared by `run` and `acquire`, and the latter itself.

use std::sync::Arc;
use std::time::Duration;

use leases::{Attempt, CrashRelease, Error, Event, Guarantees, Key, Label, Lease, Leases, Ttl};
use tokio::time::Instant;

use crate::args::{self, Waiting};
use crate::duration::{brief, millis};
use crate::exit::{Exit, Failure};
use crate::interrupt::{ENDING, Signals, ended_by};
use crate::notices::Notices;
use crate::output::{self, GrantJson};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::run::limits::Limits;
use crate::stderr;
use crate::store::Target;

/// How long the end of a wait may take, so that nothing is left at the store.
const SETTLE: Duration = Duration::from_secs(3);
/// The same when the store has just failed to answer.
const SETTLE_UNANSWERED: Duration = Duration::from_millis(500);
/// How often a lease that has too little time left is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// A store that took long to open still gets this long for its answer.
const LEAST_ANSWER: Duration = Duration::from_millis(500);

/// What is wanted.
pub(crate) struct Wish {
    pub(crate) key: Key,
    pub(crate) ttl: Ttl,
    pub(crate) label: Label,
    pub(crate) waiting: Waiting,
    /// Between SIGTERM and SIGKILL of the command that runs under it; none of a grant
    /// that outlives this process.
    pub(crate) kill_after: Option<Duration>,
}

impl Wish {
    fn once(&self) -> bool {
        self.waiting.no_wait || self.waiting.wait == Some(Duration::ZERO)
    }
}

/// `lease acquire`.
pub(crate) async fn command(target: Target, args: args::Acquire) -> Result<Exit, Failure> {
    let wish = Wish {
        key: args.key,
        ttl: args.ttl,
        label: args.label.unwrap_or_else(Label::of_this_process),
        waiting: args.waiting,
        kill_after: None,
    };
    let Acquired { leases, lease, .. } = acquire(&target, wish).await?;
    let grant = lease.detach().map_err(Error::from)?;
    let printed = if args.form.json {
        output::print_json(&GrantJson {
            key: grant.key.as_str().to_owned(),
            owner: grant.owner.to_string(),
            token: grant.token.get(),
            ttl_ms: grant.ttl.as_millis(),
            remaining_ms: millis(grant.remaining),
        })
    } else {
        output::print(format_args!(
            "owner      {}\ntoken      {}\nremaining  {}\n",
            grant.owner,
            grant.token,
            brief(grant.remaining),
        ))
    };
    if printed.is_err() {
        // Nobody learnt the owner: nobody else could release it.
        let release = || {
            leases
                .backend()
                .release(&grant.key, grant.owner, grant.token)
        };
        let _ = Patience::new(SETTLE).ask(release).await;
    }
    printed.map(|()| Exit::Success)
}

/// What was wanted.
pub(crate) struct Acquired {
    pub(crate) leases: Leases,
    pub(crate) lease: Lease,
    pub(crate) notices: Arc<Notices>,
    /// Signals that have come too late to end the wait.
    pub(crate) signals: Signals,
}

/// Opens the store and waits for the key. A signal ends the wait, and nothing
/// is left behind at the store however it ends.
pub(crate) async fn acquire(target: &Target, wish: Wish) -> Result<Acquired, Failure> {
    let start = Instant::now();
    let mut signals = Signals::listen(&ENDING)?;
    let patience = if wish.once() {
        Patience::once()
    } else {
        Patience::new(wish.waiting.wait.unwrap_or(FIRST_ANSWER))
    };
    let store = tokio::select! {
        biased;
        signal = signals.next() => return Err(ended_by(signal)),
        store = target.open(patience) => store?,
    };
    if target.is_memory() {
        stderr::say("the store memory: excludes nobody outside this process; use another one");
    }
    let notices = Arc::new(Notices::new(wish.once()));
    let told = Arc::clone(&notices);
    let leases = store
        .leases()
        .label(wish.label.clone())
        .observer(move |event: &Event| told.observe(event))
        .build();
    let acquired = tokio::select! {
        biased;
        signal = signals.next() => Err(ended_by(signal)),
        acquired = usable(&leases, &wish, patience, start) => acquired,
    };
    match acquired {
        Ok(lease) => Ok(Acquired {
            leases,
            lease,
            notices,
            signals,
        }),
        Err(failure) => {
            let limit = match failure.exit {
                Exit::Unavailable => SETTLE_UNANSWERED,
                _ => SETTLE,
            };
            let settled = settle(&leases, limit, &mut signals).await;
            if !settled && notices.may_be_under_way() {
                stderr::say(&format!(
                    "could not tell the store that nobody waits for {:?} any more; a request may \
                     still be under way, and would block the key for {}",
                    wish.key.as_str(),
                    brief(wish.ttl.get()),
                ));
            }
            Err(failure)
        }
    }
}

/// An error where the store frees what a process acquired or renewed soon after
/// that process has ended.
pub(crate) fn outlives_us(store: &Guarantees) -> Result<(), Failure> {
    match store.crash_release {
        CrashRelease::SessionLost { .. } => Err(Failure::new(
            Exit::Usage,
            "with crash_detection a grant ends soon after the process that acquired or renewed it; \
             use `lease run`, or a URL without crash_detection",
        )),
        _ => Ok(()),
    }
}

/// A lease with enough time left on it. One that came so slowly that it was
/// lost before anything began under it is asked for again.
async fn usable(
    leases: &Leases,
    wish: &Wish,
    patience: Patience,
    start: Instant,
) -> Result<Lease, Failure> {
    // How much time must be left on the lease to be worth anything.
    let lead = match wish.kill_after {
        Some(kill_after) => Limits::of(leases, wish.ttl, kill_after).lead(),
        None => {
            outlives_us(leases.guarantees())?;
            Duration::ZERO
        }
    };
    loop {
        let lease = ask(leases, wish, patience, start).await?;
        while lease.check().is_ok() {
            if lease.remaining() > lead {
                return Ok(lease);
            }
            // Its renewal is under way.
            tokio::time::sleep(LOOK).await;
        }
        let over = wish
            .waiting
            .wait
            .is_some_and(|limit| start.elapsed() >= limit);
        if wish.waiting.no_wait || over {
            return Err(Failure::new(
                Exit::NotInTime,
                format!(
                    "{:?} was granted too slowly for a TTL of {}; use a longer one, or a faster store",
                    wish.key.as_str(),
                    brief(wish.ttl.get()),
                ),
            ));
        }
    }
}

async fn ask(
    leases: &Leases,
    wish: &Wish,
    patience: Patience,
    start: Instant,
) -> Result<Lease, Failure> {
    let acquire = leases.lease(wish.key.clone()).ttl(wish.ttl.get());
    if wish.once() {
        return match acquire.try_acquire().await? {
            Attempt::Acquired(lease) => Ok(lease),
            Attempt::Held(holder) => Err(Failure::new(
                Exit::NotInTime,
                format!(
                    "{:?} is held by {}",
                    wish.key.as_str(),
                    output::holder_words(&holder)
                ),
            )),
        };
    }
    let acquire = acquire.first_answer_within(patience.left().max(LEAST_ANSWER));
    let acquire = match wish.waiting.wait {
        Some(limit) => acquire.wait(limit.saturating_sub(start.elapsed())),
        None => acquire.wait_forever(),
    };
    Ok(acquire.acquire().await?)
}

/// Lets the clean-up of a wait that ended reach the store.
async fn settle(leases: &Leases, limit: Duration, signals: &mut Signals) -> bool {
    tokio::select! {
        report = leases.shutdown(limit) => report.settled,
        // Whoever asks twice does not want to wait.
        _ = signals.next() => false,
    }
}
