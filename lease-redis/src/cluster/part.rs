//! What a node says of itself: no other one knows it as early.

use std::sync::Arc;

use lease_core::StoreError;
use redis::Value;

use super::node::Node;
use super::slot::SLOTS;
use crate::address::Address;
use crate::errors::{self, Phase};
use crate::script::spoils;

/// A node's part of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// The node's own name in the cluster.
    id: String,
    /// The first and the last slot of each range.
    ranges: Vec<(u16, u16)>,
    /// Slots that are on their way here.
    getting: Vec<u16>,
    /// Whoever else may have keys: with slots or without, since the first slot
    /// of a new primary may be on its way.
    others: Vec<(String, Address)>,
}

impl Part {
    /// Of what CLUSTER NODES answers, the slots of the node's own line, and of
    /// the others who they are:
    ///
    /// ```text
    /// id host:port@bus[,name] myself,master - 0 0 3 connected 0-99 200 [300-<-id] [301->-id]
    /// ```
    ///
    /// `at` is where the node was asked.
    fn parse(text: &str, at: &Address) -> Option<Self> {
        let lines: Vec<_> = text.lines().filter_map(Line::parse).collect();
        let own = lines.iter().find(|line| line.is("myself"))?;
        let mut part = Self {
            id: own.id.to_owned(),
            ..Self::default()
        };
        let mut giving = Vec::new();
        for word in &own.slots {
            if let Some(moving) = word.strip_prefix('[') {
                if let Some((slot, _)) = moving.split_once("-<-") {
                    part.getting.push(number(slot)?);
                } else if let Some((_, to)) = moving.split_once("->-") {
                    giving.push(to.trim_end_matches(']'));
                }
                continue;
            }
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            part.ranges.push((number(first)?, number(last)?));
        }
        for line in &lines {
            let lives = !["fail", "noaddr", "handshake"]
                .iter()
                .any(|flag| line.is(flag));
            // Of one that keys went to, an error is better than a list without
            // them.
            let wanted = line.is("master") && lives || giving.contains(&line.id);
            if wanted && !line.is("myself") {
                part.others
                    .extend(line.address(own, at).map(|one| (line.id.to_owned(), one)));
            }
        }
        Some(part)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = u16> {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Slots that are on their way to the node, with some of their keys.
    pub(crate) fn getting(&self) -> &[u16] {
        &self.getting
    }

    /// The other primaries that this one knows, by their names in the cluster.
    pub(crate) fn others(&self) -> &[(String, Address)] {
        &self.others
    }
}

/// One line of CLUSTER NODES.
struct Line<'a> {
    id: &'a str,
    ip: &'a str,
    port: u16,
    /// `cluster-announce-hostname`, or nothing.
    hostname: &'a str,
    flags: &'a str,
    slots: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (id, place, flags) = (words.next()?, words.next()?, words.next()?);
        // Behind the name there may be more, as `shard-id=`.
        let mut places = place.split(',');
        let (ip, port) = places.next()?.split('@').next()?.rsplit_once(':')?;
        let hostname = places.next().filter(|name| !name.contains('='));
        Some(Self {
            id,
            ip,
            port: port.parse().ok()?,
            hostname: hostname.unwrap_or_default(),
            flags,
            slots: words.skip(5).collect(),
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.split(',').any(|one| one == flag)
    }

    /// Where the node is, in the same kind of words (`cluster-preferred-endpoint-type`)
    /// as `at` is for the node that answers, whose line is `own`.
    fn address(&self, own: &Self, at: &Address) -> Option<Address> {
        let host = if !self.hostname.is_empty() && *own.hostname == *at.host {
            self.hostname
        } else if own.ip.is_empty() || *own.ip == *at.host {
            self.ip
        } else {
            // All are where it is, but for the port.
            ""
        };
        (self.port != 0).then(|| Address {
            host: match host {
                "" => Arc::clone(&at.host),
                host => Arc::from(host),
            },
            port: self.port,
        })
    }
}

fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|slot| *slot < SLOTS)
}

