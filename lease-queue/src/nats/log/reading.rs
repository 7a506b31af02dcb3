//! The sure way out of the log: messages that are read by their sequence.

use futures_util::future::join_all;
use lease_core::StoreError;

use super::message::Mark;
use super::shared::{Shared, Taken};
use super::{Machine, snapshot};
use crate::nats::link::{Stored, Which};

/// Reads that are under way together, where messages stand close to each other.
const TOGETHER: u64 = 32;

/// What is left where the log was read to its end.
#[derive(PartialEq, Eq)]
pub(super) enum Read {
    ToTheEnd,
    /// There are more.
    On,
    /// Its end is not the one that was applied.
    Lost,
    Broken,
}

/// Reads and applies what follows in the log, so many messages and some more, and looks
/// whether they do follow.
pub(super) async fn read_some<M: Machine>(
    shared: &Shared<M>,
    most: usize,
) -> Result<Read, StoreError> {
    let (last, stamp) = shared.last();
    let (run, is_end) = read_run(shared, last.revision, most).await?;
    if !stands(shared, last, stamp).await? {
        return Ok(Read::Lost);
    }
    for stored in &run {
        match shared.take(stored, true) {
            Taken::Applied => {}
            Taken::Doubtful => return Ok(Read::Lost),
            Taken::Broken => return Ok(Read::Broken),
        }
    }
    // As it was then: others go on.
    Ok(if is_end { Read::ToTheEnd } else { Read::On })
}

/// Messages behind this one, and whether there were no more.
async fn read_run<M: Machine>(
    shared: &Shared<M>,
    last: u64,
    most: usize,
) -> Result<(Vec<Stored>, bool), StoreError> {
    let link = &shared.link;
    let (mut run, mut from, mut together) = (Vec::new(), last + 1, 1);
    while run.len() < most {
        let reads = (from..from + together)
            .map(|from| link.read(&shared.subject, Which::From(from), link.deadline()));
        let reads: Vec<_> = reads.collect();
        let before = run.len();
        for stored in join_all(reads).await {
            let Some(stored) = stored? else {
                return Ok((run, true));
            };
            // Several may have met the same one.
            if stored.revision >= from {
                from = stored.revision + 1;
                run.push(stored);
            }
        }
        let found = (run.len() - before) as u64;
        together = match found * 4 >= together {
            true => (together * 4).min(TOGETHER),
            false => 1,
        };
    }
    Ok((run, false))
}

/// Whether what was applied last is in the log, as it was stored then. Servers of a
/// cluster may not have heard of it yet.
async fn stands<M: Machine>(
    shared: &Shared<M>,
    last: Mark,
    stamp: u64,
) -> Result<bool, StoreError> {
    if last.revision == 0 {
        return Ok(true);
    }
    let deadline = shared.link.deadline();
    loop {
        if snapshot::stands(shared, last).await? == Some(stamp) {
            return Ok(true);
        }
        if !shared.link.replicated || shared.link.pause(deadline).await.is_err() {
            return Ok(false);
        }
    }
}
