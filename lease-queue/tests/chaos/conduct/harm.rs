//! What is done to whom, and when: by how far the work is, so that a slow machine sees as
//! much of it as a fast one.

use rand::RngExt;
use rand::rngs::StdRng;

use super::Plan;

/// The share of the items after which nothing is harmed any more, so that what was has its
/// consequences.
const LAST: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Harm {
    /// So many items.
    pub(super) after: usize,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A worker, and another one takes its place.
    Kill,
    /// A worker, for longer than its TTL.
    Stop,
    KillServer,
}

/// The latest first.
pub(super) fn harms(plan: &Plan, with_a_server: bool, random: &mut StdRng) -> Vec<Harm> {
    let server_kills = if with_a_server { plan.server_kills } else { 0 };
    let kinds = [
        (What::Kill, plan.kills),
        (What::Stop, plan.stops),
        (What::KillServer, server_kills),
    ];
    let kinds = kinds.into_iter();
    let all = kinds.flat_map(|(what, times)| std::iter::repeat_n(what, times));
    let mut harms: Vec<_> = all
        .map(|what| Harm {
            after: (plan.items() as f64 * random.random_range(0.0..LAST)) as usize,
            what,
        })
        .collect();
    harms.sort_unstable();
    harms.reverse();
    harms
}
