//! The user by whom the stores of the suite come: with the rights that the page
//! on rights lists, and no more.

const PAGE: &str = include_str!("../../docs/acl.md");

pub(crate) const NAME: &str = "app";
pub(crate) const PASSWORD: &str = "sécret/@:%";

/// The line that the page gives, as it stands there, and what a configuration
/// needs more.
pub(crate) fn acl(more: &[&'static str]) -> String {
    user(NAME, more)
}

/// The line that the page gives for the user of this name.
pub(crate) fn user(name: &str, more: &[&'static str]) -> String {
    let line = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("ACL SETUSER "))
        .find(|line| line.split(' ').next() == Some(name))
        .expect("the page on rights gives a line for a user");
    let more: Vec<_> = more.iter().copied().map(listed).collect();
    let line = line.replace("PASSWORD", PASSWORD);
    format!("{line} {}", more.join(" "))
}

/// The right, which the page must list.
fn listed(right: &'static str) -> &'static str {
    // What splits a cell of a table is written in another way.
    let row = match right.contains('|') {
        true => format!("| <code>{}</code> |", right.replace('|', "&#124;")),
        false => format!("| `{right}` |"),
    };
    assert!(PAGE.contains(&row), "the page does not list {right}");
    right
}

/// As it stands in a URL.
#[allow(dead_code, reason = "one suite alone writes its URLs itself")]
pub(crate) fn encoded_password() -> String {
    let bytes = PASSWORD.bytes();
    bytes.map(|byte| format!("%{byte:02X}")).collect()
}
