//! `lease queue list` and `lease queue dead`.

use futures_util::StreamExt;
use leases::queue::{ItemState, Phase};
use serde::Serialize;

use crate::args;
use crate::duration::{brief, millis};
use crate::exit::{Exit, Failure};
use crate::output::{self, HolderJson, clean, one_line};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;
use crate::unreadable;

/// Rows that are laid out together, so that a list of any length needs little memory.
const ROWS: usize = 1000;

const HEADINGS: [&str; 7] = ["ITEM", "GROUP", "STATE", "ATTEMPTS", "AGE", "BYTES", "WHY"];

#[derive(Serialize)]
struct ItemJson {
    item: String,
    group: Option<String>,
    dedup: Option<String>,
    state: &'static str,
    attempts: u32,
    age_ms: u64,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<HolderJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    last_error: Option<String>,
}

impl From<&ItemState> for ItemJson {
    fn from(item: &ItemState) -> Self {
        let text = |key: &Option<leases::Key>| key.as_ref().map(|key| key.as_str().to_owned());
        let mut json = Self {
            item: item.id.to_string(),
            group: text(&item.group),
            dedup: text(&item.dedup),
            state: "other",
            attempts: item.attempts,
            age_ms: millis(item.age),
            bytes: item.bytes,
            delay_ms: None,
            holder: None,
            reason: None,
            last_error: item.last_error.clone(),
        };
        match &item.phase {
            Phase::Ready => json.state = "ready",
            Phase::Delayed(left) => {
                json.state = "delayed";
                json.delay_ms = Some(millis(*left));
            }
            Phase::Claimed(holder) => {
                json.state = "claimed";
                json.holder = Some(holder.into());
            }
            Phase::Dead(reason) => {
                json.state = "dead";
                json.reason = Some(reason.clone());
            }
            _ => {}
        }
        json
    }
}

pub(crate) async fn list(
    target: Target,
    args: args::QueueList,
    dead: bool,
) -> Result<Exit, Failure> {
    let store = target
        .open_queue_to_look(Patience::new(FIRST_ANSWER))
        .await?;
    let mut pages = store.items(&args.queue, dead).ready_chunks(ROWS);
    let (mut widths, mut before) = (Vec::new(), "[");
    while let Some(page) = pages.next().await {
        let page: Result<Vec<_>, _> = page.into_iter().collect();
        let page = page.map_err(|error| target.failure(error.into()))?;
        if args.form.json {
            for item in &page {
                let json = output::json(&ItemJson::from(item))?;
                output::print(format_args!("{before}{json}"))?;
                before = ",\n ";
            }
        } else {
            output::print(rows(&page, &mut widths))?;
        }
    }
    if args.form.json {
        let before = if before == "[" { before } else { "" };
        output::print(format_args!("{before}]\n"))?;
    }
    unreadable::end_of_list()
}

/// The lines of some items, under the headings if these are the first. Columns never
/// get narrower.
fn rows(items: &[ItemState], widths: &mut Vec<u16>) -> String {
    let headings: &[&str] = if widths.is_empty() { &HEADINGS } else { &[] };
    let mut table = output::table(headings);
    table.add_rows(items.iter().map(cells));
    *widths = output::at_least_as_wide(&mut table, widths);
    output::table_text(&table)
}

fn cells(item: &ItemState) -> [String; 7] {
    let dash = || "-".to_owned();
    let mut why = item.last_error.as_deref();
    let state = match &item.phase {
        Phase::Ready => "ready".to_owned(),
        Phase::Delayed(left) => format!("in {}", brief(*left)),
        Phase::Claimed(holder) => output::holder_words(holder),
        Phase::Dead(reason) => {
            why = Some(reason);
            "dead".to_owned()
        }
        _ => dash(),
    };
    let group = item.group.as_ref();
    [
        item.id.to_string(),
        group.map_or_else(dash, |group| clean(group.as_str())),
        state,
        item.attempts.to_string(),
        brief(item.age),
        item.bytes.to_string(),
        why.map_or_else(dash, one_line),
    ]
}
