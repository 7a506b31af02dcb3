//! All that the proxy knows and decides; it does no waiting.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::fault::{Armed, Connection, ConnectionId, Direction, On, Scope, Then, Traffic, Waiting};
use super::flow::{Fate, Flow};
use super::socket::{Socket, Upstream};
use crate::ports::PortClaim;

/// So that one busy connection does not keep the others waiting.
const READS: usize = 16;

#[derive(Debug)]
pub(super) struct Engine {
    upstream: Upstream,
    port: PortClaim,
    /// `None` while connections are refused.
    listener: Option<Arc<TcpListener>>,
    connections: BTreeMap<ConnectionId, Link>,
    next: u64,
    delay: [Duration; 2],
    swallow: [bool; 2],
    held: bool,
    waiting: Vec<Waiting>,
    /// The latest hop that has reached the server, and a client.
    hops: [u64; 2],
    /// Of connections that are gone.
    past: Traffic,
    pub(super) traffic: watch::Sender<Traffic>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Link {
    address: SocketAddr,
    client: Arc<Socket>,
    /// `None` if it was made while everything was swallowed.
    server: Option<Arc<Socket>>,
    flows: [Flow; 2],
    /// Everything that arrives is swallowed.
    hangs: bool,
    /// Bytes are missing: it can never be used again.
    lossy: bool,
}

/// What the thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Arrival,
    Readable(ConnectionId, Direction),
    Writable,
}

/// Something to wait on, kept alive meanwhile.
#[derive(Debug)]
pub(super) enum Source {
    Listener(Arc<TcpListener>),
    Socket(Arc<Socket>),
}

