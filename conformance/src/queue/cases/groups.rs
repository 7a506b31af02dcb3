//! Groups: one owner at a time, first in, first out.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lease_core::{Key, Ttl};
use lease_queue::{Claimed, Lane, Settle};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::context::{key, owner};
use crate::failure::{Failure, Outcome, check, check_eq};
use crate::queue::case::group;
use crate::queue::client::{Client, back};
use crate::queue::context::{Ctx, grouped, item};

group! { "groups";
    a_group_has_one_owner [Groups]:
        "While one item of a group is claimed, nobody gets another one of it.";
    a_groups_items_come_in_order [Groups]:
        "A group's items are claimed in the order of their puts, each when the one before it was completed.";
    groups_do_not_wait_for_each_other [Groups]:
        "A claimed group is in nobody's way but its own.";
    names_do_not_meet [Groups]:
        "A group, a key and an item whose names are alike have nothing to do with each other, whatever bytes the names hold.";
    a_race_keeps_one_owner_and_the_order [Groups]:
        "While many clients claim from 50 groups at once, no group ever has two owners, and the order within each is kept.";
}

async fn a_group_has_one_owner(ctx: &Ctx) -> Outcome {
    let (one, two, group) = (ctx.client().await?, ctx.client().await?, key("g")?);
    one.add(&[grouped(&group, "0"), grouped(&group, "1")])
        .await?;
    let claimed = one.one(ctx.long()).await?;
    check_eq(
        "the lane",
        claimed.claim.lane.clone(),
        Lane::Group(group.clone()),
    )?;
    two.nothing(ctx.long()).await?;
    two.add(&[grouped(&group, "2")]).await?;
    two.nothing(ctx.long()).await?;
    one.done(&claimed.claim, Settle::Extend(ctx.long())).await?;
    two.nothing(ctx.long()).await.map(drop)
}

async fn a_groups_items_come_in_order(ctx: &Ctx) -> Outcome {
    let (one, two, group) = (ctx.client().await?, ctx.client().await?, key("g")?);
    for n in 0..6 {
        let client = if n % 2 == 0 { &one } else { &two };
        client.add(&[grouped(&group, &n.to_string())]).await?;
    }
    for due in 0..6 {
        let client = if due % 2 == 0 { &two } else { &one };
        let claimed = client.one(ctx.long()).await?;
        check_eq("the next", claimed.body, Bytes::from(due.to_string()))?;
        client.done(&claimed.claim, Settle::Complete).await?;
    }
    Ok(())
}

async fn groups_do_not_wait_for_each_other(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let (a, b) = (key("a")?, key("b")?);
    client.add(&[grouped(&a, "a0"), grouped(&a, "a1")]).await?;
    client.add(&[grouped(&b, "b0"), item("alone")]).await?;
    let mut bodies = HashSet::new();
    for _ in 0..3 {
        bodies.insert(client.one(ctx.long()).await?.body);
    }
    let due = ["a0", "b0", "alone"].map(Bytes::from);
    check_eq("the heads", bodies, HashSet::from(due))?;
    client.nothing(ctx.long()).await.map(drop)
}

async fn names_do_not_meet(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    let new = item("alone");
    let id = new.id.to_string();
    client.add(&[new]).await?;
    let names = [
        id.as_str(),
        "g",
        "G",
        "g ",
        " g",
        "g:",
        "g:1",
        "{g}",
        "g{1}",
        "*",
        "%",
        "g.",
        "g/",
        "ü",
        "u\u{308}",
        "\u{1f980}",
        "i:1",
        "g\\0",
        "'",
        "\"",
        ">",
        "jobs",
    ];
    let groups = names
        .iter()
        .map(|name| key(name))
        .collect::<Outcome<Vec<Key>>>()?;
    for group in &groups {
        client.add(&[grouped(group, group.as_str())]).await?;
    }
    for group in &groups {
        client.key(group, owner(), ctx.long()).await?;
    }
    let claimed = client.claims(ctx.long(), 100).await?;
    check_eq("one of each", claimed.len(), groups.len() + 1)?;
    for Claimed { claim, body, .. } in claimed {
        let right = match &claim.lane {
            Lane::Group(group) => body == group.as_str(),
            Lane::Item(of) => *of == claim.item && body == "alone",
            Lane::Key(_) => false,
        };
        check(right, "the payload of its own lane", (&claim.lane, &body))?;
        client.done(&claim, Settle::Complete).await?;
    }
    Ok(())
}

