//! The ends of the TTL range.

use std::time::Duration;

use lease_core::{RenewOutcome, StoreErrorKind, Ttl};
use tokio::time::Instant;

use crate::case::group;
use crate::client::{Held, ask, renewal};
use crate::context::{Ctx, key, owner};
use crate::failure::{Failure, Outcome, check};

group! { "ttl";
    the_shortest_ttl_works:
        "The shortest TTL that the store claims to take is granted, expires, and can be granted again.";
    the_longest_ttl_does_not_wrap [StoreClock]:
        "The longest TTL that the store claims to take lasts that long: nothing wraps or is cut.";
    long_ttls_are_kept_exactly [StoreClock]:
        "TTLs beyond the limits of 32-bit seconds and milliseconds last as long as was asked for.";
    odd_ttls_are_not_cut [StoreClock]:
        "A TTL that is no whole number of the store's units is kept or rounded up, never down.";
    a_ttl_outside_the_range_is_invalid [NarrowTtl]:
        "A TTL outside the store's own range is InvalidInput for acquire and renew, never silently changed.";
}

/// Grants and renews with `ttl`, and looks at what is left of it.
async fn lasts(ctx: &Ctx, name: &str, ttl: Ttl) -> Outcome {
    let client = ctx.client().await?;
    for renewed in [false, true] {
        let key = key(&format!("{name}/{}/{renewed}", ttl.as_millis()))?;
        let first = if renewed {
            ctx.ttl(Duration::from_secs(30))
        } else {
            ttl
        };
        let mut sent = Instant::now();
        let held = client.grant(&key, owner(), first).await?;
        if renewed {
            sent = Instant::now();
            client.renewed(&held, ttl).await?;
        }
        let left = client.is_live(&held).await?.remaining;
        ctx.lasts(left, ttl, sent, first)?;
        client.held(&ask(&key, owner(), ctx.long())).await?;
        client.released(&held).await?;
    }
    Ok(())
}

async fn the_shortest_ttl_works(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("min")?);
    let ttl = ctx.ttl(Duration::ZERO);
    for _ in 0..3 {
        client.grant(&key, owner(), ttl).await?;
        ctx.until_free(&client, &key, ttl).await?;
    }
    Ok(())
}

async fn the_longest_ttl_does_not_wrap(ctx: &Ctx) -> Outcome {
    lasts(ctx, "max", ctx.ttl(Duration::MAX)).await
}

async fn long_ttls_are_kept_exactly(ctx: &Ctx) -> Outcome {
    let day = Duration::from_secs(86_400);
    // 24.8 and 49.7 days are 2^31 and 2^32 milliseconds; 71.6 minutes are 2^32
    // microseconds.
    let ttls = [
        Duration::from_secs(4295),
        day,
        day * 25,
        day * 30,
        day * 31,
        day * 50,
        day * 365,
    ];
    for ttl in ttls {
        lasts(ctx, "long", ctx.ttl(ttl)).await?;
    }
    Ok(())
}

async fn odd_ttls_are_not_cut(ctx: &Ctx) -> Outcome {
    for ms in [30_001, 30_999, 31_500, 45_123] {
        lasts(ctx, "odd", ctx.ttl(Duration::from_millis(ms))).await?;
    }
    Ok(())
}

async fn a_ttl_outside_the_range_is_invalid(ctx: &Ctx) -> Outcome {
    let (client, key) = (ctx.client().await?, key("outside")?);
    let range = ctx.guarantees().ttl;
    let held = client.grant(&key, owner(), ctx.long()).await?;
    let step = Duration::from_millis(1);
    for outside in [range.min.saturating_sub(step), range.max + step] {
        let Ok(ttl) = Ttl::new(outside) else { continue };
        let acquired = client
            .backend()
            .acquire(&ask(&held.key, held.owner, ttl))
            .await;
        invalid(ttl, "acquire", acquired)?;
        let renewed = client.backend().renew(&renewal(&held, ttl)).await;
        invalid(ttl, "renew", renewed)?;
        let list = [renewal(&held, ttl), renewal(&held, ctx.long())];
        let many = client.backend().renew_many(&list).await;
        check(
            matches!(&many[..], [Err(e), Ok(RenewOutcome::Renewed)]
                if e.kind() == StoreErrorKind::InvalidInput),
            format!(
                "renew_many with {ttl} and {}: InvalidInput, Renewed",
                ctx.long()
            ),
            many,
        )?;
    }
    let kept: &Held = &held;
    client.is_live(kept).await.map(drop)
}

fn invalid<T: std::fmt::Debug>(
    ttl: Ttl,
    call: &str,
    answer: Result<T, lease_core::StoreError>,
) -> Outcome {
    match answer {
        Err(e) if e.kind() == StoreErrorKind::InvalidInput => Ok(()),
        other => Err(Failure::new(
            format!("{call} with a TTL of {ttl}, outside the store's range: InvalidInput"),
            other,
        )),
    }
}
