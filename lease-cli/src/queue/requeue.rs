//! `lease queue requeue`.

use futures_util::StreamExt;
use leases::queue::ItemId;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;
use crate::{output, stderr};

pub(crate) async fn requeue(target: Target, args: args::QueueRequeue) -> Result<Exit, Failure> {
    let store = target.open_queue(Patience::new(FIRST_ANSWER)).await?;
    let failed = |error: leases::StoreError| target.failure(error.into());
    let mut items = args.items;
    if args.all {
        // All of them before the first is put back: a list that changes may skip some.
        let mut dead = store.items(&args.queue, true);
        while let Some(item) = dead.next().await {
            items.push(item.map_err(failed)?.id);
        }
    }
    let mut exit = Exit::Success;
    for item in items {
        if store.requeue(&args.queue, item).await.map_err(failed)? {
            output::print(format_args!("{item}\n"))?;
        } else if !args.all {
            say_not_dead(item);
            exit = Exit::No;
        }
    }
    Ok(exit)
}

fn say_not_dead(item: ItemId) {
    stderr::say(&format!(
        "the item {item} is not set aside in this queue; nothing was changed"
    ));
}
