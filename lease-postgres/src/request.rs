//! What one operation asks for, and how many of one kind are asked for at once.

use lease_core::{AcquireRequest, FenceWhen, Key, Owner, RenewRequest, Token, TokenRule, Ttl};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Postgres, SqlStr, query};

use crate::sql::Statements;
use crate::witness::Carried;

/// One operation, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: Key,
    what: What,
}

/// Which statement does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    /// Of many at once, where it is only to be done; see `prolong.sql`.
    Prolong,
    Release,
    Abandon,
    Fence,
    /// Whether the session of the grant in the way is gone.
    Suspect,
    Inspect,
    Admit,
}

#[derive(Clone, Debug)]
enum What {
    Acquire(AcquireRequest),
    Renew(RenewRequest),
    Prolong(RenewRequest),
    Suspect(i64),
    Release(Owner, Token),
    Abandon(Owner),
    Fence(Token, FenceWhen),
    Inspect,
    Admit(Token),
}

impl Request {
    pub(crate) fn acquire(request: &AcquireRequest) -> Self {
        Self::new(&request.key, What::Acquire(request.clone()))
    }

    pub(crate) fn renew(request: &RenewRequest) -> Self {
        Self::new(&request.key, What::Renew(request.clone()))
    }

    /// A renewal that has an answer only if the grant is live.
    pub(crate) fn prolong(request: &RenewRequest) -> Self {
        Self::new(&request.key, What::Prolong(request.clone()))
    }

    pub(crate) fn release(key: &Key, owner: Owner, token: Token) -> Self {
        Self::new(key, What::Release(owner, token))
    }

    pub(crate) fn abandon(key: &Key, owner: Owner) -> Self {
        Self::new(key, What::Abandon(owner))
    }

    pub(crate) fn fence(key: &Key, at_least: Token, when: FenceWhen) -> Self {
        Self::new(key, What::Fence(at_least, when))
    }

    /// Whether this session, of a grant of the key, is gone.
    pub(crate) fn suspect(key: &Key, session: i64) -> Self {
        Self::new(key, What::Suspect(session))
    }

    pub(crate) fn inspect(key: &Key) -> Self {
        Self::new(key, What::Inspect)
    }

    pub(crate) fn admit(resource: &Key, token: Token) -> Self {
        Self::new(resource, What::Admit(token))
    }

