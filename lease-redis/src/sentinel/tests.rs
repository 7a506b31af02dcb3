//! Looks at sentinels that say what a test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::look::PATIENCE;
use super::{Address, Care, Client, Sentinels};

const WITHIN: Duration = Duration::from_secs(5);
/// Less than the patience, and much more than a quick answer takes.
const SLOW: Duration = Duration::from_millis(100);

/// One that plays a server: answers each command, after a while.
struct Fake {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Fake {
    async fn start(after: Duration, say: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, say) = (Arc::new(AtomicUsize::new(0)), Arc::new(say));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, after, Arc::clone(&say)));
            }
        });
        Self { port, connections }
    }

    async fn sentinel(after: Duration, primary: u16, epoch: u64) -> Self {
        Self::start(after, move |command| match command {
            "GET-MASTER-ADDR-BY-NAME" => {
                let port = primary.to_string();
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
            }
            "MASTER" => {
                let epoch = epoch.to_string();
                format!(
                    "*2\r\n$12\r\nconfig-epoch\r\n${}\r\n{epoch}\r\n",
                    epoch.len()
                )
            }
            "SUBSCRIBE" => subscribed(),
            "NOISE" => String::new(),
            _ => "+OK\r\n".to_owned(),
        })
        .await
    }

    async fn primary() -> Self {
        Self::start(Duration::ZERO, |command| match command {
            "ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        })
        .await
    }

    async fn replica() -> Self {
        let role = "*5\r\n$5\r\nslave\r\n$1\r\na\r\n:1\r\n$9\r\nconnected\r\n:0\r\n";
        Self::start(Duration::ZERO, move |command| match command {
            "ROLE" => role.to_owned(),
            _ => "+OK\r\n".to_owned(),
        })
        .await
    }
}

/// That the subscription to both channels stands.
fn subscribed() -> String {
    let stands = |channel: &str, count| {
        format!(
            "*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:{count}\r\n",
            channel.len()
        )
    };
    stands("+switch-master", 1) + &stands("+promoted-slave", 2)
}

async fn serve(
    stream: TcpStream,
    after: Duration,
    say: Arc<impl Fn(&str) -> String>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let words = number(&mut stream).await?;
        let mut command = Vec::new();
        for _ in 0..words {
            let mut word = vec![0; number(&mut stream).await? + 2];
            stream.read_exact(&mut word).await?;
            word.truncate(word.len() - 2);
            command.push(String::from_utf8(word).unwrap());
        }
        let at = usize::from(command[0] == "SENTINEL");
        if at == 1 {
            sleep(after).await;
        }
        stream.write_all(say(&command[at]).as_bytes()).await?;
        if command[0] == "SUBSCRIBE" {
            break;
        }
    }
    loop {
        stream.write_all(say("NOISE").as_bytes()).await?;
        sleep(Duration::from_millis(1)).await;
    }
}

/// After `*` or `$`.
async fn number(stream: &mut BufReader<TcpStream>) -> std::io::Result<usize> {
    let mut line = String::new();
    match stream.read_line(&mut line).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line[1..].trim_end().parse().unwrap()),
    }
}

fn client(port: u16) -> Client {
    redis::Client::open(("127.0.0.1", port)).unwrap().into()
}

fn sentinels(all: &[&Fake]) -> Sentinels {
    let all = all.iter().map(|one| client(one.port)).collect();
    Sentinels::new(all, "leases".to_owned(), client(1))
}

async fn found(sentinels: &Sentinels, care: Care) -> u16 {
    sentinels.primary(WITHIN, care).await.unwrap().port
}

fn knows(sentinels: &Sentinels, port: u16, epoch: u64) {
    let address = Address {
        host: "127.0.0.1".into(),
        port,
    };
    sentinels
        .news
        .send_replace(Some(super::Named { address, epoch }));
}

async fn quick(primary: &Fake, epoch: u64) -> Fake {
    Fake::sentinel(Duration::ZERO, primary.port, epoch).await
}

/// A port where nobody listens.
async fn nobody() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn the_leader_of_a_failover_is_heard_although_it_is_the_slowest() {
    let (old, new) = (Fake::primary().await, Fake::primary().await);
    let (one, two) = (quick(&old, 1).await, quick(&old, 1).await);
    let leader = Fake::sentinel(SLOW, new.port, 2).await;
    let sentinels = sentinels(&[&one, &two, &leader]);
    assert_eq!(found(&sentinels, Care::Great).await, new.port);
}

#[tokio::test]
async fn a_leader_that_nobody_waits_for_is_followed_when_it_answers() {
    let (old, new) = (Fake::primary().await, Fake::primary().await);
    let (one, two) = (quick(&old, 1).await, quick(&old, 1).await);
    let leader = Fake::sentinel(PATIENCE * 3, new.port, 2).await;
    let sentinels = Arc::new(sentinels(&[&one, &two, &leader]));
    assert_eq!(found(&sentinels, Care::Usual).await, old.port);
    let mut news = sentinels.news.subscribe();
    let runtime = tokio::runtime::Handle::current();
    let following = super::Following::start(&sentinels, &runtime, WITHIN, WITHIN);
    let followed = news.wait_for(|news| news.as_ref().is_some_and(|one| one.epoch == 2));
    let followed = tokio::time::timeout(WITHIN * 2, followed).await;
    assert!(followed.is_ok());
    drop(following);
}

