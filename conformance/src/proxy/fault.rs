//! The words for what a test wants to go wrong.

use std::fmt;
use std::net::SocketAddr;

use tokio::sync::watch;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::Request, Self::Reply];

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Request => 0,
            Self::Reply => 1,
        }
    }
}

/// What becomes of a connection once its bytes were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// It is closed: the client learns at once that something was wrong.
    Cut,
    /// It stays open and swallows everything in both directions: the client
    /// learns nothing.
    Hang,
}

/// One connection through the proxy; later ones have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(super) u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

/// To which connection an armed fault happens. Traffic on others is left alone,
/// and does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum On {
    /// The first on which bytes of the fault's direction arrive from now on.
    Any,
    /// The first of those that are made from now on.
    New,
    /// This one.
    Connection(ConnectionId),
}

/// A connection that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// Its number.
    pub id: ConnectionId,
    /// The client's own address, by which a test may know whose it is.
    pub client: SocketAddr,
    /// Bytes passed on to the server.
    pub request_bytes: u64,
    /// Bytes passed on to the client.
    pub reply_bytes: u64,
}

/// What went through the proxy since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that are open.
    pub open: usize,
    /// Bytes passed on to the server.
    pub request_bytes: u64,
    /// Bytes passed on to a client.
    pub reply_bytes: u64,
    /// Bytes that arrived and went nowhere.
    pub swallowed_bytes: u64,
}

/// A fault that will happen once. Dropping this takes nothing back;
/// [`FaultProxy::heal`](super::FaultProxy::heal) does.
#[derive(Clone, Debug)]
pub struct Armed {
    pub(super) happened: watch::Receiver<Option<ConnectionId>>,
}

impl Armed {
    /// Waits until it has happened, and tells to which connection.
    ///
    /// # Errors
    /// If it can happen no more.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; it may be waited for again.
    pub async fn happened(&self) -> Result<ConnectionId, NeverHappened> {
        let mut happened = self.happened.clone();
        let seen = happened.wait_for(Option::is_some).await;
        seen.ok().and_then(|id| *id).ok_or(NeverHappened)
    }

    /// Whether it has happened.
    #[must_use]
    pub fn has_happened(&self) -> bool {
        self.happened.borrow().is_some()
    }
}

/// An armed fault can happen no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverHappened;

impl fmt::Display for NeverHappened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the armed fault did not happen, and cannot any more: the proxy was healed or \
             dropped, or the connection ended before enough bytes had passed",
        )
    }
}

impl std::error::Error for NeverHappened {}

/// A fault that waits for its bytes.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) direction: Direction,
    pub(super) on: Scope,
    /// So many bytes still pass.
    pub(super) after: u64,
    pub(super) then: Then,
    pub(super) happened: watch::Sender<Option<ConnectionId>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    From(ConnectionId),
    Only(ConnectionId),
}

impl Waiting {
    pub(super) fn is_for(&self, id: ConnectionId, direction: Direction) -> bool {
        let on = match self.on {
            Scope::From(first) => id >= first,
            Scope::Only(only) => id == only,
        };
        on && self.direction == direction
    }
}
