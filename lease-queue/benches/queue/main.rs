//! What a claim and its completion cost: the floor is the least that the same driver can
//! do on the same store. All in one run, in interleaved rounds; the ratios are what
//! counts. Run with `cargo bench -p lease-queue`; `-- redis`, `-- postgres`, `-- nats` or
//! `-- waiting` is about that alone.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod contest;
mod nats;
mod ours;
mod postgres;
mod redis;
mod waiting;

fn main() {
    contest::main(contest::Peers::none());
}
