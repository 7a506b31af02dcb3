//! The user of the tests: with the rights that the page lists, and no more.
#![allow(dead_code, reason = "each test binary uses a part of it")]

const PAGE: &str = include_str!("../../docs/redis.md");

pub(crate) const NAME: &str = "app";
pub(crate) const PASSWORD: &str = "sécret/@:%";

/// The line that the page gives, as it stands there.
pub(crate) fn acl() -> String {
    let line = PAGE
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER "));
    let line = line.expect("the page gives a line for a user");
    line.replace("PASSWORD", PASSWORD)
}
