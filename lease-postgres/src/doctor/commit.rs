//! Whether a grant that was answered survives a crash.

use lease_core::Finding;

use super::ask::Answer;
use super::server::Settings;
use super::{Facts, healthy, note, unchecked, warning};

/// `commit` is as the store's sessions have it.
pub(super) fn judge(commit: &Answer<String>, settings: &Settings, facts: &Facts) -> Vec<Finding> {
    let why =
        "with off, a crash of the server loses the last grants: exclusion survives no restart";
    let commit = match commit {
        Ok(commit) => commit.as_str(),
        Err(refusal) => return vec![unchecked("synchronous_commit", why, refusal)],
    };
    let what = format!("synchronous_commit: {commit} in the store's sessions");
    let default = settings.get("synchronous_commit").ok();
    let from = default.map_or_else(String::new, |s| {
        format!("{}, by {}", s.value, whence(&s.source))
    });
    vec![if facts.asynchronous {
        warning(format!("{what}, by the option asynchronous_commit"), why)
            .advice("open the store without it, unless that is what you chose")
    } else if commit == "off" {
        warning(what, why).advice("let nothing in between change the settings of the session")
    } else if default.is_some_and(|s| s.value == "off") {
        note(
            format!("{what}, which set it so: the default is {from}"),
            format!(
                "{why}. What else runs with that default, a transaction of your own that admits a \
                 token too, is not on the disk when it is answered"
            ),
        )
    } else if from.is_empty() {
        healthy(what, why)
    } else {
        healthy(format!("{what} ({from})"), why)
    }]
}

/// The words of `pg_settings` for where a setting comes from.
pub(super) fn whence(source: &str) -> &str {
    match source {
        "default" => "default",
        "user" => "a setting of the role (ALTER ROLE … SET)",
        "database" => "a setting of the database (ALTER DATABASE … SET)",
        "database user" => "a setting of the role in this database",
        "client" => "the URL or the environment (options, PGOPTIONS)",
        "configuration file" => "the server's configuration",
        other => other,
    }
}
