//! One gate out of many independent ones: what a majority admits, may write.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::gate::{AdmitError, Gate};
use crate::key::{Key, Label};
use crate::retry::ATTEMPT_LIMIT;
use crate::token::Token;

/// A gate over the gates of independent stores, such as those of the nodes of a
/// [`Quorum`](crate::Quorum).
///
/// A token is admitted when a majority has admitted it. It is refused as soon as
/// one node has admitted a higher one: two majorities share a node, so a higher
/// token that was admitted before is seen. A higher token that reached only a
/// minority may be seen, too, and may refuse a lower one: its holder was granted
/// it, so the lower one is stale anyway.
///
/// All nodes are told, also those that nobody waits for, so that the marks of as
/// many nodes may be lost as can be out of reach. What a node has forgotten
/// (it was restarted without its data, say) it can refuse no more: when a majority
/// has forgotten, or a minority of which the others never heard, a stale token is let
/// in. Any minority may be away or slow.
///
/// As every gate apart from the write it narrows the window for a stale writer
/// and does not close it.
///
/// ```
/// use std::sync::Arc;
/// use lease_core::{Gate, Key, LocalGate, QuorumGate, Token};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = ["a", "b", "c"].map(|name| (name, Arc::new(LocalGate::new()) as Arc<dyn Gate>));
/// let (gate, ledger) = (QuorumGate::new(nodes)?, Key::new("ledger")?);
/// gate.admit(&ledger, Token::new(8)?).await?;
/// assert!(gate.admit(&ledger, Token::new(7)?).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct QuorumGate {
    nodes: Arc<[(String, Arc<dyn Gate>)]>,
}

impl QuorumGate {
    /// A gate over these. All writers must name the same nodes.
    ///
    /// # Errors
    /// [`InvalidInput::QuorumNodes`] without nodes, and with a name that is
    /// empty, not printable or given twice.
    pub fn new<S: Into<String>>(
        nodes: impl IntoIterator<Item = (S, Arc<dyn Gate>)>,
    ) -> Result<Self, InvalidInput> {
        let nodes: Arc<[_]> = nodes
            .into_iter()
            .map(|(n, gate)| (n.into(), gate))
            .collect();
        let wrong = |what: String| Err(InvalidInput::QuorumNodes { what });
        if nodes.is_empty() {
            return wrong("a quorum needs at least one node".into());
        }
        let mut names = BTreeSet::new();
        for (name, _) in nodes.iter() {
            if name.trim().is_empty() || Label::new(name).is_err() {
                return wrong("a node's name is short, printable text".into());
            }
            if !names.insert(name) {
                return wrong(format!("the node {name:?} is named twice"));
            }
        }
        Ok(Self { nodes })
    }

    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }
}

impl fmt::Debug for QuorumGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.nodes.iter().map(|(name, _)| name).collect();
        f.debug_struct("QuorumGate").field("nodes", &names).finish()
    }
}

#[async_trait]
impl Gate for QuorumGate {
    /// As the trait says, on a majority; see [`QuorumGate`].
    ///
    /// # Errors
    /// Without a majority that answers: `Unavailable`, `UnknownOutcome` when some
    /// node may have remembered the token, or `Refusing` when so many nodes
    /// refuse for good that no majority can come about. The words name each node.
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        let mut answers = FuturesUnordered::new();
        for (i, (_, gate)) in self.nodes.iter().enumerate() {
            let (gate, resource) = (Arc::clone(gate), resource.clone());
            let answer = async move { (i, gate.admit(&resource, token).await) };
            answers.push(answer.boxed());
        }
        let (mut admitted, mut failed) = (0, Vec::new());
        while let Some((i, answer)) = answers.next().await {
            match answer {
                Ok(()) => admitted += 1,
                Err(AdmitError::Stale(stale)) => return Err(stale.into()),
                Err(AdmitError::Store(error)) => failed.push((i, error)),
            }
            if admitted >= self.majority() {
                go_on(async move { while answers.next().await.is_some() {} });
                return Ok(());
            }
        }
        Err(self.no_majority(&mut failed, admitted > 0).into())
    }
}

/// Lets the slow ones be told.
fn go_on(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(handle) = Handle::try_current() {
        handle.spawn(async move {
            let _ = tokio::time::timeout(ATTEMPT_LIMIT, work).await;
        });
    }
}

