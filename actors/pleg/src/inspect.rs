//! One look at one pod: two lists, then the statuses of the objects that are new or have changed. Everything known and
//! final is kept, so that an idle pod costs nothing and a busy pod little.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bridge_cri::{CriError, CriErrorKind, Listed, Rpc, RuntimeReads, Whose, container_pid, wire};
use bridge_node::host::PodDirReads;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryFutureExt};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox};
use messages::{PodRef, PodUid};
use pod_rules::labels::POD_UID;

use crate::{log_tail, observe};

/// The result of a look.
pub struct Found {
    /// The pod's state.
    pub pod: RuntimePod,
    /// The processes of containers that were seen running for the first time.
    pub pids: Vec<(Arc<str>, Option<u32>)>,
    /// Containers that the runtime calls running, also when it is asked, although their process has ended.
    pub undead: Vec<Arc<str>>,
}

/// A look that failed.
pub struct FailedLook {
    /// The pod, once the lists have named it: then the runtime has failed to tell the status of one of its objects.
    pub pod: Option<PodRef>,
    /// The call that failed.
    pub error: CriError,
}

/// The lists that a look begins with: of one pod, or of all pods for several looks that begin together.
pub type Lists = Shared<BoxFuture<'static, Result<Arc<Listed>, CriError>>>;

/// Lists the objects of one pod, or of all pods.
pub fn lists(runtime: Arc<dyn RuntimeReads>, whose: Whose) -> Lists {
    bridge_cri::list(runtime, whose).map_ok(Arc::new).boxed().shared()
}

/// Looks at a pod. `ended` are containers whose process is known to have ended, whatever the runtime says; `undead` are those that
/// it has called running since, for which it is asked without waiting for it.
pub async fn look(
    runtime: Arc<dyn RuntimeReads>,
    dirs: Arc<dyn PodDirReads>,
    uid: PodUid,
    lists: Lists,
    known: Option<Arc<RuntimePod>>,
    ended: BTreeSet<Arc<str>>,
    undead: BTreeSet<Arc<str>>,
) -> Result<Found, FailedLook> {
    let listed = lists.await.map_err(|error| FailedLook { pod: None, error })?;
    let of_pod =
        |labels: &BTreeMap<String, String>| labels.get(POD_UID).is_some_and(|label| label == uid.as_str());
    let sandboxes: Vec<&wire::PodSandbox> = listed.sandboxes.iter().filter(|s| of_pod(&s.labels)).collect();
    let containers: Vec<&wire::Container> = listed.containers.iter().filter(|c| of_pod(&c.labels)).collect();

    let name = sandboxes
        .iter()
        .find_map(|s| observe::pod_of(&s.labels))
        .or_else(|| containers.iter().find_map(|c| observe::pod_of(&c.labels)))
        .or_else(|| known.as_ref().map(|known| known.pod.clone()))
        .unwrap_or_else(|| PodRef { uid: uid.clone(), namespace: Arc::from(""), name: Arc::from("") });
    let unseen = |error| FailedLook { pod: Some(name.clone()), error };
    let mut found = Found { pod: RuntimePod::absent(name.clone()), pids: Vec::new(), undead: Vec::new() };

    let known_sandboxes: BTreeMap<&str, &RuntimeSandbox> =
        known.iter().flat_map(|known| &known.sandboxes).map(|s| (&*s.id, s)).collect();
    if let Some(error) = sandboxes.iter().find_map(|sandbox| listed.unread(&sandbox.id)) {
        return Err(unseen(error.clone()));
    }
    for listed in sandboxes {
        if let Some(sandbox) = sandbox(&*runtime, listed, known_sandboxes.get(listed.id.as_str()).copied())
            .await
            .map_err(unseen)?
        {
            found.pod.sandboxes.push(sandbox);
        }
    }
    let known_containers: BTreeMap<&str, &RuntimeContainer> =
        known.iter().flat_map(|known| &known.containers).map(|c| (&*c.id, c)).collect();
    let groups_max = observe::groups_of_each(containers.len());
    let means = Means { runtime: &*runtime, dirs: &*dirs, groups_max };
    for listed in containers {
        let before = known_containers.get(listed.id.as_str()).copied();
        let id = listed.id.as_str();
        let end = match (undead.contains(id), ended.contains(id)) {
            (true, _) => End::Undead,
            (false, true) => End::Fresh,
            (false, false) => End::Unknown,
        };
        container(&means, listed, before, end, &mut found).await.map_err(unseen)?;
    }
    found.pod = observe::arrange(found.pod);
    Ok(found)
}

