//! A network that fails when it is told to, between clients and a server of any
//! kind.
//!
//! ```
//! # use std::net::TcpListener;
//! use std::time::Duration;
//! use lease_conformance::proxy::{FaultProxy, On, Then};
//!
//! # fn main() -> std::io::Result<()> {
//! # let server = TcpListener::bind("127.0.0.1:0")?;
//! let proxy = FaultProxy::start(server.local_addr()?)?;
//! println!("clients connect to {}", proxy.address());
//!
//! // A round trip takes a millisecond longer.
//! proxy.delay(Duration::from_micros(500), Duration::from_micros(500));
//! // The server does what it is asked, and nobody hears of it.
//! let lost = proxy.lose_reply(Then::Cut, On::Any);
//! // … a call of the client, and then `lost.happened().await`.
//! # assert!(!lost.has_happened());
//! proxy.heal()?;
//! # Ok(())
//! # }
//! ```
//!
//! Every call has happened when it returns: connections are cut, or the listener
//! is gone. A test waits for what the *network* does with
//! [`Armed::happened`] and [`FaultProxy::until`], and never has to sleep.
//!
//! # What it is made of
//! A thread of its own, so that it works under any runtime and with none, and
//! is as fast when the test's threads are busy. It knows nothing of protocols:
//! faults are counted in bytes, of the connections that a test chooses ([`On`]).
//!
//! # How exact the delays are
//! Bytes are passed on no earlier than the delay after they arrived, in order,
//! and delayed bytes do not wait for one another: many requests may be on their
//! way. Measured with two cores and other work on them: a round trip through the
//! proxy takes 50 µs without a delay; with 500 µs each way, 1.18 ms half of the
//! time, and some milliseconds in one of a hundred, when the machine has no core
//! free. The test `a_delay_is_exact` shows what it is on yours.
//!
//! # What it cannot do
//! * Loopback connections are made by the system before the proxy hears of them:
//!   a client's connect succeeds although the server is away, and fails only
//!   after [`refuse`](FaultProxy::refuse).
//! * Nothing is lost, repeated or put in another order within a connection; TCP
//!   does not do that either.

mod engine;
mod fault;
mod flow;
mod hooks;
mod socket;
mod thread;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use fault::{Armed, Connection, ConnectionId, Direction, NeverHappened, On, Then, Traffic};
pub use socket::Upstream;

use engine::Engine;
use thread::Shared;

/// A proxy in front of one server; see the [module](self).
///
/// Dropping it cuts all connections.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    traffic: tokio::sync::watch::Receiver<Traffic>,
}

impl FaultProxy {
    /// Listens on a free port of 127.0.0.1, and passes everything on to the
    /// server. That need not run: it is connected to when a client comes.
    ///
    /// # Errors
    /// If there is no port, file or thread left.
    pub fn start(upstream: impl Into<Upstream>) -> io::Result<Self> {
        let engine = Engine::new(upstream.into())?;
        let address = engine.address();
        let traffic = engine.traffic.subscribe();
        let (shared, thread) = Shared::start(engine)?;
        Ok(Self {
            shared,
            thread: Some(thread),
            address,
            traffic,
        })
    }

    /// Where clients connect to. It stays the same.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, bytes take so much longer to the server and to the client.
    /// What is on its way already keeps its time.
    pub fn delay(&self, request: Duration, reply: Duration) {
        self.shared
            .change(|engine| engine.set_delay(request, reply));
    }

    /// Cuts all connections that are open, with a reset on both sides. New ones
    /// may be made.
    pub fn cut(&self) {
        self.shared.change(Engine::cut);
    }

    /// Refuses new connections, as a machine does on which no server runs. Open
    /// ones are left alone: [`cut`](Self::cut) those as well for a server that
    /// was killed.
    pub fn refuse(&self) {
        self.shared.change(Engine::refuse);
    }

    /// Swallows everything in both directions, on open and on new connections,
    /// and the ends of connections, too. Nobody hears of anything.
    ///
    /// Connections that have lost bytes are cut by [`heal`](Self::heal).
    pub fn black_hole(&self) {
        self.shared.change(|engine| {
            engine.set_swallow(Direction::Request);
            engine.set_swallow(Direction::Reply);
        });
    }

