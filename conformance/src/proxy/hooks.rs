//! The suite's hook for a network.

use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt};

use super::{FaultProxy, On, Then};
use crate::fixture::FixtureError;
use crate::hooks::Network;

/// Of a proxy that has one store's clients and no others.
///
/// The next reply on any connection is the one that is lost: that is the right
/// one unless a client has subscribed to something that speaks just then.
#[async_trait]
impl Network for FaultProxy {
    async fn cut(&self) -> Result<(), FixtureError> {
        FaultProxy::cut(self);
        Ok(())
    }

    async fn lose_reply(&self) -> Result<BoxFuture<'static, ()>, FixtureError> {
        let lost = FaultProxy::lose_reply(self, Then::Cut, On::Any);
        let happens = async move {
            if lost.happened().await.is_err() {
                // It never will.
                std::future::pending::<()>().await;
            }
        };
        Ok(happens.boxed())
    }
}
