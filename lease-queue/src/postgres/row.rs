//! What a statement answers, checked on the way in: the tables may hold what this
//! store did not write.

use std::time::Duration;

use lease_core::{Holder, Key, KeyState, Label, StoreError, Token};
use lease_postgres::parts::column;
pub(super) use lease_postgres::parts::foreign;
use lease_postgres::sqlx::postgres::PgRow;

use crate::item::ItemId;
use crate::name::Lane;

/// How a lane is kept: its kind, and its name.
pub(super) fn lane(lane: &Lane) -> (i16, String) {
    match lane {
        Lane::Group(group) => (0, group.to_string()),
        Lane::Item(item) => (1, item.to_string()),
        Lane::Key(key) => (2, key.to_string()),
    }
}

/// The lane of an item that was claimed.
pub(super) fn claimed_lane(kind: i16, name: &str, item: ItemId) -> Result<Lane, StoreError> {
    match kind {
        0 => Ok(Lane::Group(key(name)?)),
        1 if name == item.to_string() => Ok(Lane::Item(item)),
        _ => Err(foreign(&format!("a lane of kind {kind} named {name:?}"))),
    }
}

pub(super) fn key(text: &str) -> Result<Key, StoreError> {
    Key::new(text).map_err(|error| foreign(&error.to_string()))
}

pub(super) fn item(bytes: &[u8]) -> Result<ItemId, StoreError> {
    let bytes = bytes.try_into();
    bytes
        .map(ItemId::from_bytes)
        .map_err(|_| foreign("an item whose identity has not 16 bytes"))
}

pub(super) fn token(number: i64) -> Result<Token, StoreError> {
    u64::try_from(number)
        .ok()
        .and_then(|number| Token::new(number).ok())
        .ok_or_else(|| foreign(&format!("{number} is no fencing token")))
}

pub(super) fn label(text: &str) -> Result<Label, StoreError> {
    Label::new(text).map_err(|error| foreign(&error.to_string()))
}

/// What the clock stepped back over is no time.
pub(super) fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// A column that the store always writes.
pub(super) fn there<T>(value: Option<T>, name: &str) -> Result<T, StoreError> {
    value.ok_or_else(|| foreign(&format!("{name} is null")))
}

pub(super) const IN_PART: &str =
    "part of a claim, or one of an unknown kind, that may still be live";

/// A claim's holder, from columns of these names.
pub(super) fn holder(row: &PgRow, age: &str) -> Result<Holder, StoreError> {
    let number = |name| there(column::<Option<i64>>(row, name)?, name);
    Ok(Holder {
        label: label(there(column::<Option<&str>>(row, "label")?, "label")?)?,
        token: token(number("token")?)?,
        age: micros(number(age)?),
        remaining: micros(number("remaining")?),
    })
}

/// A key's state, from a row that has the table's columns or none of them.
pub(super) fn state(key: Key, row: &PgRow) -> Result<KeyState, StoreError> {
    let mut state = KeyState {
        key,
        high_water: None,
        holder: None,
        blocked_for: None,
    };
    if column(row, "strange")? {
        return Err(foreign(IN_PART));
    }
    match column::<Option<i64>>(row, "mark")? {
        None | Some(0) => return Ok(state),
        Some(mark) => state.high_water = Some(token(mark)?),
    }
    let remaining: Option<i64> = column(row, "remaining")?;
    match (column::<Option<i16>>(row, "standing")?, remaining) {
        (Some(0), Some(1..)) => state.holder = Some(holder(row, "age")?),
        (Some(2), Some(us @ 1..)) => state.blocked_for = Some(micros(us)),
        _ => {}
    }
    Ok(state)
}
