//! Completing an item inside a transaction of the user's own.

use lease_core::{LostCause, StoreError};
use lease_postgres::parts;
use lease_postgres::sqlx::postgres::PgConnection;
use lease_postgres::sqlx::query_scalar;

use super::{PostgresQueues, number, row};
use crate::check::check_settle;
use crate::item::ClaimRef;
use crate::name::QueueName;
use crate::store::{Settle, Settled};

pub(super) const COMPLETE: &str =
    "SELECT {queue_complete}($1, $2, $3, $4, $5, $6, $7)::pg_catalog.text";
/// The server takes it in a transaction alone; the lock is that of a read.
pub(super) const INSIDE: &str = "LOCK TABLE {queue_dedup} IN ACCESS SHARE MODE";

impl PostgresQueues {
    /// Completes an item inside a transaction of the user's own, over the user's
    /// connection to the same database, if exactly this claim is live by the server's
    /// clock: the item and what its work wrote commit together, or neither does.
    ///
    /// From here until the transaction ends nobody else can claim the item, even when
    /// the claim's time is over meanwhile. The claim cannot be extended during that, and
    /// who puts into its group waits: commit soon.
    ///
    /// Two round trips: the first one asks whether this is a transaction.
    ///
    /// **Outcomes.** [`Settled::Done`]: the item is completed by the commit.
    /// [`Settled::Before`] and [`Settled::Lost`]: it is not, and the transaction can only
    /// be rolled back.
    ///
    /// # Errors
    /// `InvalidInput` outside of a transaction; `Unavailable` when the transaction must
    /// be begun again (`lease_postgres::must_begin_again` says so) or the connection is
    /// lost; `Refusing` where the database is not the store's or the role lacks a right.
    /// After any of them, roll back. That the commit failed is the commit's to say.
    ///
    /// # Cancel safety
    /// The item may or may not be completed in the transaction; roll it back.
    pub async fn complete_in(
        &self,
        transaction: &mut PgConnection,
        queue: &QueueName,
        claim: &ClaimRef,
    ) -> Result<Settled, StoreError> {
        check_settle(claim, &Settle::Complete, &self.can())?;
        let (kind, name) = row::lane(&claim.lane);
        let call = query_scalar(self.statements.complete.clone())
            .bind(queue.as_str().to_owned())
            .bind(kind)
            .bind(name)
            .bind(claim.item.as_bytes().to_vec())
            .bind(claim.owner.as_bytes().to_vec())
            .bind(number(claim.token.get()))
            .bind(self.client.retention_us());
        let doing = "completing an item in a transaction";
        let called = parts::call_in(transaction, self.statements.inside.clone(), call, doing);
        Ok(match called.await? {
            Ok(()) => Settled::Done,
            Err(cause) => match cause.as_str() {
                "before" => Settled::Before,
                "expired" => Settled::Lost(LostCause::Expired),
                "taken_over" => Settled::Lost(LostCause::TakenOver),
                "released" => Settled::Lost(LostCause::Released),
                "revoked" => Settled::Lost(LostCause::Revoked),
                _ => Settled::Lost(LostCause::Unknown),
            },
        })
    }
}