#[tokio::test]
async fn one_that_is_a_little_slower_is_heard_at_any_time() {
    let (old, new) = (Fake::primary().await, Fake::primary().await);
    let old_one = || Fake::sentinel(SLOW / 3, old.port, 1);
    let (one, two) = (old_one().await, old_one().await);
    let leader = Fake::sentinel(SLOW / 2, new.port, 2).await;
    let sentinels = sentinels(&[&one, &two, &leader]);
    assert_eq!(found(&sentinels, Care::Usual).await, new.port);
}

#[tokio::test]
async fn what_is_known_is_not_given_up_for_a_majority_that_is_behind() {
    let (old, new) = (Fake::primary().await, Fake::primary().await);
    let (one, two) = (quick(&old, 1).await, quick(&old, 1).await);
    let silent = Fake::sentinel(WITHIN * 2, new.port, 2).await;
    let sentinels = sentinels(&[&one, &two, &silent]);
    assert_eq!(found(&sentinels, Care::Usual).await, old.port);
    knows(&sentinels, new.port, 2);
    for care in [Care::Usual, Care::Great] {
        assert_eq!(found(&sentinels, care).await, new.port);
    }
}

#[tokio::test]
async fn a_primary_that_is_older_by_all_answers_is_one_of_sentinels_set_up_anew() {
    let (old, new) = (Fake::primary().await, Fake::primary().await);
    let all = [quick(&new, 0).await, quick(&new, 0).await];
    let sentinels = sentinels(&[&all[0], &all[1]]);
    knows(&sentinels, old.port, 7);
    assert_eq!(found(&sentinels, Care::Usual).await, new.port);
}

#[tokio::test]
async fn one_sentinel_that_is_wrong_does_not_shut_everybody_out() {
    let right = Fake::primary().await;
    let replica = Fake::replica().await;
    for wrong in [replica.port, nobody().await] {
        let (one, two) = (quick(&right, 1).await, quick(&right, 1).await);
        let three = Fake::sentinel(Duration::ZERO, wrong, 9).await;
        let sentinels = sentinels(&[&one, &two, &three]);
        for _ in 0..2 {
            assert_eq!(found(&sentinels, Care::Great).await, right.port);
        }
        // Though it was believed, having been alone.
        knows(&sentinels, wrong, 9);
        assert_eq!(found(&sentinels, Care::Great).await, right.port);
    }
}

#[tokio::test]
async fn a_newer_primary_out_of_reach_is_not_left_for_what_few_name() {
    let old = Fake::primary().await;
    let away = nobody().await;
    let one = quick(&old, 1).await;
    let newer = || Fake::sentinel(Duration::ZERO, away, 2);
    let (two, three) = (newer().await, newer().await);
    let sentinels = sentinels(&[&one, &two, &three]);
    assert_eq!(found(&sentinels, Care::Great).await, away);
}

#[tokio::test]
async fn looks_side_by_side_end_with_the_newest() {
    let (old, new) = (Fake::primary().await, Fake::primary().await);
    let (behind, ahead) = (
        Fake::sentinel(SLOW, old.port, 1).await,
        Fake::sentinel(SLOW / 3, new.port, 2).await,
    );
    // The same news, and each look hears another one.
    let slow = sentinels(&[&behind]);
    let quick = Sentinels {
        news: slow.news.clone(),
        ..sentinels(&[&ahead])
    };
    let both = tokio::join!(found(&slow, Care::Usual), found(&quick, Care::Usual));
    assert_eq!(both, (new.port, new.port));
}

#[tokio::test]
async fn a_flood_of_news_makes_few_looks() {
    let primary = Fake::primary().await;
    let noise = "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$6\r\nleases\r\n";
    let port = primary.port;
    let loud = Fake::start(Duration::ZERO, move |command| match command {
        "SUBSCRIBE" => subscribed(),
        "NOISE" => noise.to_owned(),
        "GET-MASTER-ADDR-BY-NAME" => {
            let port = port.to_string();
            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
        }
        "MASTER" => "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    })
    .await;
    let sentinels = Arc::new(sentinels(&[&loud]));
    let mut news = sentinels.news.subscribe();
    let runtime = tokio::runtime::Handle::current();
    let begun = std::time::Instant::now();
    let following = super::Following::start(&sentinels, &runtime, WITHIN, WITHIN);
    news.wait_for(Option::is_some).await.unwrap();
    // Long enough for many more.
    sleep(Duration::from_millis(250)).await;
    drop(following);
    let most = 2 + usize::try_from(begun.elapsed().as_millis() / 100).unwrap();
    let looks = loud.connections.load(Ordering::Relaxed) - 1;
    assert!((1..=most).contains(&looks), "{looks} of {most}");
}