impl Engine {
    pub(super) fn new(upstream: Upstream) -> io::Result<Self> {
        // Another program may take the port between the claim and this.
        let mut tries = 0;
        let (port, listener) = loop {
            let port = PortClaim::new()?;
            match listen(&port) {
                Ok(listener) => break (port, listener),
                Err(e) if tries == 10 => return Err(e),
                Err(_) => tries += 1,
            }
        };
        Ok(Self {
            upstream,
            port,
            listener: Some(listener),
            connections: BTreeMap::new(),
            next: 1,
            delay: [Duration::ZERO; 2],
            swallow: [false; 2],
            held: false,
            waiting: Vec::new(),
            hops: [0; 2],
            past: Traffic::default(),
            traffic: watch::Sender::new(Traffic::default()),
            buffer: vec![0; 64 << 10],
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.port()).into()
    }

    // What tests ask for.

    pub(super) fn set_delay(&mut self, request: Duration, reply: Duration) {
        self.delay = [request, reply];
    }

    pub(super) fn set_swallow(&mut self, direction: Direction) {
        self.swallow[direction.index()] = true;
    }

    pub(super) fn lead_to(&mut self, upstream: Upstream) {
        self.upstream = upstream;
    }

    pub(super) fn hold(&mut self) {
        self.held = true;
    }

    pub(super) fn refuse(&mut self) {
        self.listener = None;
    }

    pub(super) fn cut(&mut self) {
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in all {
            self.end(id, Fate::Breaks);
        }
    }

    pub(super) fn arm(&mut self, direction: Direction, after: u64, then: Then, on: On) -> Armed {
        let (sender, happened) = watch::channel(None);
        let on = match on {
            On::Any => Scope::From(ConnectionId(0)),
            On::New => Scope::From(ConnectionId(self.next)),
            On::Connection(id) => Scope::Only(id),
        };
        self.waiting.push(Waiting {
            direction,
            on,
            after,
            then,
            happened: sender,
        });
        // One that waits for a connection that is gone would wait for ever.
        let open = &self.connections;
        self.waiting.retain(|waiting| match waiting.on {
            Scope::Only(id) => open.contains_key(&id),
            Scope::From(_) => true,
        });
        Armed { happened }
    }

    pub(super) fn heal(&mut self) -> io::Result<()> {
        let now = Instant::now();
        self.delay = [Duration::ZERO; 2];
        self.swallow = [false; 2];
        self.held = false;
        self.waiting.clear();
        let lost: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, link)| link.lossy || link.flows.iter().any(Flow::is_doomed))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.end(id, Fate::Breaks);
        }
        for link in self.connections.values_mut() {
            link.flows.iter_mut().for_each(|flow| flow.heal(now));
        }
        if self.listener.is_none() {
            self.listener = Some(listen(&self.port)?);
        }
        Ok(())
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        let seen = |(id, link): (&ConnectionId, &Link)| Connection {
            id: *id,
            client: link.address,
            request_bytes: link.flows[0].passed,
            reply_bytes: link.flows[1].passed,
        };
        self.connections.iter().map(seen).collect()
    }

    pub(super) fn count_hops(&mut self) {
        self.hops = [0; 2];
        for link in self.connections.values_mut() {
            link.flows.iter_mut().for_each(Flow::count_hops_anew);
        }
    }

    pub(super) fn hops(&self) -> u64 {
        self.hops[Direction::Reply.index()]
    }

    // What the thread does.

    /// What to wait for, and until when at most.
    pub(super) fn interests(&self) -> (Vec<(Event, Source)>, Option<Instant>) {
        let mut interests = Vec::new();
        let mut until: Option<Instant> = None;
        if self.held {
            return (interests, until);
        }
        if let Some(listener) = &self.listener {
            interests.push((Event::Arrival, Source::Listener(Arc::clone(listener))));
        }
        for (id, link) in &self.connections {
            for direction in Direction::BOTH {
                let flow = &link.flows[direction.index()];
                let (source, sink) = link.ends(direction);
                if let Some(source) = source.filter(|_| flow.wants_to_read()) {
                    let event = Event::Readable(*id, direction);
                    interests.push((event, Source::Socket(Arc::clone(source))));
                }
                if let Some(sink) = sink.filter(|_| flow.wants_to_write()) {
                    interests.push((Event::Writable, Source::Socket(Arc::clone(sink))));
                }
                let due = flow.due();
                until = [until, due].into_iter().flatten().min();
            }
        }
        (interests, until)
    }

    pub(super) fn handle(&mut self, events: &[Event]) {
        for event in events {
            match event {
                // By whoever asked for it since.
                _ if self.held => {}
                Event::Arrival => self.accept(),
                Event::Readable(id, direction) => self.receive(*id, *direction),
                Event::Writable => {}
            }
        }
        self.pump();
    }

    /// Does what is due, and says what went through.
    pub(super) fn pump(&mut self) {
        let now = Instant::now();
        let all: Vec<ConnectionId> = match self.held {
            true => Vec::new(),
            false => self.connections.keys().copied().collect(),
        };
        for id in all {
            let fate = match self.connections.get_mut(&id) {
                Some(link) => link.pump(id, now, &mut self.past, &mut self.hops),
                None => continue,
            };
            if fate != Fate::Lives {
                self.end(id, fate);
            }
        }
        let mut traffic = self.past;
        traffic.open = self.connections.len();
        for link in self.connections.values() {
            traffic.request_bytes += link.flows[0].passed;
            traffic.reply_bytes += link.flows[1].passed;
        }
        self.traffic.send_if_modified(|last| {
            let changed = *last != traffic;
            *last = traffic;
            changed
        });
    }

    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            let Ok((stream, address)) = listener.accept() else {
                return;
            };
            let id = ConnectionId(self.next);
            self.next += 1;
            self.past.connections += 1;
            let client = Socket::Tcp(stream);
            let swallows_all = self.swallow == [true; 2];
            let server = match swallows_all {
                true => Ok(None),
                false => self.upstream.connect().map(Some),
            };
            let (Ok(()), Ok(server)) = (client.prepare(), server) else {
                // The server is down: so is what stands for it.
                client.resets_when_closed();
                continue;
            };
            let link = Link {
                address,
                client: Arc::new(client),
                server: server.map(Arc::new),
                flows: Default::default(),
                hangs: false,
                lossy: swallows_all,
            };
            self.connections.insert(id, link);
        }
    }

    fn receive(&mut self, id: ConnectionId, direction: Direction) {
        let i = direction.index();
        let Some(link) = self.connections.get_mut(&id) else {
            return;
        };
        let Some(source) = link.ends(direction).0.map(Arc::clone) else {
            return;
        };
        // It may follow from whatever has reached its sender by now.
        let hop = self.hops[1 - i] + 1;
        for _ in 0..READS {
            let due = Instant::now() + self.delay[i];
            let swallows = link.hangs || self.swallow[i];
            let flow = &mut link.flows[i];
            match source.read(&mut self.buffer) {
                Ok(0) => {
                    flow.ended = true;
                    // Through a silent network no end is heard of.
                    match swallows {
                        true => link.lossy = true,
                        false => flow.push_end(due),
                    }
                    return;
                }
                Ok(count) if swallows => {
                    link.lossy = true;
                    self.past.swallowed_bytes += count as u64;
                }
                Ok(count) => {
                    if flow.waiting.is_none() {
                        let waits = |w: &Waiting| w.is_for(id, direction);
                        let found = self.waiting.iter().position(waits);
                        flow.waiting = found.map(|at| self.waiting.remove(at));
                    }
                    let lost = flow.push(&self.buffer[..count], due, hop);
                    self.past.swallowed_bytes += lost as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    flow.ended = true;
                    match swallows {
                        true => link.lossy = true,
                        false => flow.push_break(due),
                    }
                    return;
                }
            }
            if !link.flows[i].wants_to_read() {
                return;
            }
        }
    }

    fn end(&mut self, id: ConnectionId, fate: Fate) {
        let Some(link) = self.connections.remove(&id) else {
            return;
        };
        self.past.request_bytes += link.flows[0].passed;
        self.past.reply_bytes += link.flows[1].passed;
        if fate == Fate::Breaks {
            link.client.resets_when_closed();
            if let Some(server) = &link.server {
                server.resets_when_closed();
            }
        }
        // No fault can happen to it any more.
        self.waiting
            .retain(|waiting| !matches!(waiting.on, Scope::Only(only) if only == id));
    }
}