impl QuorumGate {
    fn no_majority(&self, failed: &mut [(usize, StoreError)], effect: bool) -> StoreError {
        failed.sort_by_key(|(i, _)| *i);
        let of = |kind| failed.iter().filter(|(_, e)| e.kind() == kind).count();
        let spare = self.nodes.len() - self.majority();
        let kind = if of(StoreErrorKind::Refusing) > spare {
            StoreErrorKind::Refusing
        } else if effect || of(StoreErrorKind::UnknownOutcome) > 0 {
            StoreErrorKind::UnknownOutcome
        } else {
            StoreErrorKind::Unavailable
        };
        // Nodes that say the same are named together.
        let mut said: Vec<(String, Vec<&str>)> = Vec::new();
        for (i, error) in failed.iter() {
            let Some((name, _)) = self.nodes.get(*i) else {
                continue;
            };
            let words = error.to_string();
            match said.iter_mut().find(|(same, _)| *same == words) {
                Some((_, names)) => names.push(name),
                None => said.push((words, vec![name])),
            }
        }
        let said: Vec<_> = said
            .iter()
            .map(|(words, names)| format!("{}: {words}", names.join(", ")))
            .collect();
        let message = format!(
            "admit needs {} of {} nodes ({})",
            self.majority(),
            self.nodes.len(),
            said.join("; ")
        );
        StoreError::new(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::gate::LocalGate;

    /// A node that can be away, or silent.
    #[derive(Debug, Default)]
    struct Node {
        gate: LocalGate,
        away: AtomicBool,
        silent: AtomicBool,
    }

    #[async_trait]
    impl Gate for Node {
        async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
            if self.silent.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            match self.away.load(Ordering::Relaxed) {
                true => Err(StoreError::unavailable("out of reach").into()),
                false => self.gate.admit(resource, token).await,
            }
        }
    }

    fn nodes(count: usize) -> (Vec<Arc<Node>>, QuorumGate) {
        let nodes: Vec<Arc<Node>> = (0..count).map(|_| Arc::default()).collect();
        let named = nodes.iter().enumerate();
        let named = named.map(|(i, node)| (format!("n{i}"), Arc::clone(node) as Arc<dyn Gate>));
        let gate = QuorumGate::new(named).unwrap();
        (nodes, gate)
    }

    fn away(nodes: &[Arc<Node>], which: &[usize]) {
        for (i, node) in nodes.iter().enumerate() {
            node.away.store(which.contains(&i), Ordering::Relaxed);
        }
    }

    async fn admits(gate: &QuorumGate, number: u64) -> Result<(), AdmitError> {
        let resource = Key::new("ledger").unwrap();
        gate.admit(&resource, Token::new(number).unwrap()).await
    }

    /// The highest token that was admitted; a stale one is asked for.
    async fn stale(gate: &QuorumGate, number: u64) -> u64 {
        match admits(gate, number).await {
            Err(AdmitError::Stale(stale)) => stale.admitted.get(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_a_majority_admitted_is_seen_by_every_other_majority() {
        for (count, spare) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)] {
            for first in 0..count {
                for second in 0..count {
                    let lost = |from: usize| -> Vec<usize> {
                        (0..spare).map(|i| (from + i) % count).collect()
                    };
                    let (nodes, gate) = nodes(count);
                    away(&nodes, &lost(first));
                    admits(&gate, 8).await.unwrap();
                    away(&nodes, &lost(second));
                    assert_eq!(stale(&gate, 7).await, 8);
                    admits(&gate, 8).await.unwrap();
                    admits(&gate, 9).await.unwrap();
                }
            }
        }
    }

    #[tokio::test]
    async fn without_a_majority_nothing_is_admitted_and_each_node_is_named() {
        let (nodes, gate) = nodes(3);
        away(&nodes, &[0, 2]);
        let Err(AdmitError::Store(error)) = admits(&gate, 8).await else {
            panic!("admitted");
        };
        // One of them has it.
        assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome);
        let words = error.to_string();
        assert!(words.contains("admit needs 2 of 3 nodes"), "{words}");
        assert!(words.contains("(n0, n2: "), "{words}");
        // It refuses a lower one, which does no harm.
        away(&nodes, &[]);
        assert_eq!(stale(&gate, 7).await, 8);
        away(&nodes, &[0, 1, 2]);
        let Err(AdmitError::Store(error)) = admits(&gate, 8).await else {
            panic!("admitted");
        };
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn a_minority_that_forgot_is_made_good_by_the_others() {
        let (nodes, gate) = nodes(3);
        admits(&gate, 8).await.unwrap();
        // The one that nobody waited for is told as well.
        tokio::task::yield_now().await;
        for i in 0..3 {
            let mut named: Vec<(String, Arc<dyn Gate>)> = Vec::new();
            for (j, node) in nodes.iter().enumerate() {
                let gate: Arc<dyn Gate> = match i == j {
                    true => Arc::new(LocalGate::new()),
                    false => Arc::clone(node) as Arc<dyn Gate>,
                };
                named.push((format!("n{j}"), gate));
            }
            assert_eq!(stale(&QuorumGate::new(named).unwrap(), 7).await, 8);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_minority_costs_no_time() {
        let (nodes, gate) = nodes(5);
        for node in &nodes[..2] {
            node.silent.store(true, Ordering::Relaxed);
        }
        let begin = tokio::time::Instant::now();
        admits(&gate, 8).await.unwrap();
        assert_eq!(stale(&gate, 7).await, 8);
        assert!(begin.elapsed().is_zero());
    }

    #[test]
    fn names_are_checked() {
        let node = || Arc::new(LocalGate::new()) as Arc<dyn Gate>;
        assert!(QuorumGate::new(Vec::<(String, Arc<dyn Gate>)>::new()).is_err());
        assert!(QuorumGate::new([("a", node()), ("a", node())]).is_err());
        assert!(QuorumGate::new([(" ", node())]).is_err());
        let gate = QuorumGate::new([("a", node()), ("b", node())]).unwrap();
        assert!(format!("{gate:?}").contains("\"b\""));
    }
}
