//! Single steps of a lease, taken by hand.

use clap::Args;
use leases::{Key, Label, Owner, Token, Ttl};

use super::{Form, Waiting};
use crate::duration;

/// Acquire a key, print the grant and leave.
///
/// Nothing renews it: use `lease renew` and `lease release` with the owner and
/// the token that this prints, or let it expire.
#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// The key.
    pub(crate) key: Key,

    /// How long the lease lasts without a renewal, as in 500ms, 30s, 1m30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl)]
    pub(crate) ttl: Ttl,

    #[command(flatten)]
    pub(crate) waiting: Waiting,

    /// Who you are, for people who look. Defaults to pid and host.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<Label>,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Renew a grant: it lasts at least the TTL from now on.
///
/// Status 76 when it is lost.
#[derive(Args, Debug)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) grant: Grant,

    /// How long it shall last from now on.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl)]
    pub(crate) ttl: Ttl,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Release a grant.
///
/// Status 76 when it is not held, and then nothing is changed.
#[derive(Args, Debug)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) grant: Grant,
}

#[derive(Args, Debug)]
pub(crate) struct Grant {
    /// The key.
    pub(crate) key: Key,

    /// The owner that `lease acquire` printed.
    #[arg(long)]
    pub(crate) owner: Owner,

    /// The token that `lease acquire` printed.
    #[arg(long)]
    pub(crate) token: Token,
}

/// Ask whether a token may still write to a resource.
///
/// Status 0 when the token is admitted, and it is remembered; 76 when a higher
/// token has been admitted before: then somebody else has written since, and
/// you must not write.
///
/// Only a check in the same step as the write is airtight: between this check
/// and your write, time passes, in which another holder may write. Where the
/// resource is a database, compare and keep the token in the write's own
/// transaction; use this where nothing better can be had.
#[derive(Args, Debug)]
pub(crate) struct Admit {
    /// What is written to: any name that all of its writers use.
    pub(crate) resource: Key,

    /// The writer's token: $LEASE_TOKEN under `lease run`.
    #[arg(long)]
    pub(crate) token: Token,
}

/// Cut a holder off.
///
/// Raises the key's mark: every later token is above it, and a holder below it
/// is revoked. Without --at-least, the present holder is; without a holder, the
/// mark rises by one.
///
/// The key stays blocked until the revoked lease would have expired, so that
/// its holder has learnt of it.
///
/// On a terminal it asks before it cuts anybody off, and before --now frees a
/// key that an earlier fence has left blocked; status 1 when the answer is no.
#[derive(Args, Debug)]
pub(crate) struct Fence {
    /// The key.
    pub(crate) key: Key,

    /// Raise the mark to at least this token.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) at_least: Option<Token>,

    /// Free the key at once. For a moment two may believe that they hold it,
    /// and only a resource that checks tokens is safe.
    #[arg(long)]
    pub(crate) now: bool,

    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) form: Form,
}
