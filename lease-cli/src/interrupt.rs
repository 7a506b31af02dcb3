//! Signals: which of them arrive here, and as what.

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, select_all, unfold};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};

/// What ends a wait.
pub(crate) const ENDING: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// What else is passed on to a running command. (Not the real-time signals,
/// which have no names here: they end this process, and it its command.)
/// While nothing runs, these do what they do to every program.
///
/// Not those that say that the receiver itself is broken (ILL, TRAP, ABRT, BUS,
/// FPE, SEGV, PIPE), nor the terminal's word to the background (TTIN, TTOU).
const RUNNING: &[Signal] = &[
    Signal::WINCH,
    Signal::TSTP,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::URG,
    Signal::SYS,
    Signal::XCPU,
    Signal::XFSZ,
    #[cfg(target_os = "linux")]
    Signal::POWER,
    #[cfg(target_os = "linux")]
    Signal::STKFLT,
];

/// What says that something has happened to the command or to us.
const OWN: [Signal; 2] = [Signal::CHILD, Signal::CONT];

/// Signals of this process, one after another.
pub(crate) struct Signals(SelectAll<BoxStream<'static, Signal>>);

impl Signals {
    /// Listens to these, except for those that our caller made us ignore:
    /// `nohup` and background jobs of a script rely on that, and so does the
    /// child, which inherits it.
    pub(crate) fn listen(to: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored();
        let streams = to
            .iter()
            .filter(|s| ignored >> (s.as_raw() - 1) & 1 == 0)
            .map(|s| stream(*s))
            .collect::<Result<Vec<_>, _>>()
            .map_err(cannot_listen)?;
        Ok(Self(select_all(streams)))
    }

    /// Listens to everything else that concerns a running command, too. What
    /// has arrived already is not lost.
    pub(crate) fn listen_for_command(mut self) -> Result<Self, Failure> {
        self.0.extend(Self::listen(RUNNING)?.0);
        for own in OWN {
            self.0.push(stream(own).map_err(cannot_listen)?);
        }
        Ok(self)
    }

    /// Listens to the ends of children alone.
    pub(crate) fn children() -> Result<Self, Failure> {
        let child = stream(Signal::CHILD).map_err(cannot_listen)?;
        Ok(Self(select_all([child])))
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.0.next().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}

fn cannot_listen(error: std::io::Error) -> Failure {
    Failure::new(Exit::Internal, format!("cannot listen to signals: {error}"))
}

fn stream(of: Signal) -> std::io::Result<BoxStream<'static, Signal>> {
    let listener = signal(SignalKind::from_raw(of.as_raw()))?;
    Ok(unfold(listener, move |mut listener| async move {
        listener.recv().await.map(|()| (of, listener))
    })
    .boxed())
}

/// The signals that were ignored when we started, as a bit mask.
fn ignored() -> u64 {
    use std::sync::OnceLock;
    static AT_START: OnceLock<u64> = OnceLock::new();
    *AT_START.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0)
    })
}

/// What a wait that was ended by a signal exits with.
pub(crate) fn ended_by(signal: Signal) -> Failure {
    Failure::silent(Exit::Signalled(signal.as_raw()))
}
