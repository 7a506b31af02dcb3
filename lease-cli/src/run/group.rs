//! Who is left in the command's process group once its leader has ended.

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, test_kill_process_group, waitid};

/// A process group without its leader.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    /// A member that lived when we last looked.
    known: Option<i32>,
}

impl Group {
    pub(crate) fn new(id: Pid) -> Self {
        Self { id, known: None }
    }

    /// Whether any member lives.
    ///
    /// One that has ended and waits to be reaped does not: its parent may never
    /// do that. In a container often nobody does, and as its first process it
    /// would be us.
    pub(crate) fn lives(&mut self) -> bool {
        self.reap_adopted();
        // The kernel's word, and the usual one.
        if test_kill_process_group(self.id) == Err(Errno::SRCH) {
            return false;
        }
        self.a_member_lives()
    }

    /// Reaps members that we inherited.
    fn reap_adopted(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        while let Ok(Some(_)) = waitid(WaitId::Pgid(Some(self.id)), options) {}
    }

    #[cfg(target_os = "linux")]
    fn a_member_lives(&mut self) -> bool {
        let id = self.id.as_raw_pid();
        if self.known.is_some_and(|pid| proc::lives_in(pid, id)) {
            return true;
        }
        if !proc::is_ours() {
            return true;
        }
        // Twice: one that is forked behind the place where we read escapes us
        // if its parent ends before we come to that.
        self.known = proc::member(id).or_else(|| proc::member(id));
        self.known.is_some()
    }

    /// Elsewhere the first process of the system reaps whom nobody else does.
    #[cfg(not(target_os = "linux"))]
    fn a_member_lives(&mut self) -> bool {
        self.known = None;
        true
    }
}

#[cfg(target_os = "linux")]
mod proc {
    use std::fs;

    /// Whether /proc is there and shows our own namespace of processes.
    pub(crate) fn is_ours() -> bool {
        let us = rustix::process::getpid().as_raw_pid().to_string();
        fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == us.as_str())
    }

    /// A living member of the group.
    pub(crate) fn member(group: i32) -> Option<i32> {
        fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .find(|pid| lives_in(*pid, group))
    }

    pub(crate) fn lives_in(pid: i32, group: i32) -> bool {
        // Not as text: a process can name itself in any bytes.
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        living_group(&stat) == Some(group)
    }

    /// The process group in a line of /proc/PID/stat, unless it has ended.
    fn living_group(stat: &[u8]) -> Option<i32> {
        // The name may hold anything, parentheses too.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        let threads: u32 = fields.get(17)?.parse().ok()?;
        let ended = match *fields.first()? {
            // Only its first thread has ended when there are others.
            "Z" => threads <= 1,
            "X" | "x" => true,
            _ => false,
        };
        if ended {
            return None;
        }
        fields.get(2)?.parse().ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_line_of_stat_says_who_lives_where() {
            let line = |state: &str, threads: u32| {
                let text = format!(
                    "7 (a) b) {state} 1 42 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 99 0"
                );
                let mut bytes = text.into_bytes();
                bytes[3] = 0xff;
                living_group(&bytes)
            };
            for state in ["R", "S", "D", "T"] {
                assert_eq!(line(state, 1), Some(42));
            }
            assert_eq!(line("Z", 1), None);
            assert_eq!(line("X", 1), None);
            assert_eq!(line("Z", 2), Some(42), "its other threads still work");
            assert_eq!(living_group(b""), None);
            assert_eq!(living_group(b"7 (x"), None);
        }

        #[test]
        fn we_live_in_our_own_group() {
            let group = nix::unistd::getpgrp().as_raw();
            assert!(is_ours());
            assert!(lives_in(rustix::process::getpid().as_raw_pid(), group));
            assert!(member(group).is_some());
        }
    }
}
