//! A worker whose effects commit together with the completions of their items.

use std::sync::Arc;

use lease_postgres::must_begin_again;
use lease_postgres::sqlx::{self, Connection as _, PgConnection, query};
use lease_queue::postgres::PostgresQueues;
use lease_queue::{Claim, QueueName, Settled};
use tokio_util::sync::CancellationToken;

use super::{AT_ONCE, Order, Progress, Work};
use crate::record::{Record, Seen, now};
use crate::witness::{Witness, of};

/// No constraint keeps an effect from being applied twice.
pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS public.effect (
        queue text NOT NULL,
        place bigserial,
        grp bigint NOT NULL,
        number bigint NOT NULL,
        token bigint NOT NULL,
        attempt bigint NOT NULL,
        worker bigint NOT NULL
    )";

const APPLY: &str = "
    INSERT INTO public.effect (queue, grp, number, token, attempt, worker)
    VALUES ($1, $2, $3, $4, $5, $6)";

struct Shop {
    order: Order,
    store: PostgresQueues,
    queue: QueueName,
    record: Arc<Record>,
    progress: Progress,
}

pub(super) async fn work(order: Order, stop: CancellationToken) {
    let options = PostgresQueues::options(&order.url).unwrap();
    let store = PostgresQueues::open_lazily(options).unwrap();
    let record = order.record();
    let queue = order.queue(Witness::of(Arc::new(store.clone()), Arc::clone(&record)));
    let shop = Arc::new(Shop {
        store,
        queue: queue.name().clone(),
        record,
        progress: Progress::of(&order),
        order,
    });
    let mut hands = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (shop, queue, stop) = (Arc::clone(&shop), queue.clone(), stop.clone());
        hands.spawn(async move {
            let mut db = None;
            loop {
                let claim = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    claim = queue.claim() => claim.unwrap(),
                };
                shop.apply(&mut db, claim).await;
            }
        });
    }
    while let Some(ended) = hands.join_next().await {
        ended.unwrap();
    }
    queue.shutdown(std::time::Duration::from_secs(5)).await;
}

impl Shop {
    /// One item. What fails leaves the claim to be given back.
    async fn apply(&self, db: &mut Option<PgConnection>, claim: Claim<Work>) {
        let (work, attempt) = (*claim.payload(), claim.attempt());
        let token = claim.token().get();
        self.record.note(&Seen::Begun { work, token });
        // It does not look at its lease: its completion is refused when it is late.
        tokio::time::sleep(self.order.takes(work, attempt)).await;
        let committed = self.committed(db, &claim).await;
        let refused = matches!(committed, Ok(false));
        self.record.note(&Seen::Over {
            work,
            token,
            refused,
        });
        match committed {
            Ok(true) => {
                claim.settled();
                self.progress.more();
            }
            Ok(false) => {}
            // Whether it was committed may be unknown: the store knows.
            Err(_) => *db = None,
        }
    }

    /// Whether the claim was live.
    async fn committed(
        &self,
        db: &mut Option<PgConnection>,
        claim: &Claim<Work>,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        let url = self.order.url.strip_prefix("queue+").unwrap();
        let db = match db {
            Some(db) => db,
            None => db.insert(PgConnection::connect(url).await?),
        };
        let mut tx = db.begin().await?;
        let reference = claim.claim_ref();
        let done = self.store.complete_in(&mut tx, &self.queue, reference);
        match done.await {
            Ok(Settled::Done) => {}
            Ok(_) => {
                tx.rollback().await?;
                return Ok(false);
            }
            Err(error) => {
                let passes = error.is_transient() || must_begin_again(&error);
                assert!(passes, "{error}");
                return Err(error.into());
            }
        }
        let work = *claim.payload();
        query(APPLY)
            .bind(self.queue.as_str())
            .bind(i64::try_from(work.group)?)
            .bind(i64::from(work.number))
            .bind(i64::try_from(claim.token().get())?)
            .bind(i64::from(claim.attempt()))
            .bind(i64::from(self.order.worker))
            .execute(&mut *tx)
            .await?;
        self.record.note(&Seen::Ending {
            of: of(reference),
            at: now(),
        });
        Ok(tx.commit().await.map(|()| true)?)
    }
}

/// The effects of one queue, in order.
pub(crate) async fn effects(url: &str, queue: &str) -> Vec<crate::check::Write> {
    let mut db = connected(url).await;
    let rows: Vec<(i64, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT grp, number, token, attempt, worker FROM public.effect WHERE queue = $1 \
         ORDER BY place",
    )
    .bind(queue)
    .fetch_all(&mut db)
    .await
    .unwrap();
    rows.into_iter().map(crate::check::Write::from).collect()
}

pub(crate) async fn make_table(url: &str) {
    let mut db = connected(url).await;
    sqlx::raw_sql(TABLE).execute(&mut db).await.unwrap();
}

async fn connected(url: &str) -> PgConnection {
    let url = url.strip_prefix("queue+").unwrap();
    PgConnection::connect(url).await.unwrap()
}
