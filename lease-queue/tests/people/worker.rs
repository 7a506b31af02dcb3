//! Workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lease_queue::{Job, Phase, Verdict, WorkReport};
use tokio_util::sync::CancellationToken;

use crate::world::{Fault, Mail, Op, World, mail, ms, secs};

#[tokio::test(start_paused = true)]
async fn workers_take_so_many_at_once_and_complete_them() {
    let world = World::new();
    let queue = world.queue();
    let all: Vec<_> = (0..40).map(|n| mail(&n.to_string())).collect();
    queue.put_many(&all).await.unwrap();
    let stop = CancellationToken::new();
    let (now, most, done) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let handler = {
        let (most, done, stop) = (Arc::clone(&most), Arc::clone(&done), stop.clone());
        move |_: Mail, job: Job| {
            let (now, most, done) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&done));
            let stop = stop.clone();
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(ms(100)).await;
                job.lease().check().unwrap();
                now.fetch_sub(1, Ordering::SeqCst);
                if done.fetch_add(1, Ordering::SeqCst) + 1 == 40 {
                    stop.cancel();
                }
            }
        }
    };
    let report = queue.worker(8).stop_with(stop).run(handler).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 8);
    assert_eq!((report.completed, report.failed), (40, 0));
    assert_eq!(queue.depth().await.unwrap().ready, 0);
}

