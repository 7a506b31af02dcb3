//! Putting: order, repetition, deduplication, bounds.

use std::time::Duration;

use bytes::Bytes;
use lease_core::StoreErrorKind;
use lease_queue::{Added, Answer, Depth, MAX_BATCH, MAX_DELAY, NewItem, Settle};
use tokio::time::Instant;

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{bury, next};
use crate::queue::context::{Ctx, item, later, once};

group! { "put";
    items_come_in_the_order_of_their_puts:
        "One client gets the items in the order in which they were put, within a batch too.";
    a_repeated_put_adds_once:
        "A put that is repeated with the same identities adds nothing, whatever became of the items, and says Added.";
    a_batch_that_is_known_in_part_adds_the_rest:
        "Of a repeated batch, what is not known yet is added.";
    a_deduplication_key_keeps_others_away:
        "No second item with a deduplication key while one is in the queue: ready, claimed or dead.";
    a_deduplication_key_holds_within_a_batch:
        "Of two items of a batch with one deduplication key the second is the duplicate.";
    a_deduplication_key_outlives_its_item [DedupWindow]:
        "After its completion an item keeps others with its deduplication key away for the store's window.";
    queues_are_apart:
        "Items, identities and deduplication keys of one queue are nothing to another.";
    payloads_come_back_byte_for_byte:
        "Payloads of any bytes and of every size up to the limit come back as they were put.";
    what_no_store_takes_is_invalid_and_adds_nothing:
        "A payload or a delay over its limit, and too many items, are InvalidInput, and nothing of the batch is added.";
    a_delay_is_waited_for [Delay]:
        "An item cannot be claimed before its delay has passed, and Nothing tells how long that takes.";
}

async fn items_come_in_the_order_of_their_puts(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    one.add(&[item("0"), item("1"), item("2")]).await?;
    two.add(&[item("3")]).await?;
    one.add(&[item("4"), item("5")]).await?;
    for due in 0..6 {
        let claimed = two.one(ctx.long()).await?;
        check_eq(
            "the next payload",
            claimed.body,
            Bytes::from(due.to_string()),
        )?;
        two.done(&claimed.claim, Settle::Complete).await?;
    }
    two.nothing(ctx.long()).await.map(drop)
}

async fn a_repeated_put_adds_once(ctx: &Ctx) -> Outcome {
    let (one, two) = (ctx.client().await?, ctx.client().await?);
    let items = [item("a"), item("b")];
    one.add(&items).await?;
    two.add(&items).await?;
    check_eq("the depth", one.depth().await?.ready, 2)?;
    let first = one.one(ctx.long()).await?;
    two.add(&items).await?;
    one.done(&first.claim, Settle::Complete).await?;
    two.add(&items).await?;
    let second = one.one(ctx.long()).await?;
    check_eq("the other item", second.body, Bytes::from("b"))?;
    one.done(&second.claim, bury("dead")).await?;
    two.add(&items).await?;
    one.nothing(ctx.long()).await?;
    let depth = one.depth().await?;
    let due = Depth {
        dead: 1,
        ..Depth::default()
    };
    check_eq("the depth", depth, due)
}

async fn a_batch_that_is_known_in_part_adds_the_rest(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let (a, b) = (item("a"), item("b"));
    client.add(std::slice::from_ref(&a)).await?;
    client.add(&[b, a]).await?;
    check_eq("the depth", client.depth().await?.ready, 2)
}

async fn a_deduplication_key_keeps_others_away(ctx: &Ctx) -> Outcome {
    let (one, two, key) = (ctx.client().await?, ctx.client().await?, key("order/7")?);
    let first = once(&key, "first");
    one.add(std::slice::from_ref(&first)).await?;
    let duplicate = [Added::Duplicate { of: first.id }];
    let kept_away = async || {
        check_eq(
            "a second",
            two.put(&[once(&key, "2")]).await?,
            duplicate.to_vec(),
        )
    };
    kept_away().await?;
    let claimed = one.one(ctx.long()).await?;
    kept_away().await?;
    one.done(&claimed.claim, bury("dead")).await?;
    kept_away().await?;
    // The first is known by its identity, not by its key.
    two.add(&[first]).await?;
    two.nothing(ctx.long()).await.map(drop)
}