    /// As [`black_hole`](Self::black_hole), in one direction only: with
    /// [`Direction::Reply`] the server hears everything and its clients nothing.
    pub fn swallow(&self, direction: Direction) {
        self.shared.change(|engine| engine.set_swallow(direction));
    }

    /// From now on, new connections lead to another server: as an address does that
    /// is moved in a failover. Open ones stay where they are:
    /// [`cut`](Self::cut) those as well, if nobody answers them any more.
    pub fn lead_to(&self, upstream: impl Into<Upstream>) {
        let upstream = upstream.into();
        self.shared.change(|engine| engine.lead_to(upstream));
    }

    /// Keeps everything back, in both directions, until [`heal`](Self::heal):
    /// then all of it arrives, however late.
    pub fn hold(&self) {
        self.shared.change(Engine::hold);
    }

    /// Once: so many bytes of replies still pass, counted from now on, and the
    /// connection is cut right behind them. With 0 it is cut when a reply
    /// arrives from the server.
    ///
    /// Each number from 0 to the length of a reply, one after the other, cuts a
    /// client off at every byte of it.
    pub fn cut_reply_after(&self, bytes: u64, on: On) -> Armed {
        self.arm(Direction::Reply, bytes, Then::Cut, on)
    }

    /// Once: so many bytes of requests still pass, and the connection is cut
    /// right behind them.
    pub fn cut_request_after(&self, bytes: u64, on: On) -> Armed {
        self.arm(Direction::Request, bytes, Then::Cut, on)
    }

    /// Once: the next reply is lost. The server has done what it was asked when
    /// [`Armed::happened`] returns, and the client does not know.
    pub fn lose_reply(&self, then: Then, on: On) -> Armed {
        self.arm(Direction::Reply, 0, then, on)
    }

    /// Once: the next request is lost. The server hears nothing of it.
    pub fn lose_request(&self, then: Then, on: On) -> Armed {
        self.arm(Direction::Request, 0, then, on)
    }

    fn arm(&self, direction: Direction, after: u64, then: Then, on: On) -> Armed {
        self.shared
            .change(|engine| engine.arm(direction, after, then, on))
    }

    /// Takes all faults back: delays are zero, what was held back or delayed
    /// goes on at once, armed faults do not happen any more, and connections
    /// are accepted. Connections that have lost bytes are cut.
    ///
    /// # Errors
    /// If somebody else listens on the proxy's port since
    /// [`refuse`](Self::refuse); nobody who claims ports as this crate does.
    pub fn heal(&self) -> io::Result<()> {
        self.shared.change(Engine::heal)
    }

    /// The connections that are open, oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.look(Engine::connections)
    }

    /// What went through until now.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        *self.traffic.borrow()
    }

    /// Counts [`hops`](Self::hops) from 0 on. What is on its way belongs to what was
    /// before.
    pub fn count_hops(&self) {
        self.shared.change(Engine::count_hops);
    }

    /// How often, since [`count_hops`](Self::count_hops), something crossed this
    /// network **one after the other**, up to what has reached a client by now. A round
    /// trip is two; what a server tells by itself is one.
    ///
    /// Bytes are one hop more than the latest of those that had reached their sender when
    /// they came: the longest chain in which each may follow from the one before. It does
    /// not depend on how fast anything is, and so shows how many round trips something
    /// takes also on a busy machine. What does not follow from each other is still one
    /// hop, as long as a [`delay`](Self::delay) keeps the answers to the first of it away
    /// until the last was sent.
    #[must_use]
    pub fn hops(&self) -> u64 {
        self.shared.look(Engine::hops)
    }

    /// Waits until the traffic is as wanted: until so many bytes have passed or
    /// were swallowed, or so many connections were made. Gives what it then was.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn until(&self, mut wanted: impl FnMut(&Traffic) -> bool) -> Traffic {
        let mut traffic = self.traffic.clone();
        // The sender lives as long as the proxy, which is borrowed.
        match traffic.wait_for(|traffic| wanted(traffic)).await {
            Ok(seen) => *seen,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in there was printed.
            let _ = thread.join();
        }
    }
}
