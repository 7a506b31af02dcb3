//! A Redis Cluster: many primaries, each with a part of the keys.
//!
//! # Why the routing is our own
//! The driver's cluster connection is one task for all nodes. While it looks for
//! who has which slot it answers nobody, and it looks at every node, one that
//! swallows everything included; it repeats what failed, releases too, or
//! follows no redirection at all. So there is one [`Link`](crate::link::Link) to
//! each node, with the driver's connection in it, which knows when it is dead,
//! and what is here knows which link to take: see the decision record on it.
//!
//! # One key in one request
//! All names in one script must share a slot, so there are no batches here:
//! requests go side by side, and the connection puts into one packet what is
//! ready at once.

mod list;
mod look;
mod map;
mod node;
mod part;
mod renew;
mod route;
mod seeds;
pub(crate) mod slot;
mod watch;

pub(crate) use list::stream as list;
pub(crate) use map::Map;
pub(crate) use node::What;
pub(crate) use route::{Router, Trouble};
pub(crate) use seeds::Seeds;
