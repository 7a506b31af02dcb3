//! A look at the sentinels, and at the servers that they watch.

mod judge;
mod look;

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures_util::future::join_all;
use lease_core::{Diagnosis, Finding, StoreError};

use super::{Facts, critical};
use crate::address::Address;
use crate::sentinel::{Care, Sentinels};
use look::{Node, Said, look_at_node, look_at_sentinel};

/// What was seen of them all.
#[derive(Debug)]
struct View {
    /// Sentinels in the URL.
    named: usize,
    said: Vec<Said>,
    /// Those that did not answer: where, and why.
    silent: Vec<(String, String)>,
    primary: Result<Address, StoreError>,
    /// The servers with data, the primary first, if it is known.
    nodes: Vec<Node>,
}

/// Looks at sentinels, the primary and its replicas, `within` for each, beside
/// what a look at the `primary` alone has found.
///
/// # Errors
/// That of `primary`, if no sentinel answers either.
///
/// # Cancel safety
/// Safe: nothing is written.
pub(crate) async fn diagnose(
    sentinels: &Sentinels,
    primary: Result<Diagnosis, StoreError>,
    facts: &Facts,
    within: Duration,
) -> Result<Diagnosis, StoreError> {
    let view = look(sentinels, within).await;
    // What they say is worth the most when the primary cannot be looked at.
    let mut findings = match primary {
        Ok(diagnosis) => diagnosis.findings,
        Err(error) if view.said.is_empty() => return Err(error),
        Err(error) => vec![unreachable(&error)],
    };
    findings.extend(judge::judge(&view, facts));
    Ok(Diagnosis { findings })
}

async fn look(sentinels: &Sentinels, within: Duration) -> View {
    let name = sentinels.name();
    let asked = sentinels.all().iter().map(|sentinel| async move {
        let place = sentinel.info().addr().to_string();
        match look_at_sentinel(sentinel, name, within).await {
            Ok(mut said) => {
                said.place = place;
                Ok(said)
            }
            Err(reason) => Err((place, reason)),
        }
    });
    let (mut said, mut silent) = (Vec::new(), Vec::new());
    for answer in join_all(asked).await {
        match answer {
            Ok(answer) => said.push(answer),
            Err(failure) => silent.push(failure),
        }
    }
    let primary = sentinels.primary(within, Care::Great).await;
    let mut places: Vec<Address> = primary.iter().cloned().collect();
    for place in said.iter().flat_map(Said::replica_addresses) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let looks = places.into_iter().map(|place| async {
        match sentinels.at(&place) {
            Ok(client) => look_at_node(place, &client, within).await,
            Err(error) => Node::out_of_reach(place, error.to_string()),
        }
    });
    View {
        named: sentinels.all().len(),
        said,
        silent,
        primary,
        nodes: join_all(looks).await,
    }
}

/// The primary cannot be looked at.
fn unreachable(error: &StoreError) -> Finding {
    let what = format!("primary: cannot be looked at ({})", error.message());
    let why = "no lease can be acquired, renewed or released from here";
    critical(what, why).advice(
        "see whether the address that the sentinels name can be reached from here; behind an \
         address translation set replica-announce-ip and sentinel announce-ip",
    )
}
