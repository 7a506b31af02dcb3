//! Workers that are processes: this test program again, with an order in its
//! environment.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lease_queue::QueueStore;
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use crate::crew::{Crew, Worker};
use crate::worker::{self, Order, opened};

const ORDER: &str = "LEASES_TEST_CHAOS_ORDER";
const TEST: [&str; 3] = ["worker_process", "--exact", "--nocapture"];
/// Far more than a worker needs to end its items.
const PATIENCE: Duration = Duration::from_secs(60);

/// Works, in a process that has an order.
pub(crate) fn be_told() {
    let Ok(order) = std::env::var(ORDER) else {
        return;
    };
    let order: Order = serde_json::from_str(&order).unwrap();
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    // Whoever hired it says by this that it is to end, or has ended itself.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        stopping.cancel();
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(worker::work(order, stop));
}

/// Workers on a store at a URL.
pub(crate) struct Processes(String);

impl Processes {
    pub(crate) fn new(url: String) -> Self {
        Self(url)
    }
}

#[async_trait]
impl Crew for Processes {
    fn url(&self) -> String {
        self.0.clone()
    }

    async fn store(&self) -> Arc<dyn QueueStore> {
        opened(&self.0).await
    }

    /// Called from the test's own thread: the worker dies with the thread that started
    /// it, stopped or not.
    fn hire(&self, order: Order) -> Box<dyn Worker> {
        let program = std::env::current_exe().unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(TEST)
            .env(ORDER, serde_json::to_string(&order).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Box::new(Process(child))
    }
}

struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Worker for Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn stop(&mut self) {
        self.signal(Signal::STOP);
    }

    fn go_on(&mut self) {
        self.signal(Signal::CONT);
    }

    fn is_at_work(&mut self) {
        let ended = self.0.try_wait().unwrap();
        assert!(ended.is_none(), "a worker ended by itself: {ended:?}");
    }

    fn dismiss(&mut self) {
        drop(self.0.stdin.take());
        let begun = Instant::now();
        loop {
            match self.0.try_wait().unwrap() {
                Some(status) => return assert!(status.success(), "a worker ended with {status}"),
                None => assert!(begun.elapsed() < PATIENCE, "a worker does not end"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
