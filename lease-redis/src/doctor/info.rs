//! What INFO says.

use std::collections::HashMap;

/// The fields of INFO; any of them may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(
            fields
                .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
                .collect(),
        )
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// A field that is `1` or `0`.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.text(name)? {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        }
    }

    /// A field that is `ok` or something else.
    pub(super) fn ok(&self, name: &str) -> Option<bool> {
        Some(self.text(name)? == "ok")
    }

    /// Names and values whose name ends so, in the order of the names.
    pub(super) fn ending(&self, suffix: &str) -> Vec<(&str, &str)> {
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|(name, _)| name.ends_with(suffix))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        found.sort_unstable();
        found
    }

    /// The lines of the replicas: `slave0:ip=…,port=…,state=online,…,lag=0`.
    pub(super) fn replicas(&self) -> Vec<Replica> {
        self.0
            .iter()
            .filter(|(name, _)| {
                name.strip_prefix("slave")
                    .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            })
            .map(|(_, value)| Replica::parse(value))
            .collect()
    }
}

/// One replica, as its primary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) online: bool,
    /// Seconds since it was last heard of.
    pub(super) lag_s: Option<u64>,
}

impl Replica {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            text.split(',')
                .filter_map(|part| part.split_once('='))
                .find(|(found, _)| *found == name)
                .map(|(_, value)| value)
        };
        Self {
            online: field("state") == Some("online"),
            lag_s: field("lag").and_then(|lag| lag.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_lines_are_passed_over() {
        let info = Info::parse(
            "# Server\r\nrole:master\r\nnothing\r\n\r\n:x\r\nslaves:9\r\nslave:9\r\n\
             slave0:ip=::1,port=1,state=online,offset=5,lag=2\r\nslave1:broken\r\nn:-5\r\n",
        );
        assert_eq!(info.text("role"), Some("master"));
        assert_eq!(info.number("n"), None);
        assert_eq!(info.flag("role"), None);
        let mut replicas = info.replicas();
        replicas.sort_by_key(|replica| !replica.online);
        let online = Replica {
            online: true,
            lag_s: Some(2),
        };
        let broken = Replica {
            online: false,
            lag_s: None,
        };
        assert_eq!(replicas, [online, broken]);
        assert_eq!(Info::parse(""), Info::default());
    }
}
