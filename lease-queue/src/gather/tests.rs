use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::*;

/// A server that notes what it was sent, and answers when it may.
#[derive(Clone)]
struct Server {
    sent: Arc<Mutex<Vec<Vec<u32>>>>,
    may: Arc<Semaphore>,
    given_up: Arc<AtomicUsize>,
    silent: bool,
}

impl Server {
    fn new() -> Self {
        Self {
            sent: Arc::default(),
            may: Arc::new(Semaphore::new(0)),
            given_up: Arc::default(),
            silent: false,
        }
    }

    fn sent(&self) -> Vec<Vec<u32>> {
        self.sent.lock().unwrap().clone()
    }
}

struct UnderWay(Option<Arc<AtomicUsize>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(given_up) = &self.0 {
            given_up.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl Sends for Server {
    type Request = u32;
    type Answer = u32;

    fn go_together(one: &u32, other: &u32) -> bool {
        (*one < 100) == (*other < 100)
    }

    /// Odd numbers are refused.
    async fn send(&self, _: &QueueName, requests: &[u32]) -> Vec<Result<u32, StoreError>> {
        self.sent.lock().unwrap().push(requests.to_vec());
        let mut under_way = UnderWay(Some(Arc::clone(&self.given_up)));
        self.may.acquire().await.unwrap().forget();
        under_way.0 = None;
        let answer = |number: &u32| match number % 2 {
            0 => Ok(number * 10),
            _ => Err(StoreError::refusing(number.to_string())),
        };
        match self.silent {
            true => Vec::new(),
            false => requests.iter().map(answer).collect(),
        }
    }
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

/// Until this is so; whoever is ready runs meanwhile.
async fn until(so: impl Fn() -> bool) {
    while !so() {
        tokio::task::yield_now().await;
    }
}

type Asked = tokio::task::JoinHandle<Result<u32, StoreError>>;

fn ask(gather: &Arc<Gather<Server>>, server: &Server, number: u32) -> Asked {
    let (gather, server) = (Arc::clone(gather), server.clone());
    tokio::spawn(async move { gather.ask(&server, &queue(), number).await })
}

#[tokio::test]
async fn a_lone_request_goes_out_at_its_first_poll() {
    let (gather, server) = (Gather::new(4, 1), Server::new());
    let queue = queue();
    let mut asked = Box::pin(gather.ask(&server, &queue, 2));
    assert!((&mut asked).now_or_never().is_none());
    assert_eq!(server.sent(), [[2]]);
    server.may.add_permits(1);
    assert_eq!(asked.await.unwrap(), 20);
}

#[tokio::test]
async fn others_share_a_request_and_each_has_an_outcome_of_its_own() {
    let (gather, server) = (Gather::new(4, 1), Server::new());
    let first = ask(&gather, &server, 2);
    until(|| server.sent().len() == 1).await;
    let others: Vec<_> = [4, 5, 6].map(|n| ask(&gather, &server, n)).into();
    until(|| server.sent().len() == 2).await;
    assert_eq!(server.sent(), [vec![2], vec![4, 5, 6]]);
    server.may.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap(), 20);
    let told: Vec<_> = join_all(others).await;
    let told: Vec<_> = told.into_iter().map(Result::unwrap).collect();
    assert_eq!(*told[0].as_ref().unwrap(), 40);
    assert_eq!(
        told[1].as_ref().unwrap_err().kind(),
        StoreErrorKind::Refusing
    );
    assert_eq!(*told[2].as_ref().unwrap(), 60);
}

#[tokio::test]
async fn a_crowd_goes_in_parts_and_a_few_go_together() {
    for (tasks, parts, expected) in [
        (64, 2, vec![32, 32]),
        (64, 3, vec![22, 22, 20]),
        (20, 2, vec![10, 10]),
        (9, 2, vec![8, 1]),
        (8, 2, vec![8]),
        (64, 1, vec![64]),
    ] {
        let (gather, server) = (Gather::in_parts(4, 0, parts), Server::new());
        let asked: Vec<_> = (0..tasks).map(|n| ask(&gather, &server, n)).collect();
        until(|| server.sent().concat().len() == tasks as usize).await;
        let sizes: Vec<_> = server.sent().iter().map(Vec::len).collect();
        assert_eq!(sizes, expected);
        // Whoever is back goes on while the others are under way, as a part again.
        server.may.add_permits(1);
        let back = sizes[0];
        let mut asked = asked.into_iter();
        for one in asked.by_ref().take(back) {
            one.await.unwrap().ok();
        }
        let again: Vec<_> = (0..back)
            .map(|n| ask(&gather, &server, n as u32 % 8 * 2))
            .collect();
        until(|| server.sent().concat().len() == tasks as usize + back).await;
        assert_eq!(server.sent()[sizes.len()..].concat().len(), back);
        assert_eq!(server.sent()[sizes.len()].len(), back);
        server.may.add_permits(tasks as usize);
        for one in asked.chain(again) {
            one.await.unwrap().ok();
        }
    }
}

#[tokio::test]
async fn requests_of_another_kind_go_by_themselves_and_no_more_batches_than_may_be() {
    let (gather, server) = (Gather::new(3, 1), Server::new());
    let asked: Vec<_> = [2, 4, 100, 6, 102, 8]
        .map(|n| ask(&gather, &server, n))
        .into();
    until(|| server.sent().len() == 3).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.sent(), [vec![2], vec![4, 6, 8], vec![100, 102]]);
    let more = ask(&gather, &server, 10);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.sent().len(), 3, "three are under way");
    server.may.add_permits(4);
    for one in asked {
        one.await.unwrap().unwrap();
    }
    assert_eq!(more.await.unwrap().unwrap(), 100);
}

