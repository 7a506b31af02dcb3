//! The fenced write: the resource is an SQLite database, and the token is
//! checked in the same transaction as the write. A holder that comes too late is
//! refused, whatever it believes.
#![allow(clippy::print_stdout)]

use leases::sqlite::sqlx::{self, Connection, SqliteConnection};
use leases::sqlite::{admit, create_gate_table};
use leases::{AdmitError, FenceWhen, Key, Token};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let leases =
        leases::connect(&format!("sqlite://{}/leases.db", folder.path().display())).await?;
    let accounts = format!("sqlite://{}/accounts.db?mode=rwc", folder.path().display());
    let mut db = SqliteConnection::connect(&accounts).await?;
    create_gate_table(&mut db).await?;
    sqlx::query("CREATE TABLE account (balance INTEGER NOT NULL)")
        .execute(&mut db)
        .await?;
    sqlx::query("INSERT INTO account VALUES (100)")
        .execute(&mut db)
        .await?;

    let late = leases.lease("account").acquire().await?;
    // Meanwhile somebody cuts it off and takes over …
    let above = late.token().next().ok_or("no token is higher")?;
    leases
        .fence("account", above, FenceWhen::Immediately)
        .await?;
    let next = leases.lease("account").acquire().await?;
    deposit(&mut db, next.token(), 10).await?;

    // … and the former holder writes all the same, since it never checked.
    match deposit(&mut db, late.token(), 1_000).await {
        Err(error) => println!("refused: {error}"),
        Ok(()) => return Err("a stale write went through".into()),
    }
    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account")
        .fetch_one(&mut db)
        .await?;
    println!("balance {balance}");
    assert_eq!(balance, 110);
    next.release().await?;
    Ok(())
}

/// The check, the raise and the write commit together or not at all.
async fn deposit(
    db: &mut SqliteConnection,
    token: Token,
    amount: i64,
) -> Result<(), Box<dyn std::error::Error>> {
    let resource = Key::new("account")?;
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    match admit(&mut transaction, &resource, token).await {
        Ok(()) => {}
        Err(AdmitError::Stale(stale)) => return Err(stale.into()),
        Err(other) => return Err(other.into()),
    }
    sqlx::query("UPDATE account SET balance = balance + ?")
        .bind(amount)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}
