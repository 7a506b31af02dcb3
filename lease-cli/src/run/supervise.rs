//! Watches the lease and the command together.

use std::time::Duration;

use leases::{Clock, Lease, Moment, SystemClock};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::watch;

use super::Outcome;
use super::child::{Child, Ended};
use super::limits::{Limits, protected_until};
use super::terminal::{self, Terminal};
use crate::duration::brief;
use crate::interrupt::Signals;
use crate::stderr;

/// How often the rest of a group is looked at, once its leader has ended.
const LOOK: Duration = Duration::from_millis(10);
/// The same when it stays for long.
const LOOK_LATER: Duration = Duration::from_millis(50);
/// How long others of the group may go on before that is said.
const SILENT: Duration = Duration::from_millis(500);
/// How long a group that got SIGKILL is waited for: the kernel may hold one
/// back, for a disk that does not answer.
const DYING: Duration = Duration::from_secs(1);

/// How what is held is called.
pub(crate) struct Named {
    /// In a sentence of its own, with the token.
    pub(crate) full: String,
    /// Within a sentence.
    pub(crate) short: String,
}

/// One command under one lease.
pub(crate) struct Supervisor<'a> {
    lease: &'a Lease,
    child: &'a Child,
    limits: Limits,
    terminal: Option<&'a Terminal>,
    signals: Signals,
    named: Named,
    /// Somebody else who may have the command stopped.
    halt: Option<watch::Receiver<bool>>,
    clock: SystemClock,
    stop: Option<Stop>,
}

/// The command was told to stop: nothing takes that back, not even a renewal
/// that is confirmed afterwards.
#[derive(Clone, Copy)]
struct Stop {
    /// Not for the lease's sake: somebody asked for it.
    asked_for: bool,
    kill_at: Moment,
    /// When SIGKILL was sent first.
    killed: Option<Moment>,
}

