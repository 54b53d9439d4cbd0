//! The actor: looks at the time and at the wanted certificates, and requests them when they are due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_io::clock::Clock;
use bridge_io::watch;
use bridge_kube::CertificateRequests;
use bridge_tls::certificates::{CertificateStore, CurrentPair, Names, Pair, Purpose, Subject};
use jiff::Timestamp;
use messages::certificate_manager;
use messages::facts::NodeAddressesObserved;
use messages::node_status::ResendNode;
use supervision::{Address, Ctx, Effect, EffectId, Subsystem};
use tokio::time::Instant;

use crate::CertificateMetrics;
use crate::execute::{Failure, RENEWED_WITHIN, Renewal, renew};
use crate::rotation::{
    AFTER_SUCCESS, CertificateState, FAILURES_MAX, LOOK, LOST_AFTER, Next, deadline, is_outdated, names,
    next, retry_wait,
};

/// How long the disk may take to say which certificate it has.
const LOADED_WITHIN: Duration = Duration::from_secs(30);

/// Set to the reason when the kubelet has to end: it has no valid client certificate, and the API server is reachable.
pub type IdentityLost = watch::Sender<Option<Arc<str>>>;

/// A certificate that CertificateManager keeps valid.
#[derive(Clone, Debug)]
pub struct ManagedCertificate {
    /// Its purpose. There is at most one role for each.
    pub purpose: Purpose,
    /// Where its certificates and keys are stored.
    pub store: Arc<dyn CertificateStore>,
    /// The certificate and key that the kubelet presents.
    pub current: CurrentPair,
    /// Requests certificates while there is a valid client certificate.
    pub api: Arc<dyn CertificateRequests>,
    /// Requests certificates while there is none; `None` if `api` does.
    pub bootstrap: Option<Arc<dyn CertificateRequests>>,
}

/// CertificateManager's settings, effects and address.
#[derive(Clone)]
pub struct CertificateManagerDeps {
    /// The node's name.
    pub node_name: String,
    /// The certificates to keep valid.
    pub roles: Vec<ManagedCertificate>,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// NodeStatus, asked for the node's addresses; `None` if there is none.
    pub node: Option<Address<ResendNode>>,
    /// Where the end of the kubelet is requested.
    pub lost: IdentityLost,
    /// Metrics.
    pub metrics: CertificateMetrics,
}

/// CertificateManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Look whether a certificate is due.
    Look(Purpose),
}

struct Kept {
    role: ManagedCertificate,
    /// What the certificate must hold; `None` while that is unknown.
    subject: Option<Subject>,
    asking: Option<(EffectId, Subject)>,
    /// The disk is read for what an earlier incarnation has saved; nothing is asked for until then.
    loading: bool,
    failures: u32,
    not_before: Option<Instant>,
    /// The number of the current pair, and when it is replaced.
    due: Option<(u64, Timestamp)>,
    valid_at: Instant,
    /// Whether the API server answers, as far as is known.
    answers: bool,
    told_of_loss: bool,
    renewals: u64,
    problem: Option<String>,
}

/// CertificateManager: keeps the node's certificates valid.
pub struct CertificateManager {
    deps: CertificateManagerDeps,
    kept: BTreeMap<Purpose, Kept>,
}

impl Kept {
    fn new(role: ManagedCertificate, node_name: &str) -> Self {
        let subject = match role.purpose {
            Purpose::Client => Some(Subject::node(node_name, Names::default())),
            Purpose::Serving => None,
        };
        Self {
            role,
            subject,
            asking: None,
            loading: false,
            failures: 0,
            not_before: None,
            due: None,
            valid_at: Instant::now(),
            answers: false,
            told_of_loss: false,
            renewals: 0,
            problem: None,
        }
    }

    /// The pair that the kubelet presents. An expired pair is withdrawn, and presented again if it was the clock that was ahead.
    fn valid(&mut self, now: Timestamp) -> Option<Arc<Pair>> {
        let current = &self.role.current;
        let pair = current.present_or_withdrawn()?;
        let is_expired = pair.is_expired(now);
        if current.withdraw(is_expired) && is_expired {
            tracing::error!(purpose = self.role.purpose.prefix(), end = %pair.leaf.not_after, "Current certificate is expired");
        }
        if is_expired {
            return None;
        }
        self.valid_at = Instant::now();
        self.told_of_loss = false;
        Some(pair)
    }

