//! `lease`: run a command while holding a lease, and look after leases.
#![deny(unsafe_code)]

mod acquire;
mod admit;
mod args;
mod doctor;
mod duration;
mod exit;
mod fence;
mod held;
mod inspect;
mod interrupt;
mod notices;
mod outage;
mod output;
mod patience;
mod program;
mod queue;
mod quorum;
mod run;
mod schema;
mod stderr;
mod store;
mod stores;
mod unreadable;

fn main() -> std::process::ExitCode {
    program::main()
}