const GROUPS: usize = 50;
const ITEMS: usize = 4;
const WORKERS: u64 = 8;

/// What the workers believe of each group, judged as it happens.
#[derive(Debug, Default)]
struct Beliefs {
    owned: HashSet<Key>,
    completed: HashMap<Key, usize>,
}

impl Beliefs {
    /// A worker has got an item.
    fn got(&mut self, group: &Key, body: &Bytes) -> Outcome {
        let alone = self.owned.insert(group.clone());
        check(alone, format!("one owner of {group:?}"), "two")?;
        let due = self.completed.get(group).copied().unwrap_or_default();
        check_eq(
            &format!("the next of {group:?}"),
            body.clone(),
            Bytes::from(due.to_string()),
        )
    }

    /// A worker is about to give it back, done or not.
    fn gives(&mut self, group: &Key, done: bool) {
        self.owned.remove(group);
        if done {
            *self.completed.entry(group.clone()).or_default() += 1;
        }
    }
}

async fn a_race_keeps_one_owner_and_the_order(ctx: &Ctx) -> Outcome {
    let putter = ctx.client().await?;
    let groups = (0..GROUPS)
        .map(|n| key(&format!("group {n}")))
        .collect::<Outcome<Vec<Key>>>()?;
    // Some groups come one after the other, some in turns.
    let (whole, turns) = groups.split_at(GROUPS / 2);
    let of = |group: &Key, n: usize| grouped(group, &n.to_string());
    let items = whole.iter().flat_map(|g| (0..ITEMS).map(move |n| of(g, n)));
    putter.add(&items.collect::<Vec<_>>()).await?;
    for n in 0..ITEMS {
        let items: Vec<_> = turns.iter().map(|g| of(g, n)).collect();
        putter.add(&items).await?;
    }
    let beliefs = Arc::new(Mutex::new(Beliefs::default()));
    let give_up = Instant::now() + Duration::from_secs(60);
    let mut working = JoinSet::new();
    for seed in 0..WORKERS {
        let (client, beliefs) = (ctx.client().await?, Arc::clone(&beliefs));
        working.spawn(work(
            client,
            beliefs,
            StdRng::seed_from_u64(seed),
            ctx.long(),
            give_up,
        ));
    }
    while let Some(ended) = working.join_next().await {
        ended.map_err(|e| Failure::says("no worker panics", e.to_string()))??;
    }
    let completed = beliefs
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .completed
        .clone();
    let all = completed.len() == GROUPS && completed.values().all(|done| *done == ITEMS);
    check(
        all,
        format!("{ITEMS} items done of each of {GROUPS} groups"),
        &completed,
    )
}

/// Claims some, and completes most of them, until nothing is left.
async fn work(
    client: Client,
    beliefs: Arc<Mutex<Beliefs>>,
    mut random: StdRng,
    ttl: Ttl,
    give_up: Instant,
) -> Outcome {
    let believe = || beliefs.lock().unwrap_or_else(|e| e.into_inner());
    while Instant::now() < give_up {
        let claimed = client.claims(ttl, random.random_range(1..4)).await?;
        if claimed.is_empty() {
            let depth = client.depth().await?;
            if depth.ready + depth.in_flight == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut held = Vec::new();
        for Claimed { claim, body, .. } in claimed {
            let Lane::Group(group) = claim.lane.clone() else {
                return Err(Failure::new("a group's lane", claim));
            };
            believe().got(&group, &body)?;
            held.push((claim, group));
        }
        // Work takes time.
        tokio::time::sleep(Duration::from_millis(random.random_range(0..4))).await;
        for (claim, group) in held {
            let done = random.random_bool(0.8);
            // Before it is sent: somebody else may have it before the answer is here.
            believe().gives(&group, done);
            let settle = if done { Settle::Complete } else { back(true) };
            client.done(&claim, settle).await?;
        }
    }
    Err(Failure::says(
        "the race ends within a minute",
        "items are left",
    ))
}
