//! The calls of the scripted store.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend,
    Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError, Token, Ttl,
};

use super::{Op, Scripted, Step, failure};

// Written without `async_trait`, so that a call can panic before there is a
// future.
impl LeaseBackend for Scripted {
    fn acquire<'a, 'b, 'c>(
        &'a self,
        request: &'b AcquireRequest,
    ) -> BoxFuture<'c, Result<AcquireOutcome, StoreError>>
    where
        'a: 'c,
        'b: 'c,
    {
        let request = request.clone();
        let mut call = self.call(Op::Acquire, &request.key, Some(request.owner), None);
        call.waits = request.waits;
        self.play(
            call,
            |memory| async move { memory.acquire(&request).await },
            |step| match step {
                Step::Acquired(outcome) => Some(outcome.clone()),
                _ => None,
            },
        )
    }

    fn abandon<'a, 'b, 'c>(
        &'a self,
        key: &'b Key,
        owner: Owner,
    ) -> BoxFuture<'c, Result<(), StoreError>>
    where
        'a: 'c,
        'b: 'c,
    {
        let key = key.clone();
        if self.is_gone(&key) {
            let error = StoreError::unavailable("scripted: this part is gone");
            return async { Err(error) }.boxed();
        }
        let call = self.call(Op::Abandon, &key, Some(owner), None);
        self.play(
            call,
            move |memory| async move { memory.abandon(&key, owner).await },
            |_| None,
        )
    }

    fn renew<'a, 'b, 'c>(
        &'a self,
        request: &'b RenewRequest,
    ) -> BoxFuture<'c, Result<RenewOutcome, StoreError>>
    where
        'a: 'c,
        'b: 'c,
    {
        let request = request.clone();
        self.panic_if_poisoned([&request.key].into_iter());
        let (owner, token) = (Some(request.owner), Some(request.token));
        let call = self.call(Op::Renew, &request.key, owner, token);
        self.play(
            call,
            |memory| async move { memory.renew(&request).await },
            |step| match step {
                Step::Renewed(outcome) => Some(*outcome),
                _ => None,
            },
        )
    }

    fn renew_many<'a, 'b, 'c>(
        &'a self,
        requests: &'b [RenewRequest],
    ) -> BoxFuture<'c, Vec<Result<RenewOutcome, StoreError>>>
    where
        'a: 'c,
        'b: 'c,
    {
        let requests = requests.to_vec();
        self.panic_if_poisoned(requests.iter().map(|request| &request.key));
        let mut call = self.call(Op::RenewMany, &requests[0].key, None, None);
        call.many = requests.len();
        let tamper = self.tamper();
        let many = requests.len();
        let played = self.play(
            call,
            |memory| async move {
                let mut outcomes = memory.renew_many(&requests).await;
                if let Some(tamper) = tamper {
                    tamper(&mut outcomes);
                }
                Ok(outcomes)
            },
            |_| None,
        );
        async move {
            match played.await {
                Ok(outcomes) => outcomes,
                Err(error) => (0..many).map(|_| Err(error.clone())).collect(),
            }
        }
        .boxed()
    }

    fn release<'a, 'b, 'c>(
        &'a self,
        key: &'b Key,
        owner: Owner,
        token: Token,
    ) -> BoxFuture<'c, Result<ReleaseOutcome, StoreError>>
    where
        'a: 'c,
        'b: 'c,
    {
        let key = key.clone();
        let call = self.call(Op::Release, &key, Some(owner), Some(token));
        self.play(
            call,
            move |memory| async move { memory.release(&key, owner, token).await },
            |step| match step {
                Step::Released(outcome) => Some(*outcome),
                _ => None,
            },
        )
    }

    fn fence<'a, 'b, 'c>(
        &'a self,
        key: &'b Key,
        at_least: Token,
        when: FenceWhen,
    ) -> BoxFuture<'c, Result<Token, StoreError>>
    where
        'a: 'c,
        'b: 'c,
    {
        let (memory, key) = (self.0.memory.clone(), key.clone());
        async move { memory.fence(&key, at_least, when).await }.boxed()
    }

    fn inspect<'a, 'b, 'c>(&'a self, key: &'b Key) -> BoxFuture<'c, Result<KeyState, StoreError>>
    where
        'a: 'c,
        'b: 'c,
    {
        let (memory, key) = (self.0.memory.clone(), key.clone());
        async move { memory.inspect(&key).await }.boxed()
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.0.memory.list(prefix)
    }

    fn watch<'a, 'b, 'c>(
        &'a self,
        key: &'b Key,
    ) -> BoxFuture<'c, Result<BoxStream<'static, ()>, StoreError>>
    where
        'a: 'c,
        'b: 'c,
    {
        let call = self.call(Op::Watch, key, None, None);
        let step = self.step(Op::Watch);
        self.note(call);
        let (memory, key) = (self.0.memory.clone(), key.clone());
        async move {
            match step {
                Step::Fail(kind) => Err(failure(kind)),
                Step::LoseReply | Step::LoseRequest => std::future::pending().await,
                Step::Panic => panic!("scripted: watch"),
                Step::Hints(streams) => Ok(streams()),
                Step::Slow(there, back) => {
                    tokio::time::sleep(there).await;
                    let stream = memory.watch(&key).await;
                    tokio::time::sleep(back).await;
                    stream
                }
                Step::After(hook) => {
                    hook();
                    memory.watch(&key).await
                }
                _ => memory.watch(&key).await,
            }
        }
        .boxed()
    }

    fn ping<'a, 'c>(&'a self) -> BoxFuture<'c, Result<Session, StoreError>>
    where
        'a: 'c,
    {
        let pinged = self.pinged();
        async move { pinged }.boxed()
    }

    fn guarantees(&self) -> Guarantees {
        self.claims()
    }

    fn diagnose<'a, 'c>(&'a self, ttl: Ttl) -> BoxFuture<'c, Result<Diagnosis, StoreError>>
    where
        'a: 'c,
    {
        let memory = self.0.memory.clone();
        async move { memory.diagnose(ttl).await }.boxed()
    }
}
