//! The actor: keeps the listeners open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Actor;
use axum::Router;
use bridge_serve::{Bounds, Listeners};
use bridge_tls::serving::ServingTls;
use supervision::{Ctx, Effect, Subsystem};

use crate::access::Access;
use crate::containers::Containers;
use crate::routes::{Answers, health_routes, read_only_routes};
use crate::secured::{HttpsOffers, secured_routes};
use crate::submission::Submission;

/// A listener that cannot be opened is tried again this often.
const RETRY: Duration = Duration::from_secs(5);

/// Where NodeApi listens; a port that is `None` is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeApiConfig {
    /// `healthzBindAddress:healthzPort`.
    pub health: Option<SocketAddr>,
    /// `address:readOnlyPort`.
    pub read_only: Option<SocketAddr>,
    /// `address:port`, over HTTPS.
    pub secured: Option<SocketAddr>,
}

/// What the HTTPS port needs beyond the other ports.
#[derive(Clone)]
pub struct Secured {
    /// Authenticates and authorises callers.
    pub access: Access,
    /// Finds pods' containers and reaches into them.
    pub containers: Containers,
    /// Has pods run that callers submit; `None` where pods cannot be submitted.
    pub submission: Option<Submission>,
    /// Which routes the HTTPS port has.
    pub offers: HttpsOffers,
}

/// NodeApi's configuration, effects and ports.
#[derive(Clone)]
pub struct NodeApiDeps {
    /// Listeners.
    pub config: NodeApiConfig,
    /// Opens the listeners.
    pub listeners: Arc<dyn Listeners>,
    /// Answers of the read-only port, which the HTTPS port gives as well.
    pub answers: Answers,
    /// The HTTPS port's part; `None` without a serving certificate, as in tests.
    pub secured: Option<Secured>,
}

/// NodeApi's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Open this listener again.
    Open(Port),
}

/// The ports that NodeApi listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// Health.
    Health,
    /// Read-only.
    ReadOnly,
    /// HTTPS.
    Secured,
}

/// A port's address, routes, TLS and bounds.
type Listener = (SocketAddr, Router, Option<ServingTls>, Bounds);

/// The HTTP servers.
pub struct NodeApi {
    deps: NodeApiDeps,
}

impl NodeApi {
    /// An incarnation with nothing open.
    pub fn new(deps: NodeApiDeps) -> Self {
        Self { deps }
    }

    fn listener(&self, port: Port) -> Option<Listener> {
        let config = &self.deps.config;
        let answers = self.deps.answers.clone();
        match port {
            Port::Health => Some((config.health?, health_routes(answers), None, Bounds::PLAIN)),
            Port::ReadOnly => {
                // Strangers may ask here.
                let answers = Answers { shared: answers.shared.for_another_port(), ..answers };
                Some((config.read_only?, read_only_routes(answers), None, Bounds::PLAIN))
            }
            Port::Secured => {
                let Secured { access, containers, submission, offers } = self.deps.secured.clone()?;
                let tls = access.tls.clone();
                let routes = secured_routes(answers, containers, submission, &offers, access);
                Some((config.secured?, routes, Some(tls), Bounds::SECURED))
            }
        }
    }

    fn open(&self, port: Port, ctx: &mut Ctx<Self>) {
        let Some((address, routes, tls, bounds)) = self.listener(port) else { return };
        // The server belongs to the effect: it is closed when this incarnation ends.
        let server = self.deps.listeners.serve(address, routes, tls, bounds);
        ctx.effect(Effect::lasting("serve"), None, server, move |_, error, ctx| {
            tracing::error!(%error, %address, "Cannot listen");
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
        self.open(Port::Secured, ctx);
    }

    fn on_timer(&mut self, Timer::Open(port): Timer, ctx: &mut Ctx<Self>) {
        self.open(port, ctx);
    }
}
