//! The project's own commands: `cargo xtask help`.
#![forbid(unsafe_code)]
// This program talks to people on the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod digest;
mod house;
mod shell;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test           every suite, with the slices of the long runs that fit into CI
cargo xtask test --full    every suite, at full length
cargo xtask lint           format, clippy and docs, each without a warning
cargo xtask ci             what CI runs: lint, then test
cargo xtask house          that the crates depend on each other as drawn
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["test"] => test::run(test::Length::Slice),
        ["test", "--full"] => test::run(test::Length::Full),
        ["lint"] => test::lint(),
        ["ci"] => test::lint().and_then(|()| test::run(test::Length::Slice)),
        ["house"] => house::check(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(format!("unknown command {words:?}\n\n{HELP}")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
