//! A short look at one of many servers, to compare them.

use lease_core::StoreError;
use redis::aio::ConnectionLike;

use super::ask::{Answer, Questions};
use super::birth::Birth;
use super::info::Info;
use super::time::{self, Clock};
use crate::names::Names;

/// What one server says of itself. What it does not say, as for want of a right, is
/// `None`.
#[derive(Clone, Debug)]
pub(crate) struct Glance {
    info: Info,
    birth: Answer<Birth>,
    clock: Answer<Clock>,
}

/// What the birth marker says of a server's grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is no marker.
    Unborn,
    /// The marker is of another life: a quarantine begins with the next acquire.
    Anew,
    /// Since then, by its own clock, in microseconds.
    Since(i64),
    /// It cannot be read.
    Unknown,
}

impl Glance {
    /// # Errors
    /// Silence only.
    pub(crate) async fn take(
        connection: &mut (impl ConnectionLike + Send),
        names: &Names,
    ) -> Result<Self, StoreError> {
        let mut questions = Questions::default();
        let info = questions.put(redis::cmd("INFO"));
        let birth = Birth::ask(&mut questions, names.birth());
        let clock = Clock::ask(&mut questions);
        let before = time::wall_us();
        let answers = questions.ask(connection).await?;
        let after = time::wall_us();
        let info: Answer<String> = answers.hear(info);
        Ok(Self {
            info: info.map(|text| Info::parse(&text)).unwrap_or_default(),
            birth: Birth::hear(&answers, birth),
            clock: Clock::hear(&answers, clock, (before, after)),
        })
    }

    /// Tells two runs of servers apart.
    pub(crate) fn run(&self) -> Option<&str> {
        self.info.text("run_id")
    }

    /// The server's life, as it stands in the birth marker.
    pub(crate) fn life(&self) -> Option<String> {
        let data = self.info.text("master_replid")?;
        Some(format!("{}{data}", self.run()?))
    }

    /// Replicas that are in touch.
    pub(crate) fn replicas(&self) -> usize {
        let replicas = self.info.replicas();
        replicas.iter().filter(|replica| replica.online).count()
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.info.text("role") == Some("slave")
    }

    /// Whether there is a birth marker, or something else at its name.
    pub(crate) fn has_marker(&self) -> Option<bool> {
        Some(*self.birth.as_ref().ok()? != Birth::None)
    }

    /// By its own clock, in microseconds.
    pub(crate) fn now_us(&self) -> Option<i64> {
        Some(self.clock.as_ref().ok()?.server_us)
    }

    /// How far its clock is ahead of ours at least.
    pub(crate) fn ahead_us(&self) -> Option<i64> {
        Some(self.clock.as_ref().ok()?.ahead_us())
    }

    pub(crate) fn standing(&self) -> Standing {
        match &self.birth {
            Ok(Birth::None) => Standing::Unborn,
            Ok(Birth::Marker { life, since_us, .. }) => match self.life() {
                Some(now) if now == *life => Standing::Since(*since_us),
                Some(_) => Standing::Anew,
                None => Standing::Unknown,
            },
            Ok(Birth::Foreign) | Err(_) => Standing::Unknown,
        }
    }
}