#[tokio::test]
async fn what_is_dropped_while_it_gathers_is_not_sent() {
    let (gather, server) = (Gather::new(2, 1), Server::new());
    let first = ask(&gather, &server, 2);
    let second = ask(&gather, &server, 4);
    until(|| server.sent().len() == 2).await;
    let dropped = ask(&gather, &server, 6);
    let kept = ask(&gather, &server, 8);
    tokio::task::yield_now().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    server.may.add_permits(3);
    for one in [first, second, kept] {
        one.await.unwrap().unwrap();
    }
    assert_eq!(server.sent(), [[2], [4], [8]]);
}

#[tokio::test]
async fn a_request_to_the_server_is_given_up_when_all_have_left_it() {
    let (gather, server) = (Gather::new(2, 1), Server::new());
    let first = ask(&gather, &server, 2);
    until(|| server.sent().len() == 1).await;
    let (one, other) = (ask(&gather, &server, 4), ask(&gather, &server, 6));
    until(|| server.sent().len() == 2).await;
    one.abort();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.given_up.load(Ordering::Relaxed), 0);
    other.abort();
    until(|| server.given_up.load(Ordering::Relaxed) == 1).await;
    // The way is free again.
    let next = ask(&gather, &server, 8);
    until(|| server.sent().len() == 3).await;
    server.may.add_permits(2);
    first.await.unwrap().unwrap();
    assert_eq!(next.await.unwrap().unwrap(), 80);
}

#[tokio::test]
async fn who_gets_no_answer_is_told_that_nobody_knows() {
    let (gather, mut server) = (Gather::new(2, 1), Server::new());
    server.silent = true;
    server.may.add_permits(10);
    let asked: Vec<_> = [2, 4, 6].map(|n| ask(&gather, &server, n)).into();
    for one in asked {
        let error = one.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome);
    }
}

#[tokio::test]
async fn batches_get_smaller_while_nobody_knows_what_came_of_them() {
    let (gather, mut server) = (Gather::new(2, 1), Server::new());
    let numbers = || (1..=16).map(|n| n * 2);
    server.silent = true;
    let first = ask(&gather, &server, 2);
    until(|| server.sent().len() == 1).await;
    let asked: Vec<_> = numbers().map(|n| ask(&gather, &server, n)).collect();
    until(|| server.sent().len() == 2).await;
    server.may.add_permits(2);
    first.await.unwrap().unwrap_err();
    for one in join_all(asked).await {
        one.unwrap().unwrap_err();
    }
    // So does one that all have left.
    let asked: Vec<_> = numbers().map(|n| ask(&gather, &server, n)).collect();
    until(|| server.sent().len() == 4).await;
    asked.iter().for_each(Asked::abort);
    join_all(asked).await;
    server.silent = false;
    server.may.add_permits(100);
    let asked: Vec<_> = numbers().map(|n| ask(&gather, &server, n)).collect();
    for one in join_all(asked).await {
        one.unwrap().unwrap();
    }
    let sizes: Vec<_> = server.sent().iter().map(Vec::len).collect();
    assert_eq!(sizes[..4], [1, 16, 8, 8]);
    assert_eq!(sizes[4], 4, "{sizes:?}");
    // And larger again.
    assert!(sizes[5..].iter().any(|size| *size > 4), "{sizes:?}");
    assert_eq!(sizes[4..].iter().sum::<usize>(), 16);
}

#[test]
fn a_runtime_that_ends_keeps_nobody_waiting_on_another() {
    let (gather, server) = (Gather::new(2, 1), Server::new());
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.build().unwrap()
    };
    let ended = runtime();
    let asked: Vec<_> = ended.block_on(async {
        let mut asked: Vec<_> = [2, 4, 6]
            .map(|n| {
                let (gather, server) = (Arc::clone(&gather), server.clone());
                Box::pin(async move { gather.ask(&server, &queue(), n).await })
            })
            .into();
        for one in &mut asked {
            assert!(one.now_or_never().is_none());
        }
        asked
    });
    drop(ended);
    runtime().block_on(async {
        server.may.add_permits(10);
        let mut asked = asked.into_iter();
        // Its own, which needs nobody else.
        assert_eq!(asked.next().unwrap().await.unwrap(), 20);
        for one in asked {
            assert!(one.await.is_err());
        }
        let next = ask(&gather, &server, 8);
        assert_eq!(next.await.unwrap().unwrap(), 80);
    });
}
