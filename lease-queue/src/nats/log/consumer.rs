//! The fast way out of the log: an ordered consumer, from what was applied last on.

use std::pin::Pin;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use lease_core::StoreError;
use tokio::time::sleep;

use super::Machine;
use super::message::Mark;
use super::replica::KEPT;
use super::shared::Shared;
use crate::nats::errors as words;
use crate::nats::link::Stored;

/// What a consumer brings.
pub(super) enum Next {
    Fits(Stored),
    /// It was applied before.
    Old,
    Doubtful,
}

pub(super) struct Consumer {
    messages: Ordered,
    /// What was applied last when it was made: the first that it brings.
    anchor: Option<Mark>,
}

pub(super) type Making<'a> =
    Pin<Box<dyn Future<Output = Result<Consumer, StoreError>> + Send + 'a>>;

impl Consumer {
    pub(super) fn make<M: Machine>(shared: &Shared<M>, after: Duration) -> Making<'_> {
        Box::pin(async move {
            sleep(after).await;
            let link = &shared.link;
            let anchor = shared.state().replica.last;
            let config = OrderedConfig {
                deliver_subject: link.context.client().new_inbox(),
                filter_subject: shared.subject.clone(),
                deliver_policy: DeliverPolicy::ByStartSequence {
                    start_sequence: anchor.revision.max(1),
                },
                ..OrderedConfig::default()
            };
            let made = link.stream.create_consumer(config).await;
            let made = made.map_err(|e| words::unavailable("no consumer was made", e))?;
            let messages = made.messages().await;
            Ok(Self {
                messages: messages.map_err(|e| words::unavailable("no consumer was made", e))?,
                anchor: (anchor.revision > 0).then_some(anchor),
            })
        })
    }

    /// `None` at its end.
    pub(super) async fn next(consumer: &mut Option<Self>) -> Option<Next> {
        let this = consumer.as_mut()?;
        let message = this.messages.next().await?.ok()?;
        let (stored, pending) = stored(&message)?;
        if pending >= KEPT / 2 {
            return Some(Next::Doubtful);
        }
        match this.anchor {
            // A server that was behind begins at its end.
            Some(anchor) if stored.revision < anchor.revision => Some(Next::Old),
            Some(anchor) if stored.revision > anchor.revision => Some(Next::Doubtful),
            _ => {
                this.anchor = None;
                Some(Next::Fits(stored))
            }
        }
    }
}

/// The message, and how many are behind it.
fn stored(message: &Message) -> Option<(Stored, u64)> {
    let info = message.info().ok()?;
    let stored = Stored {
        revision: info.stream_sequence,
        stored_ms: words::unix_ms(info.published),
        stored_us: words::unix_us(info.published),
        payload: message.payload.clone(),
    };
    Some((stored, info.pending))
}
