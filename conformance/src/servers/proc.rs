//! What Linux tells of processes and of the memory that they share. Nothing on
//! other systems.

use std::fs;
use std::path::Path;

/// A process as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    parent: i32,
    state: char,
    /// When, so that a number that was given again is not taken for it.
    started: u64,
}

impl Seen {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may have any character in it.
        let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            // The 22nd of all fields.
            started: fields.nth(17)?.parse().ok()?,
        })
    }

    /// Whether it has ended since.
    pub(crate) fn has_ended(&self) -> bool {
        match Self::of(self.pid) {
            Some(now) => now.started != self.started || matches!(now.state, 'Z' | 'X'),
            None => true,
        }
    }

    /// Whether it does nothing: it was stopped, or it has ended.
    pub(crate) fn stands_still(&self) -> bool {
        matches!(self.state, 'T' | 'Z' | 'X')
    }

    /// The processes that it started itself.
    pub(crate) fn children_of(parent: i32) -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(Self::of)
            .filter(|seen| seen.parent == parent)
            .collect()
    }
}

/// How many processes use a segment of System V shared memory; `None` if there
/// is no such segment.
pub(crate) fn users_of_segment(id: i32) -> Option<u32> {
    let table = fs::read_to_string(Path::new("/proc/sysvipc/shm")).ok()?;
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let column = |name| names.iter().position(|n| *n == name);
    let (of_id, of_users) = (column("shmid")?, column("nattch")?);
    lines
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .find(|fields| fields.get(of_id).and_then(|f| f.parse().ok()) == Some(id))
        .and_then(|fields| fields.get(of_users)?.parse().ok())
}
