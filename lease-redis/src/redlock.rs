//! A quorum of independent servers: how it is opened.

mod doctor;
mod init;
mod merge;
mod store;
mod url;

use std::fmt;
use std::time::Duration;

use lease_core::{InvalidInput, StoreError, Ttl};

use crate::RedisOptions;
pub use init::{InUse, InitReport, InitState, NodeInit};
pub use store::RedlockStore;

/// Unless the user says otherwise; the longest TTL that there may be.
const QUARANTINE: Duration = Duration::from_secs(60);

/// Options of a quorum of independent Redis servers, the nodes: a Redlock with
/// fencing tokens. See [`Quorum`](lease_core::Quorum) for how it works, and the
/// page on [`redlock`](crate::guide::redlock) for how it is run.
///
/// ```
/// # fn f() -> Result<(), lease_core::InvalidInput> {
/// use lease_redis::RedlockOptions;
/// let options = RedlockOptions::from_url("redlock://a.example,b.example,c.example")?
///     .prefix("my-app")?;
/// assert_eq!(options.node_names().count(), 3);
/// # Ok(()) }
/// # f().unwrap();
/// ```
///
/// # A quarantine is a duty
/// A node that comes back without its grants and grants at once makes a second
/// majority. So every node has a quarantine, 60 s unless configured
/// ([`quarantine`](Self::quarantine)), and no TTL may be longer. Its price: a node that was
/// restarted takes no part in new grants for so long; when a majority was, nothing
/// is granted for so long. Leases that are held go on.
///
/// # All clients must agree
/// on the nodes, on the prefix and on the quarantine. Another length of the
/// quarantine is refused by each node that has seen the first one.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedlockOptions {
    nodes: Vec<(String, RedisOptions)>,
    quarantine: Ttl,
}

impl RedlockOptions {
    /// Reads a URL: `redlock://[user:password@]host[:port],host[:port],…[/database]`.
    ///
    /// `redlocks://…` is the same by TLS. The login, the database and the options
    /// after a `?` are the same for all nodes; they are those of
    /// [`RedisOptions::from_url`], but for `durable` and `wait_replicas` with
    /// `wait_timeout_ms`. Each node's name is its `host:port`.
    ///
    /// Connects to nothing.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] for any other form, a server that is named twice,
    /// and whatever [`RedisOptions::from_url`] does not take.
    pub fn from_url(url: &str) -> Result<Self, InvalidInput> {
        url::parse(url)
    }

    /// Nodes with a login or other settings of their own, each with a name for
    /// errors and findings: its host, never its URL. Their quarantines become
    /// this quorum's.
    ///
    /// # Errors
    /// [`InvalidInput::QuorumNodes`] with a node that is
    /// [`durable`](RedisOptions::durable) or waits for replicas: the first
    /// changes nothing here, since the quarantine is a duty anyway, and the second
    /// makes a node slow where the other nodes are its copies. Names are checked
    /// when it is opened.
    pub fn new<S: Into<String>>(
        nodes: impl IntoIterator<Item = (S, RedisOptions)>,
    ) -> Result<Self, InvalidInput> {
        let mut all = Vec::new();
        for (name, options) in nodes {
            let name = name.into();
            let what = if options.durable {
                "durable, which changes nothing in a quorum, where every node has a quarantine"
            } else if options.wait.is_some() {
                "to wait for replicas, and a quorum's nodes have none to wait for: the other nodes \
                 are its copies"
            } else {
                all.push((name, options));
                continue;
            };
            return Err(InvalidInput::QuorumNodes {
                what: format!("the node {name:?} is told to be {what}; take that away"),
            });
        }
        // A constant within the limits of a TTL.
        let quarantine = Ttl::new(QUARANTINE)?;
        Ok(Self {
            nodes: all,
            quarantine,
        }
        .quarantine(quarantine))
    }

