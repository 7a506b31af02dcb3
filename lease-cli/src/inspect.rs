//! `lease inspect` and `lease list`.

use std::fmt::Write as _;

use futures_util::StreamExt;
use leases::{KeyState, Token};

use crate::args;
use crate::duration::brief;
use crate::exit::{Exit, Failure};
use crate::output::{self, KeyJson, clean};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;

/// Rows that are laid out together; more come as further tables, so that a
/// list of any length needs little memory.
const ROWS: usize = 1000;

pub(crate) async fn inspect(target: Target, args: args::Inspect) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open(patience).await?;
    let state = patience.ask(|| store.backend().inspect(&args.key)).await?;
    if args.form.json {
        output::print_json(&KeyJson::from(&state))?;
    } else {
        output::print(human(&state))?;
    }
    Ok(Exit::Success)
}

fn human(state: &KeyState) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    row("key", &clean(state.key.as_str()));
    row("high water", &mark_words(state.high_water));
    match &state.holder {
        Some(holder) => {
            row("holder", &output::label_words(holder));
            row("token", &holder.token.to_string());
            row("held for", &brief(holder.age));
            row("remaining", &brief(holder.remaining));
        }
        None => row("holder", "nobody"),
    }
    if let Some(blocked) = state.blocked_for {
        let left = brief(blocked);
        row(
            "blocked",
            &format!("for {left}, until its revoked holder has learnt of it"),
        );
    }
    text
}

fn mark_words(mark: Option<Token>) -> String {
    mark.map_or_else(|| "none: never granted".to_owned(), |mark| mark.to_string())
}

pub(crate) async fn list(target: Target, args: args::List) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open(patience).await?;
    let pages = store.backend().list(&args.prefix).ready_chunks(ROWS);
    let mut pages = std::pin::pin!(pages);
    let mut out = if args.form.json {
        Out::Json { first: true }
    } else {
        Out::Table(Vec::new())
    };
    while let Some(page) = pages.next().await {
        for state in page {
            out.add(&state?)?;
        }
    }
    out.end()?;
    Ok(Exit::Success)
}

enum Out {
    Json { first: bool },
    Table(Vec<[String; 6]>),
}

impl Out {
    fn add(&mut self, state: &KeyState) -> Result<(), Failure> {
        match self {
            Self::Json { first } => {
                let before = if std::mem::take(first) { "[" } else { ",\n " };
                let json = output::json(&KeyJson::from(state))?;
                output::print(format_args!("{before}{json}"))
            }
            Self::Table(rows) => {
                rows.push(cells(state));
                if rows.len() >= ROWS {
                    print_table(rows)?;
                    rows.clear();
                }
                Ok(())
            }
        }
    }

    fn end(self) -> Result<(), Failure> {
        match self {
            Self::Json { first: true } => output::print("[]\n"),
            Self::Json { first: false } => output::print("]\n"),
            Self::Table(rows) => print_table(&rows),
        }
    }
}

fn cells(state: &KeyState) -> [String; 6] {
    let key = clean(state.key.as_str());
    let mark = state.high_water.map(|m| m.to_string()).unwrap_or_default();
    match (&state.holder, state.blocked_for) {
        (Some(holder), _) => [
            key,
            mark,
            output::label_words(holder),
            holder.token.to_string(),
            brief(holder.age),
            brief(holder.remaining),
        ],
        (None, Some(blocked)) => {
            let blank = || "-".to_owned();
            [
                key,
                mark,
                "(revoked)".to_owned(),
                blank(),
                blank(),
                brief(blocked),
            ]
        }
        (None, None) => {
            let blank = || "-".to_owned();
            [key, mark, blank(), blank(), blank(), blank()]
        }
    }
}

fn print_table(rows: &[[String; 6]]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let headings = [
        "KEY",
        "HIGH WATER",
        "HOLDER",
        "TOKEN",
        "HELD FOR",
        "REMAINING",
    ];
    let mut table = output::table(&headings);
    table.add_rows(rows.iter().cloned());
    output::print(output::table_text(&table))
}
