//! Contests for benches: contestants in turn, round by round, and their ratios to
//! a floor. Absolute figures drift from run to run; the ratios are what counts.

mod queue;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use rustix::time::{ClockId, clock_gettime};

pub use queue::{Drained, by_tasks, crowd_drain, lone_drain};

/// Who takes part: acquires a key and releases it.
#[async_trait]
pub trait Contestant: Sync {
    /// As the report says it.
    fn name(&self) -> String;
    /// Acquires and releases, with a renewal between if that is asked for and
    /// can be. Panics when it does not get what it asks for.
    async fn pair(&self, key: &str, renew: bool);
}

/// Acquire, renew and release, in microseconds.
pub type Laps = [f64; 3];

/// Who takes part with the parts of a lease's life, each by itself.
#[async_trait]
pub trait Runner: Sync {
    /// As the report says it.
    fn name(&self) -> String;
    /// One life. Panics when it does not get what it asks for.
    async fn life(&self, key: &str) -> Laps;
}

/// The laps between four moments.
pub fn laps(at: [Instant; 4]) -> Laps {
    [0, 1, 2].map(|i| (at[i + 1] - at[i]).as_secs_f64() * 1e6)
}

/// How one of them did.
#[derive(Debug)]
pub struct Figure {
    name: String,
    /// Of each round.
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// The middle one; not a number of none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Microseconds of this process, all threads.
pub fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Of one task, the median time of a pair in each round.
pub async fn lone(
    all: &[&dyn Contestant],
    renew: bool,
    rounds: usize,
    pairs: usize,
) -> Vec<Figure> {
    let mut figures = blank(all);
    for round in 0..=rounds {
        for (one, figure) in all.iter().zip(&mut figures) {
            let cpu = cpu_us();
            let mut times = Vec::with_capacity(pairs);
            for _ in 0..pairs {
                let start = Instant::now();
                one.pair("lone", renew).await;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            // The first round warms up.
            if round > 0 || rounds == 1 {
                figure.rates.push(median(&times));
                figure.cpu_us.push((cpu_us() - cpu) / pairs as f64);
            }
        }
    }
    figures
}

/// Of many tasks on distinct keys, the pairs of a second in each round.
pub async fn crowd(
    all: &[&dyn Contestant],
    tasks: usize,
    rounds: usize,
    time: Duration,
) -> Vec<Figure> {
    let mut figures = blank(all);
    for round in 0..=rounds {
        for (one, figure) in all.iter().zip(&mut figures) {
            let (cpu, start) = (cpu_us(), Instant::now());
            let counts = join_all((0..tasks).map(|task| async move {
                let (key, mut count) = (format!("crowd/{task}"), 0_u32);
                while start.elapsed() < time {
                    one.pair(&key, false).await;
                    count += 1;
                }
                count
            }));
            let pairs = f64::from(counts.await.into_iter().sum::<u32>());
            if round > 0 || rounds == 1 {
                figure.rates.push(pairs / start.elapsed().as_secs_f64());
                figure.cpu_us.push((cpu_us() - cpu) / pairs);
            }
        }
    }
    figures
}

fn blank(all: &[&dyn Contestant]) -> Vec<Figure> {
    let blank = |one: &&dyn Contestant| Figure {
        name: one.name(),
        rates: Vec::new(),
        cpu_us: Vec::new(),
    };
    all.iter().map(blank).collect()
}

/// Medians over the rounds of each round's ratio to the floor.
fn ratio(figures: &[f64], floor: &[f64]) -> f64 {
    let ratios: Vec<_> = figures.iter().zip(floor).map(|(a, b)| a / b).collect();
    median(&ratios)
}

/// A line for each, with its ratio to the one at `floor`.
pub fn report_lone(figures: &[Figure], floor: usize) -> String {
    let mut lines = String::new();
    for figure in figures {
        let _ = writeln!(
            lines,
            "{:58} {:8.1} µs  x {:4.2}   {:6.1} µs CPU",
            figure.name,
            median(&figure.rates),
            ratio(&figure.rates, &figures[floor].rates),
            median(&figure.cpu_us),
        );
    }
    lines
}

/// A line for each, with its ratios to the one at `floor`.
pub fn report_crowd(figures: &[Figure], floor: usize) -> String {
    let mut lines = String::new();
    for figure in figures {
        let _ = writeln!(
            lines,
            "{:58} {:8.0} /s  x {:4.2}   {:6.2} µs CPU  x {:4.2}",
            figure.name,
            median(&figure.rates),
            ratio(&figure.rates, &figures[floor].rates),
            median(&figure.cpu_us),
            ratio(&figure.cpu_us, &figures[floor].cpu_us),
        );
    }
    lines
}

/// The median laps of each round, of each of them.
pub async fn run_laps(
    all: &[&dyn Runner],
    rounds: usize,
    lives: usize,
) -> Vec<(String, Vec<Laps>)> {
    let mut figures: Vec<_> = all.iter().map(|one| (one.name(), Vec::new())).collect();
    for round in 0..=rounds {
        for (one, (_, figure)) in all.iter().zip(&mut figures) {
            let mut times = Vec::with_capacity(lives);
            for _ in 0..lives {
                times.push(one.life("lone").await);
            }
            if round > 0 || rounds == 1 {
                figure.push([0, 1, 2].map(|i| {
                    let column: Vec<_> = times.iter().map(|times| times[i]).collect();
                    median(&column)
                }));
            }
        }
    }
    figures
}

/// A line for each, with the ratios of its laps to those of the first.
pub fn report_laps(figures: &[(String, Vec<Laps>)]) -> String {
    let mut lines = String::new();
    let floor = figures.first().map_or(&[][..], |(_, rounds)| rounds);
    for (name, rounds) in figures {
        let [acquire, renew, release] = [0, 1, 2].map(|i| {
            let column = |rounds: &[Laps]| rounds.iter().map(|at| at[i]).collect::<Vec<_>>();
            let ratio = ratio(&column(rounds), &column(floor));
            format!("{:7.0} µs x {ratio:4.2}", median(&column(rounds)))
        });
        let _ = writeln!(lines, "{name:44} {acquire}  {renew}  {release}");
    }
    lines
}
