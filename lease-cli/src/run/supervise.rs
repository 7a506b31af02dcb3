//! Watches the lease and the command together.

use std::time::Duration;

use leases::{Clock, Lease, Moment, SystemClock};
use rustix::process::{Signal, getpid, kill_process};

use super::child::{Child, Ended};
use super::limits::{Limits, protected_until};
use super::terminal::{self, Terminal};
use super::{Outcome, say_lost};
use crate::duration::brief;
use crate::interrupt::Signals;

/// How often the rest of a group that was told to stop is looked at, once its
/// leader is gone.
const LOOK: Duration = Duration::from_millis(10);

/// One command under one lease.
pub(super) struct Supervisor<'a> {
    lease: &'a Lease,
    child: &'a Child,
    limits: Limits,
    terminal: Option<&'a Terminal>,
    signals: Signals,
    clock: SystemClock,
    stop: Option<Stop>,
}

/// The command was told to stop: nothing takes that back, not even a renewal
/// that is confirmed afterwards.
#[derive(Clone, Copy)]
struct Stop {
    kill_at: Moment,
    killed: bool,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        lease: &'a Lease,
        child: &'a Child,
        limits: Limits,
        terminal: Option<&'a Terminal>,
        signals: Signals,
    ) -> Self {
        Self {
            lease,
            child,
            limits,
            terminal,
            signals,
            clock: SystemClock::new(),
            stop: None,
        }
    }

    /// Until the command has ended; when the lease is lost, until its whole
    /// group is gone.
    pub(super) async fn watch(&mut self) -> Outcome {
        let ended = self.until_ended().await;
        if self.stop.is_none() && self.lease.check().is_err() {
            // It ended, but nobody knows whether in time.
            self.tell_to_stop();
        }
        match self.stop {
            None => Outcome::Ended(ended),
            Some(stop) => {
                self.until_group_gone(stop).await;
                Outcome::Lost
            }
        }
    }

    async fn until_ended(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.child.ended() {
                return ended;
            }
            if let Some(signal) = self.child.stopped() {
                self.child_stopped(signal);
            }
            let kill_at = match self.stop {
                Some(stop) if !stop.killed => stop.kill_at,
                _ => Moment::NEVER,
            };
            // The deadline first: after a stop of this process, nothing else
            // may be done before it is looked at.
            tokio::select! {
                biased;
                () = self.lease.unconfirmed(self.limits.lead()), if self.stop.is_none() => {
                    self.tell_to_stop();
                }
                () = self.clock.sleep_until(kill_at), if kill_at != Moment::NEVER => self.kill(),
                signal = self.signals.next() => self.pass_on(signal),
            }
        }
    }

    /// SIGTERM, with SIGKILL to follow before anybody else can have the key:
    /// at once when that time has come.
    fn tell_to_stop(&mut self) {
        let now = self.clock.now();
        let kill_at = self.limits.kill_at(now, protected_until(self.lease));
        self.stop = Some(Stop {
            kill_at,
            killed: false,
        });
        let why = match self.lease.check() {
            Ok(_) => "its renewal was not confirmed in time".to_owned(),
            Err(lost) => format!("lost: {}", lost.reason),
        };
        if kill_at <= now {
            say_lost(self.lease, &format!("{why}; killing the command"));
            self.kill();
            return;
        }
        let left = brief(kill_at.since(now));
        say_lost(
            self.lease,
            &format!("{why}; stopping the command, killing it in {left}"),
        );
        self.child.signal(Signal::TERM);
        // One that was stopped must run to handle it.
        self.child.signal(Signal::CONT);
    }

    fn kill(&mut self) {
        self.child.signal(Signal::KILL);
        if let Some(stop) = &mut self.stop {
            stop.killed = true;
        }
    }

    /// The leader is gone: the others in its group have until the kill.
    async fn until_group_gone(&self, stop: Stop) {
        if stop.killed {
            // Those that were forked while the group was being killed.
            self.child.signal(Signal::KILL);
        }
        // Its number cannot go to somebody else while the group has members.
        self.child.reap();
        while self.child.group_lives() {
            if self.clock.now() >= stop.kill_at {
                self.child.signal(Signal::KILL);
            }
            let next = self.clock.now().after(LOOK);
            let until = if self.clock.now() < stop.kill_at {
                next.min(stop.kill_at)
            } else {
                next
            };
            self.clock.sleep_until(until).await;
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            // The loop looks at the child anyway.
            Signal::CHILD => {}
            Signal::CONT => self.resume(),
            Signal::TSTP => {
                self.child.signal(signal);
                self.suspend();
            }
            _ => self.child.signal(signal),
        }
    }

    /// Job control: the child was stopped.
    fn child_stopped(&mut self, signal: i32) {
        let Some(terminal) = self.terminal else {
            return;
        };
        let is = |wanted: Signal| wanted.as_raw() == signal;
        let wants_terminal = is(Signal::TTIN) || is(Signal::TTOU);
        if wants_terminal && terminal.is_ours() {
            self.resume_with_terminal(terminal);
        } else if wants_terminal || is(Signal::TSTP) || terminal.has_foreground(self.child.group())
        {
            self.suspend();
        }
    }

    /// Stops this process as its child is stopped, so that the shell gets its
    /// prompt back; goes on when somebody continues it.
    fn suspend(&mut self) {
        if let Some(terminal) = self.terminal {
            terminal.take_back(self.child.group(), true);
        }
        if terminal::can_be_continued() {
            // Does not return before SIGCONT.
            let _ = kill_process(getpid(), Signal::STOP);
        }
        self.resume();
    }

    /// Continues the child, unless its time ran out meanwhile: then it must not
    /// run for another instant, and the loop tells it to stop.
    fn resume(&mut self) {
        if self.stop.is_some() || self.lease.remaining() <= self.limits.lead() {
            return;
        }
        match self.terminal {
            Some(terminal) if terminal.goes_to_child() => self.resume_with_terminal(terminal),
            _ => self.child.signal(Signal::CONT),
        }
    }

    fn resume_with_terminal(&self, terminal: &Terminal) {
        terminal.hand_to(self.child.group());
        self.child.signal(Signal::CONT);
    }
}
