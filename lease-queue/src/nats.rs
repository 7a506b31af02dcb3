//! The store on NATS JetStream.
#![doc = include_str!("../docs/nats.md")]

mod chain;
mod doctor;
mod errors;
mod items;
mod lane;
mod lazily;
mod leaving;
mod line;
mod link;
mod list;
mod log;
mod login;
mod names;
mod options;
mod place;
mod promise;
mod record;
mod rules;
mod sight;
mod store;
mod stream;
mod turns;
mod url;
mod view;
mod wake;

pub use async_nats;
pub use lazily::LazyNatsStore;
pub use options::NatsOptions;
pub use store::NatsStore;
