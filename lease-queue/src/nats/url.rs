//! Store URLs.

use std::path::PathBuf;
use std::time::Duration;

use lease_core::InvalidInput;

use super::login::KeyFile;
use super::options::{NatsOptions, Servers};

const FORM: &str = "write nats://user:password@host:4222, or tls://… for TLS, several hosts with \
                    commas, and special characters as %40 and the like";

fn bad(why: impl Into<String>) -> InvalidInput {
    InvalidInput::Url(why.into())
}

pub(super) fn parse(url: &str) -> Result<NatsOptions, InvalidInput> {
    if url.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(bad(
            "a NATS URL holds a space, a line's end or a control character; write a space as %20",
        ));
    }
    let (scheme, rest) = url
        .split_once("://")
        .filter(|(scheme, _)| matches!(*scheme, "nats" | "tls"))
        .ok_or_else(|| bad(format!("not a NATS URL; {FORM}")))?;
    if rest.contains('#') {
        return Err(bad(
            "a NATS URL ends with no # part; in a password write it as %23",
        ));
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let place = place.strip_suffix('/').unwrap_or(place);
    let (login, hosts) = match place.rsplit_once('@') {
        Some((login, hosts)) => (Some(read_login(login)?), hosts),
        None => (None, place),
    };
    let addresses: Vec<String> = hosts
        .split(',')
        .map(|host| address(scheme, host))
        .collect::<Result<_, _>>()?;
    let mut options = NatsOptions::of(Servers::Url {
        addresses,
        login,
        authority: None,
        keys: None,
    });
    let mut seen: Vec<&str> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&name) {
            return Err(bad(
                "a NATS URL gives an option twice; take one of them away",
            ));
        }
        seen.push(name);
        options = apply(options, name, &decoded(value)?)?;
    }
    Ok(options)
}

/// Comes with a file, where nothing else says who comes.
fn by_file(mut options: NatsOptions, file: KeyFile) -> Result<NatsOptions, InvalidInput> {
    if let Servers::Url { login, keys, .. } = &mut options.servers {
        if login.is_some() || keys.is_some() {
            return Err(bad(
                "a NATS URL says twice who comes; take one of the login, creds and nkey",
            ));
        }
        *keys = Some(file);
    }
    Ok(options)
}

fn apply(mut options: NatsOptions, name: &str, value: &str) -> Result<NatsOptions, InvalidInput> {
    match name {
        "prefix" => return options.prefix(value),
        "ca" if !value.is_empty() => match &mut options.servers {
            Servers::Url { authority, .. } => *authority = Some(PathBuf::from(value)),
            Servers::Client(_) => {}
        },
        "creds" if !value.is_empty() => {
            return by_file(options, KeyFile::Credentials(PathBuf::from(value)));
        }
        "nkey" if !value.is_empty() => {
            return by_file(options, KeyFile::Seed(PathBuf::from(value)));
        }
        "replicas" => options = options.replicas(number(name, value)?),
        "tombstone_retention_ms" => {
            options = options.tombstone_retention(Duration::from_millis(number(name, value)?));
        }
        "response_timeout_ms" => {
            options = options.response_timeout(Duration::from_millis(number(name, value)?));
        }
        _ => {
            return Err(bad(
                "a NATS URL has an option that is not one of ca, creds, nkey, prefix, replicas, \
                 tombstone_retention_ms and response_timeout_ms",
            ));
        }
    }
    Ok(options)
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N, InvalidInput> {
    value
        .parse()
        .map_err(|_| bad(format!("{name} in a NATS URL must be a whole number")))
}

fn read_login(login: &str) -> Result<(String, String), InvalidInput> {
    if login.contains(['/', '@']) {
        return Err(bad(format!(
            "a NATS URL has an @ or a / in its login; {FORM}"
        )));
    }
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let login = (decoded(user)?, decoded(password)?);
    match login.0.is_empty() {
        true => Err(bad(format!(
            "a NATS URL has an @ and no user before it; {FORM}"
        ))),
        false => Ok(login),
    }
}

/// One host, checked as the driver does, whose words could repeat the URL.
fn address(scheme: &str, host: &str) -> Result<String, InvalidInput> {
    let address = format!("{scheme}://{host}");
    let parsed = address.parse::<async_nats::ServerAddr>();
    let plain = !host.is_empty() && !host.contains(['/', '%']);
    match parsed {
        Ok(parsed) if plain && !parsed.host().is_empty() => Ok(address),
        _ => Err(bad(format!(
            "a NATS URL has a host that is not one; {FORM}"
        ))),
    }
}

fn decoded(text: &str) -> Result<String, InvalidInput> {
    let wrong = || {
        bad(
            "a % in a NATS URL is not followed by two hexadecimal digits, or they are not UTF-8; \
             write a % itself as %25",
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next(), rest.next()].map(|d| d.map(char::from));
                let [Some(high), Some(low)] = digits.map(|d| d.and_then(|d| d.to_digit(16))) else {
                    return Err(wrong());
                };
                // Two hexadecimal digits are a byte.
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> (Vec<String>, Option<(String, String)>) {
        match parse(url).unwrap().servers {
            Servers::Url {
                addresses, login, ..
            } => (addresses, login),
            Servers::Client(_) => panic!("a URL has no client"),
        }
    }

    #[test]
    fn every_part_of_a_url_is_read() {
        let (addresses, login) = servers("tls://me:p%40ss@a:1,b,[::1]:3/?prefix=x&replicas=5");
        assert_eq!(addresses, ["tls://a:1", "tls://b", "tls://[::1]:3"]);
        assert_eq!(login, Some(("me".into(), "p@ss".into())));
        let options = parse("nats://h?response_timeout_ms=70&tombstone_retention_ms=80").unwrap();
        assert_eq!(options.response_timeout, Duration::from_millis(70));
        assert_eq!(options.tombstone_retention, Duration::from_millis(80));
        let options = parse("tls://h?creds=/a%20b.creds&ca=/ca.pem").unwrap();
        let Servers::Url { keys, .. } = options.servers else {
            panic!("a URL has no client");
        };
        assert_eq!(keys, Some(KeyFile::Credentials("/a b.creds".into())));
        assert_eq!(
            servers("nats://token@h").1,
            Some(("token".into(), String::new()))
        );
    }

    #[test]
    fn bad_urls_are_refused_without_a_word_of_their_secrets() {
        for bad in [
            "",
            "nats:",
            "nats://",
            "redis://h",
            "nats://secret:secret@",
            "nats://secret:secret@h:x",
            "nats://secret:se/cret@h",
            "nats://secret:se@cret@h",
            "nats://secret:secret%zz@h",
            "nats://:secret@h",
            "nats://h,",
            "nats://h/path",
            "nats://h#secret",
            "nats://h?prefix=se.cret",
            "nats://h?replicas=secret",
            "nats://h?secret=1",
            "nats://h?prefix=a&prefix=b",
            "nats://h?ca=",
            "nats://h?creds=",
            "nats://h?nkey=",
            "nats://h?creds=/secret&nkey=/secret",
            "nats://me:secret@h?creds=/secret",
            "nats://secret secret@h",
        ] {
            let error = parse(bad).map(|_| bad).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains(' '), "{error}");
        }
    }

    #[test]
    fn debug_hides_the_login() {
        let text = format!("{:?}", parse("nats://me:secret@h").unwrap());
        assert!(
            text.contains("nats://h") && !text.contains("secret"),
            "{text}"
        );
    }
}