impl Node {
    /// What it says of itself.
    pub(crate) async fn part(&self) -> Result<Part, StoreError> {
        let connected = self.link().connection().await;
        let up = connected.map_err(|error| self.names(error))?;
        let asking = self.link().ask(&up);
        let mut command = redis::cmd("CLUSTER");
        command.arg("NODES");
        let answer = up.wire.send(&command).await;
        match &answer {
            Err(error) if spoils(error) => asking.failed(),
            _ => asking.answered(),
        }
        let odd = || self.unreadable("CLUSTER NODES");
        let text = match answer {
            Ok(Value::BulkString(text)) => String::from_utf8(text).map_err(|_| odd())?,
            Ok(Value::VerbatimString { text, .. }) => text,
            Ok(_) => return Err(odd()),
            Err(error) => {
                let doing = format!("cannot ask {} for its part of the cluster", self.address);
                return Err(errors::classify(Phase::Unsent, &doing, error));
            }
        };
        Part::parse(&text, &self.address).ok_or_else(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address {
            host: Arc::from(host),
            port,
        }
    }

    fn part(slots: &str) -> Option<Part> {
        let text = format!(
            "id1 h:1@2 master - 0 0 1 connected 0-16383\n\
             id2 h:2@3 myself,master - 0 0 3 connected {slots}\n"
        );
        Part::parse(&text, &at("h", 2))
    }

    #[test]
    fn a_nodes_own_line_is_read() {
        let own = part("0-2 7 [9-<-id1] [7->-id1]").unwrap();
        assert_eq!(own.id(), "id2");
        assert_eq!(own.slots().collect::<Vec<_>>(), [0, 1, 2, 7]);
        assert_eq!(own.getting(), [9]);
        let empty = part("").unwrap();
        assert_eq!((empty.slots().count(), empty.getting().len()), (0, 0));
        for odd in ["x", "0-16384", "5-", "[x-<-id]"] {
            assert_eq!(part(odd), None, "{odd}");
        }
        let other = "id1 h:1@2 master - 0 0 1 connected";
        assert_eq!(Part::parse(other, &at("h", 1)), None);
    }

    #[test]
    fn whoever_may_have_keys_is_named_with_or_without_slots() {
        let text = "id1 10.0.0.1:1@11,one master - 0 0 1 connected 0-9\n\
                    id2 10.0.0.2:2@12,two,shard-id=5 myself,master - 0 0 3 connected 10 [10->-id6]\n\
                    id3 10.0.0.3:3@13,myself master - 0 0 0 connected\n\
                    id4 10.0.0.4:4@14,four slave id1 0 0 1 connected\n\
                    id5 10.0.0.5:5@15,five master,fail - 0 0 1 disconnected\n\
                    id6 10.0.0.6:6@16,six master,fail - 0 0 1 disconnected\n\
                    id7 10.0.0.7:7@17, master,fail? - 0 0 1 connected\n\
                    id8 :0@0 master,noaddr - 0 0 1 disconnected\n";
        let others = |at: &Address| {
            let part = Part::parse(text, at).unwrap();
            let hosts = part.others.iter().map(|(id, at)| format!("{id} {at}"));
            hosts.collect::<Vec<_>>()
        };
        assert_eq!(
            others(&at("10.0.0.2", 2)),
            [
                "id1 10.0.0.1:1",
                "id3 10.0.0.3:3",
                "id6 10.0.0.6:6",
                "id7 10.0.0.7:7"
            ]
        );
        // One without a name is at the same host as far as anybody knows.
        assert_eq!(
            others(&at("two", 2)),
            ["id1 one:1", "id3 myself:3", "id6 six:6", "id7 two:7"]
        );
        assert_eq!(others(&at("nat", 2))[0], "id1 nat:1");
    }
}
