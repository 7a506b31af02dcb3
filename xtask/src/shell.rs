//! Running other programs.

use std::path::PathBuf;
use std::process::Command;

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    // Cargo's word first: the program may have been built in another checkout.
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or(own.clone(), PathBuf::from)
}

/// Cargo, as it runs us, in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// Shows the command, runs it and fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    println!("+ {}", shown(command));
    let status = command
        .status()
        .map_err(|error| format!("cannot run `{}`: {error}", shown(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {status}", shown(command)))
    }
}

/// Runs the command and gives what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run `{}`: {error}", shown(command)))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("`{}` failed: {words}", shown(command)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be run at all: by its name, or from a folder where
/// Debian has servers that are not on everybody's `PATH`.
pub(crate) fn exists(program: &str) -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter();
    let folders = versions.flatten().flatten().map(|v| v.path().join("bin"));
    let places = folders.chain([PathBuf::from("/usr/sbin")]);
    std::iter::once(PathBuf::from(program))
        .chain(places.map(|folder| folder.join(program)))
        .any(|program| {
            let asked = Command::new(program).arg("--version").output();
            asked.is_ok_and(|output| output.status.success())
        })
}

fn shown(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let mut words = vec![name.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}
