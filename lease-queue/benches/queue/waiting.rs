//! How long after a put, a release or an abandon a waiting claim has its item, in round
//! trips: by the time that takes, and by the network's own count, to which a busy machine
//! adds only where who waits does not sleep yet, as the first time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_conformance::bench::median;
use lease_conformance::proxy::FaultProxy;
use lease_queue::{Answer, Queue, QueueStore, Raw, Settle, What};

use crate::ours::{TTL, item, request};

/// Until it waits: nothing that it does shows that from outside.
const IDLE: Duration = Duration::from_millis(30);

/// What makes an item ready.
#[derive(Clone, Copy, Debug)]
enum By {
    Put,
    Release,
    Abandon,
}

/// `from` and `to` are two clients of the same queues, both over `proxy`, and `trip` is a
/// round trip.
pub(crate) async fn run(
    from: &Arc<dyn QueueStore>,
    to: &Arc<dyn QueueStore>,
    proxy: &Arc<FaultProxy>,
    trip: Duration,
    times: usize,
) {
    let waiting = Queue::<Vec<u8>, Raw>::raw_builder(Arc::clone(to), "waited").ttl(TTL);
    let waiting = waiting.build().unwrap();
    let name = waiting.name().clone();
    for by in [By::Put, By::Release, By::Abandon] {
        let (mut took, mut counted) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let asked = request(What::Next { max: 1 });
            let mut held = None;
            if !matches!(by, By::Put) {
                from.put(&name, &[item()]).await.unwrap();
                match from.claim(&name, &asked).await.unwrap() {
                    Answer::Claimed { mut items, .. } => held = items.pop(),
                    other => panic!("{other:?}"),
                }
            }
            let waiter = tokio::spawn({
                let (waiting, proxy) = (waiting.clone(), Arc::clone(proxy));
                async move {
                    let claim = waiting.claim().await.unwrap();
                    (claim, Instant::now(), proxy.hops())
                }
            });
            tokio::time::sleep(IDLE + 4 * trip).await;
            proxy.count_hops();
            let start = Instant::now();
            match (by, held) {
                (By::Put, _) => drop(from.put(&name, &[item()]).await.unwrap()),
                (By::Release, Some(held)) => {
                    let delay = Duration::ZERO;
                    let back = Settle::Retry {
                        delay,
                        counts: true,
                        error: None,
                    };
                    let settled = from.settle(&name, &[(held.claim, back)]).await;
                    assert!(settled.iter().all(Result::is_ok), "{settled:?}");
                }
                _ => from.abandon(&name, None, asked.owner).await.unwrap(),
            }
            let (claim, end, hops) = waiter.await.unwrap();
            counted.push(hops as f64 / 2.0);
            took.push((end - start).as_secs_f64());
            claim.complete().await.unwrap();
        }
        // What is over the least is not the network's, nor the protocol's.
        let least = took.iter().copied().fold(f64::INFINITY, f64::min);
        let trips = |seconds: f64| seconds / trip.as_secs_f64();
        println!(
            "  {:8} {:5.2} round trips at least, {:5.2} as a rule; counted {:3.1}",
            format!("{by:?}").to_lowercase(),
            trips(least),
            trips(median(&took)),
            median(&counted),
        );
    }
}
