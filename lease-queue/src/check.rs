//! The bounds that every store shares: what no store takes.

use std::collections::HashSet;
use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};

use crate::item::{ClaimRef, ItemId, NewItem};
use crate::name::{GROUP_BYTES, Lane, QueueInput};
use crate::store::{Capabilities, ClaimRequest, MAX_BATCH, MAX_DELAY, Settle, What};

/// Checks that a store of these capabilities keeps items.
///
/// # Errors
/// `InvalidInput` if it keeps the token items of keys alone.
pub fn check_items(can: &Capabilities) -> Result<(), StoreError> {
    match can.items {
        true => Ok(()),
        false => Err(input(QueueInput::NoItems)),
    }
}

/// Checks what is put against what a store of these capabilities takes.
///
/// # Errors
/// `InvalidInput` for more than [`MAX_BATCH`] items, two of one identity or one of
/// [`ItemId::TOKEN`], and a payload, a group's name or a delay over its limit; for
/// payloads that are too large together; for a group or a delay where the store has
/// none.
pub fn check_put(items: &[NewItem], can: &Capabilities) -> Result<(), StoreError> {
    check_items(can)?;
    if items.len() > MAX_BATCH {
        return Err(input(QueueInput::Batch { items: items.len() }));
    }
    let mut seen = HashSet::with_capacity(items.len());
    for item in items {
        if item.id == ItemId::TOKEN || !seen.insert(item.id) {
            return Err(input(QueueInput::Identity));
        }
        if item.body.len() > can.max_body {
            return Err(input(QueueInput::Body {
                bytes: item.body.len(),
                max: can.max_body,
            }));
        }
        if let Some(group) = &item.group {
            if group.as_str().len() > GROUP_BYTES {
                return Err(input(QueueInput::Group(None)));
            }
            if !can.groups {
                return Err(input(QueueInput::NoGroups));
            }
        }
        check_delay(item.delay, can)?;
    }
    let bytes = items.iter().map(|item| item.body.len()).sum();
    if bytes > can.max_put {
        return Err(input(QueueInput::Bodies {
            bytes,
            max: can.max_put,
        }));
    }
    Ok(())
}

/// Checks what is asked for. (The range of TTLs is the store's own.)
///
/// # Errors
/// `InvalidInput` unless 1 to [`MAX_BATCH`] items are asked for.
pub fn check_claim(request: &ClaimRequest) -> Result<(), StoreError> {
    match request.what {
        What::Next { max } if max == 0 || max > MAX_BATCH => {
            Err(input(QueueInput::Batch { items: max }))
        }
        _ => Ok(()),
    }
}

/// Checks one settle. (The range of TTLs is the store's own.)
///
/// # Errors
/// `InvalidInput` for a token item that is to be completed or buried, and for a delay
/// over the limit, or of a store that has none.
pub fn check_settle(
    claim: &ClaimRef,
    settle: &Settle,
    can: &Capabilities,
) -> Result<(), StoreError> {
    let token_item = matches!(claim.lane, Lane::Key(_));
    match settle {
        Settle::Complete | Settle::Bury { .. } if token_item => Err(input(QueueInput::TokenItem)),
        Settle::Retry { delay, .. } => check_delay(*delay, can),
        _ => Ok(()),
    }
}

fn check_delay(delay: Duration, can: &Capabilities) -> Result<(), StoreError> {
    if delay > MAX_DELAY {
        return Err(input(QueueInput::Delay { delay }));
    }
    if !can.delay && !delay.is_zero() {
        return Err(input(QueueInput::NoDelay));
    }
    Ok(())
}

fn input(invalid: QueueInput) -> StoreError {
    StoreError::with_source(
        StoreErrorKind::InvalidInput,
        invalid.to_string(),
        invalid.clone(),
    )
}
