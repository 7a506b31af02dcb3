//! Servers that are killed, stand still, and are cut off, while many clients go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::nats::cluster::{NODES, NatsCluster};
use rand::RngExt;
use rand::rngs::StdRng;

use super::crowd::{run, seconds};

fn between(random: &mut StdRng, ms: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(random.random_range(ms)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_is_killed_and_paused_and_restarted_and_cut_off() {
    let server = Arc::new(NatsServer::builder().start().unwrap());
    let proxy = Arc::new(FaultProxy::start(server.address()).unwrap());
    let direct = server.url().to_string();
    let through = server.url().through(proxy.address()).to_string();
    let (harmed, cut) = (Arc::clone(&server), Arc::clone(&proxy));
    run(vec![direct, through], move |random| {
        let end = Instant::now() + seconds(4);
        while Instant::now() < end {
            between(random, 50..500);
            match random.random_range(0..5) {
                0 => {
                    harmed.pause().unwrap();
                    between(random, 10..900);
                    harmed.resume().unwrap();
                }
                1 => {
                    harmed.kill().unwrap();
                    between(random, 0..300);
                    harmed.start().unwrap();
                }
                2 => harmed.restart().unwrap(),
                3 => cut.cut(),
                _ => {
                    // What is sent arrives, and the answer is lost.
                    let _lost = cut.lose_reply(Then::Cut, On::Any);
                    between(random, 10..300);
                    cut.heal().unwrap();
                }
            }
        }
        cut.heal().unwrap();
    })
    .await;
}

/// One at a time, more often than not the one that leads the stream.
#[tokio::test(flavor = "multi_thread")]
async fn three_servers_are_killed_and_stand_still_one_after_the_other() {
    let cluster = Arc::new(NatsCluster::start_new().unwrap());
    let url = cluster.url().to_string();
    let harmed = Arc::clone(&cluster);
    run(vec![url], move |random| {
        let end = Instant::now() + seconds(6);
        while Instant::now() < end {
            between(random, 200..1000);
            let leader = harmed.stream_leader("leases-queues").unwrap();
            let node = match random.random_range(0..3) {
                0 => random.random_range(0..NODES),
                _ => leader,
            };
            if random.random_range(0..2) == 0 {
                harmed.node(node).pause().unwrap();
                between(random, 100..3000);
                harmed.node(node).resume().unwrap();
            } else {
                harmed.node(node).kill().unwrap();
                between(random, 0..2000);
            }
            harmed.start().unwrap();
        }
    })
    .await;
}
