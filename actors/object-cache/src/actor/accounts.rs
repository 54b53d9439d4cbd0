//! Service accounts: the programs that give credentials for images are told of them (row 6.6). Each is read when it is asked
//! for, as upstream does: a node may neither list nor watch them.

use std::sync::Arc;

use bridge_kube::{ApiError, Read};
use k8s_openapi::api::core::v1::ServiceAccount;
use messages::object_cache::{GetServiceAccount, ObjectError};
use supervision::{Ctx, ReplyLater, reply_later};

use super::{ObjectAnswer, ObjectCache, alone, said};

impl actix::Handler<GetServiceAccount> for ObjectCache {
    type Result = ReplyLater<ObjectAnswer<Arc<ServiceAccount>>>;

    fn handle(&mut self, ask: GetServiceAccount, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let Some(api) = self.deps.api.clone() else {
            reply.send(Err(alone("service account", &(ask.namespace, ask.name))));
            return later;
        };
        let read = Read::<ServiceAccount>::read(&*api, Some(&*ask.namespace), &ask.name);
        ctx.effect("read a service account", Some(ask.pod), read, move |_, answer, _| {
            reply.send(answer.map(Arc::new).map_err(|error| unread(&error)));
        });
        later
    }
}

fn unread(error: &ApiError) -> ObjectError {
    ObjectError { not_found: error.is_not_found(), message: said(error) }
}
