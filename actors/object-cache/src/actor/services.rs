//! The services of the cluster: one list for all pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_kube::{Follow, Followed, Said, Select};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::object_cache::{GetServices, ObjectError};
use supervision::{Ctx, Reply, ReplyLater, reply_later};

use super::{ObjectAnswer, ObjectCache, PATIENCE, Timer, WAITING_MAX, failed};
use crate::room::Name;

type Services = Arc<[Arc<Service>]>;

/// The services of the cluster.
#[derive(Default)]
pub(super) struct AllServices {
    /// `None` until they have been read once.
    pub(super) known: Option<BTreeMap<Name, Arc<Service>>>,
    /// The same, as it is handed out: made when it is asked for after a change.
    shown: Option<Services>,
    /// Those of the list that comes next that cannot be read.
    unreadable: BTreeSet<Name>,
    waiting: Vec<Reply<ObjectAnswer<Services>>>,
}

impl AllServices {
    /// The services, once they have been read.
    fn shown(&mut self) -> Option<Services> {
        let known = self.known.as_ref()?;
        Some(self.shown.get_or_insert_with(|| known.values().cloned().collect()).clone())
    }

    /// The whole list. Of services that cannot be read what was known goes on.
    fn all(&mut self, listed: impl Iterator<Item = (Name, Arc<Service>)>) {
        let before = self.known.take().unwrap_or_default();
        let unreadable = std::mem::take(&mut self.unreadable);
        let kept = before.into_iter().filter(|(name, _)| unreadable.contains(name));
        self.known = Some(kept.chain(listed).collect());
    }
}

impl ObjectCache {
    pub(super) fn follow_services(&mut self, ctx: &mut Ctx<Self>) {
        let Some(api) = &self.deps.api else { return };
        let stream = Follow::<Service>::follow(&**api, Select::default());
        ctx.stream("follow services", stream, Self::heard_services, |_, _| {});
    }

    fn heard_services(&mut self, news: Followed<Service>, ctx: &mut Ctx<Self>) {
        let name = |service: &Service| {
            let text = |field: &Option<String>| Arc::from(field.as_deref().unwrap_or_default());
            (text(&service.metadata.namespace), text(&service.metadata.name))
        };
        match news {
            Followed::All(all) => {
                self.services
                    .all(all.into_iter().map(|service| (name(&service), Arc::new(reduced(service)))));
            }
            Followed::Changed(service) => {
                let known = self.services.known.get_or_insert_default();
                known.insert(name(&service), Arc::new(reduced(service)));
            }
            Followed::Gone(service) => {
                self.services.known.get_or_insert_default().remove(&name(&service));
            }
            Followed::Unreadable(one) if one.said == Said::Gone => {
                let known = self.services.known.get_or_insert_default();
                known.remove(&(Arc::from(one.namespace), Arc::from(one.name)));
            }
            Followed::Unreadable(one) if one.said == Said::Listed => {
                self.services.unreadable.insert((Arc::from(one.namespace), Arc::from(one.name)));
                return;
            }
            Followed::Unreadable(_) => return,
            Followed::Trouble(error) => {
                return tracing::warn!(%error, "Services may be out of date");
            }
        }
        self.services.shown = None;
        ctx.cancel_timer(&Timer::Services);
        for reply in std::mem::take(&mut self.services.waiting) {
            reply.send(self.services.shown().ok_or_else(services_not_read));
        }
    }

    pub(super) fn services_not_read(&mut self) {
        for reply in std::mem::take(&mut self.services.waiting) {
            reply.send(Err(services_not_read()));
        }
    }
}

/// What variables are made of: the rest is as much as any author in the cluster likes, and every node would keep it.
fn reduced(service: Service) -> Service {
    let ObjectMeta { namespace, name, .. } = service.metadata;
    let spec = service.spec.map(|spec| {
        let ServiceSpec { cluster_ip, ports, .. } = spec;
        ServiceSpec { cluster_ip, ports, ..ServiceSpec::default() }
    });
    Service { metadata: ObjectMeta { namespace, name, ..ObjectMeta::default() }, spec, status: None }
}

fn services_not_read() -> ObjectError {
    failed("services have not yet been read at least once, cannot construct envvars".to_owned())
}

impl actix::Handler<GetServices> for ObjectCache {
    type Result = ReplyLater<ObjectAnswer<Services>>;

    fn handle(&mut self, _: GetServices, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        match self.services.shown() {
            Some(shown) => reply.send(Ok(shown)),
            None if self.deps.api.is_none() => reply.send(Ok(Arc::from([]))),
            None if self.services.waiting.len() >= WAITING_MAX => reply.send(Err(services_not_read())),
            None => {
                if self.services.waiting.is_empty() {
                    ctx.set_timer(Timer::Services, PATIENCE);
                }
                self.services.waiting.push(reply);
            }
        }
        later
    }
}
