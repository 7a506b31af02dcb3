//! What stops writes here, seen by trying one that changes nothing: it needs no
//! right to INFO, and it is what the server does, not what it says.

/// Why the server turns down the store's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It is a replica.
    Replica,
    /// Its memory is full.
    Memory,
    /// It is a part of a cluster.
    Cluster,
    /// It could not save its data.
    Disk,
    /// Too few replicas are in touch with it.
    Replicas,
}

impl Obstacle {
    fn of(code: &str) -> Option<Self> {
        Some(match code {
            "READONLY" | "MASTERDOWN" => Self::Replica,
            "OOM" => Self::Memory,
            "CROSSSLOT" | "MOVED" | "ASK" | "CLUSTERDOWN" => Self::Cluster,
            "MISCONF" => Self::Disk,
            "NOREPLICAS" => Self::Replicas,
            _ => return None,
        })
    }
}

/// All that were met.
#[derive(Clone, Debug, Default)]
pub(super) struct Obstacles(Vec<Obstacle>);

impl Obstacles {
    /// By the codes of the server's errors.
    pub(super) fn of<'a>(codes: impl IntoIterator<Item = &'a str>) -> Self {
        Self(codes.into_iter().filter_map(Obstacle::of).collect())
    }

    pub(super) fn met(&self, obstacle: Obstacle) -> bool {
        self.0.contains(&obstacle)
    }
}
