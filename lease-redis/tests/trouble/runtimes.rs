//! Runtimes that end while somebody still uses the store from them, or that
//! cannot do what the store needs.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;

use lease_core::{LeaseBackend, StoreErrorKind};
use lease_redis::RedisStore;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::support::*;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// From a thread of its own: a store that is locked up must not lock up the test.
fn serves_another_runtime(store: RedisStore) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let inspected = runtime().block_on(store.inspect(&key("a")));
        tell.send(inspected.map(drop)).unwrap();
    });
    told.recv_timeout(PATIENCE).unwrap().unwrap();
}

#[test]
fn a_call_from_a_runtime_that_has_ended_is_an_error_and_harms_no_other() {
    let server = plain();
    let store = options(&server.url()).open_lazily().unwrap();
    let ended = runtime();
    let handle = ended.handle().clone();
    ended.shutdown_timeout(PATIENCE);
    let (tell, told) = mpsc::channel();
    let theirs = store.clone();
    thread::spawn(move || {
        let inspected = handle.block_on(theirs.inspect(&key("a")));
        tell.send(inspected.map(drop)).unwrap();
    });
    let error = told.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    serves_another_runtime(store);
}

/// Says that it was dropped.
struct Tell(Sender<()>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// How a call from a runtime that has ended comes about: no runtime waits for
/// its blocking threads for ever.
#[test]
fn a_blocking_thread_that_outlives_its_runtime_harms_no_other() {
    let server = plain();
    let store = options(&server.url()).open_lazily().unwrap();
    let ended = runtime();
    ended.block_on(store.inspect(&key("a"))).unwrap();
    let (tell, tasks_are_gone) = mpsc::channel();
    let tell = Tell(tell);
    let (started, has_started) = mpsc::channel();
    ended.spawn(async move {
        let _tell = tell;
        started.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    has_started.recv_timeout(PATIENCE).unwrap();
    let (started, has_started) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let (tell, is_done) = mpsc::channel();
    let tell = Tell(tell);
    let theirs = store.clone();
    ended.spawn_blocking(move || {
        let _tell = tell;
        started.send(()).unwrap();
        may_go_on.recv().unwrap();
        let _ = Handle::current().block_on(theirs.inspect(&key("a")));
    });
    has_started.recv_timeout(PATIENCE).unwrap();

    ended.shutdown_background();
    tasks_are_gone.recv_timeout(PATIENCE).unwrap();
    go_on.send(()).unwrap();
    is_done.recv_timeout(PATIENCE).unwrap();
    serves_another_runtime(store);
}

#[test]
fn whoever_waits_when_the_runtime_ends_hears_of_it() {
    const CALLERS: usize = 8;
    let server = plain();
    let store = options(&server.url()).open_lazily().unwrap();
    let runtime = runtime();
    runtime.block_on(store.inspect(&key("a"))).unwrap();
    server.pause().unwrap();
    let (asked, have_asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    for _ in 0..CALLERS {
        let (store, handle) = (store.clone(), runtime.handle().clone());
        let (asked, tell) = (asked.clone(), tell.clone());
        thread::spawn(move || {
            // Where a timer outlives its runtime, tokio panics.
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                handle.block_on(async {
                    let name = key("a");
                    let mut call = pin!(store.inspect(&name));
                    let mut asked = Some(asked);
                    poll_fn(|context| {
                        let polled = call.as_mut().poll(context);
                        if let Some(asked) = asked.take() {
                            asked.send(()).unwrap();
                        }
                        polled
                    })
                    .await
                })
            }));
            tell.send(outcome.map(|answer| answer.map(drop))).unwrap();
        });
        // One after the other: the first ones are sent, the others wait for them.
        have_asked.recv_timeout(PATIENCE).unwrap();
    }
    runtime.shutdown_background();
    for heard in 0..CALLERS {
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(answer)) => drop(answer.unwrap_err()),
            Ok(Err(_)) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                panic!("{heard} of {CALLERS} heard")
            }
        }
    }
    server.resume().unwrap();
    serves_another_runtime(store);
}

#[test]
fn in_a_runtime_without_time_a_call_is_an_error_and_no_panic() {
    let server = plain();
    let store = options(&server.url()).open_lazily().unwrap();
    let mut builder = Builder::new_current_thread();
    let timeless = builder.enable_io().build().unwrap();
    let error = timeless.block_on(store.inspect(&key("a"))).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    serves_another_runtime(store);
}
