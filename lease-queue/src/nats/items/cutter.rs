//! Entries of a snapshot, in pieces of a bounded size.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

pub(super) type Pieces = Vec<(Box<RawValue>, Vec<Bytes>)>;

/// About how many bytes a piece has, unless one payload has more.
const PIECE_BYTES: usize = 128 * 1024;

/// Collects entries into pieces of a bounded size.
pub(super) struct Cutter<T, P> {
    wrap: fn(Vec<T>) -> P,
    entries: Vec<T>,
    bodies: Vec<Bytes>,
    size: usize,
    done: Pieces,
}

impl<T, P: Serialize> Cutter<T, P> {
    pub(super) fn new(wrap: fn(Vec<T>) -> P) -> Self {
        Self {
            wrap,
            entries: Vec::new(),
            bodies: Vec::new(),
            size: 0,
            done: Vec::new(),
        }
    }

    /// One more, of about so many bytes without its body.
    pub(super) fn add(&mut self, entry: T, body: Option<Bytes>, size: usize) -> Option<()> {
        let size = size + body.as_ref().map_or(0, Bytes::len);
        if !self.entries.is_empty() && self.size + size > PIECE_BYTES {
            self.cut()?;
        }
        self.size += size;
        self.entries.push(entry);
        self.bodies.extend(body);
        Some(())
    }

    fn cut(&mut self) -> Option<()> {
        let piece = (self.wrap)(std::mem::take(&mut self.entries));
        let json = to_raw_value(&piece).ok()?;
        self.done.push((json, std::mem::take(&mut self.bodies)));
        self.size = 0;
        Some(())
    }

    pub(super) fn end(mut self) -> Option<Pieces> {
        if !self.entries.is_empty() {
            self.cut()?;
        }
        Some(self.done)
    }
}
