//! Hand-over from a holder to the next waiter of the same client.

mod cost;
mod own_lease;
mod runtimes;

use std::sync::Arc;

use futures_util::StreamExt;
use lease_core::{Clock, Leases, Moment};
use tokio::task::JoinHandle;

use crate::support::{Op, Step, World, secs};

/// Acquires, releases and subscriptions so far.
fn counts(world: &World) -> [usize; 3] {
    [Op::Acquire, Op::Release, Op::Watch].map(|op| world.store.count(op))
}

fn no_hints() -> Step {
    Step::Hints(Arc::new(|| futures_util::stream::pending().boxed()))
}

/// Waits for the key and gives it back at once; when it got it.
fn wait(world: &World, leases: &Leases) -> impl Future<Output = Moment> + Send + use<> {
    let (acquire, clock) = (leases.lease("k").ttl(secs(600)), Arc::clone(&world.clock));
    async move {
        let lease = acquire.acquire().await.unwrap();
        let when = clock.now();
        lease.release().await.unwrap();
        when
    }
}

/// The same as a task.
fn waiter(world: &World, leases: &Leases) -> JoinHandle<Moment> {
    tokio::spawn(wait(world, leases))
}
