//! Workers whose writes are fenced: each invoice is charged once, although the first
//! worker hangs in the middle of its work, is cut off, and comes back when another one
//! has done it.
#![allow(clippy::print_stdout)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leases::queue::{Job, Queue, SettleError};
use leases::{FenceWhen, Key, LocalGate, StaleToken, Token};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Serialize, Deserialize)]
struct Invoice {
    customer: String,
    cents: u64,
}

/// What is written to: it remembers the highest token of each customer, and refuses
/// lower ones in the same step as the write.
#[derive(Clone, Default)]
struct Ledger {
    gate: LocalGate,
    charged: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Ledger {
    fn charge(&self, invoice: &Invoice, token: Token) -> Result<(), Box<dyn std::error::Error>> {
        let customer = Key::new(&invoice.customer)?;
        let written: Result<(), StaleToken> = self.gate.write(&customer, token, || {
            let mut charged = self.charged.lock().unwrap_or_else(|e| e.into_inner());
            charged.push((invoice.customer.clone(), invoice.cents));
        });
        Ok(written?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // "queue+redis://host" or "queue+postgres://host/database" for many hosts.
    let store = leases::open_queue("memory:").await?;
    let queue = Queue::<Invoice>::builder(store, "invoices")
        .ttl(Duration::from_secs(30))
        .build()?;
    for cents in [100, 200] {
        let customer = "ann".to_owned();
        // One owner at a time for each customer, first in, first out.
        let put = queue.put(&Invoice { customer, cents }).group("ann");
        put.dedup(format!("invoice/{cents}")).await?;
    }
    let ledger = Ledger::default();

    // The first worker claims an invoice, and hangs before its write. It is cut off, as
    // it would be by its expiry, only at once.
    let hung = queue.claim().await?;
    let above = hung.token().next().ok_or("no token is higher")?;
    let (store, name, lane) = (queue.store(), queue.name(), &hung.claim_ref().lane);
    store
        .fence(name, lane, above, FenceWhen::Immediately)
        .await?;

    // Meanwhile others work; they stop when the second invoice is done.
    let stop = CancellationToken::new();
    let (to, stopping) = (ledger.clone(), stop.clone());
    let report = queue
        .worker(4)
        .stop_with(stop)
        .run(move |invoice: Invoice, job: Job| {
            let (to, stop) = (to.clone(), stopping.clone());
            async move {
                println!("attempt {}, token {}", job.attempt(), job.token());
                to.charge(&invoice, job.token())
                    .map_err(|e| e.to_string())?;
                if invoice.cents == 200 {
                    stop.cancel();
                }
                Ok::<(), String>(())
            }
        })
        .await?;
    assert_eq!(report.completed, 2);

    // The first worker wakes up and writes all the same, since it never checked …
    match ledger.charge(hung.payload(), hung.token()) {
        Err(refused) => println!("refused: {refused}"),
        Ok(()) => return Err("a stale write went through".into()),
    }
    // … and cannot take the item away either.
    match hung.complete().await {
        Err(SettleError::Lost(lost)) => println!("{lost}"),
        other => return Err(format!("a late worker was told {other:?}").into()),
    }
    let charged = ledger.charged.lock().unwrap_or_else(|e| e.into_inner());
    let amounts: Vec<_> = charged.iter().map(|(_, cents)| *cents).collect();
    println!("charged {amounts:?}");
    assert_eq!(amounts, [100, 200]);
    Ok(())
}
