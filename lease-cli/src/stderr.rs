//! One-line messages on stderr, written by a thread of their own.
//!
//! Whoever reads our stderr may stop reading (a pager, a full pipe, a terminal
//! that was stopped), and a write to it then blocks. The thread that watches a
//! lease's deadline must never be blocked by that.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::{output, unreadable};

/// Lines that wait for a slow reader; more are dropped.
const QUEUE: usize = 1024;
/// How long the end of the program waits for a slow reader.
const FLUSH: Duration = Duration::from_secs(1);

enum Message {
    Text(Vec<u8>),
    Flush(SyncSender<()>),
}

static QUEUE_IN: OnceLock<SyncSender<Message>> = OnceLock::new();

/// Starts the thread, and logging as `LEASE_LOG` asks for it.
pub(crate) fn start() {
    let (sender, receiver) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new().name("lease-stderr".to_owned());
    if thread.spawn(move || write_all(&receiver)).is_ok() {
        // Set once, here.
        let _ = QUEUE_IN.set(sender);
    }
    let log = std::env::var("LEASE_LOG").ok().map(|filter| {
        tracing_subscriber::fmt::layer()
            .with_writer(Log)
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .with_filter(EnvFilter::builder().parse_lossy(filter))
    });
    tracing_subscriber::registry()
        .with(log)
        .with(unreadable::layer())
        .init();
}

fn write_all(messages: &Receiver<Message>) {
    // With `stty tostop`, a write from the background would stop us all.
    let mut tostop = nix::sys::signal::SigSet::empty();
    tostop.add(nix::sys::signal::Signal::SIGTTOU);
    let _ = tostop.thread_block();
    for message in messages {
        match message {
            // Nobody is left to be told when stderr is gone.
            Message::Text(text) => drop(io::stderr().lock().write_all(&text)),
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

fn send(text: Vec<u8>) {
    match QUEUE_IN.get() {
        Some(queue) => {
            if let Err(TrySendError::Disconnected(Message::Text(text))) =
                queue.try_send(Message::Text(text))
            {
                drop(io::stderr().lock().write_all(&text));
            }
        }
        None => drop(io::stderr().lock().write_all(&text)),
    }
}

/// Says one thing in one line.
pub(crate) fn say(text: &str) {
    send(format!("lease: {}\n", output::one_line(text)).into_bytes());
}

/// Waits until everything is written, but not for long.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE_IN.get() {
        let (done, wait) = sync_channel(1);
        if queue.try_send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH);
        }
    }
}

/// Log lines take the same way.
struct Log;

impl<'a> MakeWriter<'a> for Log {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine(Vec::new())
    }
}

struct LogLine(Vec<u8>);

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            send(std::mem::take(&mut self.0));
        }
    }
}