impl Link {
    /// Whom the bytes come from and whom they go to.
    fn ends(&self, direction: Direction) -> (Option<&Arc<Socket>>, Option<&Arc<Socket>>) {
        match direction {
            Direction::Request => (Some(&self.client), self.server.as_ref()),
            Direction::Reply => (self.server.as_ref(), Some(&self.client)),
        }
    }

    fn pump(
        &mut self,
        id: ConnectionId,
        now: Instant,
        past: &mut Traffic,
        hops: &mut [u64; 2],
    ) -> Fate {
        for direction in Direction::BOTH {
            let i = direction.index();
            let Some(sink) = self.ends(direction).1.map(Arc::clone) else {
                continue;
            };
            let fate = self.flows[i].pump(id, &sink, now);
            hops[i] = hops[i].max(self.flows[i].hop());
            match fate {
                Fate::Lives => {}
                Fate::Hangs => {
                    (self.hangs, self.lossy) = (true, true);
                    for flow in &mut self.flows {
                        past.swallowed_bytes += flow.clear() as u64;
                    }
                }
                fate => return fate,
            }
        }
        let done = |flow: &Flow| flow.ended && flow.is_empty();
        let server_is_done = self.server.is_none() || done(&self.flows[1]);
        match done(&self.flows[0]) && server_is_done {
            true => Fate::Closes,
            false => Fate::Lives,
        }
    }
}

fn listen(port: &PortClaim) -> io::Result<Arc<TcpListener>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.port()))?;
    listener.set_nonblocking(true)?;
    Ok(Arc::new(listener))
}
