//! Workers that are threads, each with a runtime of its own: on a store in the memory of
//! this process.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use lease_queue::QueueStore;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::crew::{Crew, Worker};
use crate::worker::{Order, work_on};

pub(crate) struct Threads(Arc<dyn QueueStore>);

impl Threads {
    pub(crate) fn new(store: Arc<dyn QueueStore>) -> Self {
        Self(store)
    }
}

#[async_trait]
impl Crew for Threads {
    fn url(&self) -> String {
        String::new()
    }

    async fn store(&self) -> Arc<dyn QueueStore> {
        Arc::clone(&self.0)
    }

    fn hire(&self, order: Order) -> Box<dyn Worker> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let handle = runtime.handle().clone();
        let (end, dead) = (CancellationToken::new(), CancellationToken::new());
        let work = work_on(order, Arc::clone(&self.0), end.clone());
        let killed = dead.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = killed.cancelled() => {}
                    () = work => {}
                }
            });
            // Drops whatever is under way: what that would say in the background is not
            // said any more.
            runtime.shutdown_background();
        });
        Box::new(Thread {
            handle,
            gate: Arc::default(),
            end,
            dead,
            thread: Some(thread),
        })
    }
}

/// Shut while its thread is to stand still.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let shut = self.shut.lock().unwrap();
        drop(self.changed.wait_while(shut, |shut| *shut).unwrap());
    }

    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.changed.notify_all();
    }
}

struct Thread {
    handle: Handle,
    gate: Arc<Gate>,
    end: CancellationToken,
    dead: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Worker for Thread {
    fn kill(&mut self) {
        self.dead.cancel();
        self.gate.set(false);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    fn stop(&mut self) {
        self.gate.set(true);
        let gate = Arc::clone(&self.gate);
        // Blocks all that its runtime would run.
        self.handle.spawn(async move { gate.pass() });
    }

    fn go_on(&mut self) {
        self.gate.set(false);
    }

    fn is_at_work(&mut self) {
        let thread = self.thread.as_ref().unwrap();
        assert!(!thread.is_finished(), "a worker ended by itself");
    }

    fn dismiss(&mut self) {
        self.end.cancel();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.dead.cancel();
        self.gate.set(false);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