    /// The nodes' names.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|(name, _)| name.as_str())
    }

    /// As [`RedisOptions::prefix`], on every node.
    ///
    /// # Errors
    /// As there.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, InvalidInput> {
        let names = crate::names::Names::new(prefix)?;
        for (_, options) in &mut self.nodes {
            options.names = names.clone();
        }
        Ok(self)
    }

    /// The longest TTL that clients may ask for, and so how long a node grants
    /// nothing after it was restarted, has lost its data, or was replaced by its
    /// replica: see [`RedisOptions::quarantine`]. It cannot be turned off.
    ///
    /// Defaults to 60 s.
    #[must_use]
    pub fn quarantine(mut self, max_ttl: Ttl) -> Self {
        self.quarantine = max_ttl;
        self.each(|options| options.quarantine(max_ttl))
    }

    /// As [`RedisOptions::mark_retention`], on every node.
    #[must_use]
    pub fn mark_retention(self, retention: Duration) -> Self {
        self.each(|options| options.mark_retention(retention))
    }

    /// As [`RedisOptions::tombstone_retention`], on every node.
    #[must_use]
    pub fn tombstone_retention(self, retention: Duration) -> Self {
        self.each(|options| options.tombstone_retention(retention))
    }

    /// As [`RedisOptions::response_timeout`], on every node.
    #[must_use]
    pub fn response_timeout(self, limit: Duration) -> Self {
        self.each(|options| options.response_timeout(limit))
    }

    /// As [`RedisOptions::connect_timeout`], on every node.
    #[must_use]
    pub fn connect_timeout(self, limit: Duration) -> Self {
        self.each(|options| options.connect_timeout(limit))
    }

    fn each(mut self, change: impl Fn(RedisOptions) -> RedisOptions) -> Self {
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        self.nodes = nodes.map(|(name, node)| (name, change(node))).collect();
        self
    }

    /// Opens the store and connects to its nodes; returns when a majority is
    /// connected. The others are connected to when they are needed, again and
    /// again.
    ///
    /// # Errors
    /// Without a majority: `Refusing` when so many refuse for good that there can
    /// be none, else `Unavailable`; the words name each node. `InvalidInput`
    /// for an option out of its range, or names that are no nodes'.
    ///
    /// # Cancel safety
    /// Safe: the connections are closed again.
    pub async fn open(self) -> Result<RedlockStore, StoreError> {
        let store = self.open_lazily()?;
        store.connect().await?;
        Ok(store)
    }

    /// Opens the store without connecting.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range, or names that are no
    /// nodes'.
    pub fn open_lazily(self) -> Result<RedlockStore, StoreError> {
        let nodes = self.nodes.into_iter().map(|(name, options)| {
            let store = options.open_lazily()?;
            Ok::<_, StoreError>((name, store))
        });
        RedlockStore::new(nodes.collect::<Result<_, _>>()?, self.quarantine)
    }

    /// Opens a **new** quorum: from then on it grants at once, where it would
    /// begin with a quarantine, since nobody can tell a new server from one that
    /// has forgotten everything. That the quorum is new is the caller's word:
    /// **nobody may hold a lease of it**. So it is done once, by hand, and never
    /// where a program or a server starts.
    ///
    /// Nothing is done unless every node answers, knows nothing of the prefix, and
    /// is another server than the others. Then each node is opened in one
    /// atomic step that does nothing where the node was asked for a key, started
    /// anew or made a primary meanwhile. A node that could not be opened
    /// then waits out its quarantine, which begins with the first acquire; that is
    /// safe, as is an end in the middle, and there is nothing to be done.
    ///
    /// # Errors
    /// `InvalidInput` as of [`open_lazily`](Self::open_lazily). What the nodes
    /// say is in the report.
    ///
    /// # Cancel safety
    /// Some nodes may be open then, and the others not.
    pub async fn init(self) -> Result<InitReport, StoreError> {
        let quarantine = self.quarantine;
        Ok(init::init(&self.open_lazily()?, quarantine).await)
    }
}

/// Says where the nodes are, and nothing of who logs in and how.
impl fmt::Debug for RedlockOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockOptions")
            .field("nodes", &self.nodes)
            .field("quarantine", &self.quarantine)
            .finish()
    }
}
