//! `lease run`: a command under a lease.

pub(crate) mod child;
mod group;
mod guard;
pub(crate) mod limits;
pub(crate) mod supervise;
mod terminal;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use leases::{Error, Label, Lease, Leases, Lost, LostCause, LostReason};

use crate::acquire::{self, Acquired, Wish};
use crate::args::{self, Work};
use crate::exit::{Exit, Failure, words};
use crate::interrupt::Signals;
use crate::notices::Notices;
use crate::stderr;
use crate::store::Target;
use child::{Child, Ended, Given};
use limits::Limits;
use supervise::{Named, Supervisor};
use terminal::Terminal;

pub(crate) use guard::{ARGUMENT as GUARD, main as guard};

/// How long the end of a command may wait for the release: a store that is out
/// of reach frees the key at its expiry anyway.
const RELEASE: Duration = Duration::from_secs(5);
/// The same once the lease is lost.
const RELEASE_LOST: Duration = Duration::from_secs(1);

pub(crate) async fn run(target: Target, mut args: args::Run) -> Result<Exit, Failure> {
    let Work { key, command } = args.work()?;
    let wish = Wish {
        key,
        ttl: args.ttl,
        label: args.label.unwrap_or_else(|| label(&command)),
        waiting: args.waiting,
        kill_after: Some(args.kill_after),
    };
    let Acquired {
        leases,
        lease,
        notices,
        signals,
    } = acquire::acquire(&target, wish).await?;
    let limits = Limits::of(&leases, args.ttl, args.kill_after);
    let ended = under(&lease, &command, target.for_child(), limits, signals).await;
    match ended {
        Ok(Outcome::Ended(ended)) => release(leases, lease, &notices, ended.exit()).await,
        Ok(Outcome::Lost | Outcome::Halted) => {
            // What it still holds at the store must not block others.
            let _ = tokio::time::timeout(RELEASE_LOST, lease.release()).await;
            Ok(Exit::Lost)
        }
        Ok(Outcome::Unkillable) => {
            // Not even by being dropped: a write of theirs may yet come.
            std::mem::forget(lease);
            Ok(Exit::Lost)
        }
        Err(failure) => {
            // Nothing ran: whatever becomes of the release, that is the news.
            let _ = release(leases, lease, &notices, failure.exit).await;
            Err(failure)
        }
    }
}

/// Which command, and where: arguments may hold secrets.
pub(crate) fn label(command: &[OsString]) -> Label {
    let program = command
        .first()
        .map(|c| Path::new(c).file_name().unwrap_or(c).to_string_lossy())
        .unwrap_or_default();
    let program: String = program.chars().take(50).collect();
    Label::lossy(&format!("{program} by {}", Label::of_this_process()))
}

/// How a command under a lease ended.
pub(crate) enum Outcome {
    /// By itself, with the lease held to the end of its whole group.
    Ended(Ended),
    /// The lease was lost, and the command is gone.
    Lost,
    /// It was stopped because somebody asked for it, with the lease held to the end.
    Halted,
    /// The lease was lost, and the command is not gone although it was killed.
    Unkillable,
}

async fn under(
    lease: &Lease,
    command: &[OsString],
    store: Option<&str>,
    limits: Limits,
    signals: Signals,
) -> Result<Outcome, Failure> {
    // Before the child is there: none of its signals may be missed.
    let signals = signals.listen_for_command()?;
    let terminal = Terminal::find();
    let child = Child::spawn(Given::under(lease, command, store), terminal.as_ref())?;
    let named = Named {
        full: format!(
            "the lease on {:?} (token {})",
            lease.key().as_str(),
            lease.token()
        ),
        short: format!("{:?}", lease.key().as_str()),
    };
    let terminal_ = terminal.as_ref();
    let mut supervisor = Supervisor::new(lease, &child, limits, terminal_, signals, named);
    let outcome = supervisor.watch().await;
    child.reap();
    if let Some(terminal) = &terminal {
        terminal.take_back(
            child.group(),
            matches!(&outcome, Outcome::Ended(e) if e.by_itself()),
        );
    }
    Ok(outcome)
}

/// Whether somebody took the key from us before the release. A grant that has
/// merely expired has done so since the command ended: the lease was good then.
fn cut_off(lost: &Lost) -> bool {
    matches!(
        lost.reason,
        LostReason::Store(LostCause::Revoked | LostCause::TakenOver)
    )
}

/// Releases after the command has ended, and says with what to exit.
async fn release(
    leases: Leases,
    lease: Lease,
    notices: &Notices,
    exit: Exit,
) -> Result<Exit, Failure> {
    let key = lease.key().clone();
    let failed = match tokio::time::timeout(RELEASE, lease.release()).await {
        Ok(Ok(_)) => None,
        Ok(Err(Error::Lost(lost))) => {
            if cut_off(&lost) {
                // The store's word: it was so while the command ran.
                return Err(Failure::new(Exit::Lost, lost.to_string()));
            }
            stderr::say(&format!(
                "{:?} was not held any more when it could be released ({}); the command had ended \
                 before its deadline",
                key.as_str(),
                lost.reason
            ));
            None
        }
        Ok(Err(error)) => Some(words(&error)),
        Err(_) => Some(notices.release_failed().map_or_else(
            || "the store does not answer".to_owned(),
            |error| words(&error),
        )),
    };
    if let Some(why) = failed {
        let key = key.as_str();
        stderr::say(&format!(
            "{key:?} could not be released ({why}); it is free when its TTL is over"
        ));
    } else {
        leases.shutdown(RELEASE_LOST).await;
    }
    Ok(exit)
}
