//! `lease queue put`.

use std::io::Read;

use leases::queue::{Added, MAX_BODY_BYTES, Queue, Raw};
use serde::Serialize;

use super::failure;
use crate::args;
use crate::exit::{Exit, Failure};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;
use crate::{output, stderr};

#[derive(Serialize)]
struct PutJson {
    item: String,
    added: bool,
}

pub(crate) async fn put(target: Target, args: args::QueuePut) -> Result<Exit, Failure> {
    let payload = match args.data {
        Some(data) => data.into_bytes(),
        None => from_stdin()?,
    };
    let store = target.open_queue(Patience::new(FIRST_ANSWER)).await?;
    let failed = |error| failure(&target, error);
    let queue = Queue::<Vec<u8>, Raw>::raw_builder(store, args.queue.as_str());
    let queue = queue.build().map_err(failed)?;
    let mut put = queue.put(&payload).delay(args.delay);
    if let Some(group) = args.group {
        put = put.group(group.as_str());
    }
    if let Some(dedup) = args.dedup {
        put = put.dedup(dedup.as_str());
    }
    let own = put.id();
    let (item, added) = match put.send().await.map_err(failed)? {
        Added::Added => (own, true),
        Added::Duplicate { of } => (Some(of), false),
    };
    let item = item.map(|item| item.to_string()).unwrap_or_default();
    if !added {
        stderr::say("an item with this deduplication key was put before; nothing was put");
    }
    if args.form.json {
        output::print_json(&PutJson { item, added })?;
    } else {
        output::print(format_args!("{item}\n"))?;
    }
    Ok(Exit::Success)
}

/// All of it, and no more than one byte over what any store takes.
fn from_stdin() -> Result<Vec<u8>, Failure> {
    let mut payload = Vec::new();
    let most = MAX_BODY_BYTES as u64 + 1;
    let read = std::io::stdin().lock().take(most).read_to_end(&mut payload);
    read.map_err(|error| {
        Failure::new(
            Exit::Internal,
            format!("cannot read the payload from stdin: {error}"),
        )
    })?;
    if payload.len() > MAX_BODY_BYTES {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "the payload has more than {MAX_BODY_BYTES} bytes: keep it elsewhere and put its \
                 address"
            ),
        ));
    }
    Ok(payload)
}
