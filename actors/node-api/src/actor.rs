//! The actor: keeps the listeners open.

use std::net::SocketAddr;
use std::time::Duration;

use actix::Actor;
use axum::Router;
use runtime_bridge::Io;
use supervision::{Ctx, Subsystem};
use tokio_util::task::AbortOnDropHandle;

use crate::routes::{Answers, health_routes, read_only_routes};
use crate::server::serve;

/// A listener that cannot be opened is tried again this often.
const RETRY: Duration = Duration::from_secs(5);

/// Where to listen; none is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeApiConfig {
    /// `healthzBindAddress:healthzPort`.
    pub health: Option<SocketAddr>,
    /// `address:readOnlyPort`.
    pub read_only: Option<SocketAddr>,
}

/// What NodeApi is given.
#[derive(Clone)]
pub struct NodeApiDeps {
    /// Listeners.
    pub config: NodeApiConfig,
    /// The runtime that sockets live on.
    pub io: Io,
    /// Where answers come from.
    pub answers: Answers,
}

/// NodeApi's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Open this listener again.
    Open(Port),
}

/// The listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// Health.
    Health,
    /// Read-only.
    ReadOnly,
}

/// The HTTP servers.
pub struct NodeApi {
    deps: NodeApiDeps,
}

impl NodeApi {
    /// An incarnation with nothing open.
    pub fn new(deps: NodeApiDeps) -> Self {
        Self { deps }
    }

    fn listener(&self, port: Port) -> Option<(SocketAddr, Router)> {
        let answers = || self.deps.answers.clone();
        match port {
            Port::Health => self.deps.config.health.map(|address| (address, health_routes(answers()))),
            Port::ReadOnly => {
                self.deps.config.read_only.map(|address| (address, read_only_routes(answers())))
            }
        }
    }

    fn open(&self, port: Port, ctx: &mut Ctx<Self>) {
        let Some((address, routes)) = self.listener(port) else { return };
        // Aborted with the effect, and so with the incarnation.
        let server = AbortOnDropHandle::new(self.deps.io.spawn(serve(address, routes)));
        ctx.effect("serve", None, server, move |_, ended, ctx| {
            match ended {
                Ok(error) => tracing::error!(%error, %address, "Cannot listen"),
                Err(error) => tracing::error!(%error, %address, "The listener's task ended"),
            }
            ctx.set_timer(Timer::Open(port), RETRY);
        });
    }
}

impl Actor for NodeApi {
    type Context = Ctx<Self>;
}

impl Subsystem for NodeApi {
    const NAME: &'static str = "NodeApi";
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.open(Port::Health, ctx);
        self.open(Port::ReadOnly, ctx);
    }

    fn on_timer(&mut self, Timer::Open(port): Timer, ctx: &mut Ctx<Self>) {
        self.open(port, ctx);
    }
}
