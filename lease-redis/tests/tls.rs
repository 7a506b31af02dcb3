//! `rediss://`: whom it trusts, what it shows, and what it does not read.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lease_conformance::servers::redis::{RedisBuilder, RedisServer};
use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, StoreErrorKind, TokenRule, Ttl,
};
use lease_redis::RedisOptions;
use tokio::net::{TcpListener, TcpStream};

/// For the process in which the system has no authorities.
const HERE: &str = "LEASES_TEST_URL";

fn server() -> RedisBuilder {
    RedisServer::builder().tls()
}

/// Without the authority of the server's certificate.
fn without_authority(server: &RedisServer) -> String {
    let url = server.url().to_string();
    assert!(url.starts_with("rediss://") && !url.contains('?'));
    url
}

fn url(server: &RedisServer) -> String {
    let authority = server.authority_pem().unwrap().display();
    format!("{}?ca={authority}", without_authority(server))
}

fn request(ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        key: Key::new("a").unwrap(),
        owner: Owner::random().unwrap(),
        ttl: Ttl::new(ttl).unwrap(),
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    }
}

#[tokio::test]
async fn an_authority_that_the_system_does_not_know_is_refused() {
    let server = server().start().unwrap();
    let options = RedisOptions::from_url(&without_authority(&server)).unwrap();
    let error = options.open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("?ca="), "{error}");
}

#[tokio::test]
async fn a_server_whose_certificate_is_for_another_name_is_refused() {
    let server = server().start().unwrap();
    let by_name = url(&server).replace("//127.0.0.1", "//localhost");
    assert!(by_name.contains("localhost"));
    let options = RedisOptions::from_url(&by_name).unwrap();
    options.open().await.unwrap();

    let (listener, at) = (
        TcpListener::bind("127.0.0.2:0").await.unwrap(),
        server.address(),
    );
    let elsewhere = listener.local_addr().unwrap();
    let way = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(at).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        }
    });
    let url = url(&server).replace(&at.to_string(), &elsewhere.to_string());
    let error = RedisOptions::from_url(&url).unwrap().open().await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("not valid for name"), "{error}");
    way.abort();
}

/// One that asks for a certificate and keeps no sessions ends connections that
/// would go on with an earlier one's.
#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_it_each_time() {
    let server = server()
        .config("tls-auth-clients yes")
        .config("tls-session-caching no")
        .config("loglevel verbose")
        .start()
        .unwrap();
    let url = url(&server);
    let without = RedisOptions::from_url(&url).unwrap().open().await;
    let error = without.unwrap_err();
    assert!(error.to_string().contains("?cert="), "{error}");

    let folder = server.authority_pem().and_then(Path::parent).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let shown = format!(
        "{url}&cert={}&key={}",
        file("server.pem"),
        file("server.key")
    );
    let options = RedisOptions::from_url(&shown).unwrap();
    let refused = || server.log().matches("Error accepting").count();
    let before = refused();
    assert!(before > 0, "{}", server.log());
    let store = options.open().await.unwrap();
    for _ in 0..4 {
        let asked = request(Duration::from_secs(9));
        let granted = store.acquire(&asked).await.unwrap();
        let AcquireOutcome::Granted(granted) = granted else {
            panic!("{granted:?}");
        };
        let released = store.release(&asked.key, asked.owner, granted.token);
        released.await.unwrap();
        // The next one needs another connection.
        server
            .command(&["CLIENT", "KILL", "TYPE", "normal"])
            .unwrap();
        let lost = async {
            while store.inspect(&asked.key).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), lost)
            .await
            .unwrap();
    }
    assert_eq!(refused(), before, "{}", server.log());
}

#[tokio::test]
async fn what_the_system_trusts_is_not_read_where_the_url_names_the_authority() {
    let server = server().start().unwrap();
    let nothing = server.folder().join("nothing.pem");
    std::fs::write(&nothing, "").unwrap();
    let in_a_process = |url: String| {
        let (folder, nothing) = (server.folder().to_owned(), nothing.clone());
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "where_the_system_trusts_nobody", "--ignored"]);
        test.env(HERE, url);
        test.env("SSL_CERT_FILE", nothing)
            .env("SSL_CERT_DIR", folder.join("no-such-folder"));
        let output = tokio::task::spawn_blocking(move || test.output().unwrap());
        async {
            let output = output.await.unwrap();
            let words = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.success(), words)
        }
    };
    let (well, words) = in_a_process(url(&server)).await;
    assert!(well, "{words}");
    let (well, words) = in_a_process(without_authority(&server)).await;
    assert!(!well && words.contains("ca-certificates"), "{words}");
}

#[tokio::test]
#[ignore = "a part of another test, in a process of its own"]
async fn where_the_system_trusts_nobody() {
    let url = std::env::var(HERE).unwrap();
    let store = RedisOptions::from_url(&url).unwrap().open().await.unwrap();
    store.inspect(&Key::new("a").unwrap()).await.unwrap();
}
