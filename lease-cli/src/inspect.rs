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
use crate::unreadable;

/// Rows that are laid out together, so that a list of any length needs little
/// memory.
const ROWS: usize = 1000;
/// Keys that are longer stand out of their column: it is not made wider for
/// all the others.
const KEY_WIDTH: usize = 40;
/// How much JSON is written at once.
const JSON: usize = 64 * 1024;

pub(crate) async fn inspect(target: Target, args: args::Inspect) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open_to_look(patience).await?;
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
    let store = target.open_to_look(patience).await?;
    let pages = store.backend().list(&args.prefix).ready_chunks(ROWS);
    let mut pages = std::pin::pin!(pages);
    let mut out = if args.form.json {
        Out::Json(String::new(), "[")
    } else {
        Out::Table(Vec::new(), Layout::default())
    };
    while let Some(page) = pages.next().await {
        for state in page {
            out.add(&state?)?;
        }
    }
    out.end()?;
    unreadable::end_of_list()
}

enum Out {
    /// What was not written yet, and what comes before the next key.
    Json(String, &'static str),
    Table(Vec<[String; 6]>, Layout),
}

impl Out {
    fn add(&mut self, state: &KeyState) -> Result<(), Failure> {
        match self {
            Self::Json(text, before) => {
                text.push_str(std::mem::replace(before, ",\n "));
                text.push_str(&output::json(&KeyJson::from(state))?);
                if text.len() >= JSON {
                    output::print(&text)?;
                    text.clear();
                }
            }
            Self::Table(rows, layout) => {
                rows.push(cells(state));
                if rows.len() >= ROWS {
                    output::print(layout.text(rows))?;
                    rows.clear();
                }
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        match self {
            Self::Json(text, before) => {
                let before = if before == "[" { before } else { "" };
                output::print(format_args!("{text}{before}]\n"))
            }
            Self::Table(rows, mut layout) => output::print(layout.text(&rows)),
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

const HEADINGS: [&str; 6] = [
    "KEY",
    "HIGH WATER",
    "HOLDER",
    "TOKEN",
    "HELD FOR",
    "REMAINING",
];

/// How wide the columns are so far. They never get narrower.
#[derive(Default)]
struct Layout(Vec<u16>);

impl Layout {
    /// The lines of some rows, under the headings if these are the first.
    fn text(&mut self, rows: &[[String; 6]]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let first = self.0.is_empty();
        let headings: &[&str] = if first { &HEADINGS } else { &[] };
        let mut table = output::table(headings);
        let is_long = |row: &[String; 6]| row[0].chars().count() > KEY_WIDTH;
        table.add_rows(rows.iter().map(|row| {
            let mut row = row.clone();
            if is_long(&row) {
                row[0].clear();
            }
            row
        }));
        let widths = output::at_least_as_wide(&mut table, &self.0);
        self.0 = widths;
        let text = output::table_text(&table);
        let mut lines = text.lines();
        let mut out = String::with_capacity(text.len());
        if let Some(headings) = lines.by_ref().take(usize::from(first)).next() {
            out.push_str(headings);
            out.push('\n');
        }
        for (row, line) in rows.iter().zip(lines) {
            if is_long(row) {
                let _ = writeln!(out, "{}  {}", row[0], line.trim_start());
            } else {
                let _ = writeln!(out, "{line}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str) -> [String; 6] {
        [key, "1", "-", "-", "-", "-"].map(str::to_owned)
    }

    #[test]
    fn the_headings_come_once_and_the_columns_stay() {
        let mut layout = Layout::default();
        let first = layout.text(&[row("a-rather-long-key"), row("b")]);
        let second = layout.text(&[row("c")]);
        assert!(
            first.starts_with("KEY ") && first.lines().count() == 3,
            "{first}"
        );
        assert_eq!(second.lines().count(), 1, "{second}");
        let column = |line: &str| line.find("1 ").unwrap();
        let lines: Vec<_> = first.lines().skip(1).chain(second.lines()).collect();
        assert!(
            lines.iter().all(|line| column(line) == column(lines[0])),
            "{lines:?}"
        );
        assert_eq!(layout.text(&[]), "");
    }

    #[test]
    fn a_long_key_widens_no_other_line() {
        let long = "k".repeat(512);
        let text = Layout::default().text(&[row("a"), row(&long), row("b")]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].starts_with(&format!("{long}  1 ")), "{text}");
        assert!(
            lines.iter().filter(|l| l.len() > 100).count() == 1,
            "{text}"
        );
    }
}
