//! Handles and runtimes: dropped anywhere, used anywhere, and the runtime gone.
//!
//! The clock is moved by hand: tokio's paused time ends with its runtime.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lease_core::{
    Clock, Error, Event, Lease, LeaseBackend, Leases, LostReason, ManualClock, MemoryStore,
};
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(30);

struct Machine {
    clock: Arc<ManualClock>,
    store: MemoryStore,
    leases: Leases,
}

impl Machine {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let store = MemoryStore::with_clock(Arc::clone(&shared), TTL);
        let leases = Leases::builder(Arc::new(store.clone()))
            .clock(shared)
            .observer(|_: &Event| {})
            .build();
        Self {
            clock,
            store,
            leases,
        }
    }

    /// No await is needed to ask this store.
    fn is_free(&self) -> bool {
        let key = lease_core::Key::new("k").unwrap();
        let state = self.store.inspect(&key).now_or_never().unwrap();
        state.unwrap().holder.is_none()
    }

    async fn acquire(&self) -> Lease {
        self.leases.lease("k").ttl(TTL).acquire().await.unwrap()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Lets everything that is ready run.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn dropped_on_a_plain_thread_it_is_released_by_its_runtime() {
    let (machine, runtime) = (Machine::new(), runtime());
    let lease = runtime.block_on(machine.acquire());
    std::thread::spawn(move || drop(lease)).join().unwrap();
    runtime.block_on(settle());
    assert!(machine.is_free());
}

#[test]
fn dropped_on_a_current_thread_runtime_it_does_not_block() {
    let (machine, runtime) = (Machine::new(), runtime());
    runtime.block_on(async {
        drop(machine.acquire().await);
        settle().await;
        assert!(machine.is_free());
    });
}

#[test]
fn dropped_inside_another_runtime_it_is_released_by_its_own() {
    let (machine, first, second) = (Machine::new(), runtime(), runtime());
    let lease = first.block_on(machine.acquire());
    second.block_on(async move { drop(lease) });
    first.block_on(settle());
    assert!(machine.is_free());
}

#[test]
fn when_its_runtime_has_ended_it_is_lost_at_once() {
    for flavour in 0..2 {
        let machine = Machine::new();
        let runtime = match flavour {
            0 => runtime(),
            _ => Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap(),
        };
        let lease = runtime.block_on(machine.acquire());
        let signal = lease.cancellation_token();
        lease.check().unwrap();
        drop(runtime);
        let lost = lease.check().unwrap_err();
        assert!(matches!(lost.reason, LostReason::RuntimeGone), "{lost}");
        assert!(signal.is_cancelled());
        assert!(lease.lost().now_or_never().is_some());
        drop(lease);
        assert!(!machine.is_free(), "nobody could send its release");
        machine.clock.advance(TTL);
        assert!(machine.is_free());
    }
}

#[test]
fn released_after_its_runtime_has_ended_it_says_so_or_uses_the_present_one() {
    let machine = Machine::new();
    let gone = runtime();
    let lease = gone.block_on(machine.acquire());
    drop(gone);
    // No runtime at all: the answer comes at once.
    let error = lease.release().now_or_never().unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost(lost) if matches!(lost.reason, LostReason::RuntimeGone)));
    machine.clock.advance(TTL);
    let gone = runtime();
    let lease = gone.block_on(machine.acquire());
    drop(gone);
    let present = runtime();
    present.block_on(lease.release()).unwrap();
    assert!(machine.is_free());
    // A drop does the same.
    let gone = runtime();
    let lease = gone.block_on(machine.acquire());
    drop(gone);
    present.block_on(async {
        drop(lease);
        settle().await;
    });
    assert!(machine.is_free());
}

#[test]
fn a_client_is_used_again_on_a_second_runtime() {
    let machine = Machine::new();
    for _ in 0..3 {
        let runtime = runtime();
        runtime.block_on(async {
            let lease = machine.acquire().await;
            // And is renewed there.
            for _ in 0..30 {
                machine.clock.advance(TTL / 10);
                settle().await;
                lease.check().unwrap();
            }
            drop(lease);
            settle().await;
            assert!(machine.is_free());
        });
    }
}

