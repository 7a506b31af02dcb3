//! What failed in a long run of tests, said once more at its end: the rest of the
//! output is thousands of lines, and a log may keep only the last of them.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The most lines of one program's failures: a backtrace has many.
const LINES: usize = 120;

/// How long after the tests' end somebody may still hold their output open.
const REST: Duration = Duration::from_secs(10);

/// Runs these beside each other, since most tests wait most of the time. What one
/// test program prints is shown in one piece, when it ends; failures are repeated at
/// the end.
pub(crate) fn run(parts: Vec<Command>) -> Result<(), String> {
    let parts: Vec<_> = parts
        .into_iter()
        .map(|tests| thread::spawn(move || part(tests)))
        .collect();
    let mut ended = Ok(());
    let mut failures = Vec::new();
    for part in parts {
        let part = part.join().map_err(|_| "a thread panicked".to_owned());
        match part.and_then(|part| part.map_err(|error| format!("cannot run tests: {error}"))) {
            Ok((status, failed)) => {
                failures.push(failed);
                if !status.success() {
                    ended = Err(format!("tests ended with {status}; one alone: {ALONE}"));
                }
            }
            Err(error) => ended = Err(error),
        }
    }
    failures.iter().for_each(Failures::show);
    ended
}

const ALONE: &str = "cargo test -p PACKAGE --all-features NAME";

fn part(mut tests: Command) -> io::Result<(ExitStatus, Failures)> {
    let (output, input) = io::pipe()?;
    tests.stdout(input.try_clone()?).stderr(input);
    let mut running = tests.spawn()?;
    // It holds our side of the pipe.
    drop(tests);
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(Failures::read(output)));
    let status = running.wait()?;
    let failures = told.recv_timeout(REST).unwrap_or_else(|_| {
        eprintln!("a process that the tests left behind keeps their output open");
        Ok(Failures::default())
    });
    Ok((status, failures?))
}

/// The part of each test program's output that tells of its failures.
#[derive(Default)]
struct Failures {
    of: Vec<(String, Vec<String>)>,
}

impl Failures {
    fn read(output: impl Read) -> io::Result<Self> {
        let mut all = Self::default();
        let mut output = BufReader::new(output);
        let (mut piece, mut line) = (Vec::new(), Vec::new());
        loop {
            line.clear();
            let over = output.read_until(b'\n', &mut line)? == 0;
            let word = line.trim_ascii_start();
            if over || word.starts_with(b"Running ") || word.starts_with(b"Doc-tests ") {
                io::stdout().lock().write_all(&piece)?;
                all.take(&String::from_utf8_lossy(&piece));
                piece.clear();
                if over {
                    return Ok(all);
                }
                // Of one that never ends this is all that is seen.
                let name = String::from_utf8_lossy(word.trim_ascii_end());
                println!("  (began) {name}");
            }
            piece.extend_from_slice(&line);
        }
    }

    /// What one program printed, from its name on.
    fn take(&mut self, piece: &str) {
        let mut lines = piece.lines();
        let program = lines.next().unwrap_or_default().trim().to_owned();
        let told: Vec<_> = lines.skip_while(|line| *line != "failures:").collect();
        if !told.is_empty() {
            let told = told.into_iter().map(str::to_owned).collect();
            self.of.push((program, told));
        }
    }

    fn show(&self) {
        for (program, lines) in &self.of {
            println!("\nFAILED: {program}");
            let left_out = lines.len().saturating_sub(LINES);
            let (head, tail) = (LINES / 2, lines.len() - LINES.min(lines.len()) / 2);
            for (at, line) in lines.iter().enumerate() {
                if left_out == 0 || at < head || at >= tail {
                    println!("{line}");
                } else if at == head {
                    println!("… {left_out} lines, above …");
                }
            }
        }
    }
}
