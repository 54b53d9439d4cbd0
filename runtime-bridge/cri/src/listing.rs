//! What the runtime holds, also where one answer is too small for all of it: answers are bounded at 16 MiB, and their length
//! depends on what pods' authors write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use pod_rules::labels::POD_UID;

use super::error::CriError;
use super::ports::RuntimeReads;
use super::wire::*;

/// So many lists are under way at once, where all are not had in one.
const AT_ONCE: usize = 8;

const SANDBOX_STATES: [PodSandboxState; 2] =
    [PodSandboxState::SandboxReady, PodSandboxState::SandboxNotready];
const CONTAINER_STATES: [ContainerState; 4] = [
    ContainerState::ContainerRunning,
    ContainerState::ContainerCreated,
    ContainerState::ContainerExited,
    ContainerState::ContainerUnknown,
];

/// Whose objects are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of the pod with this UID.
    Pod(String),
    /// All. Where one answer is too small for the sandboxes of a state, those of the pods with these UIDs.
    All(BTreeSet<String>),
}

/// Sandboxes and containers of the runtime.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// Sandboxes, in the runtime's order.
    pub sandboxes: Vec<PodSandbox>,
    /// Containers, in the runtime's order, or by sandbox.
    pub containers: Vec<Container>,
    /// States of which only the known pods' sandboxes could be had.
    partial: BTreeSet<i32>,
    /// Sandboxes with more containers in one state than an answer holds, by ID, with the runtime's words.
    unread: BTreeMap<String, CriError>,
}

impl Listed {
    /// Whether no sandbox or container is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.partial.is_empty() && self.unread.is_empty()
    }

    /// Whether every ready sandbox is there, so that a pod of which nothing is listed runs nothing.
    #[must_use]
    pub fn has_all_ready(&self) -> bool {
        !self.partial.contains(&(PodSandboxState::SandboxReady as i32))
    }

    /// Why containers of this sandbox are missing, if some are.
    #[must_use]
    pub fn unread(&self, sandbox_id: &str) -> Option<&CriError> {
        self.unread.get(sandbox_id)
    }
}

/// Lists sandboxes and containers: in one answer each, or where that is too small sandboxes by state and containers by sandbox.
///
/// # Errors
/// The runtime does not answer, or has more sandboxes of one pod in one state than an answer holds.
pub async fn list(runtime: Arc<dyn RuntimeReads>, whose: Whose) -> Result<Listed, CriError> {
    let runtime = &*runtime;
    let selector = match &whose {
        Whose::Pod(uid) => of_pod(uid),
        Whose::All(_) => BTreeMap::new(),
    };
    let sandboxes = PodSandboxFilter { label_selector: selector.clone(), ..Default::default() };
    let containers = ContainerFilter { label_selector: selector, ..Default::default() };
    let both = try_join(sandboxes_of(runtime, sandboxes), containers_of(runtime, containers));
    let (sandboxes, containers) = both.await?;
    let mut listed = Listed::default();
    match sandboxes {
        Fitting::All(sandboxes) => listed.sandboxes = sandboxes,
        Fitting::TooLarge(_) => by_state(runtime, &whose, &mut listed).await?,
    }
    match containers {
        Fitting::All(containers) => listed.containers = containers,
        Fitting::TooLarge(_) => by_sandbox(runtime, &mut listed).await?,
    }
    Ok(listed)
}

fn of_pod(uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(POD_UID.to_owned(), uid.to_owned())])
}

/// What an answer held, or why it could not hold it.
enum Fitting<T> {
    All(Vec<T>),
    TooLarge(CriError),
}

impl<T> Fitting<T> {
    fn of(answer: Result<Vec<T>, CriError>) -> Result<Self, CriError> {
        match answer {
            Ok(all) => Ok(Self::All(all)),
            Err(error) if error.is_too_large() => Ok(Self::TooLarge(error)),
            Err(error) => Err(error),
        }
    }

    fn all(self) -> Result<Vec<T>, CriError> {
        match self {
            Self::All(all) => Ok(all),
            Self::TooLarge(error) => Err(error),
        }
    }
}

async fn sandboxes_of(
    runtime: &dyn RuntimeReads,
    filter: PodSandboxFilter,
) -> Result<Fitting<PodSandbox>, CriError> {
    let answer = runtime.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await;
    Fitting::of(answer.map(|answer| answer.items))
}