#[test]
fn without_a_runtime_acquiring_is_an_error_and_everything_else_is_fine() {
    let machine = Machine::new();
    drop(machine.leases.lease("k"));
    drop(machine.leases.lease("k").acquire());
    let nowhere = |leases: &Leases| {
        let waited = leases.lease("k").acquire().now_or_never().unwrap();
        let tried = leases.lease("k").try_acquire().now_or_never().unwrap();
        assert!(matches!(waited, Err(Error::NoRuntime)));
        assert!(matches!(tried, Err(Error::NoRuntime)));
    };
    nowhere(&machine.leases);
    // Also while the client's loop runs somewhere.
    let runtime = runtime();
    let lease = runtime.block_on(machine.acquire());
    nowhere(&machine.leases);
    // A handle works on any thread and under any executor.
    lease.check().unwrap();
    assert!(lease.lost().now_or_never().is_none());
    assert!(lease.run(async { 7 }).now_or_never().unwrap().unwrap() == 7);
    lease.detach().unwrap();
    let _report = machine.leases.shutdown(Duration::ZERO).now_or_never();
}

#[test]
fn dropped_while_a_thread_unwinds_it_does_no_harm() {
    let (machine, runtime) = (Machine::new(), runtime());
    let lease = runtime.block_on(machine.acquire());
    let unwound = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _lease = lease;
        panic!("scripted: outside of the runtime");
    }));
    unwound.unwrap_err();
    runtime.block_on(settle());
    assert!(machine.is_free());
    // Within block_on, which unwinds through the runtime's context.
    let unwound = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let _lease = machine.acquire().await;
            panic!("scripted: within");
        })
    }));
    unwound.unwrap_err();
    runtime.block_on(settle());
    assert!(machine.is_free());
    // And with the runtime ended by the same unwinding.
    let unwound = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let lease = runtime.block_on(machine.acquire());
        let _order = (runtime, lease);
        panic!("scripted: with the runtime");
    }));
    unwound.unwrap_err();
    machine.clock.advance(TTL);
    assert!(machine.is_free());
}

#[test]
fn a_thread_local_lease_is_dropped_with_its_thread() {
    thread_local! {
        static KEPT: RefCell<Option<Lease>> = const { RefCell::new(None) };
    }
    let (machine, runtime) = (Machine::new(), runtime());
    for ended in [false, true] {
        let lease = runtime.block_on(machine.acquire());
        let thread = std::thread::spawn(move || {
            // Touch tokio's own thread locals, so that they go first or last.
            let _ = tokio::runtime::Handle::try_current();
            KEPT.with(|kept| *kept.borrow_mut() = Some(lease));
        });
        thread.join().unwrap();
        runtime.block_on(settle());
        assert!(machine.is_free(), "{ended}");
    }
}

#[test]
fn a_runtime_that_ends_under_its_tasks_drops_their_leases_without_a_panic() {
    for workers in 0..3 {
        let machine = Machine::new();
        let runtime = match workers {
            0 => runtime(),
            n => Builder::new_multi_thread()
                .worker_threads(n)
                .enable_all()
                .build()
                .unwrap(),
        };
        let blocked = runtime.block_on(async {
            let lease = machine.acquire().await;
            tokio::spawn(async move { lease.run(std::future::pending::<()>()).await });
            // One that waits, in the queue and at the store.
            tokio::spawn(machine.leases.lease("k").acquire());
            tokio::spawn(machine.leases.lease("k").acquire());
            settle().await;
            machine.leases.lease("other").acquire().await.unwrap()
        });
        drop(runtime);
        assert!(blocked.check().is_err());
        machine.clock.advance(TTL);
        assert!(machine.is_free());
        // The queue is not stuck for the next runtime.
        let next = self::runtime();
        let lease = next.block_on(machine.acquire());
        lease.check().unwrap();
    }
}

#[test]
fn a_loss_is_delivered_although_the_runtime_that_renews_stands_still() {
    let (machine, stands, runs) = (Machine::new(), runtime(), runtime());
    // Never driven again, and never dropped.
    let lease = stands.block_on(machine.acquire());
    let dropped = Arc::new(());
    let within = Arc::clone(&dropped);
    runs.block_on(async {
        let work = lease.run(async move {
            let _within = within;
            std::future::pending::<()>().await
        });
        let clock = Arc::clone(&machine.clock);
        let time = async move {
            settle().await;
            clock.advance(TTL);
        };
        let (lost, ()) = tokio::join!(work, time);
        let reason = lost.unwrap_err().reason;
        assert!(matches!(reason, LostReason::Unconfirmed { .. }), "{reason}");
    });
    assert_eq!(Arc::strong_count(&dropped), 1, "the work was dropped");
    assert!(lease.cancellation_token().is_cancelled());
}

