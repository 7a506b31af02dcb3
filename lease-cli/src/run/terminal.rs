//! The terminal: the child's process group needs its foreground to read from it
//! and to get its Ctrl-C.

use std::io::{IsTerminal, stdin, stdout};

use rustix::process::{Pid, getpgid, getpgrp, getpid, getppid, getsid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal on our stdin.
#[derive(Debug)]
pub(super) struct Terminal {
    /// How it was set when we started.
    modes: Termios,
}

impl Terminal {
    /// The terminal on our stdin, if there is one and it controls us.
    pub(super) fn find() -> Option<Self> {
        tcgetpgrp(stdin()).ok()?;
        let modes = tcgetattr(stdin()).ok()?;
        Some(Self { modes })
    }

    /// Whether our own process group has the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.has_foreground(getpgrp())
    }

    pub(super) fn has_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == group)
    }

    /// Whether a child gets the foreground from its start. Not when our output
    /// goes into a pipe: whoever reads from that is in our own group and would
    /// lose the terminal, a pager say.
    pub(super) fn goes_to_child(&self) -> bool {
        self.is_ours() && stdout().is_terminal()
    }

    /// Gives `group` the foreground. Needs SIGTTOU blocked.
    pub(super) fn hand_to(&self, group: Pid) {
        // A terminal that hung up has no foreground to give.
        let _ = tcsetpgrp(stdin(), group);
    }

    /// Takes the foreground back from `group`, and the modes too unless its
    /// leader ended by itself: one that was killed cannot have restored them.
    pub(super) fn take_back(&self, group: Pid, keep_modes: bool) {
        if self.has_foreground(group) {
            self.hand_to(getpgrp());
            if !keep_modes {
                let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.modes);
            }
        }
    }
}

/// Whether somebody (a shell with job control) would continue us if we stopped.
pub(super) fn can_be_continued() -> bool {
    let same_session = |other: Pid| {
        let session = getsid(None).ok();
        session.is_some() && getsid(Some(other)).ok() == session
    };
    getppid().is_some_and(|parent| {
        same_session(parent) && getpgid(Some(parent)).is_ok_and(|group| group != getpgrp())
    }) && getpid() != getsid(None).unwrap_or_else(|_| getpid())
}
