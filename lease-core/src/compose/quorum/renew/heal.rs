//! A node that forgot a grant gets it back: with exactly its token or not at
//! all, since anything higher would undo a fence or another's grant.

use tokio::time::timeout;

use crate::backend::{AcquireOutcome, AcquireRequest, LostCause, RefusedReason, RenewRequest};
use crate::compose::quorum::{Inner, Node};
use crate::error::StoreError;
use crate::key::Label;
use crate::retry::ATTEMPT_LIMIT;
use crate::token::TokenRule;

/// What became of one heal.
#[derive(Debug)]
pub(super) enum Healed {
    /// The node has the grant, with exactly its token.
    Exactly,
    Not(LostCause),
    Unanswered(StoreError),
}

/// Heals `node`; the node number `witness` has the grant.
pub(super) async fn heal(
    inner: &Inner,
    node: &Node,
    witness: usize,
    request: &RenewRequest,
) -> Healed {
    if inner.rules.quarantine && node.upkeep.is_in_quarantine() {
        return Healed::Not(LostCause::Unknown);
    }
    let _turn = node.upkeep.turns.acquire().await;
    let acquire = AcquireRequest {
        key: request.key.clone(),
        owner: request.owner,
        ttl: request.ttl,
        label: label(inner, witness, request).await,
        rule: match inner.rules.exact {
            true => TokenRule::Exactly(request.token),
            false => TokenRule::NEXT,
        },
        waits: None,
    };
    let answer = timeout(ATTEMPT_LIMIT, node.backend.acquire(&acquire)).await;
    match answer {
        Ok(Ok(AcquireOutcome::Granted(granted)))
            if granted.token == request.token || !inner.rules.exact =>
        {
            Healed::Exactly
        }
        // A store that keeps the contract does not answer so.
        Ok(Ok(AcquireOutcome::Granted(_))) => Healed::Not(LostCause::Unknown),
        Ok(Ok(AcquireOutcome::Held(_))) => Healed::Not(LostCause::TakenOver),
        Ok(Ok(AcquireOutcome::Refused(reason))) => match reason {
            RefusedReason::Quarantine { remaining } => {
                node.upkeep.in_quarantine(remaining);
                if inner.rules.quarantine {
                    Healed::Not(LostCause::Unknown)
                } else {
                    Healed::Exactly
                }
            }
            RefusedReason::Revoked => Healed::Not(LostCause::Revoked),
            RefusedReason::Abandoned => Healed::Not(LostCause::Released),
            _ => Healed::Not(LostCause::Unknown),
        },
        Ok(Err(error)) => Healed::Unanswered(error),
        Err(_) => Healed::Unanswered(StoreError::unknown_outcome("no answer in time")),
    }
}

/// The grant's label, which a renewal does not carry. For people only: without
/// it goes an empty one.
async fn label(inner: &Inner, witness: usize, request: &RenewRequest) -> Label {
    let Some(node) = inner.nodes.get(witness) else {
        return Label::EMPTY;
    };
    let look = timeout(worth_waiting(request), node.backend.inspect(&request.key)).await;
    let holder = look
        .ok()
        .and_then(Result::ok)
        .and_then(|state| state.holder);
    holder
        .filter(|holder| holder.token == request.token)
        .map_or(Label::EMPTY, |holder| holder.label)
}

/// How long a label is worth waiting for.
fn worth_waiting(request: &RenewRequest) -> std::time::Duration {
    request.ttl.get() / 10
}
