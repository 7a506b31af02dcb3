//! Standbys: whether commits wait for any, and what a failover would cost.

use lease_core::{Finding, StoreError};

use super::ask::{Answer, Asker, Refusal};
use super::server::{Look, Settings};
use super::{Facts, critical, healthy, note, unchecked, warning};

#[derive(Clone, Copy, Debug)]
pub(super) struct Standbys {
    attached: i64,
    /// Those that a commit may wait for.
    synchronous: i64,
    /// And those that would take the place of one of them.
    listed: i64,
}

impl Standbys {
    pub(super) async fn ask(asker: &mut Asker<'_>) -> Result<Answer<Self>, StoreError> {
        let line = asker
            .one(
                "SELECT count(*) AS attached, \
                 count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous, \
                 count(*) FILTER (WHERE sync_state IN ('sync', 'quorum', 'potential')) AS listed, \
                 count(*) FILTER (WHERE state IS NULL) AS hidden \
                 FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'",
            )
            .await?;
        Ok(line.and_then(|line| {
            // A role that may not see them sees that they are.
            if line.number("hidden")? > 0 {
                return Err(Refusal::Hidden);
            }
            Ok(Self {
                attached: line.number("attached")?,
                synchronous: line.number("synchronous")?,
                listed: line.number("listed")?,
            })
        }))
    }
}

/// How many standbys a commit waits for.
fn required(names: &str) -> i64 {
    let names = names.trim();
    if names.is_empty() {
        return 0;
    }
    let Some((before, _)) = names.split_once('(') else {
        return 1;
    };
    let number = before.split_whitespace().last();
    number.and_then(|word| word.parse().ok()).unwrap_or(1)
}

pub(super) fn judge(
    standbys: &Answer<Standbys>,
    settings: &Settings,
    commit: &Answer<String>,
    look: &Look,
    facts: &Facts,
) -> Option<Finding> {
    // Its own standbys, if any, decide nothing.
    if look.standby == Ok(true) {
        return None;
    }
    let why = "a grant that a standby had not heard of when it took over is lost: two may believe \
               until the former holder's next renewal, and only the token protects";
    let names = match settings.get("synchronous_standby_names") {
        Ok(setting) => setting.value.as_str(),
        Err(refusal) => return Some(unchecked("standbys", why, refusal)),
    };
    let required = required(names);
    let waits =
        required > 0 && !facts.asynchronous && !matches!(commit.as_deref(), Ok("off" | "local"));
    let standbys = match standbys {
        Ok(standbys) => standbys,
        Err(refusal) => return Some(unchecked("standbys", why, refusal)),
    };
    let (attached, synchronous) = (standbys.attached, standbys.synchronous);
    Some(match (waits, attached) {
        (true, _) if synchronous < required => critical(
            format!(
                "standbys: a commit waits for {required} that synchronous_standby_names lists, \
                 and {synchronous} of them are attached"
            ),
            "every commit hangs until one is: no grant and no renewal is answered, and every \
             lease ends at its deadline",
        )
        .advice("bring the standby back, or take it out of synchronous_standby_names"),
        (true, _) if standbys.listed == required => note(
            format!("standbys: a commit waits for {required} of {attached}, and none is to spare"),
            format!(
                "when one of them goes away every commit hangs until it is back, and every lease \
                 ends at its deadline. {why}"
            ),
        )
        .advice("attach one more, and list it in synchronous_standby_names"),
        (true, _) => healthy(
            format!("standbys: a commit waits for {required} of {attached}"),
            format!("{why}. Let only one of those that commits wait for take over"),
        ),
        (false, 0) => healthy(
            "standbys: none is attached",
            "there is no failover that could lose a grant; there is none that could help either",
        ),
        (false, _) if required > 0 => warning(
            format!("standbys: {attached}, and the store's commits wait for none of them"),
            why,
        )
        .advice("let synchronous_commit be on or remote_apply for the store's role"),
        (false, _) => note(
            format!("standbys: {attached}, all asynchronous"),
            format!("{why}. Restarts of this server lose nothing"),
        )
        .advice(
            "set synchronous_standby_names if a failover must lose no grant: with two standbys or \
             more, since commits hang without one",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::required;

    #[test]
    fn the_number_of_standbys_is_read() {
        for (names, number) in [
            ("", 0),
            ("*", 1),
            ("a, b", 1),
            ("2 (a, b)", 2),
            ("FIRST 2 (a, b, c)", 2),
            ("any 3(a, b, c)", 3),
            ("\"odd\"", 1),
        ] {
            assert_eq!(required(names), number, "{names}");
        }
    }
}
