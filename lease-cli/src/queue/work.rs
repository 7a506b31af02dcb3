//! `lease queue work`: claims beside running commands, and how it stops.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leases::Event;
use leases::queue::{Backoff, Claim, Queue, QueueError, Raw};
use rustix::process::Signal;
use tokio::sync::watch;

use super::failure;
use super::task::Shop;
use crate::args;
use crate::exit::{Exit, Failure};
use crate::interrupt::{ENDING, Signals, ended_by};
use crate::notices::Notices;
use crate::patience::{FIRST_ANSWER, Patience};
use crate::run::label;
use crate::run::limits::Limits;
use crate::stderr;
use crate::store::Target;

/// The longest backoff, unless the first is longer.
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);
/// How long the end may take, so that nothing is left at the store.
const SETTLE: Duration = Duration::from_secs(3);
/// Between two looks whether the queue is empty.
const LOOK: Duration = Duration::from_millis(250);

type Items = Queue<Vec<u8>, Raw>;
type Claiming<'a> = Pin<Box<dyn Future<Output = Result<Vec<Claim<Vec<u8>>>, QueueError>> + 'a>>;

pub(crate) async fn work(target: Target, args: args::QueueWork) -> Result<Exit, Failure> {
    // The terminal's stop would suspend us and not the commands, whose claims would
    // run out under them.
    let listened: Vec<_> = ENDING.into_iter().chain([Signal::TSTP]).collect();
    let mut signals = Signals::listen(&listened)?;
    let patience = Patience::new(FIRST_ANSWER);
    let mut opening = std::pin::pin!(target.open_queue(patience));
    let store = loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::TSTP => say_no_stop(),
                signal => return Err(ended_by(signal)),
            },
            store = &mut opening => break store?,
        }
    };
    if target.is_memory() {
        stderr::say("the store memory: is new and empty, and gone with this process");
    }
    let notices = Arc::new(Notices::new(false));
    let name = label(&args.command);
    let most = LONGEST_BACKOFF.max(args.backoff);
    let mut queue = Items::raw_builder(Arc::clone(&store), args.queue.as_str())
        .ttl(args.ttl.get())
        .label(args.label.unwrap_or(name).as_str())
        .max_attempts(args.max_attempts.get())
        .backoff(Backoff::new(args.backoff, most))
        .on_request({
            let (notices, queue) = (Arc::clone(&notices), args.queue.clone());
            move |answer| notices.asked_for_items(queue.as_str(), answer)
        })
        .observer(move |event: &Event| notices.observe(event));
    if let Some(limit) = args.max_hold {
        queue = queue.max_hold(limit);
    }
    let queue = queue.build().map_err(|error| failure(&target, error))?;
    let shop = Shop {
        queue: args.queue.as_str().to_owned(),
        command: args.command,
        store: target.for_child().map(str::to_owned),
        limits: Limits::new(args.ttl, args.kill_after),
    };
    let plan = Plan {
        at_once: args.jobs.get().into(),
        once: args.once,
        until_empty: args.until_empty,
    };
    let ended = run(&queue, &shop, plan, signals).await;
    // What was given back in the background.
    queue.shutdown(SETTLE).await;
    ended.map_err(|ended| match ended {
        Broken::Queue(error) => failure(&target, error),
        Broken::Worker(failure) => failure,
    })
}

/// How much is done.
#[derive(Clone, Copy)]
struct Plan {
    at_once: usize,
    once: bool,
    until_empty: bool,
}

/// What ended a worker.
enum Broken {
    Queue(QueueError),
    Worker(Failure),
}

async fn run(queue: &Items, shop: &Shop, plan: Plan, mut signals: Signals) -> Result<Exit, Broken> {
    let (halt, halted) = watch::channel(false);
    let mut running = FuturesUnordered::new();
    // Kept over rounds: a claim that is dropped half way must be abandoned.
    let mut claiming: Option<Claiming<'_>> = None;
    // Whether nothing more is claimed.
    let mut closing = false;
    let mut broken = None;
    let mut exit = Exit::Success;
    loop {
        let free = plan.at_once - running.len();
        if closing {
            claiming = None;
            if running.is_empty() {
                break;
            }
        } else if claiming.is_none() && free > 0 {
            claiming = Some(Box::pin(queue.claim_batch(free)));
        }
        let idle = running.is_empty();
        let claimed = async {
            match &mut claiming {
                Some(claiming) => claiming.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::TSTP => say_no_stop(),
                _ if !closing => {
                    closing = true;
                    if !idle {
                        stderr::say("stopping when the present commands have ended; a second signal \
                            stops them");
                    }
                }
                signal => {
                    exit = Exit::Signalled(signal.as_raw());
                    let _ = halt.send(true);
                }
            },
            Some(ended) = running.next(), if !idle => match ended {
                Ok(ended) => if plan.once && exit == Exit::Success {
                    exit = ended;
                },
                Err(failure) => {
                    closing = true;
                    broken.get_or_insert(Broken::Worker(failure));
                }
            },
            claims = claimed => {
                claiming = None;
                closing |= plan.once;
                match claims {
                    Ok(claims) => for claim in claims {
                        running.push(shop.work(claim, halted.clone()));
                    },
                    Err(error) => {
                        closing = true;
                        broken.get_or_insert(Broken::Queue(error));
                    }
                }
            }
            () = emptied(queue), if plan.until_empty && idle && !closing => closing = true,
        }
    }
    match broken {
        Some(broken) => Err(broken),
        None => Ok(exit),
    }
}

/// Until the queue holds nothing but what was set aside. A look that fails is no answer:
/// the claim beside it says what is wrong.
async fn emptied(queue: &Items) {
    loop {
        if let Ok(depth) = queue.depth().await
            && depth.ready + depth.delayed + depth.in_flight == 0
        {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn say_no_stop() {
    stderr::say("a worker cannot be suspended, or its claims would run out; end it with SIGTERM");
}
