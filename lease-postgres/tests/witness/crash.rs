//! A client that is killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{GRACE, LONG, PATIENCE, hold, leases, options, server, witnessed};

const URL: &str = "LEASES_WITNESS_URL";
const SCHEMA: &str = "LEASES_WITNESS_SCHEMA";
const HOLDS: &str = "it holds";

/// A process of its own, which says when it holds.
struct Holder(Child);

impl Holder {
    fn start(schema: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "crash::holds_until_it_is_killed",
            ])
            .env(URL, server().url().to_string())
            .env(SCHEMA, schema)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut this = Self(child);
        let said = BufReader::new(this.0.stdout.take().unwrap());
        let holds = said.lines().any(|line| line.unwrap().contains(HOLDS));
        assert!(holds, "it ended before it held");
        this
    }

    /// With SIGKILL.
    fn kill(mut self) {
        self.0.kill().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is run, and killed, by the tests beside it"]
#[allow(clippy::print_stdout)]
async fn holds_until_it_is_killed() {
    let (url, schema) = (std::env::var(URL).unwrap(), std::env::var(SCHEMA).unwrap());
    let leases = witnessed(&url, &schema).await;
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(hold(&leases, &format!("k{number}")).await);
    }
    // As one that has held for long, whose session the rows name.
    tokio::time::sleep(GRACE).await;
    println!("{HOLDS}");
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_client_that_is_killed_are_free_in_less_than_three_seconds() {
    let url = server().url().to_string();
    let holder = tokio::task::block_in_place(|| Holder::start("killed"));
    let leases = witnessed(&url, "killed").await;
    let waiting: Vec<_> = (0..20)
        .map(|number| {
            let acquire = leases.lease(format!("k{number}")).ttl(LONG).wait(PATIENCE);
            tokio::spawn(async move { (acquire.acquire().await.unwrap(), Instant::now()) })
        })
        .collect();
    // While it lives, nobody gets anything, however often they look.
    tokio::time::sleep(GRACE * 2).await;
    assert!(!waiting.iter().any(tokio::task::JoinHandle::is_finished));
    let killed = Instant::now();
    holder.kill();
    for waiter in waiting {
        let (lease, granted) = waiter.await.unwrap();
        let took = granted - killed;
        assert!(
            took < Duration::from_secs(3),
            "{lease:?} came after {took:?}"
        );
        assert!(took > GRACE, "{lease:?} came after {took:?}, in the grace");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_the_option_see_a_crash_too() {
    let url = server().url().to_string();
    let holder = tokio::task::block_in_place(|| Holder::start("seen by others"));
    let leases = leases(options(&url, "seen by others")).await;
    holder.kill();
    let killed = Instant::now();
    let waiting = leases.lease("k3").ttl(LONG).wait(PATIENCE).acquire();
    let _lease = waiting.await.unwrap();
    // It looks first, and again 5 s later.
    assert!(killed.elapsed() < Duration::from_secs(10));
}
