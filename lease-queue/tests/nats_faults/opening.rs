//! What a store says that cannot be opened.

use lease_conformance::servers::nats::NatsServer;
use lease_core::{StoreError, StoreErrorKind};
use lease_queue::QueueStore;
use lease_queue::nats::NatsOptions;

async fn refused(url: &str) -> StoreError {
    NatsOptions::from_url(url)
        .unwrap()
        .open()
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let server = NatsServer::builder().start().unwrap();
    let url = format!("{}?response_timeout_ms=300", server.url());
    drop(server);
    let error = refused(&url).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("running"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_repeated() {
    let server = NatsServer::builder().closed().start().unwrap();
    let right = server.url();
    NatsOptions::from_url(&right.to_string())
        .unwrap()
        .open()
        .await
        .unwrap();
    let error = refused(&right.user("kit", "s3cret").to_string()).await;
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(!format!("{error:?} {error}").contains("s3cret"));
}

#[tokio::test]
async fn tls_needs_the_authority_of_the_server() {
    let server = NatsServer::builder().tls().start().unwrap();
    let authority = server.authority_pem().unwrap().display().to_string();
    let url = format!("{}?ca={authority}", server.url());
    NatsOptions::from_url(&url).unwrap().open().await.unwrap();
    let stranger = NatsServer::builder().tls().start().unwrap();
    let other = stranger.authority_pem().unwrap().display().to_string();
    refused(&format!(
        "{}?ca={other}&response_timeout_ms=500",
        server.url()
    ))
    .await;
}

#[tokio::test]
async fn a_stream_that_would_forget_records_is_refused() {
    let server = NatsServer::builder().start().unwrap();
    let foreign = r#"{"name":"leases-owners","subjects":["leases.own.>"],"max_age":60000000000}"#;
    server
        .request("$JS.API.STREAM.CREATE.leases-owners", foreign)
        .unwrap();
    let error = refused(&server.url().to_string()).await;
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(error.to_string().contains("max_age"), "{error}");
}

#[tokio::test]
async fn a_server_alone_has_no_replicas() {
    let server = NatsServer::builder().start().unwrap();
    let error = refused(&format!("{}?replicas=3", server.url())).await;
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(error.to_string().contains("replicas=1"), "{error}");
    let options = NatsOptions::from_url(&server.url().to_string()).unwrap();
    let store = options.open().await.unwrap();
    let claims = store.capabilities().guarantees;
    assert_eq!(claims.exclusion, lease_core::Exclusion::SinglePrimary);
}

/// What a stream's removal takes away is said, and no other one is made behind the
/// holders' backs.
#[tokio::test]
async fn a_stream_that_was_removed_is_a_refusal() {
    let server = NatsServer::builder().start().unwrap();
    let one = crate::client(&server.url().to_string()).await;
    crate::granted(&one, &crate::ask("k", 60_000))
        .await
        .unwrap();
    server
        .request("$JS.API.STREAM.DELETE.leases-owners", "")
        .unwrap();
    let asked = lease_core::LeaseBackend::acquire(&*one, &crate::ask("k", 60_000)).await;
    let error = asked.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(error.to_string().contains("not there any more"), "{error}");
}