/// The state of a sandbox; `None` if it has gone since it was listed.
async fn sandbox(
    runtime: &dyn RuntimeReads,
    listed: &wire::PodSandbox,
    known: Option<&RuntimeSandbox>,
) -> Result<Option<RuntimeSandbox>, CriError> {
    let ready = wire::is_ready(listed.state);
    if let Some(known) = known
        && known.ready
        && !ready
    {
        // Stopping a sandbox changes nothing else of it, and the pod's status keeps its address.
        return Ok(Some(RuntimeSandbox { ready, ..known.clone() }));
    }
    if let Some(known) = known
        && known.ready == ready
        && (known.host_network || !known.ips.is_empty() || !ready)
    {
        return Ok(Some(known.clone()));
    }
    let request = wire::PodSandboxStatusRequest { pod_sandbox_id: listed.id.clone(), verbose: false };
    match runtime.pod_sandbox_status(request).await {
        Ok(answer) => {
            let status =
                answer.status.as_ref().filter(|status| status.id == listed.id && status.metadata.is_some());
            let status = status.ok_or_else(|| says_nothing(Rpc::PodSandboxStatus, &listed.id))?;
            let mut sandbox = observe::sandbox(status);
            // The runtime forgets the address of a stopped sandbox; the pod's status keeps it.
            if let (true, Some(known)) = (sandbox.ips.is_empty(), known) {
                sandbox.ips.clone_from(&known.ips);
            }
            Ok(Some(sandbox))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An answer that does not tell of what was asked for: that this is gone it does not say, either.
fn says_nothing(rpc: Rpc, id: &str) -> CriError {
    CriError::new(rpc, CriErrorKind::Other, format!("the runtime's answer has no status of {id}"))
}

/// What is known of the end of a container's process, apart from what the runtime says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing: it may run.
    Unknown,
    /// It has ended a moment ago: the runtime may still have to notice.
    Fresh,
    /// It has ended, and the runtime has not noticed in time.
    Undead,
}

/// What the containers of a pod are looked at with.
struct Means<'a> {
    runtime: &'a dyn RuntimeReads,
    dirs: &'a dyn PodDirReads,
    /// How many groups of its user are kept of each.
    groups_max: usize,
}

async fn container(
    means: &Means<'_>,
    listed: &wire::Container,
    known: Option<&RuntimeContainer>,
    end: End,
    found: &mut Found,
) -> Result<(), CriError> {
    let state = observe::container_state(listed.state);
    let has_ended = end != End::Unknown;
    if let Some(known) = known
        && known.state == state
        && state != ContainerState::Unknown
        && !(has_ended && state == ContainerState::Running)
    {
        found.pod.containers.push(known.clone());
        return Ok(());
    }
    // A verbose answer tells the process to watch; it is asked for once per start.
    let verbose = state == ContainerState::Running;
    let answer = if end == End::Fresh && state == ContainerState::Running {
        means.runtime.status_after_exit(&listed.id).await
    } else {
        let ask = |verbose| wire::ContainerStatusRequest { container_id: listed.id.clone(), verbose };
        match means.runtime.container_status(ask(verbose)).await {
            // With all that the pod's author wrote the answer is too large. Without, the end of the process is seen by relists alone.
            Err(error) if verbose && error.is_too_large() => means.runtime.container_status(ask(false)).await,
            answer => answer,
        }
    };
    match answer {
        Ok(answer) => {
            let status =
                answer.status.as_ref().filter(|status| status.id == listed.id && status.metadata.is_some());
            let status = status.ok_or_else(|| says_nothing(Rpc::ContainerStatus, &listed.id))?;
            let mut container = observe::container(listed, status, means.groups_max);
            if container.state == ContainerState::Exited {
                let own = own_words(means.dirs, &found.pod.pod.namespace, status).await;
                container.message = Arc::from(observe::with_message(&container.message, &own));
            }
            if container.state == ContainerState::Running {
                if has_ended {
                    found.undead.push(container.id.clone());
                }
                found.pids.push((container.id.clone(), container_pid(&answer)));
            }
            found.pod.containers.push(container);
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The container's own termination message: from its file, else, if the pod's policy says so, from the end of its log
/// (row 5.21).
async fn own_words(dirs: &dyn PodDirReads, namespace: &str, status: &wire::ContainerStatus) -> String {
    if let Some(path) = observe::termination_log(status) {
        match dirs.read_tail(namespace, Path::new(path), observe::TERMINATION_MESSAGE_BYTES_MAX).await {
            Err(error) => return format!("Error on reading termination log {path}: {error}"),
            Ok(Some(words)) if !words.is_empty() => return String::from_utf8_lossy(&words).into_owned(),
            Ok(_) => {}
        }
    }
    if !observe::falls_back_to_log(status) {
        return String::new();
    }
    let path = &status.log_path;
    let unread = match dirs.read_tail(namespace, Path::new(path), log_tail::TAIL_BYTES).await {
        Ok(Some(tail)) => return log_tail::last_words(&tail),
        Ok(None) => {
            format!(
                "failed to try resolving symlinks in path {path:?}: lstat {path}: no such file or directory"
            )
        }
        Err(error) => error.to_string(),
    };
    format!("Error on reading termination message from logs: {unread}")
}
