//! Contests between queues: each claims and completes items that were put before.

use std::time::Instant;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::{Figure, cpu_us, median};

/// Who takes part with a queue of its own.
#[async_trait]
pub trait Drained: Sync {
    /// As the report says it.
    fn name(&self) -> String;
    /// Puts so many items, which nobody times.
    async fn fill(&self, items: usize);
    /// Claims and completes so many, up to `tasks` at a time: how long each took, in
    /// microseconds; none where that cannot be told. Panics when it does not get what it
    /// asks for.
    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64>;
    /// The most items that it bears at a time.
    fn most(&self) -> usize {
        200_000
    }
}

/// Runs `pair` so many times, by so many tasks, and times each.
pub async fn by_tasks<F>(tasks: usize, items: usize, pair: impl Fn() -> F + Sync) -> Vec<f64>
where
    F: Future<Output = ()>,
{
    let pair = &pair;
    let shares = (0..tasks).map(|task| async move {
        let mut times = Vec::new();
        for _ in (task..items).step_by(tasks) {
            let start = Instant::now();
            pair().await;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times
    });
    join_all(shares).await.concat()
}

/// The median time of a claim and a completion by one task, in each round. `between` is
/// called before each contestant's turn.
pub async fn lone_drain(
    all: &[&dyn Drained],
    rounds: usize,
    items: usize,
    between: impl Fn(),
) -> Vec<Figure> {
    let mut figures = blank(all);
    for round in 0..=rounds {
        for (one, figure) in all.iter().zip(&mut figures) {
            one.fill(items).await;
            between();
            let (cpu, start) = (cpu_us(), Instant::now());
            let times = one.drain(1, items).await;
            let mean = start.elapsed().as_secs_f64() * 1e6 / items as f64;
            // The first round warms up.
            if round > 0 || rounds == 1 {
                figure.rates.push(match times.is_empty() {
                    true => mean,
                    false => median(&times),
                });
                figure.cpu_us.push((cpu_us() - cpu) / items as f64);
            }
        }
    }
    figures
}

/// Of many tasks, the items of a second in each round, which takes each contestant about
/// `seconds`.
pub async fn crowd_drain(
    all: &[&dyn Drained],
    tasks: usize,
    rounds: usize,
    seconds: f64,
    between: impl Fn(),
) -> Vec<Figure> {
    let mut figures = blank(all);
    let mut items: Vec<usize> = all.iter().map(|_| 8 * tasks).collect();
    for round in 0..=rounds {
        for (place, (one, figure)) in all.iter().zip(&mut figures).enumerate() {
            one.fill(items[place]).await;
            between();
            let (cpu, start) = (cpu_us(), Instant::now());
            one.drain(tasks, items[place]).await;
            let rate = items[place] as f64 / start.elapsed().as_secs_f64();
            if round > 0 || rounds == 1 {
                figure.rates.push(rate);
                figure.cpu_us.push((cpu_us() - cpu) / items[place] as f64);
            }
            // As many as it does in that time.
            items[place] = ((rate * seconds) as usize).clamp(2 * tasks, one.most());
        }
    }
    figures
}

fn blank(all: &[&dyn Drained]) -> Vec<Figure> {
    let blank = |one: &&dyn Drained| Figure {
        name: one.name(),
        rates: Vec::new(),
        cpu_us: Vec::new(),
    };
    all.iter().map(blank).collect()
}
