//! One look at all sentinels: what the quick ones say, and then the slow ones.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lease_core::StoreError;
use tokio::time::{Instant, sleep_until};

use super::answers::Answers;
use super::ask::{self, Answer};
use super::{Address, Care, Named, Sentinels};

/// How long the others are waited for at most, once one has named the primary.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);
/// And how long once most have, when nothing is known of a failover: a few times
/// as long as these took, and at least so long.
const GRACE: Duration = Duration::from_millis(5);
const SLOWER: u32 = 4;

/// The sentinels, while they are asked.
pub(super) struct Look<'a> {
    sentinels: &'a Sentinels,
    /// The primary before anybody was asked: what is found meanwhile may be newer
    /// than the answers.
    known: Option<Named>,
    asking: FuturesUnordered<BoxFuture<'a, Answer>>,
    answers: Answers,
    begun: Instant,
    end: Instant,
}

impl<'a> Look<'a> {
    /// Asks all of them, for so long at most.
    pub(super) fn begin(sentinels: &'a Sentinels, within: Duration) -> Self {
        let begun = Instant::now();
        let end = begun + within;
        let ask = |sentinel| -> BoxFuture<'a, Answer> {
            Box::pin(ask::primary(sentinel, &sentinels.name, end))
        };
        Self {
            sentinels,
            known: sentinels.news.borrow().clone(),
            asking: sentinels.all.iter().map(ask).collect(),
            answers: Answers::of(sentinels.all.len()),
            begun,
            end,
        }
    }

    /// The primary by what all of them say, or those who are not too slow.
    ///
    /// # Errors
    /// As of [`Sentinels::primary`].
    ///
    /// # Cancel safety
    /// Safe: it only asks.
    pub(super) async fn first(&mut self, care: Care) -> Result<Address, StoreError> {
        self.hear(care).await;
        self.settle().await
    }

    /// Hears those who were too slow, until each has answered or the time is over.
    /// One that names a newer primary is followed at once, although nobody waited
    /// for it.
    ///
    /// # Cancel safety
    /// Safe: it only asks.
    pub(super) async fn late(&mut self) {
        while let Some(answer) = self.asking.next().await {
            self.answers.hear(answer);
            // Why there is none was told before.
            let _ = self.settle().await;
        }
    }

    async fn hear(&mut self, care: Care) {
        let mut until = self.end;
        loop {
            let (some, most) = (self.answers.name_one(), self.answers.are_most());
            tokio::select! {
                // What is there counts.
                biased;
                answer = self.asking.next() => match answer {
                    Some(answer) => self.answers.hear(answer),
                    None => break,
                },
                () = sleep_until(until) => break,
            }
            let now = Instant::now();
            if self.answers.name_one() && !some {
                until = until.min(now + PATIENCE);
            }
            if self.answers.are_most() && !most && care == Care::Usual {
                let grace = (now - self.begun).saturating_mul(SLOWER).max(GRACE);
                until = until.min(now + grace);
            }
        }
    }

    /// Makes the best of what was heard the news.
    async fn settle(&mut self) -> Result<Address, StoreError> {
        let known = self.known.as_ref();
        let candidates = self.answers.candidates(known);
        let Some(choice) = self.sentinels.choose(candidates, self.end).await else {
            return Err(self.answers.failure(&self.sentinels.name));
        };
        let mut address = choice.named.address.clone();
        self.sentinels.news.send_if_modified(|news| {
            let changed = choice.settle(known, news);
            if let Some(now) = news {
                address = now.address.clone();
            }
            changed
        });
        Ok(address)
    }
}