    /// A pair on the disk is presented if it is valid for longer than the present one.
    fn found(&self, pair: Arc<Pair>, now: Timestamp) {
        let current = &self.role.current;
        let is_newer =
            current.present_or_withdrawn().is_none_or(|shown| shown.leaf.not_after < pair.leaf.not_after);
        if is_newer && !pair.is_expired(now) {
            tracing::info!(purpose = self.role.purpose.prefix(), expiration = %pair.leaf.not_after, "Certificate on disk is in use");
            current.show(Some(pair), false);
        }
    }

    fn next(&mut self, pair: Option<&Pair>, clock: &dyn Clock) -> Next {
        let number = self.role.current.numbered().0;
        if let Some(pair) = pair
            && self.due.is_none_or(|(due, _)| due != number)
        {
            let at = deadline(&pair.leaf, clock.random_u64());
            tracing::info!(
                purpose = self.role.purpose.prefix(), expiration = %pair.leaf.not_after, deadline = %at,
                "Certificate rotation deadline determined"
            );
            self.due = Some((number, at));
        }
        let known = CertificateState {
            leaf: pair.map(|pair| &pair.leaf),
            provisional: self.role.current.is_provisional(),
            deadline: self.due.map(|(_, at)| at),
            subject: self.subject.as_ref(),
        };
        next(known, clock.now())
    }

    /// Why the kubelet must end, if it must.
    fn loss(&mut self, valid: bool) -> Option<&'static str> {
        if valid || self.role.purpose != Purpose::Client || self.valid_at.elapsed() < LOST_AFTER {
            return None;
        }
        if self.answers {
            return Some("No valid client certificate is found and the server is responsive, exiting.");
        }
        if !std::mem::replace(&mut self.told_of_loss, true) {
            tracing::error!(
                "No valid client certificate is found but the server is not responsive. A restart may be necessary to \
                 retrieve new initial credentials."
            );
        }
        None
    }
}

impl CertificateManager {
    /// An incarnation without requests under way.
    pub fn new(deps: CertificateManagerDeps) -> Self {
        let roles = deps.roles.iter().cloned();
        let kept = roles.map(|role| (role.purpose, Kept::new(role, &deps.node_name))).collect();
        Self { deps, kept }
    }

    fn look(&mut self, purpose: Purpose, ctx: &mut Ctx<Self>) {
        let clock = self.deps.clock.clone();
        let Some(kept) = self.kept.get_mut(&purpose).filter(|kept| !kept.loading) else { return };
        let pair = kept.valid(clock.now());
        self.deps.metrics.ends(purpose, pair.as_deref().map(|pair| &pair.leaf), clock.now());
        if let Some(why) = kept.loss(pair.is_some()) {
            // The receiver may be gone if the kubelet is ending already.
            self.deps.lost.send_replace(Some(Arc::from(why)));
        }
        if let Some((id, asked)) = &kept.asking
            && is_outdated(asked, kept.subject.as_ref())
        {
            tracing::info!(purpose = purpose.prefix(), "Certificate template changed, rotating");
            ctx.cancel_effect(*id);
            kept.asking = None;
        }
        let mut wait = LOOK;
        if kept.asking.is_none() {
            match kept.next(pair.as_deref(), &*clock) {
                Next::Nothing => {}
                Next::Wait(due) => wait = wait.min(due),
                Next::Ask => match kept.not_before.map(|at| at.saturating_duration_since(Instant::now())) {
                    Some(rest) if !rest.is_zero() => wait = wait.min(rest),
                    _ => self.request(purpose, pair.is_some(), ctx),
                },
            }
        }
        // A timer of zero would fire again and again without a pause.
        ctx.set_timer(Timer::Look(purpose), wait.max(Duration::from_millis(10)));
    }

    fn request(&mut self, purpose: Purpose, valid: bool, ctx: &mut Ctx<Self>) {
        let Some(kept) = self.kept.get_mut(&purpose) else { return };
        let Some(subject) = kept.subject.clone() else { return };
        let role = &kept.role;
        let bootstrap = role.bootstrap.as_ref().filter(|_| !valid);
        let work = Renewal {
            api: bootstrap.unwrap_or(&role.api).clone(),
            store: role.store.clone(),
            clock: self.deps.clock.clone(),
            purpose,
            subject: subject.clone(),
        };
        tracing::info!(purpose = purpose.prefix(), "Rotating certificates");
        let id = ctx.effect(
            Effect::within("renew", RENEWED_WITHIN),
            None,
            renew(work),
            move |actor, outcome, ctx| {
                actor.renewed(purpose, outcome);
                actor.look(purpose, ctx);
            },
        );
        kept.asking = Some((id, subject));
    }