async fn containers_of(
    runtime: &dyn RuntimeReads,
    filter: ContainerFilter,
) -> Result<Fitting<Container>, CriError> {
    let answer = runtime.list_containers(ListContainersRequest { filter: Some(filter) }).await;
    Fitting::of(answer.map(|answer| answer.containers))
}

async fn by_state(runtime: &dyn RuntimeReads, whose: &Whose, listed: &mut Listed) -> Result<(), CriError> {
    for state in SANDBOX_STATES {
        let filter = |label_selector| PodSandboxFilter {
            label_selector,
            state: Some(PodSandboxStateValue { state: state.into() }),
            ..Default::default()
        };
        let known = match whose {
            Whose::Pod(uid) => {
                listed.sandboxes.extend(sandboxes_of(runtime, filter(of_pod(uid))).await?.all()?);
                continue;
            }
            Whose::All(known) => known,
        };
        if let Fitting::All(all) = sandboxes_of(runtime, filter(BTreeMap::new())).await? {
            listed.sandboxes.extend(all);
            continue;
        }
        listed.partial.insert(state.into());
        let of_pods: Vec<_> = known.iter().map(|uid| sandboxes_of(runtime, filter(of_pod(uid)))).collect();
        let mut answers = stream::iter(of_pods).buffered(AT_ONCE);
        while let Some(answer) = answers.try_next().await? {
            listed.sandboxes.extend(answer.all()?);
        }
    }
    Ok(())
}

async fn by_sandbox(runtime: &dyn RuntimeReads, listed: &mut Listed) -> Result<(), CriError> {
    let of_sandboxes: Vec<_> =
        listed.sandboxes.iter().map(|sandbox| containers_by_state(runtime, sandbox.id.clone())).collect();
    let mut answers = stream::iter(of_sandboxes).buffered(AT_ONCE);
    while let Some((id, answer)) = answers.try_next().await? {
        match answer {
            Fitting::All(containers) => listed.containers.extend(containers),
            Fitting::TooLarge(error) => drop(listed.unread.insert(id, error)),
        }
    }
    Ok(())
}

/// A sandbox's containers, in one answer or one for each state.
async fn containers_by_state(
    runtime: &dyn RuntimeReads,
    sandbox_id: String,
) -> Result<(String, Fitting<Container>), CriError> {
    let of_sandbox = ContainerFilter { pod_sandbox_id: sandbox_id.clone(), ..Default::default() };
    if let Fitting::All(containers) = containers_of(runtime, of_sandbox.clone()).await? {
        return Ok((sandbox_id, Fitting::All(containers)));
    }
    let mut containers = Vec::new();
    for state in CONTAINER_STATES {
        let state = Some(ContainerStateValue { state: state.into() });
        match containers_of(runtime, ContainerFilter { state, ..of_sandbox.clone() }).await? {
            Fitting::All(some) => containers.extend(some),
            too_large => return Ok((sandbox_id, too_large)),
        }
    }
    Ok((sandbox_id, Fitting::All(containers)))
}

#[cfg(test)]
mod tests {
    use bridge_io::Io;
    use prost::Message;

    use super::*;
    use crate::fake::{FakeRuntime, Fault, RegistryImage};
    use crate::{CriErrorKind, CriMetrics, Operations, Rpc};

    const PODS: usize = 6;
    const CONTAINERS: usize = 3;

    /// A runtime with pods of some containers each, of which two are ready and the others stopped.
    async fn fixture() -> (FakeRuntime, Arc<Operations>) {
        let fake = FakeRuntime::new(1);
        fake.add_image("app", RegistryImage::default());
        let operations =
            Arc::new(Operations::new(Arc::new(fake.clone()), Io::current(), CriMetrics::new().unwrap()));
        for uid in (0..PODS).map(|number| format!("uid-{number}")) {
            let config = PodSandboxConfig {
                metadata: Some(PodSandboxMetadata {
                    name: uid.clone(),
                    uid: uid.clone(),
                    ..Default::default()
                }),
                labels: of_pod(&uid),
                ..Default::default()
            };
            let ran = operations.ensure_sandbox(&uid, 0, config.clone(), String::new()).await;
            let sandbox = ran.unwrap().into_id();
            for name in (0..CONTAINERS).map(|number| format!("c{number}")) {
                let container = ContainerConfig {
                    metadata: Some(ContainerMetadata { name, attempt: 0 }),
                    image: Some(ImageSpec { image: "app".into(), ..Default::default() }),
                    labels: of_pod(&uid),
                    ..Default::default()
                };
                let made = operations.ensure_container(&uid, &sandbox, 0, container, config.clone()).await;
                operations.start_container(&uid, made.unwrap().into_id().as_str()).await.unwrap();
            }
        }
        for sandbox in fake.sandboxes() {
            let uid = &sandbox.labels[POD_UID];
            if uid.as_str() > "uid-1" {
                operations.stop_pod_sandbox(uid, &sandbox.id).await.unwrap();
            }
        }
        (fake, operations)
    }

