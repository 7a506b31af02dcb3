//! A look at a Redis Cluster: at each primary as at a server of its own, and at
//! what they are together.

use std::collections::HashMap;

use futures_util::future::{join, join_all};
use lease_core::{Diagnosis, Finding, StoreError};

use super::ask::{Answer, Place, Questions};
use super::info::Info;
use super::merge::{Node, merge};
use super::together::{Member, Reached, Replica, Together, moving};
use super::{Facts, Seen, judge};
use crate::address::Address;
use crate::cluster::{Map, Router};

/// Looks at every node of the cluster.
///
/// # Errors
/// Only a cluster that is out of reach, or no cluster.
///
/// # Cancel safety
/// Safe: nothing is written.
pub(crate) async fn diagnose(router: &Router, facts: &Facts) -> Result<Diagnosis, StoreError> {
    router.look().await?;
    let map = router.map();
    let primaries = map
        .primaries()
        .map(|primary| primary_at(router, &map, primary, facts));
    let replicas = map
        .replicas()
        .iter()
        .map(|replica| replica_at(router, replica));
    let (primaries, replicas) = join(join_all(primaries), join_all(replicas)).await;
    let (mut members, mut nodes) = (Vec::new(), Vec::new());
    for (member, findings) in primaries {
        nodes.extend(findings.map(|findings| Node {
            name: member.name.clone(),
            findings,
        }));
        members.push(member);
    }
    let together = Together {
        members,
        replicas,
        uncovered: map.uncovered(),
    };
    let mut findings = together.judge(facts);
    findings.extend(merge(nodes));
    Ok(Diagnosis { findings })
}

async fn primary_at(
    router: &Router,
    map: &Map,
    address: &Address,
    facts: &Facts,
) -> (Member, Option<Vec<Finding>>) {
    let name = address.to_string();
    let facts = Facts {
        slot: map.slots_of(address).next(),
        ..facts.clone()
    };
    let looked: Result<_, StoreError> = async {
        let node = router.node(address)?;
        let mut up = node.link().connection().await?;
        let seen = Seen::look(&mut up.wire, &facts).await?;
        let mut questions = Questions::default();
        let state = questions.put(cluster("INFO"));
        let nodes = questions.put(cluster("NODES"));
        let timeout = setting(&mut questions, "cluster-node-timeout");
        let coverage = setting(&mut questions, "cluster-require-full-coverage");
        let answers = questions.ask(&mut up.wire).await?;
        let state: Answer<String> = answers.hear(state);
        let nodes: Answer<String> = answers.hear(nodes);
        let heard = |place| answers.hear::<HashMap<String, String>>(place).ok();
        let reached = Reached {
            serves: state.ok().map(|text| text.contains("cluster_state:ok")),
            node_timeout_ms: value(heard(timeout)).and_then(|text| text.parse().ok()),
            full_coverage: value(heard(coverage)).map(|text| text == "yes"),
            replicas: seen.info.as_ref().ok().map(|info| info.replicas().len()),
            clock_us: seen.clock.as_ref().ok().map(super::Clock::bounds_us),
            moving: nodes.map(|text| moving(&text)).unwrap_or_default(),
        };
        Ok((reached, judge(&seen, &facts)))
    }
    .await;
    match looked {
        Ok((reached, findings)) => (
            Member {
                name,
                reached: Ok(reached),
            },
            Some(findings),
        ),
        Err(error) => (
            Member {
                name,
                reached: Err(error.message().to_owned()),
            },
            None,
        ),
    }
}

async fn replica_at(router: &Router, address: &Address) -> Replica {
    let looked: Result<_, StoreError> = async {
        let node = router.node(address)?;
        let mut up = node.link().connection().await?;
        let mut questions = Questions::default();
        let info = questions.put(redis::cmd("INFO"));
        let clock = super::Clock::ask(&mut questions);
        let before = super::time::wall_us();
        let answers = questions.ask(&mut up.wire).await?;
        let after = super::time::wall_us();
        let info: Answer<String> = answers.hear(info);
        let clock = super::Clock::hear(&answers, clock, (before, after));
        Ok((
            info.ok().map(|text| Info::parse(&text)),
            clock.ok().map(|clock| clock.bounds_us()),
        ))
    }
    .await;
    let name = address.to_string();
    match looked {
        Ok((info, clock_us)) => Replica {
            name,
            unreached: None,
            linked: info.and_then(|info| Some(info.text("master_link_status")? == "up")),
            clock_us,
        },
        Err(error) => Replica {
            name,
            unreached: Some(error.message().to_owned()),
            linked: None,
            clock_us: None,
        },
    }
}

fn cluster(what: &str) -> redis::Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg(what);
    command
}

fn setting(questions: &mut Questions, name: &str) -> Place {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(name);
    questions.put(command)
}

fn value(heard: Option<HashMap<String, String>>) -> Option<String> {
    heard?.into_values().next()
}
