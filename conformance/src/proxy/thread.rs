//! The proxy's own thread: it waits, and lets the engine do the rest.
//!
//! Not a runtime's: a delay of half a millisecond must not be rounded up to one,
//! and a test whose only thread is busy must not slow the network down.

use std::io::{self, Read, Write};

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::engine::{Engine, Event, Source};

#[derive(Debug)]
pub(super) struct Shared {
    inner: Mutex<Inner>,
    turned: Condvar,
    /// A byte here ends the thread's waiting.
    bell: UnixStream,
    rung: UnixStream,
}

/// However the thread ends, nobody waits for it any more.
struct Leaving<'a>(&'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.lock().stopping = true;
        self.0.turned.notify_all();
    }
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    /// How often the thread has let go of all sockets that it waited on.
    turns: u64,
    stopping: bool,
}

impl Shared {
    pub(super) fn start(engine: Engine) -> io::Result<(Arc<Self>, std::thread::JoinHandle<()>)> {
        let (bell, rung) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rung.set_nonblocking(true)?;
        let shared = Arc::new(Self {
            inner: Mutex::new(Inner {
                engine,
                turns: 0,
                stopping: false,
            }),
            turned: Condvar::new(),
            bell,
            rung,
        });
        let runs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("fault-proxy".into())
            .spawn(move || runs.run())?;
        Ok((shared, thread))
    }

    /// Looks at the engine.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.lock().engine)
    }

    /// Changes the engine; when this returns, the change has happened: sockets
    /// that it closed are closed.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> T {
        let mut inner = self.lock();
        let result = change(&mut inner.engine);
        inner.engine.pump();
        let before = inner.turns;
        self.ring();
        while inner.turns == before && !inner.stopping {
            inner = self.turned.wait(inner).unwrap_or_else(|e| e.into_inner());
        }
        result
    }

    pub(super) fn stop(&self) {
        self.lock().stopping = true;
        self.ring();
        self.turned.notify_all();
    }

    fn ring(&self) {
        // When it is full, the thread will wake up anyway.
        let _ = (&self.bell).write(&[1]);
    }

    fn run(&self) {
        // The system may wake a thread late by 50 µs; not this one.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let _leaving = Leaving(self);
        loop {
            let (interests, until) = {
                let inner = self.lock();
                if inner.stopping {
                    return;
                }
                inner.engine.interests()
            };
            let ready = self.wait(&interests, until);
            drop(interests);
            let mut inner = self.lock();
            inner.engine.handle(&ready);
            inner.turns += 1;
            self.turned.notify_all();
        }
    }

    fn wait(&self, interests: &[(Event, Source)], until: Option<Instant>) -> Vec<Event> {
        let mut fds = vec![PollFd::new(&self.rung, PollFlags::IN)];
        fds.extend(interests.iter().map(|(event, source)| {
            let flags = match event {
                Event::Writable => PollFlags::OUT,
                Event::Arrival | Event::Readable(..) => PollFlags::IN,
            };
            match source {
                Source::Listener(listener) => PollFd::from_borrowed_fd(listener.as_fd(), flags),
                Source::Socket(socket) => PollFd::from_borrowed_fd(socket.as_fd(), flags),
            }
        }));
        let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Vec::new(),
            // Out of memory, say: the next try may go better.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        if !fds[0].revents().is_empty() {
            while matches!((&self.rung).read(&mut [0; 64]), Ok(count) if count > 0) {}
        }
        let ready = interests.iter().zip(&fds[1..]);
        ready
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((event, _), _)| *event)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }
}
