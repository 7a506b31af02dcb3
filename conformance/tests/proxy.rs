//! The proxy's faults are those that it names, and nothing else goes wrong.
#![cfg(unix)]
// Helpers of tests, too.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lease_conformance::Network;
use lease_conformance::proxy::{Direction, FaultProxy, NeverHappened, On, Then};
use lease_conformance::servers::redis::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::timeout;

/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to look for what must not come.
const A_WHILE: Duration = Duration::from_millis(100);

/// Sends back what it gets.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

async fn proxied_echo() -> FaultProxy {
    FaultProxy::start(echo().await).unwrap()
}

async fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// What comes until the connection ends, and whether it ended well.
async fn rest(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let ended = timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .unwrap();
    (bytes, ended.is_ok())
}

async fn says(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).await.unwrap();
    let mut back = vec![0; words.len()];
    timeout(PATIENCE, stream.read_exact(&mut back))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(back, words);
}

async fn is_silent(stream: &mut TcpStream) {
    let mut byte = [0];
    let read = timeout(A_WHILE, stream.read(&mut byte)).await;
    assert!(read.is_err(), "{read:?}");
}

#[tokio::test]
async fn everything_passes_and_is_counted() {
    let proxy = proxied_echo().await;
    let (mut a, mut b) = (connect(&proxy).await, connect(&proxy).await);
    says(&mut a, b"hello").await;
    says(&mut b, b"you").await;
    let traffic = proxy.until(|t| t.reply_bytes == 8).await;
    assert_eq!((traffic.connections, traffic.open), (2, 2));
    assert_eq!((traffic.request_bytes, traffic.swallowed_bytes), (8, 0));
    let open = proxy.connections();
    assert_eq!(open[0].client, a.local_addr().unwrap());
    assert_eq!((open[0].request_bytes, open[1].reply_bytes), (5, 3));
    // An end in one direction is no end in the other.
    a.write_all(b"last").await.unwrap();
    a.shutdown().await.unwrap();
    assert_eq!(rest(&mut a).await, (b"last".to_vec(), true));
    drop(b);
    proxy.until(|t| t.open == 0).await;
}

#[tokio::test]
async fn much_data_passes_whole_and_slowly_read_data_waits() {
    let proxy = proxied_echo().await;
    proxy.delay(Duration::from_millis(1), Duration::from_millis(1));
    let data: Vec<u8> = (0..20_000_000_u32).map(|i| (i % 251) as u8).collect();
    let stream = connect(&proxy).await;
    let (mut from, mut to) = stream.into_split();
    let sent = data.clone();
    let writer = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    // Nobody reads yet: the writer has to wait.
    proxy.until(|t| t.request_bytes > 1_000_000).await;
    let mut back = Vec::new();
    from.read_to_end(&mut back).await.unwrap();
    writer.await.unwrap();
    assert!(back == data, "{} bytes came back", back.len());
}

#[tokio::test]
async fn a_unix_socket_may_be_the_server() {
    let folder = tempfile_folder();
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    let proxy = FaultProxy::start(path).unwrap();
    says(&mut connect(&proxy).await, b"hello").await;
    std::fs::remove_dir_all(folder).unwrap();
}

fn tempfile_folder() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("proxy-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a delay is on this machine: `cargo test … a_delay_is_exact -- --nocapture`.
#[test]
fn a_delay_is_exact() {
    use std::io::{Read, Write};
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let proxy = runtime.block_on(proxied_echo());
    let mut stream = std::net::TcpStream::connect(proxy.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    for micros in [0, 100, 500, 5_000] {
        let delay = Duration::from_micros(micros);
        proxy.delay(delay, delay);
        let rounds = if micros > 1_000 { 50 } else { 400 };
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let sent = Instant::now();
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
                sent.elapsed()
            })
            .collect();
        times.sort_unstable();
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        println!(
            "{delay:?} each way: round trip of {:?} at least, {:?} half of the time, {:?} in 99%",
            at(0),
            at(50),
            at(99)
        );
        assert!(at(0) >= delay * 2, "{:?}", at(0));
        // The machine may be busy; a timer of whole milliseconds is not it.
        assert!(
            at(10) < delay * 2 + Duration::from_millis(20),
            "{:?}",
            at(10)
        );
    }
}