impl Stop {
    /// When there is something to be done about it next.
    fn next(&self) -> Moment {
        match self.killed {
            None => self.kill_at,
            Some(killed) => killed.after(DYING),
        }
    }
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        lease: &'a Lease,
        child: &'a Child,
        limits: Limits,
        terminal: Option<&'a Terminal>,
        signals: Signals,
        named: Named,
    ) -> Self {
        Self {
            lease,
            child,
            limits,
            terminal,
            signals,
            named,
            halt: None,
            clock: SystemClock::new(),
            stop: None,
        }
    }

    /// Stops the command, too, once this becomes true.
    pub(crate) fn halted_by(mut self, halt: watch::Receiver<bool>) -> Self {
        self.halt = Some(halt);
        self
    }

    fn say(&self, words: &str) {
        stderr::say(&format!("{}: {words}", self.named.full));
    }

    /// Until the command has ended, and with it everybody in its group: they
    /// all may write what the key protects. When the lease is lost, they are
    /// stopped.
    pub(crate) async fn watch(&mut self) -> Outcome {
        let Some(ended) = self.until_leader_ended().await else {
            return self.given_up();
        };
        // Its number cannot go to somebody else while the group has members.
        self.child.reap();
        if !self.until_group_ended().await {
            return self.given_up();
        }
        match (self.stop, self.lease.check()) {
            (None, Ok(_)) => Outcome::Ended(ended),
            (None, Err(lost)) => {
                let why = format!("lost: {}; its command has ended, too late", lost.reason);
                self.say(&why);
                Outcome::Lost
            }
            (Some(stop), Ok(_)) if stop.asked_for => Outcome::Halted,
            (Some(_), _) => Outcome::Lost,
        }
    }

    fn given_up(&self) -> Outcome {
        self.say(&format!(
            "processes of the command are still there although they were killed; leaving them, \
             and {} to its expiry",
            self.named.short
        ));
        Outcome::Unkillable
    }

    /// `None` when it does not end although it was killed.
    async fn until_leader_ended(&mut self) -> Option<Ended> {
        loop {
            if let Some(ended) = self.child.ended() {
                return Some(ended);
            }
            if self.is_hopeless() {
                return None;
            }
            if let Some(signal) = self.child.stopped() {
                self.child_stopped(signal);
            }
            self.step(Moment::NEVER).await;
        }
    }

    /// Whether the rest of the group has ended. `false` when it does not,
    /// although it was killed.
    async fn until_group_ended(&mut self) -> bool {
        let leader_ended = self.clock.now();
        let mut rest = self.child.rest();
        let mut said = false;
        if self.stop.is_some_and(|stop| stop.killed.is_some()) {
            // Those that were forked while the group was being killed.
            self.child.signal(Signal::KILL);
        }
        while rest.lives() {
            if self.is_hopeless() {
                return false;
            }
            let now = self.clock.now();
            let alone = now.since(leader_ended);
            if self.stop.is_none() && !said && alone >= SILENT {
                said = true;
                self.say_others();
            }
            let look = if said { LOOK_LATER } else { LOOK };
            self.step(now.after(look)).await;
        }
        true
    }

    /// Whether SIGKILL has been of no use.
    fn is_hopeless(&self) -> bool {
        self.stop
            .is_some_and(|stop| stop.killed.is_some() && self.clock.now() >= stop.next())
    }

    fn say_others(&self) {
        stderr::say(&format!(
            "the command has ended, but others of its process group have not: {} stays held \
             until they end (start a daemon with setsid to let it go)",
            self.named.short
        ));
    }

    /// Waits for the next thing to happen, until `until` at most, and does what
    /// follows from it.
    async fn step(&mut self, until: Moment) {
        let due = self.stop.map_or(Moment::NEVER, |stop| stop.next());
        let until = until.min(due);
        // The deadline first: after a stop of this process, nothing else may be
        // done before it is looked at.
        tokio::select! {
            biased;
            () = self.lease.unconfirmed(self.limits.lead()), if self.stop.is_none() => {
                self.tell_to_stop();
            }
            () = self.clock.sleep_until(until), if until != Moment::NEVER => {
                if self.stop.is_some_and(|stop| self.clock.now() >= stop.kill_at) {
                    self.kill();
                }
            }
            () = asked(&mut self.halt), if self.stop.is_none() => {
                let deadline = self.lease.deadline();
                self.begin_to_stop(self.limits.kill_at(self.clock.now(), deadline), true);
            }
            signal = self.signals.next() => self.pass_on(signal),
        }
    }

    /// SIGTERM, with SIGKILL to follow before anybody else can have the key:
    /// at once when that time has come.
    fn tell_to_stop(&mut self) {
        let now = self.clock.now();
        let kill_at = self.limits.kill_at(now, protected_until(self.lease));
        let why = match self.lease.check() {
            Ok(_) => "its renewal was not confirmed in time".to_owned(),
            Err(lost) => format!("lost: {}", lost.reason),
        };
        if kill_at <= now {
            self.say(&format!("{why}; killing the command"));
            self.stop = Some(Stop {
                asked_for: false,
                kill_at,
                killed: None,
            });
            self.kill();
            return;
        }
        let left = brief(kill_at.since(now));
        self.say(&format!(
            "{why}; stopping the command, killing it in {left}"
        ));
        self.begin_to_stop(kill_at, false);
    }

    fn begin_to_stop(&mut self, kill_at: Moment, asked_for: bool) {
        self.stop = Some(Stop {
            asked_for,
            kill_at,
            killed: None,
        });
        self.child.signal(Signal::TERM);
        // One that was stopped must run to handle it.
        self.child.signal(Signal::CONT);
    }

    fn kill(&mut self) {
        self.child.signal(Signal::KILL);
        let now = self.clock.now();
        if let Some(stop) = &mut self.stop {
            stop.killed.get_or_insert(now);
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            // The loop looks at the child anyway.
            Signal::CHILD => {}
            Signal::CONT => self.resume(),
            Signal::TSTP => {
                self.child.signal(signal);
                // Without job control it is between the sender and the
                // command, and so is SIGCONT.
                if self.terminal.is_some() || terminal::can_be_continued() {
                    self.suspend();
                }
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

/// Until somebody asks for the end of the command.
async fn asked(halt: &mut Option<watch::Receiver<bool>>) {
    if let Some(halt) = halt
        && halt.wait_for(|halt| *halt).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