async fn a_deduplication_key_holds_within_a_batch(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("order/8")?);
    let (first, second) = (once(&key, "1"), once(&key, "2"));
    let of = first.id;
    let added = client.put(&[first, item("other"), second]).await?;
    let due = vec![Added::Added, Added::Added, Added::Duplicate { of }];
    check_eq("the batch", added, due)?;
    check_eq("the depth", client.depth().await?.ready, 2)
}

async fn a_deduplication_key_outlives_its_item(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("order/9")?);
    let first = once(&key, "first");
    let of = first.id;
    client.add(&[first]).await?;
    let claimed = client.one(ctx.long()).await?;
    let before = Instant::now();
    client.done(&claimed.claim, Settle::Complete).await?;
    let added = client.put(&[once(&key, "second")]).await?;
    if before.elapsed() * 100 / 99 >= ctx.can().dedup_window {
        return Ok(());
    }
    check_eq("a second", added, vec![Added::Duplicate { of }])
}

async fn queues_are_apart(ctx: &Ctx) -> Outcome {
    let (here, there) = (ctx.client().await?, ctx.client_of("jobs:2").await?);
    let key = key("order/7")?;
    let same = once(&key, "same");
    here.add(std::slice::from_ref(&same)).await?;
    there.nothing(ctx.long()).await?;
    there.add(&[same]).await?;
    let claimed = here.one(ctx.long()).await?;
    check_eq("the depth there", there.depth().await?.ready, 1)?;
    // A claim is of its own queue.
    here.done(&claimed.claim, Settle::Complete).await?;
    check_eq("the depth there", there.depth().await?.ready, 1)
}

async fn payloads_come_back_byte_for_byte(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let every: Vec<u8> = (0..=255).collect();
    let largest = vec![0xa7; ctx.can().max_body];
    for body in [Vec::new(), vec![0], every, largest] {
        let body = Bytes::from(body);
        let new = NewItem {
            body: body.clone(),
            ..item("")
        };
        client.add(&[new]).await?;
        let claimed = client.one(ctx.long()).await?;
        let (len, same) = (claimed.body.len(), claimed.body == body);
        check(same, format!("the {} bytes that were put", body.len()), len)?;
        client.done(&claimed.claim, Settle::Complete).await?;
    }
    Ok(())
}

async fn what_no_store_takes_is_invalid_and_adds_nothing(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let large = NewItem {
        body: Bytes::from(vec![0; ctx.can().max_body + 1]),
        ..item("")
    };
    let late = later(MAX_DELAY + Duration::from_secs(1), "late");
    let twice = item("twice");
    let batches = [
        vec![item("good"), large],
        vec![item("good"), late],
        vec![twice.clone(), twice],
        (0..=MAX_BATCH).map(|_| item("many")).collect(),
    ];
    for batch in batches {
        match client.store().put(client.queue(), &batch).await {
            Err(e) if e.kind() == StoreErrorKind::InvalidInput => {}
            other => return Err(Failure::new("InvalidInput", other)),
        }
    }
    check_eq("the depth", client.depth().await?, Depth::default())
}

async fn a_delay_is_waited_for(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let delay = Duration::from_millis(400);
    let sent = Instant::now();
    client.add(&[later(delay, "later"), item("now")]).await?;
    let first = client.one(ctx.long()).await?;
    check_eq("what is ready", first.body, Bytes::from("now"))?;
    client.done(&first.claim, Settle::Complete).await?;
    let resolution = ctx.can().guarantees.ttl.resolution;
    match client.ask(&next(owner(), ctx.long(), 1)).await? {
        Answer::Nothing { next: Some(next) } if next <= delay + resolution => {}
        // The machine stood still for so long that this shows nothing.
        _ if sent.elapsed() * 102 / 100 >= delay => return Ok(()),
        other => {
            let expected = format!("Nothing, and what is next at most {delay:?} away");
            return Err(Failure::new(expected, other));
        }
    }
    client.until_one(owner(), ctx.long()).await?;
    let waited = sent.elapsed() * 102 / 100 + Duration::from_millis(2);
    check(waited >= delay, format!("not before {delay:?}"), waited)
}
