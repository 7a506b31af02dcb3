//! Listing: the subjects first, in pages, then each one's record.

use std::collections::HashSet;

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Key, KeyState, StoreError};

use super::errors;
use super::lane::Lanes;
use super::names::key_of;
use super::rules;

/// Records that are asked for at the same time.
const AT_ONCE: usize = 16;

pub(super) fn keys(
    lanes: Lanes,
    filter: String,
    prefix: String,
) -> BoxStream<'static, Result<KeyState, StoreError>> {
    stream::once(subjects(lanes.clone(), filter))
        .flat_map(|subjects| match subjects {
            Ok(subjects) => stream::iter(subjects).map(Ok).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        })
        .filter_map(move |subject| {
            let found = match subject {
                Err(error) => Some(Err(error)),
                Ok(subject) => key_of(&subject)
                    .filter(|key| key.as_str().starts_with(&prefix))
                    .map(|key| Ok((subject, key))),
            };
            std::future::ready(found)
        })
        .map(move |found| look(lanes.clone(), found))
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .scan(false, |failed, state| {
            let give = (!*failed).then_some(state);
            *failed |= matches!(give, Some(Err(_)));
            std::future::ready(give)
        })
        .boxed()
}

/// Each once. The server gives them sorted, from a place in that order on: what is
/// added meanwhile moves the others back, so that a page may repeat some, and as no
/// record is ever removed, none is passed over.
async fn subjects(lanes: Lanes, filter: String) -> Result<HashSet<String>, StoreError> {
    let failed = |e| errors::unavailable("JetStream did not tell its subjects; try again", e);
    let pages = lanes.link.stream.info_with_subjects(filter).await;
    let mut pages = pages.map_err(failed)?;
    let mut subjects = HashSet::new();
    while let Some(subject) = pages.next().await {
        subjects.insert(subject.map_err(failed)?.0);
    }
    Ok(subjects)
}

/// `None` for what is no key's record, and for a key without a mark.
async fn look(
    lanes: Lanes,
    found: Result<(String, Key), StoreError>,
) -> Option<Result<KeyState, StoreError>> {
    let (subject, key) = match found {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    match lanes.look(&subject, lanes.link.deadline()).await {
        Ok(view) => {
            let state = rules::state(&view, &key);
            state.high_water.is_some().then_some(Ok(state))
        }
        Err(error) if errors::is_foreign(&error) => None,
        Err(error) => Some(Err(error)),
    }
}