    fn all(known: &[&str]) -> Whose {
        Whose::All(known.iter().map(|&uid| uid.to_owned()).collect())
    }

    /// The numbers of sandboxes and containers.
    fn counts(listed: &Listed) -> (usize, usize) {
        (listed.sandboxes.len(), listed.containers.len())
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_answer_holds_is_had_in_parts() {
        let (fake, operations) = fixture().await;
        let whole = list(operations.clone(), all(&[])).await.unwrap();
        assert_eq!(counts(&whole), (PODS, PODS * CONTAINERS));
        let size = whole.containers.iter().map(Message::encoded_len).sum::<usize>();
        // An answer holds the sandboxes, or the containers of a pod, but not all containers.
        for max in [size - 1, size / 4] {
            fake.set_message_bytes_max(max);
            let parts = list(operations.clone(), all(&[])).await.unwrap();
            assert_eq!(counts(&parts), counts(&whole), "{max} bytes");
            assert!(parts.is_whole() && parts.has_all_ready());
        }
        let one = list(operations.clone(), Whose::Pod("uid-1".into())).await.unwrap();
        assert_eq!(counts(&one), (1, CONTAINERS));
    }

    #[tokio::test(start_paused = true)]
    async fn where_a_state_has_too_many_sandboxes_those_of_known_pods_are_listed() {
        let (fake, operations) = fixture().await;
        let whole = list(operations.clone(), all(&[])).await.unwrap();
        let sandbox = whole.sandboxes[0].encoded_len();
        let known = ["uid-1", "uid-5", "gone"];
        // An answer holds three sandboxes: the two that are ready, but not the four others.
        fake.set_message_bytes_max(sandbox * 7 / 2);
        let some = list(operations.clone(), all(&known)).await.unwrap();
        assert_eq!(some.sandboxes.len(), 3, "those that are ready, and a known one");
        assert!(some.has_all_ready() && !some.is_whole());
        fake.set_message_bytes_max(sandbox * 3 / 2);
        let some = list(operations.clone(), all(&known)).await.unwrap();
        assert_eq!(some.sandboxes.len(), 2, "known ones alone");
        assert!(!some.has_all_ready() && !some.is_whole());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_with_more_containers_than_an_answer_holds_holds_up_no_other() {
        let (fake, operations) = fixture().await;
        let whole = list(operations.clone(), all(&[])).await.unwrap();
        let container = whole.containers[0].encoded_len();
        // All of a pod's containers are in one state, so that no answer holds them, but for one that has ended.
        let one = whole.containers.iter().find(|one| one.labels == of_pod("uid-0")).unwrap();
        for other in whole.containers.iter().filter(|other| other.pod_sandbox_id != one.pod_sandbox_id) {
            operations.remove_container("uid", &other.id).await.unwrap();
        }
        fake.set_message_bytes_max(container * 5 / 2);
        let some = list(operations.clone(), all(&[])).await.unwrap();
        assert!(some.unread(&one.pod_sandbox_id).is_some_and(CriError::is_too_large), "{some:?}");
        assert!(!some.is_whole());
        assert!(fake.exit_container(&one.id, 0, false));
        let all = list(operations, all(&[])).await.unwrap();
        assert!(all.is_whole() && all.unread(&one.pod_sandbox_id).is_none());
        assert_eq!(all.containers.len(), CONTAINERS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_does_not_answer_is_asked_no_more() {
        let (fake, operations) = fixture().await;
        let down = Fault::Error(CriErrorKind::Unavailable, "connection refused".to_owned());
        fake.fault(Rpc::ListContainers, 1, down);
        let before = fake.calls().len();
        let error = list(operations, all(&["uid-1"])).await.unwrap_err();
        assert_eq!(error.kind, CriErrorKind::Unavailable);
        assert!(fake.calls().len() - before <= 2);
    }
}
