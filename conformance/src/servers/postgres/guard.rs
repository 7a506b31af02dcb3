//! Sees to it that nothing stays behind when the test's own process is killed.
//!
//! Linux kills the server's first process then, and that is not enough: its
//! children end by themselves only if they are not paused, a segment of shared
//! memory has no owner that ends, and the folder is tens of megabytes.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::servers::ServerError;
use crate::servers::account::Account;
use crate::servers::tool::as_account;

/// Waits for the end of its input, which comes with the end of the test, however
/// it ends. The processes of a server are in its data folder, all of them.
///
/// Again until the folder is gone: what was just being copied into it goes on.
const SCRIPT: &str = r#"
read -r nothing
round=0
while [ -e "$1" ] && [ "$round" -lt 100 ]; do
    for process in /proc/[0-9]*; do
        if [ "$process/cwd" -ef "$1/data" ]; then
            kill -s KILL "${process#/proc/}"
        fi
    done
    segment=$(sed -n '7s/^ *[0-9]* *//p' "$1/data/postmaster.pid")
    [ -z "$segment" ] || ipcrm -m "$segment"
    rm -rf -- "$1"
    round=$((round + 1))
    sleep 0.1
done 2>/dev/null
"#;

/// A shell that does what the test no longer can. Dropping it calls it off.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
}

impl Guard {
    /// As the account of the server: nobody else may look at its processes, not
    /// even root in some containers.
    pub(super) fn of(folder: &Path, account: Option<Account>) -> Result<Self, ServerError> {
        let mut command = as_account(Path::new("sh"), account);
        command
            .args(["-c", SCRIPT, "guard-of-a-test-server"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C in the terminal, or a runner's kill, is the test's alone.
            .process_group(0);
        let shell = command
            .spawn()
            .map_err(|e| ServerError::io("run `sh`", e))?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Before its input ends. There is nobody to tell of an error.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
