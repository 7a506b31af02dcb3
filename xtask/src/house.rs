//! That the house is as drawn: the core knows no driver, and each feature of
//! the facade builds alone.

use crate::shell::{cargo, output, run};

/// Crates that talk to a store.
const DRIVERS: &[&str] = &[
    "sqlx",
    "libsqlite3-sys",
    "redis",
    "tokio-postgres",
    "async-nats",
];

pub(crate) fn check() -> Result<(), String> {
    core_knows_no_driver()?;
    each_feature_builds_alone()
}

fn core_knows_no_driver() -> Result<(), String> {
    let tree = output(&mut cargo(&[
        "tree",
        "--edges",
        "normal",
        "--package",
        "lease-core",
        "--all-features",
        "--prefix",
        "none",
    ]))?;
    let known = |line: &&str| {
        let name = line.split_whitespace().next().unwrap_or_default();
        DRIVERS
            .iter()
            .any(|d| name == *d || name.starts_with(&format!("{d}-")))
    };
    match tree.lines().find(known) {
        Some(driver) => Err(format!(
            "lease-core must know no driver, and depends on {driver}"
        )),
        None => Ok(()),
    }
}

fn each_feature_builds_alone() -> Result<(), String> {
    let check = ["check", "--quiet", "-p", "leases", "--no-default-features"];
    run(&mut cargo(&check))?;
    for feature in facade_features()? {
        let mut alone = cargo(&check);
        run(alone.args(["--features", &feature]))?;
    }
    Ok(())
}

/// The names in the facade's `[features]`.
fn facade_features() -> Result<Vec<String>, String> {
    let manifest = crate::shell::root().join("leases/Cargo.toml");
    let text = std::fs::read_to_string(&manifest)
        .map_err(|error| format!("{}: {error}", manifest.display()))?;
    let features: Vec<String> = text
        .lines()
        .skip_while(|line| line.trim() != "[features]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().to_owned())
        .filter(|name| !name.starts_with('#') && !name.contains(' '))
        .collect();
    if features.is_empty() {
        return Err(format!("no features found in {}", manifest.display()));
    }
    Ok(features)
}
