//! The test command, the same on a developer's machine and in CI.

use std::process::Command;

use crate::digest;
use crate::house;
use crate::shell::{cargo, exists, run as shell};

/// How much of the long runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// What fits into CI.
    Slice,
    /// All of it.
    Full,
}

impl Length {
    /// Settings that the long runs read.
    const fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Slice => &[("LEASES_SIM_SEEDS", "10000")],
            Self::Full => &[
                ("LEASES_SIM_SEEDS", "200000"),
                ("LEASES_REDIS_VARIANTS", "all"),
                ("LEASES_REDIS_FAULT_SECONDS", "60"),
                ("LEASES_POSTGRES_VARIANTS", "all"),
                ("LEASES_POSTGRES_FAULT_SECONDS", "60"),
                ("LEASES_NATS_FAULT_SECONDS", "60"),
                ("LEASES_NATS_VARIANTS", "all"),
                ("LEASES_QUEUE_CHAOS_SECONDS", "60"),
                ("LEASES_MODEL", "full"),
                ("LEASES_QUORUM_SEEDS", "5000"),
            ],
        }
    }
}

/// Every test program, by its name, in two parts that take about as long.
const HALVES: [&[&str]; 2] = [
    &["--test", "[a-l]*"],
    &["--lib", "--bins", "--test", "[!a-l]*"],
];

pub(crate) fn run(length: Length) -> Result<(), String> {
    install_what_is_missing()?;
    house::check()?;
    let build = ["test", "--workspace", "--all-features", "--no-run"];
    run_cargo(&build)?;
    let part = |targets: &[&str]| {
        let mut tests = cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]);
        tests.args(targets);
        tests.envs(length.environment().iter().copied());
        tests
    };
    digest::run(HALVES.iter().map(|half| part(half)).collect())?;
    digest::run(vec![part(&["--doc"])])?;
    if length == Length::Full {
        run_cargo(&[
            "test",
            "-p",
            "lease-conformance",
            "--test",
            "broken_stores",
            "--",
            "--ignored",
        ])?;
    }
    examples()
}

pub(crate) fn lint() -> Result<(), String> {
    run_cargo(&["fmt", "--all", "--check"])?;
    // As it is shipped, and with everything on.
    run_cargo(&["clippy", "--workspace", "--", "-D", "warnings"])?;
    let everything = ["clippy", "--workspace", "--all-targets", "--all-features"];
    shell(cargo(&everything).args(["--", "-D", "warnings"]))?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
    shell(docs.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Every example runs as it stands and ends well.
fn examples() -> Result<(), String> {
    let folder = crate::shell::root().join("examples");
    let mut names = Vec::new();
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "rs")
            && let Some(name) = path.file_stem()
            && name != "lib"
        {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    for name in names {
        run_cargo(&[
            "run",
            "--quiet",
            "-p",
            "leases-examples",
            "--example",
            &name,
        ])?;
    }
    Ok(())
}

/// Programs that the build or a test runs, and the Debian packages that have
/// them. Tests start servers of their own, on ports of their own: a service that
/// a package brings is never asked, and need not run.
const PROGRAMS: &[(&str, &[&str])] = &[
    // Compiles the bundled SQLite; Rust itself needs it to link.
    ("cc", &["gcc", "libc6-dev"]),
    // Plays somebody else who has the store's file open.
    ("sqlite3", &["sqlite3"]),
    ("setsid", &["util-linux"]),
    ("bash", &["bash"]),
    // A test's server must not outlive the test.
    ("setpriv", &["util-linux"]),
    ("redis-server", &["redis-server"]),
    ("initdb", &["postgresql"]),
    ("pgbouncer", &["pgbouncer"]),
    ("nats-server", &["nats-server"]),
];

/// Packages that start a service by themselves.
const SERVICES: &[&str] = &["redis-server", "postgresql", "pgbouncer", "nats-server"];

fn install_what_is_missing() -> Result<(), String> {
    let missing = PROGRAMS.iter().filter(|(program, _)| !exists(program));
    let packages: Vec<&str> = missing
        .flat_map(|(_, packages)| *packages)
        .copied()
        .collect();
    if packages.is_empty() {
        return Ok(());
    }
    if !exists("apt-get") {
        let words = packages.join(", ");
        return Err(format!(
            "programs are missing; install what Debian has as: {words}"
        ));
    }
    shell(Command::new("apt-get").args(["update", "--quiet"]))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--quiet", "--no-install-recommends"]);
    shell(install.args(&packages)).map_err(|error| {
        format!("{error}; installing needs root: run that command as root once")
    })?;
    // What was not there before is nobody's yet. Where services cannot be
    // stopped, none was started.
    for service in SERVICES.iter().filter(|name| packages.contains(name)) {
        let _ = Command::new("service").args([service, "stop"]).output();
    }
    Ok(())
}

fn run_cargo(arguments: &[&str]) -> Result<(), String> {
    shell(&mut cargo(arguments))
}
