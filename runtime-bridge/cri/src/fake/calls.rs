//! The way of a call through the fake: logged, delayed or failed by a fault, carried out, answered.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::FakeRuntime;
use super::node::Node;
use super::script::Fault;
use crate::deadlines::Bounded;
use crate::error::{CriError, CriErrorKind};
use crate::rpc::{Rpc, for_each_rpc};
use crate::runtime::{ContainerEvents, Reply, Runtime};
use crate::wire::*;

/// The most calls kept in the log; later ones are only counted.
const CALLS_MAX: usize = 100_000;

/// A call that the fake received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The RPC.
    pub rpc: Rpc,
    /// The object of the call: a pod UID, a sandbox's or container's ID, `<sandbox>/<container name>`,
    /// `<container>/log`, `<container>/checkpoint`, or an image.
    pub subject: String,
    /// The time since the fake was made.
    pub at: Duration,
}

#[derive(Default)]
pub(super) struct CallLog {
    pub(super) calls: Vec<Call>,
    pub(super) counts: BTreeMap<Rpc, u64>,
    pub(super) most_at_once: usize,
    under_way: BTreeMap<String, usize>,
}

/// A mutating call under way; it ends when dropped.
struct UnderWay {
    node: Arc<Node>,
    subject: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.node.update(|state| {
            if let Some(count) = state.log.under_way.get_mut(&self.subject) {
                *count -= 1;
                if *count == 0 {
                    state.log.under_way.remove(&self.subject);
                }
            }
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Read,
    Mutate,
    Pull,
}

macro_rules! effect {
    (read) => {
        Effect::Read
    };
    (mutate) => {
        Effect::Mutate
    };
    (pull) => {
        Effect::Pull
    };
}

impl FakeRuntime {
    fn call<T, F>(&self, rpc: Rpc, effect: Effect, subject: String, deadline: Duration, act: F) -> Reply<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CriError>> + Send + 'static,
    {
        let node = Arc::clone(&self.node);
        let body = perform(node, rpc, effect, subject, deadline, act);
        if effect != Effect::Mutate {
            return body.boxed();
        }
        async move {
            // A task of its own, because dropping the caller's future does not undo the call.
            tokio::spawn(body).await.unwrap_or_else(|lost| {
                Err(CriError::new(
                    rpc,
                    CriErrorKind::Unavailable,
                    format!("the fake's call ended early: {lost}"),
                ))
            })
        }
        .boxed()
    }
}

async fn perform<T, F>(
    node: Arc<Node>,
    rpc: Rpc,
    effect: Effect,
    subject: String,
    deadline: Duration,
    act: F,
) -> Result<T, CriError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, CriError>> + Send + 'static,
{
    let until = Instant::now() + deadline;
    let (fault, down) = node.update(|state| {
        let at = state.born.elapsed();
        *state.log.counts.entry(rpc).or_default() += 1;
        if state.log.calls.len() < CALLS_MAX {
            state.log.calls.push(Call { rpc, subject: subject.clone(), at });
        }
        if effect == Effect::Mutate {
            let count = state.log.under_way.entry(subject.clone()).or_default();
            *count += 1;
            state.log.most_at_once = state.log.most_at_once.max(*count);
        }
        (state.faults.get_mut(&rpc).and_then(std::collections::VecDeque::pop_front), state.down)
    });
    let _under_way = (effect == Effect::Mutate).then(|| UnderWay { node: Arc::clone(&node), subject });
    if down {
        return Err(CriError::new(rpc, CriErrorKind::Unavailable, "connection refused"));
    }
    let late = || {
        // The wording of a deadline in Go, which people and tools search for.
        CriError::new(rpc, CriErrorKind::DeadlineExceeded, "context deadline exceeded")
    };
    match fault {
        None => tokio::time::timeout_at(until, act).await.unwrap_or_else(|_| Err(late())),
        Some(Fault::Latency(latency)) => {
            let delayed = async move {
                tokio::time::sleep(latency).await;
                act.await
            };
            tokio::time::timeout_at(until, delayed).await.unwrap_or_else(|_| Err(late()))
        }
        Some(Fault::Error(kind, message)) => Err(CriError::new(rpc, kind, message)),
        Some(Fault::Hang) => {
            tokio::time::sleep_until(until).await;
            Err(late())
        }
        Some(Fault::LostReply) => {
            let _lost = tokio::time::timeout_at(until, act).await;
            tokio::time::sleep_until(until).await;
            Err(late())
        }
        Some(Fault::BrokenConnection) => {
            let _lost = tokio::time::timeout_at(until, act).await;
            Err(CriError::new(rpc, CriErrorKind::Unavailable, "connection reset by peer"))
        }
        Some(Fault::ActsLate(latency)) => {
            let late_act = tokio::spawn(async move {
                tokio::time::sleep(latency).await;
                act.await
            });
            match tokio::time::timeout_at(until, late_act).await {
                Ok(Ok(answer)) => answer,
                _ => Err(late()),
            }
        }
    }
}

/// The object of a request, as [`Call::subject`] has it.
fn subject(request: &dyn Any) -> String {
    macro_rules! named_by {
        ($($request:ident $field:ident),* $(,)?) => {
            $(if let Some(request) = request.downcast_ref::<$request>() {
                return request.$field.clone();
            })*
        };
    }
    named_by!(
        StopPodSandboxRequest pod_sandbox_id,
        RemovePodSandboxRequest pod_sandbox_id,
        PodSandboxStatusRequest pod_sandbox_id,
        UpdatePodSandboxResourcesRequest pod_sandbox_id,
        StartContainerRequest container_id,
        StopContainerRequest container_id,
        RemoveContainerRequest container_id,
        ContainerStatusRequest container_id,
        UpdateContainerResourcesRequest container_id,
        ExecSyncRequest container_id,
        ExecRequest container_id,
        AttachRequest container_id,
        PortForwardRequest pod_sandbox_id,
    );
    if let Some(reopen) = request.downcast_ref::<ReopenContainerLogRequest>() {
        return format!("{}/log", reopen.container_id);
    }
    if let Some(checkpoint) = request.downcast_ref::<CheckpointContainerRequest>() {
        return format!("{}/checkpoint", checkpoint.container_id);
    }
    if let Some(run) = request.downcast_ref::<RunPodSandboxRequest>() {
        let metadata = run.config.as_ref().and_then(|config| config.metadata.as_ref());
        return metadata.map(|metadata| metadata.uid.clone()).unwrap_or_default();
    }
    if let Some(create) = request.downcast_ref::<CreateContainerRequest>() {
        let metadata = create.config.as_ref().and_then(|config| config.metadata.as_ref());
        let name = metadata.map(|metadata| metadata.name.as_str()).unwrap_or_default();
        return format!("{}/{name}", create.pod_sandbox_id);
    }
    if let Some(pull) = request.downcast_ref::<PullImageRequest>() {
        return pull.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    }
    if let Some(remove) = request.downcast_ref::<RemoveImageRequest>() {
        return remove.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    }
    if let Some(status) = request.downcast_ref::<ImageStatusRequest>() {
        return status.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    }
    String::new()
}

macro_rules! fake_calls {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident $label:literal;)* })*) => {
        impl Runtime for FakeRuntime {
            $($(
                fn $method(&self, request: $request) -> Reply<$response> {
                    let rules = self.node.update(|state| state.deadlines);
                    let deadline = request.deadline(Rpc::$name, &rules);
                    let subject = subject(&request);
                    let act = Arc::clone(&self.node).$method(request);
                    self.call(Rpc::$name, effect!($kind), subject, deadline, act)
                }
            )*)*

            fn get_container_events(&self, _: GetEventsRequest) -> Reply<ContainerEvents> {
                let rpc = Rpc::GetContainerEvents;
                let deadline = self.node.update(|state| state.deadlines.of(rpc));
                let act = events(Arc::clone(&self.node));
                self.call(rpc, Effect::Read, String::new(), deadline, act)
            }
        }
    };
}
for_each_rpc!(fake_calls);

async fn events(node: Arc<Node>) -> Result<ContainerEvents, CriError> {
    let rpc = Rpc::GetContainerEvents;
    let from = node.update(|state| state.events.on.then_some(state.events.next));
    let Some(from) = from else {
        let message = "unknown method GetContainerEvents for service runtime.v1.RuntimeService";
        return Err(CriError::new(rpc, CriErrorKind::Unimplemented, message));
    };
    let stream = futures::stream::unfold((node, Some(from)), move |(node, from)| async move {
        let from = from?;
        let next = Arc::clone(&node)
            .wait_for(|state| {
                if state.down || !state.events.on {
                    return Some(None);
                }
                state.events.at(from).map(Some)
            })
            .await;
        Some(match next {
            Some((number, event)) => (Ok(event), (node, Some(number + 1))),
            None => {
                let ended = CriError::new(rpc, CriErrorKind::Unavailable, "the event stream was closed");
                (Err(ended), (node, None))
            }
        })
    });
    Ok(stream.boxed())
}