    /// Reads what an earlier incarnation has saved and may not have lived to show.
    fn load(&mut self, purpose: Purpose, ctx: &mut Ctx<Self>) {
        let now = self.deps.clock.now();
        let Some(kept) = self.kept.get_mut(&purpose) else { return };
        kept.loading = true;
        let loaded = tokio::time::timeout(LOADED_WITHIN, kept.role.store.load(now));
        ctx.effect("load a certificate", None, loaded, move |actor, loaded, ctx| {
            if let Some(kept) = actor.kept.get_mut(&purpose) {
                kept.loading = false;
                if let Ok(Ok(Some(pair))) = loaded {
                    kept.found(pair, actor.deps.clock.now());
                }
            }
            actor.look(purpose, ctx);
        });
    }

    fn renewed(&mut self, purpose: Purpose, outcome: Result<Arc<Pair>, Failure>) {
        let (now, random) = (self.deps.clock.now(), self.deps.clock.random_u64());
        let Some(kept) = self.kept.get_mut(&purpose) else { return };
        kept.asking = None;
        match outcome {
            Ok(pair) => {
                if let Some(old) = kept.role.current.get() {
                    self.deps.metrics.rotated(purpose, &old.leaf, now);
                }
                tracing::info!(purpose = purpose.prefix(), expiration = %pair.leaf.not_after, "Certificate is in use");
                kept.role.current.show(Some(pair), false);
                kept.failures = 0;
                kept.answers = true;
                kept.renewals += 1;
                kept.problem = None;
                kept.not_before = Some(Instant::now() + AFTER_SUCCESS);
            }
            Err(failure) => {
                tracing::error!(purpose = purpose.prefix(), err = failure.reason, "{}", failure.step);
                self.deps.metrics.failed(purpose);
                kept.answers = failure.answers.unwrap_or(kept.answers);
                kept.failures = kept.failures.saturating_add(1);
                if kept.failures == FAILURES_MAX {
                    tracing::error!(
                        purpose = purpose.prefix(),
                        "Reached backoff limit, still unable to rotate certs"
                    );
                }
                kept.problem = Some(format!("{}: {}", failure.step, failure.reason));
                kept.not_before = Some(Instant::now() + retry_wait(kept.failures, random));
            }
        }
    }
}

impl Actor for CertificateManager {
    type Context = Ctx<Self>;
}

impl Subsystem for CertificateManager {
    const NAME: &'static str = certificate_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        if let Some(node) = &self.deps.node {
            node.tell_level(ResendNode { receiver: Self::NAME });
        }
        for purpose in self.kept.keys().copied().collect::<Vec<_>>() {
            // At the start of the process the disk has been read already.
            if ctx.incarnation() > 1 { self.load(purpose, ctx) } else { self.look(purpose, ctx) }
        }
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Look(purpose) => self.look(purpose, ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        let role = |kept: &Kept| {
            serde_json::json!({
                "notAfter": kept.role.current.get().map(|pair| pair.leaf.not_after.to_string()),
                "rotatedAt": kept.due.map(|(_, at)| at.to_string()),
                "asking": kept.asking.is_some(),
                "renewals": kept.renewals,
                "failures": kept.failures,
                "problem": kept.problem,
            })
        };
        let roles = self.kept.iter().map(|(purpose, kept)| (purpose.prefix().to_owned(), role(kept)));
        serde_json::Value::Object(roles.collect())
    }
}

impl Handler<NodeAddressesObserved> for CertificateManager {
    type Result = ();
    fn handle(&mut self, fact: NodeAddressesObserved, ctx: &mut Ctx<Self>) {
        let Some(kept) = self.kept.get_mut(&Purpose::Serving) else { return };
        let subject = names(&fact.0).map(|names| Subject::node(&self.deps.node_name, names));
        if subject != kept.subject {
            kept.subject = subject;
            if kept.failures == 0 {
                // The last certificate was given for another subject, so a new one need not wait.
                kept.not_before = None;
            }
            self.look(Purpose::Serving, ctx);
        }
    }
}
