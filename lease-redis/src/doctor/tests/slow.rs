//! A server that is far away.

use std::time::{Duration, Instant};

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_core::Severity;
use redis::AsyncConnectionConfig;

use super::{Facts, diagnose, facts, found, seconds, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_is_looked_at_in_a_few_round_trips() {
    let server = start(RedisServer::builder().persistence(Persistence::AofAlways));
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = format!("redis://{}", proxy.address());
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
    let client = redis::Client::open(url).unwrap();
    let connected = client.get_multiplexed_async_connection_with_config(&patient);
    let mut connection = connected.await.unwrap();
    let short = Facts {
        ttl: seconds(1),
        ..facts()
    };
    for (each_way_ms, most_trips) in [(300, 5), (500, 4)] {
        let each_way = Duration::from_millis(each_way_ms);
        proxy.delay(each_way, each_way);
        let begun = Instant::now();
        let diagnosis = diagnose(&mut connection, &short).await.unwrap();
        let took = begun.elapsed();
        found(&diagnosis, "round trips: ", Severity::Critical);
        found(&diagnosis, "clock: ", Severity::Healthy);
        // Half a trip more is for a machine that is busy.
        let most = (each_way * 2 * most_trips) + each_way;
        assert!(took < most, "{took:?}");
    }
}
