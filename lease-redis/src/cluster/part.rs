//! What a node says of itself: no other one knows it as early.

use lease_core::StoreError;
use redis::Value;

use super::node::Node;
use super::slot::SLOTS;
use crate::errors::{self, Phase};
use crate::reply::odd;
use crate::script::spoils;

/// A node's part of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first and the last slot of each range.
    ranges: Vec<(u16, u16)>,
    /// Slots that are on their way here.
    getting: Vec<u16>,
}

impl Part {
    /// Of what CLUSTER NODES answers, the node's own line:
    ///
    /// ```text
    /// id host:port@bus myself,master - 0 0 3 connected 0-99 200 [300-<-id] [301->-id]
    /// ```
    fn parse(text: &str) -> Option<Self> {
        let own = text.lines().find(|line| line.contains("myself"))?;
        let mut part = Self::default();
        for word in own.split_whitespace().skip(8) {
            if let Some(moving) = word.strip_prefix('[') {
                if let Some((slot, _)) = moving.split_once("-<-") {
                    part.getting.push(number(slot)?);
                }
                continue;
            }
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            part.ranges.push((number(first)?, number(last)?));
        }
        Some(part)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = u16> {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Slots that are on their way to the node, with some of their keys.
    pub(crate) fn getting(&self) -> &[u16] {
        &self.getting
    }
}

fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|slot| *slot < SLOTS)
}

impl Node {
    /// What it says of itself.
    pub(crate) async fn part(&self) -> Result<Part, StoreError> {
        let up = self.link().connection().await?;
        let asking = self.link().ask(&up);
        let mut command = redis::cmd("CLUSTER");
        command.arg("NODES");
        let answer = up.wire.send(&command).await;
        match &answer {
            Err(error) if spoils(error) => asking.failed(),
            _ => asking.answered(),
        }
        let text = match answer {
            Ok(Value::BulkString(text)) => String::from_utf8(text).map_err(|_| odd())?,
            Ok(Value::VerbatimString { text, .. }) => text,
            Ok(_) => return Err(odd()),
            Err(error) => {
                let doing = format!("cannot ask {} for its part of the cluster", self.address);
                return Err(errors::classify(Phase::Unsent, &doing, error));
            }
        };
        Part::parse(&text).ok_or_else(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(slots: &str) -> Option<Part> {
        Part::parse(&format!(
            "id1 h:1@2 master - 0 0 1 connected 0-16383\n\
             id2 h:2@3 myself,master - 0 0 3 connected {slots}\n"
        ))
    }

    #[test]
    fn a_nodes_own_line_is_read() {
        let own = part("0-2 7 [9-<-id1] [7->-id1]").unwrap();
        assert_eq!(own.slots().collect::<Vec<_>>(), [0, 1, 2, 7]);
        assert_eq!(own.getting(), [9]);
        assert_eq!(part("").unwrap(), Part::default());
        for odd in ["x", "0-16384", "5-", "[x-<-id]"] {
            assert_eq!(part(odd), None, "{odd}");
        }
        assert_eq!(Part::parse("id1 h:1@2 master - 0 0 1 connected"), None);
    }
}
