//! What is printed: tables for people, JSON for scripts.

use std::fmt;
use std::io::{self, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use leases::{Holder, KeyState};
use serde::Serialize;

use crate::duration::{brief, millis};
use crate::exit::{Exit, Failure};

/// A holder, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct HolderJson {
    label: String,
    token: u64,
    age_ms: u64,
    remaining_ms: u64,
}

impl From<&Holder> for HolderJson {
    fn from(holder: &Holder) -> Self {
        Self {
            label: holder.label.as_str().to_owned(),
            token: holder.token.get(),
            age_ms: millis(holder.age),
            remaining_ms: millis(holder.remaining),
        }
    }
}

/// A key, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct KeyJson {
    key: String,
    high_water: Option<u64>,
    holder: Option<HolderJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_ms: Option<u64>,
}

impl From<&KeyState> for KeyJson {
    fn from(state: &KeyState) -> Self {
        Self {
            key: state.key.as_str().to_owned(),
            high_water: state.high_water.map(leases::Token::get),
            holder: state.holder.as_ref().map(HolderJson::from),
            blocked_ms: state.blocked_for.map(millis),
        }
    }
}

/// A grant, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct GrantJson {
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) token: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) remaining_ms: u64,
}

/// Text from others, fit for a terminal: what could move the cursor, start an
/// escape sequence or turn the writing direction becomes `?`.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if is_unsafe(c) { '?' } else { c })
        .collect()
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Everything in one line, whatever it holds.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    clean(&words.join(" "))
}

/// A table without lines, for people and `awk` alike.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if !headings.is_empty() {
        table.set_header(headings);
    }
    table
}

/// Makes columns at least as wide as this, and says how wide they are then.
pub(crate) fn at_least_as_wide(table: &mut Table, widths: &[u16]) -> Vec<u16> {
    let own = table.column_max_content_widths();
    for (column, width) in table.column_iter_mut().zip(widths) {
        // With the blank on either side.
        let width = Width::Fixed(width.saturating_add(2));
        column.set_constraint(ColumnConstraint::LowerBoundary(width));
    }
    let all = own.iter().enumerate();
    all.map(|(n, own)| widths.get(n).map_or(*own, |width| *own.max(width)))
        .collect()
}

/// A table's text, without the blanks at the borders that no line needs.
pub(crate) fn table_text(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let line = line.strip_prefix(' ').unwrap_or(&line);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Who holds a key, in one line.
pub(crate) fn holder_words(holder: &Holder) -> String {
    let left = match holder.remaining.is_zero() {
        true => format!("its time over; {KEPT}"),
        false => format!("{} left", brief(holder.remaining)),
    };
    format!(
        "{} (token {}, for {}, {left})",
        label_words(holder),
        holder.token,
        brief(holder.age),
    )
}

/// Of a holder who has no time left and is in the way all the same.
pub(crate) const KEPT: &str = "if that stays so, an open transaction keeps the key: see \
                               pg_stat_activity, or what the store has for that";

/// The holder's label, or that it has none.
pub(crate) fn label_words(holder: &Holder) -> String {
    match holder.label.as_str() {
        "" => "somebody without a label".to_owned(),
        label => clean(label),
    }
}

/// Writes to stdout.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| match error.kind() {
            // The reader has seen enough.
            io::ErrorKind::BrokenPipe => Failure::silent(Exit::Signalled(13)),
            _ => Failure::new(Exit::Internal, format!("cannot write to stdout: {error}")),
        })
}

/// Writes one line of JSON to stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(format_args!("{}\n", json(value)?))
}

pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value)
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot write JSON: {error}")))
}

/// Replaces what follows a scheme in anything that looks like a URL: it may
/// hold a password.
pub(crate) fn without_urls(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`'))
            .unwrap_or(after.len());
        if end > 0 {
            clean.push('…');
        }
        rest = &after[end..];
    }
    clean.push_str(rest);
    clean
}

/// Takes arguments that look like a store's URL out of a message that may
/// repeat them, whatever else they hold.
pub(crate) fn without_arguments(text: &str, arguments: &[String]) -> String {
    let mut secrets: Vec<_> = arguments.iter().flat_map(|a| values(a)).collect();
    // A part must not be taken out of a whole before that is found.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = text.to_owned();
    for secret in secrets {
        let quoted = format!("{secret:?}");
        let harmless = harmless(secret);
        text = text.replace(secret, &harmless);
        // As an error with quotes of its own would write it.
        text = text.replace(quoted.trim_matches('"'), &harmless);
    }
    text
}

/// What in an argument a message may repeat and may be secret: all of it, or
/// the value after `--name=` or `-n`.
fn values(argument: &str) -> impl Iterator<Item = &str> {
    let after_equals = argument.split_once('=').map(|(_, value)| value);
    let short = argument.starts_with('-') && !argument.starts_with("--");
    let after_short = argument.char_indices().skip(2).take(2);
    let after_short = after_short.filter_map(move |(at, _)| argument.get(at..).filter(|_| short));
    [Some(argument), after_equals]
        .into_iter()
        .flatten()
        .chain(after_short)
        .filter(|value| value.contains("://") || value.contains('@'))
}

/// A URL's scheme, or nothing.
fn harmless(secret: &str) -> String {
    let is_scheme = |scheme: &str| {
        scheme.len() <= 20
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    match secret.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => format!("{scheme}://…"),
        _ => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_others_cannot_write_on_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\r\nc\u{9b}d"), "a?[2Jb??c?d");
        assert_eq!(clean("abc\u{202e}def"), "abc?def");
        assert_eq!(clean("é e\u{301} 🦀"), "é e\u{301} 🦀");
        assert_eq!(one_line("a\n  b\tc\u{1b}"), "a b c?");
    }

    #[test]
    fn urls_lose_what_may_be_secret() {
        assert_eq!(
            without_urls("odd 'postgres://u:hunter2@h/d?password=x' found"),
            "odd 'postgres://…' found"
        );
        assert_eq!(without_urls("no url"), "no url");
    }

    #[test]
    fn arguments_lose_what_may_be_secret_whatever_they_hold() {
        let without = |argument: &str, text: &str| without_arguments(text, &[argument.to_owned()]);
        let odd = "postgres://u:pa'hunter2@h/a b\"c";
        assert_eq!(
            without(odd, &format!("odd '{odd}'!")),
            "odd 'postgres://…'!"
        );
        assert_eq!(
            without(odd, &format!("odd {odd:?}!")),
            "odd \"postgres://…\"!"
        );
        let option = format!("--ttl={odd}");
        assert_eq!(
            without(&option, &format!("odd '{odd}'")),
            "odd 'postgres://…'"
        );
        for attached in ["-wredis:hunter2@h", "-nwredis:hunter2@h", "redis:hunter2@h"] {
            assert_eq!(without(attached, "odd 'redis:hunter2@h'"), "odd '…'");
        }
        assert_eq!(without("key", "odd key"), "odd key");
    }
}
