//! One run: a holder, somebody who takes over, and renewals, releases and fences.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{AcquireOutcome, AdmitError, Error, FenceWhen, Gate, LeaseBackend, Owner, Token};
use lease_postgres::sqlx::{
    self, AssertSqlSafe, Connection as _, PgConnection, query, query_scalar, raw_sql,
};
use lease_postgres::{InTransaction, PostgresStore, must_begin_again};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::support::transactions::{LEVELS, expire};
use crate::support::{LONG, ask, grant, key, options_at, owner, renewal};

const TABLES: &str = "
    CREATE TABLE s.written (key text, token bigint);
    CREATE TABLE s.seen (key text, below bigint, written bigint, at_gate boolean);
    CREATE FUNCTION s.count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO s.seen SELECT OLD.key, OLD.token + 1, count(*), false
            FROM s.written AS w WHERE w.key = OLD.key AND w.token <= OLD.token;
        RETURN NEW;
    END $$;
    CREATE TRIGGER count BEFORE UPDATE ON s.lease_keys FOR EACH ROW
        WHEN (OLD.owner IS NOT NULL AND (NEW.owner <> OLD.owner OR NEW.standing <> OLD.standing))
        EXECUTE FUNCTION s.count();";

/// What protects a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Hold,
    /// A look at the grant, as `hold` has, without the lock.
    Look,
    Admit,
    /// Before the write's transaction.
    AdmitBefore,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) committed: u64,
    pub(super) refused: u64,
    pub(super) begun_again: u64,
    /// Runs in which somebody else was granted the key.
    pub(super) taken_over: u64,
}

pub(super) struct World {
    pub(super) server: PostgresServer,
    pub(super) store: PostgresStore,
}

pub(super) async fn world() -> World {
    let server = PostgresServer::builder().fsync(false).start().unwrap();
    let store = options_at(&server, "s").open().await.unwrap();
    let mut admin = connect(&server).await;
    raw_sql(TABLES).execute(&mut admin).await.unwrap();
    World { server, store }
}

pub(super) async fn connect(server: &PostgresServer) -> PgConnection {
    PgConnection::connect(&server.url().to_string())
        .await
        .unwrap()
}

/// One worker's connections.
pub(super) struct Hands {
    pub(super) world: Arc<World>,
    pub(super) first: PgConnection,
    pub(super) second: PgConnection,
    pub(super) admin: PgConnection,
}

async fn pause(chance: &mut StdRng, most_us: u64) {
    // Often no pause at all, and else mostly a short one.
    let us = match chance.random_range(0..4) {
        0 => return,
        1 => chance.random_range(0..=most_us / 8),
        _ => chance.random_range(0..=most_us),
    };
    tokio::time::sleep(Duration::from_micros(us)).await;
}

/// How the holder's transaction ended.
enum End {
    Committed,
    Refused,
    BeginAgain,
}

