//! How requests get to where they belong: by one connection, or by one to each
//! node of a cluster.

use std::sync::Arc;

use lease_core::StoreError;

use crate::cluster::Router;
use crate::lane::Lane;
use crate::reply::odd;

/// How requests get to where they belong.
pub(super) enum Way {
    One {
        plain: Arc<Lane>,
        /// For what waits for replicas: a WAIT blocks its connection.
        waiting: Option<Arc<Lane>>,
    },
    Cluster(Arc<Router>),
}

/// What renewals go over.
pub(super) enum Over<'a> {
    One(&'a Lane),
    Cluster(&'a Router),
}

impl Way {
    pub(super) fn line(&self) -> Line {
        match self {
            Self::One { plain, .. } => Line::One(Arc::clone(plain)),
            Self::Cluster(router) => Line::Cluster(Arc::clone(router)),
        }
    }

    /// The runtime has ended: nobody who waits here will get an answer.
    pub(super) fn close(&self) {
        match self {
            Self::One { plain, waiting } => {
                plain.close();
                if let Some(waiting) = waiting {
                    waiting.close();
                }
            }
            Self::Cluster(router) => router.close(),
        }
    }
}

/// The connections of one runtime, for who needs one of the two kinds.
pub(crate) enum Line {
    One(Arc<Lane>),
    Cluster(Arc<Router>),
}

impl Line {
    pub(super) fn one(self) -> Result<Arc<Lane>, StoreError> {
        match self {
            Self::One(lane) => Ok(lane),
            Self::Cluster(_) => Err(odd()),
        }
    }

    pub(super) fn cluster(self) -> Result<Arc<Router>, StoreError> {
        match self {
            Self::Cluster(router) => Ok(router),
            Self::One(_) => Err(odd()),
        }
    }
}