/// Runs one item through a handler until the queue is idle, and stops.
async fn handled(world: &World, verdict: Verdict) -> WorkReport {
    let queue = world.builder().max_attempts(2).build().unwrap();
    queue.put(&mail("ann")).await.unwrap();
    let stop = CancellationToken::new();
    let (stopping, first) = (stop.clone(), Arc::new(AtomicUsize::new(0)));
    let handler = move |_: Mail, _: Job| {
        let (verdict, stop, first) = (verdict.clone(), stopping.clone(), Arc::clone(&first));
        async move {
            first.fetch_add(1, Ordering::SeqCst);
            stop.cancel();
            verdict
        }
    };
    queue.worker(1).stop_with(stop).run(handler).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_verdict_decides() {
    let world = World::new();
    let report = handled(&world, Verdict::Complete).await;
    assert_eq!(report.completed, 1);
    assert!(world.item().await.is_none());

    let world = World::new();
    handled(&world, Verdict::RetryAfter(secs(9))).await;
    let item = world.item().await.unwrap();
    assert_eq!((item.phase, item.attempts), (Phase::Delayed(secs(9)), 1));

    let world = World::new();
    handled(&world, Verdict::Abandon).await;
    assert_eq!(world.attempts().await, 0);

    let world = World::new();
    let report = handled(&world, Verdict::from(Err::<(), _>("no paper"))).await;
    assert_eq!(report.failed, 1);
    let item = world.item().await.unwrap();
    assert_eq!(item.last_error.as_deref(), Some("no paper"));
    assert_eq!(item.attempts, 1);

    let world = World::new();
    let report = handled(&world, Verdict::RetryAfter(secs(400 * 86_400))).await;
    assert_eq!(report.failed, 1);
    let error = world.item().await.unwrap().last_error.unwrap();
    assert!(error.contains("limit"), "{error}");

    let world = World::new();
    handled(&world, Verdict::Bury("poison".into())).await;
    assert_eq!(
        world.item().await.unwrap().phase,
        Phase::Dead("poison".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_attempt_and_the_worker_goes_on() {
    let world = World::new();
    let queue = world.builder().max_attempts(2).build().unwrap();
    queue.put(&mail("boom")).await.unwrap();
    queue.put(&mail("ann")).await.unwrap();
    let stop = CancellationToken::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let (stop, seen) = (stop.clone(), Arc::clone(&seen));
        move |mail: Mail, _: Job| {
            seen.lock().unwrap().push(mail.to.clone());
            if seen.lock().unwrap().len() == 3 {
                stop.cancel();
            }
            // Also outside of the future.
            assert!(mail.to != "boom", "it went off");
            async {}
        }
    };
    let report = queue.worker(1).stop_with(stop).run(handler).await.unwrap();
    assert_eq!((report.completed, report.failed), (1, 2));
    let item = world.item().await.unwrap();
    assert!(
        matches!(item.phase, Phase::Dead(ref why) if why.contains("it went off")),
        "{item:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_dropped_and_its_attempt_fails() {
    let world = World::new();
    let queue = world
        .builder()
        .max_hold(secs(30))
        .max_attempts(2)
        .build()
        .unwrap();
    queue.put(&mail("ann")).await.unwrap();
    let stop = CancellationToken::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (stop, runs) = (stop.clone(), Arc::clone(&runs));
        move |_: Mail, job: Job| {
            let (stop, second) = (stop.clone(), runs.fetch_add(1, Ordering::SeqCst) == 1);
            async move {
                assert_eq!(job.attempt(), if second { 2 } else { 1 });
                if second {
                    stop.cancel();
                } else {
                    std::future::pending::<()>().await;
                }
            }
        }
    };
    let report = queue.worker(1).stop_with(stop).run(handler).await.unwrap();
    assert_eq!((report.completed, report.failed), (1, 1));
    assert!(world.item().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_work_end_and_gives_the_rest_back() {
    let world = World::new();
    let queue = world.queue();
    let names = ["short", "long", "waits"];
    queue.put_many(&names.map(mail)).await.unwrap();
    let stop = CancellationToken::new();
    let handler = |mail: Mail, _: Job| async move {
        let work = if mail.to == "short" {
            secs(5)
        } else {
            secs(5_000)
        };
        tokio::time::sleep(work).await;
    };
    let worker = queue.worker(2).stop_with(stop.clone()).grace(secs(20));
    let running = tokio::spawn(worker.run(handler));
    tokio::time::sleep(secs(1)).await;
    stop.cancel();
    let start = tokio::time::Instant::now();
    let report = running.await.unwrap().unwrap();
    assert!(start.elapsed() >= secs(20) && start.elapsed() < secs(21));
    assert_eq!((report.completed, report.given_back), (1, 1));
    let depth = queue.depth().await.unwrap();
    assert_eq!((depth.ready, depth.in_flight), (2, 0));
    for _ in 0..2 {
        assert_eq!(queue.claim().await.unwrap().attempt(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_gives_everything_back() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let handler = |_: Mail, _: Job| std::future::pending::<()>();
    let running = tokio::time::timeout(secs(30), queue.worker(4).run(handler));
    assert!(running.await.is_err());
    let item = world.until_free().await.unwrap();
    assert_eq!((item.phase, item.attempts), (Phase::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_repeated_through_an_outage() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let stop = CancellationToken::new();
    world.fails(
        Op::Settle,
        &[Fault::LosesReply, Fault::Unavailable, Fault::Hangs],
    );
    let stopping = stop.clone();
    let handler = move |_: Mail, _: Job| {
        stopping.cancel();
        async {}
    };
    let report = queue.worker(1).stop_with(stop).run(handler).await.unwrap();
    assert_eq!(report.completed, 1);
    assert!(world.item().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_dropped_when_its_claim_is_lost() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let stop = CancellationToken::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (stop, runs) = (stop.clone(), Arc::clone(&runs));
        move |_: Mail, _: Job| {
            let (stop, first) = (stop.clone(), runs.fetch_add(1, Ordering::SeqCst) == 0);
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                stop.cancel();
            }
        }
    };
    let running = tokio::spawn(queue.worker(1).stop_with(stop).run(handler));
    tokio::time::sleep(secs(1)).await;
    world.fails(Op::Extend, &[Fault::Unavailable; 1000]);
    world.fails(Op::Settle, &[Fault::Unavailable; 30]);
    tokio::time::sleep(secs(30)).await;
    world.heals();
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.completed, report.lost), (1, 1));
}

/// Runs a handler that leaves its job behind, with these failures of its settle.
async fn left_behind(world: &World, faults: &[Fault]) -> (Job, WorkReport) {
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    world.fails(Op::Settle, faults);
    let stop = CancellationToken::new();
    let leaked = Arc::new(Mutex::new(None));
    let handler = {
        let (stop, leaked) = (stop.clone(), Arc::clone(&leaked));
        move |_: Mail, job: Job| {
            *leaked.lock().unwrap() = Some(job);
            stop.cancel();
            async {}
        }
    };
    let report = queue.worker(1).stop_with(stop).run(handler).await.unwrap();
    let job = leaked.lock().unwrap().take().unwrap();
    (job, report)
}

#[tokio::test(start_paused = true)]
async fn a_job_that_outlives_its_handler_keeps_no_claim_that_the_store_refused_to_settle() {
    let world = World::new();
    // The second is its release's.
    let (job, report) = left_behind(&world, &[Fault::Refuses; 2]).await;
    assert_eq!((report.completed, report.lost), (0, 1));
    assert!(job.lease().check().is_err());
    let extends = world.calls(Op::Extend);
    let free = tokio::time::timeout(secs(10), world.until_free()).await;
    assert_eq!(free.unwrap().unwrap().phase, Phase::Ready);
    assert!(world.calls(Op::Extend) - extends <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_was_refused_goes_on_although_a_job_is_left() {
    let world = World::new();
    let (job, _) = left_behind(&world, &[Fault::Refuses]).await;
    let done = async {
        while world.item().await.is_some() {
            tokio::time::sleep(ms(10)).await;
        }
    };
    tokio::time::timeout(secs(1), done).await.unwrap();
    drop(job);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_gives_an_item_back_although_a_job_is_left() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    let leaked = Arc::new(Mutex::new(None));
    let keeping = Arc::clone(&leaked);
    let handler = move |_: Mail, job: Job| {
        *keeping.lock().unwrap() = Some(job);
        std::future::pending::<()>()
    };
    let running = tokio::time::timeout(secs(30), queue.worker(1).run(handler));
    assert!(running.await.is_err());
    let free = tokio::time::timeout(secs(1), world.until_free()).await;
    let item = free.unwrap().unwrap();
    assert_eq!((item.phase, item.attempts), (Phase::Ready, 0));
    let job = leaked.lock().unwrap().take().unwrap();
    assert!(job.lease().check().is_err());
}

#[tokio::test(start_paused = true)]
async fn what_a_store_takes_in_no_form_is_not_sent_for_ever() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    world.fails(Op::Settle, &[Fault::Invalid; 100]);
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let handler = move |_: Mail, _: Job| {
        stopping.cancel();
        async {}
    };
    let report = queue.worker(1).stop_with(stop).run(handler).await.unwrap();
    assert_eq!(report.lost, 1);
    let free = world.until_free().await.unwrap();
    assert_eq!((free.phase, free.attempts), (Phase::Ready, 1));
    assert!(world.calls(Op::Settle) <= 4, "{}", world.calls(Op::Settle));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_outlives_its_handler_sees_its_lease_lost() {
    let world = World::new();
    let (job, report) = left_behind(&world, &[]).await;
    assert_eq!(report.completed, 1);
    assert!(job.lease().check().is_err());
}