fn ended(error: &(dyn std::error::Error + 'static)) -> End {
    match must_begin_again(error) {
        true => End::BeginAgain,
        false => End::Refused,
    }
}

async fn looks(db: &mut PgConnection, name: &str, me: Owner, mine: Token) -> bool {
    let sql = "SELECT count(*) FROM s.lease_keys WHERE key = $1 AND owner = $2 AND token = $3 \
               AND standing = 0 \
               AND expires_us >= (date_part('epoch', clock_timestamp()) * 1000000)::bigint";
    let seen: i64 = query_scalar(sql)
        .bind(name)
        .bind(me.as_bytes().to_vec())
        .bind(i64::try_from(mine.get()).unwrap())
        .fetch_one(db)
        .await
        .unwrap();
    seen == 1
}

async fn write(db: &mut PgConnection, name: &str, token: Token) -> Result<(), sqlx::Error> {
    query("INSERT INTO s.written VALUES ($1, $2)")
        .bind(name)
        .bind(i64::try_from(token.get()).unwrap())
        .execute(db)
        .await
        .map(drop)
}

async fn holds(
    (store, db): (&PostgresStore, &mut PgConnection),
    (by, level): (By, &str),
    (name, me, mine): (&str, Owner, Token),
    chance: &mut StdRng,
) -> End {
    let guard: InTransaction = store.in_transaction();
    pause(chance, 4_000).await;
    if by == By::AdmitBefore && store.admit(&key(name), mine).await.is_err() {
        return End::Refused;
    }
    let begin = AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
    let mut tx = db.begin_with(begin).await.unwrap();
    if chance.random() {
        let snapshot = query("SELECT count(*) FROM pg_class").execute(&mut *tx);
        snapshot.await.unwrap();
    }
    pause(chance, 6_000).await;
    match by {
        By::Hold => match guard.hold_grant(&mut tx, &key(name), me, mine).await {
            Ok(()) => {}
            Err(error @ (Error::Lost(_) | Error::Store(_))) => {
                let end = ended(&error);
                assert!(
                    matches!(error, Error::Lost(_)) != matches!(end, End::BeginAgain),
                    "{error}"
                );
                return end;
            }
            Err(error) => panic!("{error}"),
        },
        By::Look => {
            if !looks(&mut tx, name, me, mine).await {
                return End::Refused;
            }
        }
        By::Admit => match guard.admit(&mut tx, &key(name), mine).await {
            Ok(()) => {}
            Err(error) => {
                let end = ended(&error);
                assert!(
                    matches!(error, AdmitError::Stale(_)) != matches!(end, End::BeginAgain),
                    "{error}"
                );
                return end;
            }
        },
        By::AdmitBefore => {}
    }
    pause(chance, 12_000).await;
    let committed = async {
        write(&mut tx, name, mine).await?;
        pause(chance, 6_000).await;
        tx.commit().await
    };
    match committed.await {
        Ok(()) => End::Committed,
        Err(error) => {
            assert!(must_begin_again(&error), "{error}");
            End::BeginAgain
        }
    }
}

/// Takes the key over as soon as it can be had, and writes.
async fn takes_over(
    (store, db): (&PostgresStore, &mut PgConnection),
    by: By,
    (name, limit): (&str, Duration),
    chance: &mut StdRng,
) -> bool {
    let guard = store.in_transaction();
    pause(chance, 8_000).await;
    let me = owner();
    let taking = async {
        loop {
            match store.acquire(&ask(name, me, LONG)).await {
                Ok(AcquireOutcome::Granted(granted)) => return granted.token,
                Ok(AcquireOutcome::Held(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
                other => panic!("{other:?}"),
            }
        }
    };
    let Ok(mine) = tokio::time::timeout(limit, taking).await else {
        return false;
    };
    if matches!(by, By::Hold | By::Look) {
        return true;
    }
    let mut tx = db.begin().await.unwrap();
    match by {
        By::Admit => guard.admit(&mut tx, &key(name), mine).await.unwrap(),
        _ => store.admit(&key(name), mine).await.unwrap(),
    }
    let count = "INSERT INTO s.seen SELECT $1, $2, count(*), true FROM s.written AS w \
                 WHERE w.key = $1 AND w.token < $2";
    let count = query(count)
        .bind(name)
        .bind(i64::try_from(mine.get()).unwrap());
    count.execute(&mut *tx).await.unwrap();
    pause(chance, 3_000).await;
    write(&mut tx, name, mine).await.unwrap();
    tx.commit().await.unwrap();
    true
}

/// Renewals, releases and fences at any moment.
async fn interferes(
    store: &PostgresStore,
    name: &str,
    me: Owner,
    mine: Token,
    chance: &mut StdRng,
) {
    let what = chance.random_range(0..6);
    pause(chance, 10_000).await;
    // A row that is kept cannot be had; the request is given up then.
    let limit = Duration::from_millis(60);
    let doing = async {
        match what {
            0 | 1 => drop(store.renew(&renewal(name, me, mine)).await.unwrap()),
            2 => drop(store.renew_many(&[renewal(name, me, mine)]).await),
            3 => drop(store.release(&key(name), me, mine).await),
            4 => {
                let above = Token::new(mine.get() + 1).unwrap();
                drop(store.fence(&key(name), above, FenceWhen::Immediately).await);
            }
            _ => {}
        }
    };
    let _ = tokio::time::timeout(limit, doing).await;
}

pub(super) async fn one_run(hands: &mut Hands, seed: u64, n: u64, by: By, tally: &mut Tally) {
    let mut chance = StdRng::seed_from_u64(seed.wrapping_add(n));
    let name = format!("{by:?}-{n}");
    let level = LEVELS[usize::try_from(n % 3).unwrap()];
    let world = Arc::clone(&hands.world);
    let store = &world.store;
    let (me, mine) = grant(store, &name, LONG).await.unwrap();
    expire(&mut hands.admin, "s", &name, chance.random_range(0..12)).await;
    let mut chances = [0; 3].map(|_: i32| StdRng::seed_from_u64(chance.random()));
    let [one, two, three] = &mut chances;
    let limit = Duration::from_millis(150);
    let (end, taken, ()) = tokio::join!(
        holds(
            (store, &mut hands.first),
            (by, level),
            (&name, me, mine),
            one
        ),
        takes_over((store, &mut hands.second), by, (&name, limit), two),
        interferes(store, &name, me, mine, three),
    );
    match end {
        End::Committed => tally.committed += 1,
        End::Refused => tally.refused += 1,
        End::BeginAgain => tally.begun_again += 1,
    }
    tally.taken_over += u64::from(taken);
}
