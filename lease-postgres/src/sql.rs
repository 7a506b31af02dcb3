//! The statements, with the names of one store's tables in them.
//!
//! Each operation is one statement over arrays: a batch and a lone request are
//! the same. They are files of their own, so that a database's administrator can
//! read them.

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::names::Names;

/// The server's clock in microseconds since the Unix epoch; it goes on within a
/// statement. A double keeps them exactly until the year 2106, and to the
/// microsecond before and after the last digit for centuries after that;
/// `extract` would count in decimals, many times slower.
const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";

/// Whether the row `K` holds part of a grant, or one of an unknown kind (above `MOST`),
/// whose time is not known to be over at `NOW`. Where there is no row it does not.
const STRANGE: &str = "(coalesce(\
    num_nonnulls(K.owner, K.token, K.expires_us, K.standing) IN (1, 2, 3) OR coalesce(K.mark, 0) < K.token \
    OR K.standing NOT BETWEEN 0 AND MOST OR K.token NOT BETWEEN 1 AND 9007199254740991, false) \
    AND NOT coalesce(K.expires_us < NOW, false))";

/// Settings that the statements rely on. Whoever chose other defaults for a role
/// or a database (a search path with functions of other meanings in it, another
/// isolation level) has not meant us; whoever makes a server read-only has, since
/// that is how a former primary is kept from changes. The statements look keys up
/// by an index, whatever the statistics say, and are planned once.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("search_path", "pg_catalog"),
    ("default_transaction_isolation", "'read committed'"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("client_min_messages", "error"),
];

/// No session of ours is ended for being idle, where the server (from version 14
/// on) would do that.
pub(crate) const STAY: &str = "\
    SELECT set_config('idle_session_timeout', '0', false) \
        WHERE current_setting('idle_session_timeout', true) IS NOT NULL";

/// The statements of one store.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    pub(crate) acquire: SqlStr,
    pub(crate) renew: SqlStr,
    pub(crate) prolong: SqlStr,
    pub(crate) release: SqlStr,
    pub(crate) abandon: SqlStr,
    pub(crate) fence: SqlStr,
    pub(crate) suspect: SqlStr,
    pub(crate) inspect: SqlStr,
    pub(crate) admit: SqlStr,
    pub(crate) page: SqlStr,
    pub(crate) wait: SqlStr,
    pub(crate) notify: SqlStr,
    pub(crate) purge: SqlStr,
}

impl Statements {
    pub(crate) fn new(names: &Names) -> Self {
        // Nothing of a user's but the names, and those are quoted.
        let fill = |text: &str| AssertSqlSafe(filled(text, names)).into_sql_str();
        Self {
            acquire: fill(include_str!("sql/acquire.sql")),
            renew: fill(include_str!("sql/renew.sql")),
            prolong: fill(include_str!("sql/prolong.sql")),
            release: fill(include_str!("sql/release.sql")),
            abandon: fill(include_str!("sql/abandon.sql")),
            fence: fill(include_str!("sql/fence.sql")),
            suspect: fill(include_str!("sql/suspect.sql")),
            inspect: fill(include_str!("sql/inspect.sql")),
            admit: fill(include_str!("sql/admit.sql")),
            page: fill(include_str!("sql/page.sql")),
            wait: fill(include_str!("sql/await.sql")),
            notify: fill(include_str!("sql/notify.sql")),
            purge: fill(include_str!("sql/purge.sql")),
        }
    }
}

/// Puts the names where the text has `{…}`, in one pass: a name may hold braces.
pub(crate) fn filled(text: &str, names: &Names) -> String {
    let mut parts = text.split('{');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        match name {
            // As in "{strange k a.now 2}".
            strange if strange.starts_with("strange ") => {
                let mut words = strange.split(' ').skip(1);
                let condition = ["K.", "NOW", "MOST"].iter().zip([".", "", ""]);
                let condition = condition.fold(STRANGE.to_owned(), |text, (word, end)| {
                    let is = words.next().unwrap_or_default();
                    text.replace(word, &format!("{is}{end}"))
                });
                whole.push_str(&condition);
            }
            "now" => whole.push_str(NOW),
            "channel" => whole.push_str(&names.channel()),
            "quote" => whole.push_str(&names.quote()),
            "tombstones_until" => whole.push_str(&names.local(name)),
            table => match table.strip_prefix("local:") {
                Some(index) => whole.push_str(&names.local(index)),
                None => whole.push_str(&names.full(table)),
            },
        }
        whole.push_str(rest);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled_once() {
        let names = Names::default().with_prefix("{keys}_").unwrap();
        let text = filled(
            "SELECT {now} FROM {keys} AS k; CREATE INDEX {tombstones_until}",
            &names,
        );
        assert_eq!(
            text,
            format!(
                "SELECT {NOW} FROM \"public\".\"{{keys}}_keys\" AS k; \
                 CREATE INDEX \"{{keys}}_tombstones_until\""
            )
        );
    }
}