#[test]
fn a_runtime_that_goes_while_a_release_is_under_way_is_told_as_such() {
    let machine = Machine::new();
    let (gone, waits) = (runtime(), runtime());
    let lease = gone.block_on(machine.acquire());
    // Sent to a loop that is never driven again.
    let mut release = Box::pin(lease.release());
    waits.block_on(async {
        assert!(
            futures_util::future::poll_immediate(release.as_mut())
                .await
                .is_none()
        );
    });
    drop(gone);
    let error = waits.block_on(release).unwrap_err();
    assert!(matches!(error, Error::Lost(lost) if matches!(lost.reason, LostReason::RuntimeGone)));
}

#[test]
fn a_release_that_its_runtimes_end_cuts_short_is_told_of() {
    // After this many turns of the loop: before it has the message, and with
    // the request under way or not even begun.
    for turns in 0..4 {
        let (told, events) = std::sync::mpsc::channel();
        let machine = Machine::new();
        let backend = Arc::clone(machine.leases.backend());
        let told = std::sync::Mutex::new(told);
        let leases = Leases::builder(backend)
            .observer(move |event: &Event| {
                let _ = told.lock().unwrap().send(event.kind.as_str());
            })
            .build();
        let runtime = runtime();
        runtime.block_on(async {
            drop(leases.lease("k").ttl(TTL).acquire().await.unwrap());
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        });
        drop(runtime);
        let words: Vec<_> = events.try_iter().collect();
        let last = words.last().copied();
        assert!(
            matches!(last, Some("release_failed" | "released")),
            "after {turns} turns: {words:?}"
        );
        assert!(turns > 0 || last == Some("release_failed"), "{words:?}");
    }
}

#[test]
fn a_grant_that_was_detached_before_its_runtimes_end_is_not_lost() {
    // The loop has the message, or never got to it.
    for turns in 0..3 {
        let (told, events) = std::sync::mpsc::channel();
        let machine = Machine::new();
        let backend = Arc::clone(machine.leases.backend());
        let told = std::sync::Mutex::new(told);
        let leases = Leases::builder(backend)
            .observer(move |event: &Event| {
                let _ = told.lock().unwrap().send(event.kind.as_str());
            })
            .build();
        let runtime = runtime();
        runtime.block_on(async {
            let lease = leases.lease("k").ttl(TTL).acquire().await.unwrap();
            lease.detach().unwrap();
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        });
        drop(runtime);
        let words: Vec<_> = events.try_iter().collect();
        assert_eq!(words, ["attempt", "granted", "detached"]);
    }
}

#[test]
fn the_end_of_one_runtime_harms_no_lease_of_another() {
    let (machine, first, second) = (Machine::new(), runtime(), runtime());
    let a = first.block_on(machine.leases.lease("a").ttl(TTL).acquire());
    let b = second.block_on(machine.leases.lease("b").ttl(TTL).acquire());
    let (a, b) = (a.unwrap(), b.unwrap());
    drop(first);
    assert_eq!(a.check().unwrap_err().reason.as_str(), "runtime_gone");
    b.check().unwrap();
    // And it is renewed where it is, without anybody driving the other one.
    second.block_on(async {
        let deadline = b.deadline();
        settle().await;
        machine.clock.advance(TTL / 2);
        settle().await;
        assert!(b.deadline() > deadline);
        b.release().await.unwrap();
    });
}

#[test]
fn outside_of_a_runtime_nothing_panics() {
    let (machine, runtime) = (Machine::new(), runtime());
    let lease = runtime.block_on(machine.acquire());
    assert!(lease.unconfirmed(TTL / 3).now_or_never().is_none());
    assert!(lease.lost().now_or_never().is_none());
    assert!(machine.leases.shutdown(TTL).now_or_never().is_none());
    drop(lease);
    assert!(runtime.block_on(machine.leases.shutdown(TTL)).settled);
}
