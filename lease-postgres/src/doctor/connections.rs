//! Room for connections, and the way to the server.

use lease_core::{Finding, StoreError};

use super::ask::{Answer, Asker};
use super::{Facts, critical, healthy, note, unknown, warning};

#[derive(Debug)]
pub(super) struct Room {
    taken: i64,
    /// Without what is kept for administrators.
    most: i64,
    role_taken: i64,
    /// Negative where there is none.
    role_most: i64,
}

impl Room {
    pub(super) async fn ask(asker: &mut Asker<'_>) -> Result<Answer<Self>, StoreError> {
        let line = asker
            .one(
                "SELECT (SELECT sum(numbackends)::bigint FROM pg_stat_database) AS taken, \
                 current_setting('max_connections')::bigint \
                    - current_setting('superuser_reserved_connections')::bigint \
                    - coalesce(current_setting('reserved_connections', true), '0')::bigint AS most, \
                 (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user) AS role_taken, \
                 (SELECT rolconnlimit::bigint FROM pg_roles WHERE rolname = current_user) \
                    AS role_most",
            )
            .await?;
        Ok(line.and_then(|line| {
            Ok(Self {
                taken: line.number("taken")?,
                most: line.number("most")?,
                role_taken: line.number("role_taken")?,
                role_most: line.number("role_most")?,
            })
        }))
    }
}

/// How the doctor came to the server.
#[derive(Debug)]
pub(super) struct Way {
    socket: bool,
    loopback: bool,
    tls: bool,
    /// Lines of `pg_hba.conf` that ask nobody from elsewhere for a password.
    trusting: Answer<i64>,
}

impl Way {
    pub(super) async fn ask(asker: &mut Asker<'_>) -> Result<Answer<Self>, StoreError> {
        let line = asker
            .one(
                "SELECT inet_client_addr() IS NULL AS socket, \
                 coalesce(host(inet_client_addr())::inet <<= '127.0.0.0/8' \
                    OR host(inet_client_addr())::inet = '::1', false) AS loopback, \
                 coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls",
            )
            .await?;
        let trusting = asker
            .one(
                "SELECT count(*) AS trusting FROM pg_hba_file_rules WHERE auth_method = 'trust' \
                 AND type LIKE 'host%' AND coalesce(address, '') NOT IN ('127.0.0.1', '::1')",
            )
            .await?;
        Ok(line.and_then(|line| {
            Ok(Self {
                socket: line.flag("socket")?,
                loopback: line.flag("loopback")?,
                tls: line.flag("tls")?,
                trusting: trusting.and_then(|line| line.number("trusting")),
            })
        }))
    }
}

/// Whether the way leads by a pooler that shares sessions, and how.
pub(super) fn pooler(shared: bool, transactions: bool) -> Finding {
    if !transactions {
        return critical(
            "pooler: it shares sessions by statement (pool_mode = statement)",
            "there are no transactions there, and the store refuses to work without any",
        )
        .advice(
            "set pool_mode = transaction or session for this database, or name the server itself",
        );
    }
    let why = "behind one, each request is a transaction of four round trips, and those who wait ask \
               twice a second instead of listening";
    match shared {
        true => note("pooler: it shares sessions between clients", why).advice(
            "name the server itself in the URL, or give the store a pool with pool_mode = session",
        ),
        false => healthy("pooler: none that shares sessions", why),
    }
}

pub(super) fn judge(room: &Answer<Room>, way: &Answer<Way>, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![free(room, facts)];
    match way {
        Ok(way) => {
            findings.push(encrypted(way));
            findings.push(logins(way));
        }
        Err(refusal) => findings.push(unknown("TLS", PLAIN, refusal)),
    }
    findings
}

fn free(room: &Answer<Room>, facts: &Facts) -> Finding {
    // The renewals' two, and one that listens.
    let needs = i64::try_from(facts.connections).unwrap_or(i64::MAX) + 3;
    let why = format!(
        "each process with a store may open {needs}: without one it cannot acquire, and when the \
         server was away it cannot renew"
    );
    let room = match room {
        Ok(room) => room,
        Err(refusal) => return unknown("connections", why, refusal),
    };
    let limit = room.role_most;
    let role = (limit >= 0).then(|| limit - room.role_taken);
    let free = room.most - room.taken;
    let mut what = format!("connections: {} of {} are taken", room.taken, room.most);
    if role.is_some() {
        what += &format!(", and {} of the {limit} of this role", room.role_taken);
    }
    if free.min(role.unwrap_or(i64::MAX)) < needs {
        warning(what, why).advice(
            "raise max_connections or the role's CONNECTION LIMIT, close some, or give the store \
             fewer by ?connections=",
        )
    } else {
        healthy(what, why)
    }
}

const PLAIN: &str = "without TLS whoever is on the way reads and changes what is sent, owners of \
                     leases too";

fn encrypted(way: &Way) -> Finding {
    if way.tls {
        healthy("TLS: yes", PLAIN)
    } else if way.socket || way.loopback {
        healthy("TLS: no, on this machine alone", PLAIN)
    } else {
        note("TLS: no", PLAIN)
            .advice("set ssl = on at the server and ?sslmode=verify-full in the URL")
    }
}

fn logins(way: &Way) -> Finding {
    let why = "whoever may log in as the store's role can free and take every lease";
    match way.trusting {
        Ok(0) => healthy("logins: none from elsewhere without a password", why),
        Ok(lines) => note(
            match lines {
                1 => "logins: 1 rule of pg_hba.conf trusts who comes over the network".to_owned(),
                _ => {
                    format!("logins: {lines} rules of pg_hba.conf trust who comes over the network")
                }
            },
            why,
        )
        .advice("write scram-sha-256 there"),
        Err(ref refusal) => unknown("logins", why, refusal)
            .advice("a superuser's doctor sees pg_hba.conf; let it trust nobody from elsewhere"),
    }
}