#[tokio::test]
async fn delayed_requests_do_not_wait_for_one_another() {
    let proxy = proxied_echo().await;
    let delay = Duration::from_millis(50);
    proxy.delay(delay, delay);
    let mut stream = connect(&proxy).await;
    let begin = Instant::now();
    for _ in 0..200 {
        stream.write_all(b"x").await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut back = [0; 200];
    stream.read_exact(&mut back).await.unwrap();
    let took = begin.elapsed();
    // One by one they would take twenty seconds.
    assert!(
        took >= delay * 2 && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[tokio::test]
async fn what_follows_from_each_other_is_counted_and_nothing_else() {
    let proxy = proxied_echo().await;
    let (mut a, mut b) = (connect(&proxy).await, connect(&proxy).await);
    says(&mut a, b"before").await;
    proxy.count_hops();
    assert_eq!(proxy.hops(), 0);
    // Whatever connection they take.
    for trips in 1..=4 {
        let stream = if trips % 2 == 0 { &mut a } else { &mut b };
        says(stream, b"one more").await;
        assert_eq!(proxy.hops(), 2 * trips);
    }
    // At the same time, as long as the answers stay away.
    proxy.count_hops();
    proxy.delay(A_WHILE, A_WHILE);
    tokio::join!(says(&mut a, b"this"), says(&mut b, b"and that"));
    assert_eq!(proxy.hops(), 2);
}

#[tokio::test]
async fn what_a_server_tells_by_itself_is_one_hop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start(listener.local_addr().unwrap()).unwrap();
    let mut client = connect(&proxy).await;
    let (mut server, _) = listener.accept().await.unwrap();
    proxy.count_hops();
    server.write_all(b"news").await.unwrap();
    let mut news = [0; 4];
    client.read_exact(&mut news).await.unwrap();
    assert_eq!(proxy.hops(), 1);
    // What the client asks for it, and the answer.
    client.write_all(b"what").await.unwrap();
    server.read_exact(&mut news).await.unwrap();
    server.write_all(b"this").await.unwrap();
    client.read_exact(&mut news).await.unwrap();
    assert_eq!(proxy.hops(), 3);
}

#[tokio::test]
async fn a_cut_is_a_reset_and_new_connections_are_well() {
    let proxy = proxied_echo().await;
    let mut old = connect(&proxy).await;
    says(&mut old, b"hello").await;
    proxy.cut();
    assert_eq!(proxy.traffic().open, 0);
    assert_eq!(rest(&mut old).await, (vec![], false));
    says(&mut connect(&proxy).await, b"again").await;
}

#[tokio::test]
async fn the_address_may_lead_to_another_server_from_then_on() {
    let proxy = proxied_echo().await;
    let mut before = connect(&proxy).await;
    says(&mut before, b"here").await;
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    proxy.lead_to(other.local_addr().unwrap());
    let mut after = connect(&proxy).await;
    let (mut there, _) = other.accept().await.unwrap();
    there.write_all(b"another").await.unwrap();
    drop(there);
    assert_eq!(rest(&mut after).await.0, b"another");
    says(&mut before, b"still here").await;
}

#[tokio::test]
async fn a_reply_is_cut_at_each_byte() {
    let proxy = proxied_echo().await;
    let words = b"a reply";
    for bytes in 0..=words.len() {
        let mut stream = connect(&proxy).await;
        let armed = proxy.cut_reply_after(bytes as u64, On::Any);
        assert!(!armed.has_happened());
        stream.write_all(words).await.unwrap();
        let on = timeout(PATIENCE, armed.happened()).await.unwrap().unwrap();
        assert!(armed.has_happened());
        let (came, _) = rest(&mut stream).await;
        assert_eq!(came, &words[..bytes], "{on}");
    }
    // Once is once.
    says(&mut connect(&proxy).await, words).await;
}

#[tokio::test]
async fn a_cut_may_be_armed_over_many_replies() {
    let proxy = proxied_echo().await;
    let mut stream = connect(&proxy).await;
    says(&mut stream, b"before").await;
    let armed = proxy.cut_reply_after(7, On::Any);
    says(&mut stream, b"12345").await;
    assert!(!armed.has_happened());
    stream.write_all(b"6789").await.unwrap();
    armed.happened().await.unwrap();
    assert_eq!(rest(&mut stream).await.0, b"67");
}

#[tokio::test]
async fn a_lost_reply_was_sent_by_the_server() {
    let proxy = proxied_echo().await;
    for then in [Then::Cut, Then::Hang] {
        let mut stream = connect(&proxy).await;
        let before = proxy.traffic();
        let lost = proxy.lose_reply(then, On::Any);
        stream.write_all(b"request").await.unwrap();
        lost.happened().await.unwrap();
        let after = proxy
            .until(|t| t.swallowed_bytes > before.swallowed_bytes)
            .await;
        assert_eq!(after.request_bytes, before.request_bytes + 7);
        assert_eq!(after.reply_bytes, before.reply_bytes);
        match then {
            Then::Cut => assert_eq!(rest(&mut stream).await.0, b""),
            Then::Hang => {
                is_silent(&mut stream).await;
                // Nor does the server hear anything more.
                stream.write_all(b"more").await.unwrap();
                proxy
                    .until(|t| t.swallowed_bytes >= after.swallowed_bytes + 4)
                    .await;
                assert_eq!(proxy.traffic().request_bytes, after.request_bytes);
                proxy.heal().unwrap();
                assert_eq!(rest(&mut stream).await.0, b"");
            }
        }
    }
}

#[tokio::test]
async fn a_lost_request_never_reaches_the_server() {
    let proxy = proxied_echo().await;
    let mut stream = connect(&proxy).await;
    let lost = proxy.lose_request(Then::Cut, On::Any);
    stream.write_all(b"request").await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(rest(&mut stream).await.0, b"");
    assert_eq!(proxy.traffic().request_bytes, 0);

    let mut stream = connect(&proxy).await;
    let cut = proxy.cut_request_after(3, On::Any);
    stream.write_all(b"request").await.unwrap();
    cut.happened().await.unwrap();
    assert_eq!(proxy.until(|t| t.request_bytes > 0).await.request_bytes, 3);
}

#[tokio::test]
async fn a_fault_leaves_other_connections_alone() {
    let proxy = proxied_echo().await;
    let (mut a, mut b) = (connect(&proxy).await, connect(&proxy).await);
    says(&mut a, b"a").await;
    says(&mut b, b"b").await;
    let open = proxy.connections();
    let armed = proxy.lose_reply(Then::Cut, On::Connection(open[1].id));
    let new = proxy.cut_reply_after(2, On::New);
    says(&mut a, b"alone").await;
    assert!(!armed.has_happened());
    b.write_all(b"lost").await.unwrap();
    assert_eq!(armed.happened().await, Ok(open[1].id));
    let mut c = connect(&proxy).await;
    c.write_all(b"new").await.unwrap();
    assert_eq!(rest(&mut c).await.0, b"ne");
    new.happened().await.unwrap();
    says(&mut a, b"still").await;
}

#[tokio::test]
async fn an_armed_fault_that_cannot_happen_says_so() {
    let proxy = proxied_echo().await;
    let healed = proxy.lose_reply(Then::Cut, On::Any);
    proxy.heal().unwrap();
    assert_eq!(healed.happened().await, Err(NeverHappened));
    let mut stream = connect(&proxy).await;
    says(&mut stream, b"x").await;
    let id = proxy.connections()[0].id;
    let gone = proxy.lose_reply(Then::Cut, On::Connection(id));
    drop(stream);
    assert_eq!(
        timeout(PATIENCE, gone.happened()).await.unwrap(),
        Err(NeverHappened)
    );
    let late = proxy.lose_reply(Then::Cut, On::Connection(id));
    assert_eq!(late.happened().await, Err(NeverHappened));
    let dropped = proxy.lose_reply(Then::Cut, On::Any);
    drop(proxy);
    assert_eq!(dropped.happened().await, Err(NeverHappened));
}

#[tokio::test]
async fn a_black_hole_swallows_old_and_new_connections() {
    let proxy = proxied_echo().await;
    let mut old = connect(&proxy).await;
    says(&mut old, b"hello").await;
    proxy.black_hole();
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        stream.write_all(b"anybody?").await.unwrap();
    }
    let traffic = proxy.until(|t| t.swallowed_bytes == 16).await;
    assert_eq!(traffic.request_bytes, 5);
    is_silent(&mut old).await;
    is_silent(&mut new).await;
    proxy.heal().unwrap();
    // What has lost bytes is of no use any more.
    assert_eq!(rest(&mut old).await.0, b"");
    assert_eq!(rest(&mut new).await.0, b"");
    says(&mut connect(&proxy).await, b"healed").await;
}

#[tokio::test]
async fn one_direction_may_be_silent() {
    let proxy = proxied_echo().await;
    let mut stream = connect(&proxy).await;
    proxy.swallow(Direction::Reply);
    stream.write_all(b"heard").await.unwrap();
    let traffic = proxy.until(|t| t.swallowed_bytes == 5).await;
    assert_eq!((traffic.request_bytes, traffic.reply_bytes), (5, 0));
}

#[tokio::test]
async fn what_is_held_back_arrives_when_healed() {
    let proxy = proxied_echo().await;
    let mut stream = connect(&proxy).await;
    says(&mut stream, b"hello").await;
    proxy.hold();
    stream.write_all(b"late").await.unwrap();
    is_silent(&mut stream).await;
    assert_eq!(proxy.traffic().request_bytes, 5);
    proxy.heal().unwrap();
    let mut late = [0; 4];
    stream.read_exact(&mut late).await.unwrap();
    assert_eq!(&late, b"late");
}

#[tokio::test]
async fn refused_connections_are_refused_by_the_system() {
    let proxy = proxied_echo().await;
    let mut old = connect(&proxy).await;
    says(&mut old, b"hello").await;
    proxy.refuse();
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    says(&mut old, b"still here").await;
    proxy.heal().unwrap();
    says(&mut connect(&proxy).await, b"back").await;
    says(&mut old, b"still here").await;
}

#[tokio::test]
async fn a_server_that_is_away_is_a_reset() {
    let address = echo().await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = gone.local_addr().unwrap();
    drop(gone);
    assert_ne!(address, nobody);
    let proxy = FaultProxy::start(nobody).unwrap();
    // The reset may come before the connect returns.
    if let Ok(mut stream) = TcpStream::connect(proxy.address()).await {
        assert_eq!(rest(&mut stream).await, (vec![], false));
    }
    assert_eq!(proxy.until(|t| t.connections == 1).await.open, 0);
}

#[tokio::test]
async fn a_proxy_is_the_hook_of_a_fixture() {
    let proxy = proxied_echo().await;
    let network: &dyn Network = &proxy;
    let mut stream = connect(&proxy).await;
    says(&mut stream, b"hello").await;
    let lost = network.lose_reply().await.unwrap();
    stream.write_all(b"request").await.unwrap();
    timeout(PATIENCE, lost).await.unwrap();
    assert_eq!(rest(&mut stream).await.0, b"");
    let mut stream = connect(&proxy).await;
    says(&mut stream, b"again").await;
    network.cut().await.unwrap();
    assert_eq!(rest(&mut stream).await, (vec![], false));
}

#[tokio::test]
async fn dropping_it_cuts_everything() {
    let proxy = proxied_echo().await;
    let mut stream = connect(&proxy).await;
    says(&mut stream, b"hello").await;
    let address = proxy.address();
    drop(proxy);
    assert_eq!(rest(&mut stream).await.0, b"");
    TcpStream::connect(address).await.unwrap_err();
}

/// The driver gives up after half a second by itself; a busy machine may not
/// have begun by then.
async fn connected(server: &RedisServer, proxy: &FaultProxy) -> redis::aio::MultiplexedConnection {
    let url = server.url().through(proxy.address()).to_string();
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url).unwrap();
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    connection.await.unwrap()
}

