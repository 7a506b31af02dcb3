//! URLs that name several servers.

use lease_core::InvalidInput;

use super::bad;

/// The parts of `scheme://login@host:port,host:port/path?options`, as they were
/// written. What its schemes have in common: one login for all servers, and no
/// server twice.
#[derive(Clone)]
pub(crate) struct Hosts<'a> {
    /// `user:password`, as it was written.
    login: Option<&'a str>,
    servers: Vec<String>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Hosts<'a> {
    /// Reads what stands behind the scheme; servers without a port get this one.
    pub(crate) fn read(text: &'a str, port: u16) -> Result<Self, InvalidInput> {
        super::check_characters(text)?;
        let (_, rest) = text.split_once("://").ok_or_else(|| {
            bad("the URL of several Redis servers is written scheme://host:port,host:port")
        })?;
        if rest.contains('#') {
            return Err(bad(
                "a Redis URL ends with no # part; write a # in a password as %23",
            ));
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, path),
            None => (rest, ""),
        };
        if path.contains('@') || query.is_some_and(|query| query.contains('@')) {
            return Err(bad(super::MISPLACED));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        if login.is_some_and(|login| login.contains([',', '@'])) {
            return Err(bad(
                "the login of several Redis servers stands once, before the first of them, and \
                 is used for all; in a user name or password write , as %2C and @ as %40",
            ));
        }
        let mut servers = Vec::new();
        for host in hosts.split(',') {
            let server = with_port(host, port)?;
            if servers.contains(&server) {
                return Err(bad(format!(
                    "a Redis URL names the server {server} twice; name each once"
                )));
            }
            servers.push(server);
        }
        Ok(Self {
            login,
            servers,
            path,
            query,
        })
    }

    /// The servers, each as `host:port`.
    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// What stands between the `/` behind the servers and the `?`.
    pub(crate) fn path(&self) -> &'a str {
        self.path
    }

    /// What stands behind the `?`.
    pub(crate) fn query(&self) -> Option<&'a str> {
        self.query
    }

    /// The URL of one server, with the login and with this path and query.
    pub(crate) fn url(
        &self,
        scheme: &str,
        server: &str,
        path: &str,
        query: Option<&str>,
    ) -> String {
        let login = self.login.map(|login| format!("{login}@"));
        let query = query.map(|query| format!("?{query}"));
        format!(
            "{scheme}://{}{server}/{path}{}",
            login.unwrap_or_default(),
            query.unwrap_or_default()
        )
    }
}

fn with_port(host: &str, port: u16) -> Result<String, InvalidInput> {
    // In an address of IPv6 colons stand between brackets.
    let (name, given) = match (host.rfind(']'), host.rfind(':')) {
        (Some(end), Some(colon)) if colon < end => (host, None),
        (_, Some(colon)) => (&host[..colon], Some(&host[colon + 1..])),
        (_, None) => (host, None),
    };
    if name.is_empty() {
        return Err(bad(
            "a Redis URL names an empty host; write host:port,host:port without a comma at the \
             end",
        ));
    }
    let port = match given {
        _ if name.contains(':') && !name.starts_with('[') => return Err(bad_port()),
        None => port,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(bad_port)?,
        Some(_) => return Err(bad_port()),
    };
    Ok(format!("{}:{port}", name.to_ascii_lowercase()))
}

fn bad_port() -> InvalidInput {
    bad("a port in a Redis URL is a number from 1 to 65535, and an address of IPv6 stands in []")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Hosts<'_> {
        Hosts::read(text, 6379).unwrap()
    }

    fn error(text: &str) -> String {
        match Hosts::read(text, 6379) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{text} was read"),
        }
    }

    #[test]
    fn several_servers_share_a_login() {
        let hosts = read("x://u:p%40@A,b:7,[::1],[::1]:8/m/2?prefix=q");
        assert_eq!(hosts.servers(), ["a:6379", "b:7", "[::1]:6379", "[::1]:8"]);
        assert_eq!(hosts.path(), "m/2");
        assert_eq!(hosts.query(), Some("prefix=q"));
        assert_eq!(
            hosts.url("redis", "b:7", "2", hosts.query()),
            "redis://u:p%40@b:7/2?prefix=q"
        );
        let hosts = read("x://a");
        assert_eq!((hosts.path(), hosts.query()), ("", None));
        assert_eq!(hosts.url("rediss", "a:6379", "", None), "rediss://a:6379/");
    }

    #[test]
    fn a_mistake_is_named_and_no_secret_is() {
        for (url, words) in [
            ("x:a", "is written"),
            ("x://", "an empty host"),
            ("x://a,", "an empty host"),
            ("x://:6379", "an empty host"),
            ("x://a,b:6379,A", "a:6379 twice"),
            ("x://a:70000", "1 to 65535"),
            ("x://a:0", "1 to 65535"),
            ("x://::1", "1 to 65535"),
            ("x://a:secret", "1 to 65535"),
            ("x://u:secret@a,u:secret@b", "once"),
            ("x://u:se,cret@a", "%2C"),
            ("x://u:se/cret@a", "%2F"),
            ("x://u:se?cret@a", "%3F"),
            ("x://u:se#cret@a", "%23"),
            ("x://u:secret @a", "a space"),
        ] {
            let said = error(url);
            assert!(said.contains(words), "{url}: {said}");
            assert!(!said.contains("cret"), "{url}: {said}");
        }
    }
}
