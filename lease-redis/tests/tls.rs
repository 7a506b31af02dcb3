//! A certificate that cannot be checked is said to be one, and not tried again.
#![allow(clippy::unwrap_used)]

use lease_conformance::servers::redis::RedisServer;
use lease_core::StoreErrorKind;
use lease_redis::RedisOptions;

#[tokio::test]
async fn an_authority_that_the_system_does_not_know_is_refused() {
    let server = RedisServer::builder().tls().start().unwrap();
    // As it is, but without the authority of the server's certificate.
    let url = server.url().to_string();
    let url = url.split('?').next().unwrap();
    assert!(url.starts_with("rediss://"));
    let options = RedisOptions::from_url(url).unwrap();
    let error = options.open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.to_string().contains("?ca="), "{error}");
}
