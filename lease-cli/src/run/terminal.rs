//! The terminal: the child's process group needs its foreground to read from it
//! and to get its Ctrl-C.

use std::io::{IsTerminal, stdin, stdout};

use nix::unistd::{getpgid, getpid, getppid, getsid};
use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal on our stdin.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// How it was set when we started.
    modes: Termios,
}

impl Terminal {
    /// The terminal on our stdin, if there is one and it controls us.
    pub(crate) fn find() -> Option<Self> {
        tcgetpgrp(stdin()).ok()?;
        let modes = tcgetattr(stdin()).ok()?;
        Some(Self { modes })
    }

    /// Whether our own process group has the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        own_group().is_some_and(|us| self.has_foreground(us))
    }

    pub(crate) fn has_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == group)
    }

    /// Whether a child gets the foreground from its start. Not when our output
    /// goes into a pipe: whoever reads from that is in our own group and would
    /// lose the terminal, a pager say.
    pub(crate) fn goes_to_child(&self) -> bool {
        self.is_ours() && stdout().is_terminal()
    }

    /// Gives `group` the foreground. Needs SIGTTOU blocked.
    pub(crate) fn hand_to(&self, group: Pid) {
        // A terminal that hung up has no foreground to give.
        let _ = tcsetpgrp(stdin(), group);
    }

    /// Gives our own process group the foreground. Needs SIGTTOU blocked.
    pub(crate) fn hand_to_us(&self) {
        if let Some(us) = own_group() {
            self.hand_to(us);
        }
    }

    /// Takes the foreground back from `group`, and the modes too unless its
    /// leader ended by itself: one that was killed cannot have restored them.
    pub(crate) fn take_back(&self, group: Pid, keep_modes: bool) {
        if self.has_foreground(group) {
            self.hand_to_us();
            if !keep_modes {
                let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.modes);
            }
        }
    }
}

/// Our process group, unless its leader lives outside our PID namespace: then it
/// has no number here (the kernel says 0, and rustix panics).
pub(crate) fn own_group() -> Option<Pid> {
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
}

/// Whether somebody (a shell with job control) would continue us if we stopped.
///
/// Sessions and groups are compared as the numbers that the kernel says, 0 for
/// one whose leader lives outside our PID namespace.
pub(crate) fn can_be_continued() -> bool {
    let parent = getppid();
    let same_session = getsid(None).is_ok_and(|us| getsid(Some(parent)) == Ok(us));
    let other_group = getpgid(None).is_ok_and(|us| getpgid(Some(parent)).is_ok_and(|p| p != us));
    let leads_session = getsid(None) == Ok(getpid());
    // A parent of number 0 lives outside; asked about 0, the kernel would
    // answer for ourselves.
    parent.as_raw() > 0 && same_session && other_group && !leads_session
}
