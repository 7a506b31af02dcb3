//! A job that must not run twice at a time on this host: whoever gets the lease
//! runs it, the others go on without it.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use leases::Attempt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}/leases.db", folder.path().display());

    // Two processes would each do this; two clients of one file do as well.
    let (here, there) = (leases::connect(&url).await?, leases::connect(&url).await?);

    let Attempt::Acquired(lease) = here.lease("jobs/nightly").try_acquire().await? else {
        return Err("nobody else can hold it yet".into());
    };
    match there.lease("jobs/nightly").try_acquire().await? {
        Attempt::Acquired(_) => return Err("two at a time".into()),
        Attempt::Held(holder) => println!("there: {} is at it, nothing to do", holder.label),
    }

    // The work is dropped at its next await point if the lease is lost.
    let report = lease.run(nightly()).await?;
    println!("here: {report}, under token {}", lease.token());
    lease.release().await?;

    // Now the other one may; it waits for up to a second.
    let lease = there
        .lease("jobs/nightly")
        .wait(Duration::from_secs(1))
        .acquire()
        .await?;
    println!("there: my turn, token {}", lease.token());
    lease.release().await?;
    Ok(())
}

async fn nightly() -> &'static str {
    tokio::time::sleep(Duration::from_millis(20)).await;
    "backed up"
}