#[tokio::test]
async fn redis_did_what_a_lost_reply_would_have_told() {
    let server = RedisServer::builder().start().unwrap();
    for proxy in [
        FaultProxy::start(server.address()).unwrap(),
        FaultProxy::start(server.socket()).unwrap(),
    ] {
        let mut connection = connected(&server, &proxy).await;
        let lost = proxy.lose_reply(Then::Cut, On::Any);
        let mut add = redis::cmd("INCR");
        add.arg("count");
        let unknown = add.query_async::<i64>(&mut connection).await;
        unknown.unwrap_err();
        lost.happened().await.unwrap();
    }
    assert_eq!(
        server.command(&["GET", "count"]).unwrap().integer(),
        Some(2)
    );
}

#[tokio::test]
async fn a_pipeline_to_redis_takes_one_delay() {
    let server = RedisServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let connection = connected(&server, &proxy).await;
    let delay = Duration::from_millis(20);
    proxy.delay(delay, delay);
    let begin = Instant::now();
    let calls = (0..300).map(|_| {
        let mut connection = connection.clone();
        async move {
            redis::cmd("INCR")
                .arg("count")
                .query_async::<i64>(&mut connection)
                .await
                .unwrap()
        }
    });
    let counts = futures_util::future::join_all(calls).await;
    let took = begin.elapsed();
    assert_eq!(counts.iter().max(), Some(&300));
    // One by one they would take twelve seconds.
    assert!(
        took >= delay * 2 && took < Duration::from_secs(4),
        "{took:?}"
    );
}
