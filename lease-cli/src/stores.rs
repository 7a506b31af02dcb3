//! `lease stores`: what each store promises.

use comfy_table::ContentArrangement;
use leases::{Availability, Guarantees, StoreInfo, Survives};
use serde::Serialize;

use crate::args;
use crate::duration::millis;
use crate::exit::{Exit, Failure};
use crate::output;

#[derive(Serialize)]
struct StoreJson {
    store: &'static str,
    schemes: &'static [&'static str],
    features: &'static [&'static str],
    compiled_in: bool,
    guarantees: Option<GuaranteesJson>,
}

#[derive(Serialize)]
struct GuaranteesJson {
    exclusion: String,
    exclusion_survives: Vec<&'static str>,
    tokens_survive: Vec<&'static str>,
    ttl_min_ms: u64,
    ttl_max_ms: u64,
    expiry_by: String,
    wake_ups: String,
    waiter_order: String,
    after_a_crash: String,
    listing: bool,
    max_key_bytes: usize,
}

impl From<&Guarantees> for GuaranteesJson {
    fn from(g: &Guarantees) -> Self {
        Self {
            exclusion: g.exclusion.to_string(),
            exclusion_survives: survives(g.exclusion_survives),
            tokens_survive: survives(g.tokens_survive),
            ttl_min_ms: millis(g.ttl.min),
            ttl_max_ms: millis(g.ttl.max),
            expiry_by: g.expiry.to_string(),
            wake_ups: g.wake_ups.to_string(),
            waiter_order: g.waiter_order.to_string(),
            after_a_crash: g.crash_release.to_string(),
            listing: g.listing,
            max_key_bytes: g.max_key_bytes,
        }
    }
}

fn survives(what: Survives) -> Vec<&'static str> {
    [
        (what.restart, "restart"),
        (what.data_loss, "data loss"),
        (what.failover, "failover"),
        (what.clock_step, "clock step"),
    ]
    .into_iter()
    .filter_map(|(yes, word)| yes.then_some(word))
    .collect()
}

pub(crate) fn stores(args: args::Stores) -> Result<Exit, Failure> {
    let stores = leases::stores();
    if args.form.json {
        output::print_json(&stores.iter().map(json).collect::<Vec<_>>())?;
    } else {
        output::print(human(&stores))?;
    }
    Ok(Exit::Success)
}

fn json(store: &StoreInfo) -> StoreJson {
    let guarantees = match &store.availability {
        Availability::CompiledIn(guarantees) => Some(GuaranteesJson::from(&**guarantees)),
        _ => None,
    };
    StoreJson {
        store: store.name,
        schemes: store.schemes,
        features: store.features,
        compiled_in: guarantees.is_some(),
        guarantees,
    }
}

fn human(stores: &[StoreInfo]) -> String {
    let mut headings = Guarantees::table_headings().map(str::to_uppercase).to_vec();
    headings.insert(1, "URL".to_owned());
    let headings: Vec<_> = headings.iter().map(String::as_str).collect();
    let mut table = output::table(&headings);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let mut others = String::new();
    for store in stores {
        let urls: Vec<_> = store.schemes.iter().map(|s| format!("{s}:")).collect();
        let urls = urls.join(" ");
        match &store.availability {
            Availability::CompiledIn(guarantees) => {
                let mut row = guarantees.table_row().to_vec();
                row.insert(1, urls);
                table.add_row(row);
            }
            other => {
                let why = match other {
                    Availability::FeatureOff => {
                        format!("turn on the cargo feature {:?}", store.features.join(","))
                    }
                    _ => "not in this version".to_owned(),
                };
                others.push_str(&format!("{:<16}{urls:<24}{why}\n", store.name));
            }
        }
    }
    let compiled_in = output::table_text(&table);
    if others.is_empty() {
        compiled_in
    } else {
        format!("{compiled_in}\nNot compiled in:\n{others}")
    }
}
