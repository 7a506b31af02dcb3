//! Slots that move from one primary to another, and replicas that fall behind.

use super::view::odd;
use super::{ADMIN, RedisCluster, ServerError};

/// A slot on its way, between [`RedisCluster::begin_move`] and
/// [`SlotMove::finish`]: clients meet `ASK`, and `TRYAGAIN` where a part of a
/// request's keys has moved.
#[derive(Debug)]
pub struct SlotMove<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: usize,
    to: usize,
}

impl RedisCluster {
    /// Moves a slot with all its keys to another primary.
    ///
    /// # Errors
    /// If a node refuses it.
    pub fn move_slot(&self, slot: u16, to: usize) -> Result<(), ServerError> {
        let moving = self.begin_move(slot, to)?;
        moving.move_keys()?;
        moving.finish()
    }

    /// Begins to move a slot: new keys go to the other primary, and no key has
    /// moved yet.
    ///
    /// Waits until the primaries have heard of the last move, for half a second
    /// or so: nodes that do not know it may choose one epoch for two moves, and
    /// forget who has the slot.
    ///
    /// # Errors
    /// If a node refuses it.
    pub fn begin_move(&self, slot: u16, to: usize) -> Result<SlotMove<'_>, ServerError> {
        self.until("agree on an epoch", || self.is_of_one_epoch())?;
        let from = self.owner_of_slot(slot)?;
        let slot = slot.to_string();
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let words = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source.id];
        target.server.command(&words)?;
        let words = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.id];
        source.server.command(&words)?;
        Ok(SlotMove {
            cluster: self,
            slot,
            from,
            to,
        })
    }

    /// Cuts a replica off from its primary: from now on it hears nothing new,
    /// and keeps what it has.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn hold_replication(&self, replica: usize) -> Result<(), ServerError> {
        let node = self.node(replica);
        node.config_set("masterauth", "not the password")?;
        // It comes back, and is turned down.
        node.command(&["CLIENT", "KILL", "TYPE", "master"])?;
        self.until("lose touch with its primary", || {
            Ok(node.info("master_link_status")?.as_deref() == Some("down"))
        })
    }

    /// Lets a replica follow again.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn resume_replication(&self, replica: usize) -> Result<(), ServerError> {
        self.node(replica).config_set("masterauth", &self.password)
    }
}

impl SlotMove<'_> {
    /// The names of the slot's keys that have not moved.
    ///
    /// # Errors
    /// If the old primary does not answer.
    pub fn keys(&self) -> Result<Vec<String>, ServerError> {
        let words = ["CLUSTER", "GETKEYSINSLOT", &self.slot, "1000"];
        let names = self.cluster.node(self.from).command(&words)?;
        let names = names.list().ok_or_else(|| odd("CLUSTER GETKEYSINSLOT"))?;
        let text = |name: &super::super::Reply| name.text().map(str::to_owned);
        Ok(names.iter().filter_map(text).collect())
    }

    /// Moves these keys, in one step.
    ///
    /// # Errors
    /// If the new primary has one of them already.
    pub fn move_these(&self, keys: &[String]) -> Result<(), ServerError> {
        if keys.is_empty() {
            return Ok(());
        }
        let target = self.cluster.node(self.to);
        let port = target.address().port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "AUTH2"];
        words.extend([ADMIN, target.admin_password(), "KEYS"]);
        words.extend(keys.iter().map(String::as_str));
        self.cluster.node(self.from).command(&words).map(drop)
    }

    /// Moves all keys, until the old primary has none.
    ///
    /// # Errors
    /// As of [`move_these`](Self::move_these).
    pub fn move_keys(&self) -> Result<(), ServerError> {
        loop {
            let keys = self.keys()?;
            if keys.is_empty() {
                return Ok(());
            }
            self.move_these(&keys)?;
        }
    }

    /// Hands the slot over; the old primary must have none of its keys.
    ///
    /// # Errors
    /// If a node refuses it.
    pub fn finish(self) -> Result<(), ServerError> {
        let id = &self.cluster.nodes[self.to].id;
        let words = ["CLUSTER", "SETSLOT", &self.slot, "NODE", id];
        let others = self.cluster.primaries().into_iter();
        let others = others.filter(|one| ![self.from, self.to].contains(one));
        [self.to, self.from]
            .into_iter()
            .chain(others)
            .try_for_each(|node| self.cluster.node(node).command(&words).map(drop))
    }

    /// Leaves the slot where it was. What has moved is not moved back.
    ///
    /// # Errors
    /// If a node refuses it.
    pub fn give_up(self) -> Result<(), ServerError> {
        let words = ["CLUSTER", "SETSLOT", &self.slot, "STABLE"];
        [self.to, self.from]
            .into_iter()
            .try_for_each(|node| self.cluster.node(node).command(&words).map(drop))
    }
}
