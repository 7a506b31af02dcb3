//! Somebody else's values beside the records, which the suite looks at: at the
//! names of tombstones and of the birth marker. (Gates have tests of their own.)

use lease_conformance::servers::redis::RedisServer;
use lease_core::{AcquireOutcome, LeaseBackend, RefusedReason, ReleaseOutcome, StoreErrorKind};

use crate::support::*;

fn is_list(server: &RedisServer, name: &str) -> bool {
    let kind = server.command(&["TYPE", name]).unwrap();
    kind.text() == Some("list")
}

#[tokio::test]
async fn a_foreign_birth_marker_is_refused_and_left_alone() {
    const BIRTH: &str = "leases:birth";
    let server = plain();
    let store = store(&server).await;
    let used = request("used", 60_000);
    let token = granted(store.acquire(&used).await.unwrap()).token;
    for make in [
        &["RPUSH", BIRTH, "x"][..],
        &["SET", BIRTH, ""],
        &["SET", BIRTH, "B1 0 0"],
        &["SET", BIRTH, "B1 zz 0 0"],
        &["SET", BIRTH, "B2 0 0 1"],
        &["HSET", BIRTH, "a", "b"],
    ] {
        server.command(&["DEL", BIRTH]).unwrap();
        server.command(make).unwrap();
        let before = server.command(&["DUMP", BIRTH]).unwrap();
        let refused = store.acquire(&request("new", 60_000)).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{make:?}");
        assert!(refused.message().contains("prefix"), "{refused}");
        assert_eq!(server.command(&["DUMP", BIRTH]).unwrap(), before);
        // Where it is not needed it is in nobody's way.
        store.renew(&renewal(&used, token)).await.unwrap();
        assert!(store.inspect(&used.key).await.unwrap().holder.is_some());
    }
    let release = store.release(&used.key, used.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_foreign_tombstone_is_refused_to_its_owner_alone() {
    let server = plain();
    let store = store(&server).await;
    let late = request("a", 60_000);
    store.abandon(&late.key, late.owner).await.unwrap();
    let name = format!("leases:{{a}}:{}", late.owner);
    server.command(&["DEL", &name]).unwrap();
    server.command(&["RPUSH", &name, "x"]).unwrap();
    let refused = store.acquire(&late).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{refused}");
    assert!(is_list(&server, &name));

    let other = request("a", 60_000);
    let token = granted(store.acquire(&other).await.unwrap()).token;
    let release = store.release(&other.key, other.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);

    // To give up counts more than what stands at a name of random digits.
    store.abandon(&late.key, late.owner).await.unwrap();
    let outcome = store.acquire(&late).await.unwrap();
    let abandoned = AcquireOutcome::Refused(RefusedReason::Abandoned);
    assert_eq!(outcome, abandoned);
}

#[tokio::test]
async fn what_others_write_under_the_prefix_is_not_listed() {
    use futures_util::StreamExt;
    let server = plain();
    let store = store(&server).await;
    granted(store.acquire(&request("a", 60_000)).await.unwrap());
    for name in [
        "leases:{%}",
        "leases:{%7b}",
        "leases:x",
        "leases:{",
        "leases:{b}x",
    ] {
        server.command(&["SET", name, "x"]).unwrap();
    }
    for _ in 0..3 {
        let listed: Vec<_> = store.list("").collect().await;
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0].as_ref().unwrap().key, key("a"));
    }
}