    fn new(key: &Key, what: What) -> Self {
        Self {
            key: key.clone(),
            what,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.what {
            What::Acquire(_) => Kind::Acquire,
            What::Renew(_) => Kind::Renew,
            What::Prolong(_) => Kind::Prolong,
            What::Release(..) => Kind::Release,
            What::Abandon(_) => Kind::Abandon,
            What::Fence(..) => Kind::Fence,
            What::Suspect(_) => Kind::Suspect,
            What::Inspect => Kind::Inspect,
            What::Admit(_) => Kind::Admit,
        }
    }

    /// Whether it does no harm if it takes effect twice, and the second answer
    /// is as good as the first. A copy of an acquire that is still under way could
    /// grant the key to an owner who has gone: whoever repeats one must know of it,
    /// and abandon the owner in the end.
    pub(crate) fn may_repeat(&self) -> bool {
        !matches!(self.kind(), Kind::Acquire | Kind::Release)
    }

    /// What an acquisition asks for.
    pub(crate) fn ttl(&self) -> Option<Ttl> {
        match &self.what {
            What::Acquire(request) => Some(request.ttl),
            _ => None,
        }
    }

    /// The token that is shown to a gate.
    pub(crate) fn presented(&self) -> Option<Token> {
        match self.what {
            What::Admit(token) => Some(token),
            _ => None,
        }
    }
}

/// The statement for requests of one kind, no two of them for one key.
pub(crate) fn statement<'q>(
    statements: &Statements,
    requests: &[Request],
    retention_us: i64,
    session: Option<Carried>,
) -> Query<'q, Postgres, PgArguments> {
    let ask = |sql: &SqlStr| {
        let keys: Vec<_> = requests.iter().map(|one| one.key.to_string()).collect();
        query(sql.clone()).bind(keys)
    };
    let kind = requests.first().map_or(Kind::Inspect, Request::kind);
    match kind {
        Kind::Acquire => {
            let mut fields = Acquires::default();
            requests.iter().for_each(|one| fields.add(&one.what));
            ask(&statements.acquire)
                .bind(fields.owners)
                .bind(fields.ttls)
                .bind(fields.labels)
                .bind(fields.exactly)
                .bind(fields.after)
                .bind(session.map(|session| session.id))
                .bind(session.map(|session| session.grace_us))
        }
        Kind::Renew | Kind::Prolong => {
            let sql = match kind {
                Kind::Renew => &statements.renew,
                _ => &statements.prolong,
            };
            let fields: Vec<_> = requests.iter().filter_map(|one| one.renewal()).collect();
            ask(sql)
                .bind(column(&fields, |one| one.owner.as_bytes().to_vec()))
                .bind(column(&fields, |one| number(one.token.get())))
                .bind(column(&fields, |one| number(one.ttl.as_micros())))
                .bind(session.map(|session| session.id))
                .bind(session.map(|session| session.grace_us))
        }
        Kind::Release => {
            let grants: Vec<_> = requests.iter().filter_map(Request::grant).collect();
            ask(&statements.release)
                .bind(column(&grants, |(owner, _)| owner.as_bytes().to_vec()))
                .bind(column(&grants, |(_, token)| number(token.get())))
        }
        Kind::Abandon => {
            let owners: Vec<_> = requests.iter().filter_map(Request::owner).collect();
            ask(&statements.abandon)
                .bind(column(&owners, |owner| owner.as_bytes().to_vec()))
                .bind(retention_us)
        }
        Kind::Fence => {
            let fences: Vec<_> = requests.iter().filter_map(Request::mark).collect();
            ask(&statements.fence)
                .bind(column(&fences, |(at_least, _)| number(at_least.get())))
                .bind(column(&fences, |(_, when)| *when == FenceWhen::Immediately))
                .bind(retention_us)
        }
        Kind::Suspect => {
            let sessions: Vec<_> = requests.iter().filter_map(Request::session).collect();
            ask(&statements.suspect).bind(sessions)
        }
        Kind::Inspect => ask(&statements.inspect),
        Kind::Admit => {
            let tokens: Vec<_> = requests.iter().filter_map(Request::presented).collect();
            ask(&statements.admit).bind(column(&tokens, |token| number(token.get())))
        }
    }
}

impl Request {
    fn renewal(&self) -> Option<&RenewRequest> {
        match &self.what {
            What::Renew(request) | What::Prolong(request) => Some(request),
            _ => None,
        }
    }

    fn grant(&self) -> Option<(Owner, Token)> {
        match self.what {
            What::Release(owner, token) => Some((owner, token)),
            _ => None,
        }
    }

    fn owner(&self) -> Option<Owner> {
        match self.what {
            What::Abandon(owner) => Some(owner),
            _ => None,
        }
    }

    fn session(&self) -> Option<i64> {
        match self.what {
            What::Suspect(session) => Some(session),
            _ => None,
        }
    }

    fn mark(&self) -> Option<(Token, FenceWhen)> {
        match self.what {
            What::Fence(at_least, when) => Some((at_least, when)),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Acquires {
    owners: Vec<Vec<u8>>,
    ttls: Vec<i64>,
    labels: Vec<String>,
    exactly: Vec<i64>,
    after: Vec<i64>,
}

impl Acquires {
    fn add(&mut self, what: &What) {
        let What::Acquire(request) = what else {
            return;
        };
        // No token is 0.
        let (exactly, after) = match request.rule {
            TokenRule::Next { after } => (0, after.map_or(0, Token::get)),
            TokenRule::Exactly(token) => (token.get(), 0),
        };
        self.owners.push(request.owner.as_bytes().to_vec());
        self.ttls.push(number(request.ttl.as_micros()));
        self.labels.push(request.label.as_str().to_owned());
        self.exactly.push(number(exactly));
        self.after.push(number(after));
    }
}

fn column<T, C>(rows: &[T], of: impl Fn(&T) -> C) -> Vec<C> {
    rows.iter().map(of).collect()
}

/// Tokens and TTLs are far below the limit.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
