//! One of three nodes is ten times as slow as the others, whose clocks differ:
//! every lease stands on all of them, and bears the loss of any one.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{Attempt, LeaseBackend};

use super::{Rules, World, from_environment, in_a_world};

const SEEDS: u64 = 50;
const SLOWER: u32 = 10;
/// Until everybody knows which node is slow.
const FIRST: usize = 8;
const LEASES: usize = 12;

fn run(seed: u64) -> (Vec<String>, usize, usize) {
    in_a_world(seed, 3, Rules::default(), |world| async move {
        world.servers[world.dice.below(3) as usize].be_slower(SLOWER);
        lease_after_lease(&world).await;
    })
}

async fn lease_after_lease(world: &Arc<World>) {
    let (dice, history) = (&world.dice, &world.history);
    let clients = [world.calm_client(), world.calm_client()];
    for round in 0..FIRST + LEASES {
        let (leases, others) = (&clients[round % 2], &clients[(round + 1) % 2]);
        let acquire = leases.lease(&world.key).ttl(Duration::from_secs(2));
        let lease = match acquire.wait(Duration::from_secs(5)).acquire().await {
            Ok(lease) => lease,
            Err(error) => return history.check(false, || format!("no lease: {error}")),
        };
        history.handed_out(&world.key, lease.token(), None);
        // Somebody else asks at once, and gets nothing.
        let second = others.lease(&world.key).try_acquire().await;
        let is_held = matches!(&second, Ok(Attempt::Held(_)));
        history.check(is_held, || format!("two holders: {second:?}"));
        tokio::time::sleep(Duration::from_millis(200)).await;
        if round >= FIRST {
            for (i, server) in world.servers.iter().enumerate() {
                let state = server.store().inspect(&world.key).await.unwrap();
                let there = state
                    .holder
                    .as_ref()
                    .is_some_and(|h| h.token == lease.token());
                history.check(there, || {
                    format!(
                        "lease {round} ({}) is not on node {i}: {state:?}",
                        lease.token()
                    )
                });
            }
            let lost = dice.below(3) as usize;
            world.servers[lost].go_down(Duration::from_secs(6));
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let holds = lease.check().is_ok();
                history.check(holds, || format!("lease {round} is lost with node {lost}"));
                history.wrote(&world.key, lease.token());
            }
            // It learns of its releases, too.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let released = lease.release().await;
        history.check(released.is_ok(), || format!("not released: {released:?}"));
        tokio::time::sleep(dice.ms(0, 100)).await;
    }
}

#[test]
fn leases_stand_on_a_slow_node_too() {
    let seeds = match from_environment("LEASES_QUORUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("LEASES_QUORUM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let (violations, leases, _) = run(seed);
        assert!(
            violations.is_empty() && leases == FIRST + LEASES,
            "LEASES_QUORUM_SEED={seed}: {leases} leases: {violations:#?}"
        );
    }
}
