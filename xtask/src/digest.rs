//! What failed in a long run of tests, said once more at its end: the rest of the
//! output is thousands of lines, and a log may keep only the last of them.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The most lines of one program's failures: a backtrace has many.
const LINES: usize = 120;

/// How long after the tests' end somebody may still hold their output open.
const REST: Duration = Duration::from_secs(10);

/// Runs tests, shows what they print as they print it, and repeats the failures.
pub(crate) fn run(tests: &mut Command) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot run the tests: {error}");
    let (output, input) = io::pipe().map_err(failed)?;
    tests
        .stdout(input.try_clone().map_err(failed)?)
        .stderr(input);
    let mut running = tests.spawn().map_err(failed)?;
    // What stays open on our side would keep the pipe open.
    tests.stdout(io::stdout()).stderr(io::stderr());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(Failures::read(output, &mut io::stdout())));
    let status = running.wait().map_err(failed)?;
    match told.recv_timeout(REST) {
        Ok(failures) => failures.map_err(failed)?.show(),
        Err(_) => eprintln!("a process that the tests left behind keeps their output open"),
    }
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "the tests ended with {status}; one alone: cargo test -p PACKAGE --all-features NAME"
        ))
    }
}

/// The part of each test program's output that tells of its failures.
#[derive(Default)]
struct Failures {
    of: Vec<(String, Vec<String>)>,
}

impl Failures {
    fn read(output: impl Read, show: &mut impl Write) -> io::Result<Self> {
        let mut all = Self::default();
        let mut output = BufReader::new(output);
        let (mut program, mut told, mut line) = (String::new(), None, Vec::new());
        while output.read_until(b'\n', &mut line)? > 0 {
            show.write_all(&line)?;
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            let word = text.trim_start();
            if word.starts_with("Running ") || word.starts_with("Doc-tests ") {
                program = word.to_owned();
            }
            if text == "failures:" {
                told.get_or_insert_with(Vec::new);
            }
            let over = text.starts_with("test result: ");
            if let Some(lines) = &mut told {
                lines.push(text);
            }
            if over && let Some(lines) = told.take() {
                all.of.push((program.clone(), lines));
            }
        }
        // Of one that was killed.
        all.of.extend(told.map(|lines| (program, lines)));
        Ok(all)
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
