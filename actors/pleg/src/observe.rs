//! PURE: from the types of the CRI to those of the facts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_cri::wire;
use jiff::Timestamp;
use messages::facts::Source;
use messages::runtime::{
    ContainerState, Effective, HeldPod, RuntimeContainer, RuntimePod, RuntimeSandbox, User,
};
use messages::{PodRef, PodUid};
use pod_rules::annotations::CONFIG_SOURCE;
use pod_rules::errors;
use pod_rules::labels::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID};
use pod_rules::shares::millis_of_shares;
use supervision::blame;

const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// At most so many bytes of a termination message are read.
pub const TERMINATION_MESSAGE_BYTES_MAX: u64 = 4096;
/// The most groups of users that are kept of all containers of a pod: an image or a pod's author may name very many.
const GROUPS_MAX: usize = 8192;
/// The most bytes of the images that one container mounts, with their paths, and of the name of one.
const MOUNTED_IMAGES_BYTES_MAX: usize = 16 * 1024;
const IMAGE_BYTES_MAX: usize = 256;
const CONTAINER_HASH: &str = "io.kubernetes.container.hash";

/// The pod that the labels name; `None` if they are not a kubelet's.
pub fn pod_of(labels: &BTreeMap<String, String>) -> Option<PodRef> {
    let label = |key: &str| labels.get(key).map_or("", String::as_str);
    let uid = label(POD_UID);
    (!uid.is_empty()).then(|| PodRef {
        uid: PodUid::new(uid),
        namespace: Arc::from(label(POD_NAMESPACE)),
        name: Arc::from(label(POD_NAME)),
    })
}

/// Every pod that the lists name, by UID.
pub fn held(sandboxes: &[wire::PodSandbox], containers: &[wire::Container]) -> BTreeMap<PodUid, HeldPod> {
    let mut held = BTreeMap::new();
    for sandbox in sandboxes {
        if let Some(pod) = pod_of(&sandbox.labels) {
            let _named = blame::name(&pod.uid);
            let source =
                sandbox.annotations.get(CONFIG_SOURCE).and_then(|source| Source::from_annotation(source));
            held.insert(pod.uid.clone(), HeldPod { pod, source });
        }
    }
    for pod in containers.iter().filter_map(|container| pod_of(&container.labels)) {
        held.entry(pod.uid.clone()).or_insert(HeldPod { pod, source: None });
    }
    held
}

/// CRI's nanoseconds since the epoch; `None` for zero and for values out of range.
pub fn time(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(i128::from(nanoseconds)).ok()).flatten()
}

/// The state in a list or status, as facts have it.
pub fn container_state(number: i32) -> ContainerState {
    match wire::container_state(number) {
        wire::ContainerState::ContainerCreated => ContainerState::Created,
        wire::ContainerState::ContainerRunning => ContainerState::Running,
        wire::ContainerState::ContainerExited => ContainerState::Exited,
        wire::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

/// One line of a relist: enough to see whether a pod needs a look.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// A sandbox and whether it is ready.
    Sandbox(Arc<str>, bool),
    /// A container and its state.
    Container(Arc<str>, ContainerState),
}

/// The lines of a relist, by pod. Objects without a pod's labels are not Kubernetes' and are left out.
pub fn lines(sandboxes: &[wire::PodSandbox], containers: &[wire::Container]) -> BTreeMap<PodUid, Vec<Line>> {
    let mut by_pod: BTreeMap<PodUid, Vec<Line>> = BTreeMap::new();
    for sandbox in sandboxes {
        if let Some(pod) = pod_of(&sandbox.labels) {
            let _named = blame::name(&pod.uid);
            let ready = wire::is_ready(sandbox.state);
            by_pod.entry(pod.uid).or_default().push(Line::Sandbox(Arc::from(sandbox.id.as_str()), ready));
        }
    }
    for container in containers {
        if let Some(pod) = pod_of(&container.labels) {
            let _named = blame::name(&pod.uid);
            by_pod
                .entry(pod.uid)
                .or_default()
                .push(Line::Container(Arc::from(container.id.as_str()), container_state(container.state)));
        }
    }
    for lines in by_pod.values_mut() {
        lines.sort();
    }
    by_pod
}

/// The lines that a relist would have if the pod's known state still held.
pub fn known_lines(pod: &RuntimePod) -> Vec<Line> {
    let sandboxes = pod.sandboxes.iter().map(|s| Line::Sandbox(s.id.clone(), s.ready));
    let containers = pod.containers.iter().map(|c| Line::Container(c.id.clone(), c.state));
    let mut lines: Vec<Line> = sandboxes.chain(containers).collect();
    lines.sort();
    lines
}

/// The containers that ran before and do not run any more.
pub fn no_longer_running<'a>(before: &'a RuntimePod, after: &RuntimePod) -> Vec<&'a Arc<str>> {
    let still: BTreeSet<&str> = running(after).map(|id| &**id).collect();
    running(before).filter(|id| !still.contains(&***id)).collect()
}

fn running(pod: &RuntimePod) -> impl Iterator<Item = &Arc<str>> {
    pod.containers.iter().filter(|c| c.state == ContainerState::Running).map(|c| &c.id)
}

/// A sandbox from its status.
pub fn sandbox(status: &wire::PodSandboxStatus) -> RuntimeSandbox {
    let network = status.network.as_ref();
    let namespaces =
        status.linux.as_ref().and_then(|l| l.namespaces.as_ref()).and_then(|n| n.options.as_ref());
    let ips = network.into_iter().flat_map(|network| {
        let more = network.additional_ips.iter().map(|ip| ip.ip.as_str());
        std::iter::once(network.ip.as_str()).chain(more).filter(|ip| !ip.is_empty()).map(Arc::from)
    });
    RuntimeSandbox {
        id: Arc::from(status.id.as_str()),
        attempt: status.metadata.as_ref().map_or(0, |m| m.attempt),
        ready: wire::is_ready(status.state),
        created_at: time(status.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        ips: ips.collect(),
        host_network: namespaces.is_some_and(|options| options.network() == wire::NamespaceMode::Node),
        runtime_handler: Arc::from(status.runtime_handler.as_str()),
    }
}

/// How many groups of its user are kept of each of so many containers.
pub fn groups_of_each(containers: usize) -> usize {
    GROUPS_MAX / containers.max(1)
}

/// A container from its status and its entry in the list, which names the sandbox. Of the groups of its user so many are kept: of
/// more nothing is told.
pub fn container(
    listed: &wire::Container,
    status: &wire::ContainerStatus,
    groups_max: usize,
) -> RuntimeContainer {
    let ours = |(key, value): (&String, &String)| {
        key.starts_with("io.kubernetes.").then(|| (key.clone(), value.clone()))
    };
    let annotations: BTreeMap<String, String> = status.annotations.iter().filter_map(ours).collect();
    // The image's name as the runtime has it, not the pod: `docker.io/library/busybox:latest`.
    let named = |spec: Option<&wire::ImageSpec>| {
        spec.map(|spec| &spec.image).filter(|image| !image.is_empty()).cloned()
    };
    let image = named(status.image.as_ref()).or_else(|| named(listed.image.as_ref())).unwrap_or_default();
    RuntimeContainer {
        id: Arc::from(status.id.as_str()),
        sandbox_id: Arc::from(listed.pod_sandbox_id.as_str()),
        name: Arc::from(container_name(listed)),
        attempt: status.metadata.as_ref().map_or(0, |m| m.attempt),
        state: container_state(status.state),
        created_at: time(status.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: status.exit_code,
        reason: words(&status.reason),
        message: words(&status.message),
        image: Arc::from(image),
        image_ref: Arc::from(status.image_ref.as_str()),
        hash: annotations.get(CONTAINER_HASH).and_then(|hash| u64::from_str_radix(hash, 16).ok()),
        annotations: Arc::new(annotations),
        log_path: Arc::from(status.log_path.as_str()),
        effective: effective(status, groups_max),
    }
}

/// What the runtime says of a container's end, which may hold all that the pod's author wrote.
fn words(text: &str) -> Arc<str> {
    let mut text = text.to_owned();
    errors::cut(&mut text, errors::WORDS_BYTES_MAX);
    Arc::from(text)
}

/// The signal under its name in the API; an older runtime tells of none.
fn stop_signal(signal: wire::Signal) -> Option<Arc<str>> {
    let name = signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-");
    (signal != wire::Signal::RuntimeDefault).then(|| Arc::from(name))
}

/// The container's real user, resources and stop signal, as the runtime tells them; older runtimes tell nothing.
fn effective(status: &wire::ContainerStatus, groups_max: usize) -> Option<Arc<Effective>> {
    let user = status.user.as_ref().and_then(|user| user.linux.as_ref());
    let user = user.filter(|linux| linux.supplemental_groups.len() <= groups_max).map(|linux| User {
        uid: linux.uid,
        gid: linux.gid,
        supplemental_groups: linux.supplemental_groups.clone(),
    });
    let limits = status.resources.as_ref().and_then(|resources| resources.linux.as_ref());
    let millis = |quota: i64, period: i64| quota.saturating_mul(1000).checked_div(period);
    let positive = |number: &i64| *number > 0;
    let effective = Effective {
        user,
        cpu_limit_millis: limits.and_then(|l| millis(l.cpu_quota, l.cpu_period)).filter(positive),
        cpu_request_millis: limits.and_then(|l| millis_of_shares(l.cpu_shares)),
        memory_limit_bytes: limits.map(|l| l.memory_limit_in_bytes).filter(positive),
        stop_signal: stop_signal(status.stop_signal()),
        mounted_images: mounted_images(&status.mounts),
    };
    (effective != Effective::default()).then(|| Arc::new(effective))
}

/// The images among the mounts: as many as the bound has room for.
fn mounted_images(mounts: &[wire::Mount]) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut left = MOUNTED_IMAGES_BYTES_MAX;
    let mut images = BTreeMap::new();
    for mount in mounts {
        let Some(image) = mount.image.as_ref().map(|image| &image.image) else { continue };
        let bytes = mount.container_path.len() + image.len();
        if image.is_empty() || image.len() > IMAGE_BYTES_MAX || bytes > left {
            continue;
        }
        left -= bytes;
        images.insert(Arc::from(mount.container_path.as_str()), Arc::from(image.as_str()));
    }
    images
}

/// The file on the host with the container's termination message: the runtime's mount at the path that the kubelet
/// noted when it made the container.
pub fn termination_log(status: &wire::ContainerStatus) -> Option<&str> {
    let path = status.annotations.get(TERMINATION_MESSAGE_PATH).filter(|path| !path.is_empty())?;
    let path = if path.starts_with('/') { Cow::from(path) } else { format!("/{path}").into() };
    status.mounts.iter().find(|mount| mount.container_path == path).map(|mount| mount.host_path.as_str())
}

/// Whether the end of the log is used when the container leaves no message. A container that could not be run has no
/// log either.
pub fn falls_back_to_log(status: &wire::ContainerStatus) -> bool {
    let policy = status.annotations.get(TERMINATION_MESSAGE_POLICY).map_or("", String::as_str);
    policy == "FallbackToLogsOnError" && status.exit_code != 0 && status.reason != "ContainerCannotRun"
}

/// The runtime's message, followed by the container's own (row 5.21).
pub fn with_message(runtimes: &str, own: &str) -> String {
    match (runtimes.is_empty(), own.is_empty()) {
        (_, true) => runtimes.to_owned(),
        (true, false) => own.to_owned(),
        (false, false) => format!("{runtimes}: {own}"),
    }
}

/// The container's name in the pod: the label, else the runtime's metadata.
pub fn container_name(listed: &wire::Container) -> &str {
    let label = listed.labels.get(CONTAINER_NAME).filter(|name| !name.is_empty());
    label.map_or_else(|| listed.metadata.as_ref().map_or("", |m| m.name.as_str()), String::as_str)
}

/// Puts a pod's objects in the order that [`RuntimePod`] promises.
pub fn arrange(mut pod: RuntimePod) -> RuntimePod {
    pod.sandboxes.sort_by(|a, b| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)));
    pod.containers.sort_by(|a, b| {
        a.name
            .cmp(&b.name)
            .then_with(|| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)))
    });
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(uid: &str) -> BTreeMap<String, String> {
        [(POD_UID, uid), (POD_NAME, "web"), (POD_NAMESPACE, "default"), (CONTAINER_NAME, "main")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into()
    }

    fn listed(id: &str, uid: &str) -> wire::Container {
        wire::Container {
            id: id.into(),
            pod_sandbox_id: "s".into(),
            labels: labels(uid),
            state: 1,
            ..Default::default()
        }
    }

    #[test]
    fn a_list_and_what_is_known_compare_equal_until_something_changes() {
        let sandboxes =
            [wire::PodSandbox { id: "s".into(), labels: labels("u"), state: 0, ..Default::default() }];
        let containers = [listed("c2", "u"), listed("c1", "u")];
        let status =
            |id: &str, state: i32| wire::ContainerStatus { id: id.into(), state, ..Default::default() };
        let mut pod = RuntimePod::absent(pod_of(&labels("u")).unwrap());
        pod.sandboxes.push(sandbox(&wire::PodSandboxStatus { id: "s".into(), ..Default::default() }));
        pod.containers.push(container(&containers[1], &status("c1", 1), 10));
        pod.containers.push(container(&containers[0], &status("c2", 1), 10));
        let told = &lines(&sandboxes, &containers)[&PodUid::new("u")];
        assert_eq!(&known_lines(&pod), told);
        pod.containers[0].state = ContainerState::Exited;
        assert_ne!(&known_lines(&pod), told);
    }

    #[test]
    fn what_runs_no_longer_is_found_in_work_by_the_number_of_containers() {
        let pod = |ids: std::ops::Range<usize>, state: i32| {
            let mut pod = RuntimePod::absent(pod_of(&labels("u")).unwrap());
            let of =
                |number| wire::ContainerStatus { id: format!("c{number:05}"), state, ..Default::default() };
            pod.containers = ids.map(|number| container(&listed("c", "u"), &of(number), 10)).collect();
            pod
        };
        let (before, mut after) = (pod(0..20_000, 1), pod(10_000..20_000, 1));
        after.containers.extend(pod(0..5_000, 2).containers);
        let begun = tokio::time::Instant::now();
        let ended = no_longer_running(&before, &after);
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
        assert_eq!((ended.len(), &**ended[0], &**ended[9_999]), (10_000, "c00000", "c09999"));
        assert!(no_longer_running(&after, &before).is_empty());
    }

    #[test]
    fn a_sandbox_tells_where_its_pod_came_from() {
        let of = |uid: &str, source: &str| wire::PodSandbox {
            labels: labels(uid),
            annotations: [(CONFIG_SOURCE.to_owned(), source.to_owned())].into(),
            ..Default::default()
        };
        let containers = [listed("c", "api"), listed("c", "lone"), wire::Container::default()];
        let held = held(&[of("api", "api"), of("file", "file")], &containers);
        let shown: Vec<_> = held.values().map(|held| (held.pod.uid.as_str(), held.source)).collect();
        assert_eq!(shown, [("api", Some(Source::Api)), ("file", Some(Source::File)), ("lone", None)]);
    }

    #[test]
    fn the_last_attempt_is_the_newest_whatever_the_clock_said() {
        let metadata = |attempt| wire::PodSandboxMetadata { attempt, ..Default::default() };
        let made = |id: &str, attempt, created_at| {
            let metadata = Some(metadata(attempt));
            sandbox(&wire::PodSandboxStatus { id: id.into(), metadata, created_at, ..Default::default() })
        };
        let mut pod = RuntimePod::absent(pod_of(&labels("u")).unwrap());
        pod.sandboxes = vec![made("before", 0, 20), made("after", 1, 10)];
        let ids: Vec<_> = arrange(pod).sandboxes.iter().map(|sandbox| sandbox.id.to_string()).collect();
        assert_eq!(ids, ["after", "before"], "the clock was set back between the two");
    }

    #[test]
    fn objects_of_others_are_not_ours() {
        assert!(lines(&[], &[wire::Container::default()]).is_empty());
        assert_eq!(pod_of(&BTreeMap::new()), None);
    }

    #[test]
    fn the_hash_is_hexadecimal_and_nonsense_is_none() {
        let with = |hash: &str| {
            let status = wire::ContainerStatus {
                annotations: [(CONTAINER_HASH.to_owned(), hash.to_owned())].into(),
                ..Default::default()
            };
            container(&listed("c", "u"), &status, 10).hash
        };
        assert_eq!(with("a1b2c3d4"), Some(0xa1b2_c3d4));
        assert_eq!(with("xyz"), None);
        assert_eq!(with(""), None);
    }

    #[test]
    fn a_containers_own_message_follows_the_runtimes() {
        assert_eq!(with_message("", "why"), "why");
        assert_eq!(with_message("oom", "why"), "oom: why");
        assert_eq!(with_message("oom", ""), "oom");
        let mount = wire::Mount { container_path: "/x".into(), host_path: "/h".into(), ..Default::default() };
        let mut status = wire::ContainerStatus { mounts: vec![mount], ..Default::default() };
        assert_eq!(termination_log(&status), None);
        status.annotations = [(TERMINATION_MESSAGE_PATH.to_owned(), "/x".to_owned())].into();
        assert_eq!(termination_log(&status), Some("/h"));
        status.annotations = [(TERMINATION_MESSAGE_PATH.to_owned(), "x".to_owned())].into();
        assert_eq!(termination_log(&status), Some("/h"), "paths are below the root");
    }

    #[test]
    fn only_a_failed_containers_log_stands_for_its_message() {
        let of = |policy: &str, exit_code: i32, reason: &str| {
            let annotations = [(TERMINATION_MESSAGE_POLICY.to_owned(), policy.to_owned())].into();
            let reason = reason.to_owned();
            falls_back_to_log(&wire::ContainerStatus { annotations, exit_code, reason, ..Default::default() })
        };
        assert!(of("FallbackToLogsOnError", 1, "Error"));
        assert!(!of("FallbackToLogsOnError", 0, "Completed"));
        assert!(!of("FallbackToLogsOnError", 128, "ContainerCannotRun"));
        assert!(!of("File", 1, "Error"));
    }

    #[test]
    fn the_images_that_a_container_mounts_are_kept_within_bounds() {
        let image = |id: &str| Some(wire::ImageSpec { image: id.to_owned(), ..Default::default() });
        let mount =
            |path: &str, image| wire::Mount { container_path: path.into(), image, ..Default::default() };
        let told = |mounts: Vec<wire::Mount>| {
            let status = wire::ContainerStatus { mounts, ..Default::default() };
            let images = effective(&status, 10).map(|told| told.mounted_images.clone()).unwrap_or_default();
            images.iter().map(|(path, image)| (path.to_string(), image.to_string())).collect::<Vec<_>>()
        };
        let mounts =
            vec![mount("/data", None), mount("/files", image("sha256:1")), mount("/none", image(""))];
        assert_eq!(told(mounts), [("/files".to_owned(), "sha256:1".to_owned())]);
        assert!(told(vec![mount("/long", image(&"x".repeat(257)))]).is_empty());
        let many = (0..10_000).map(|number| mount(&format!("/{number:05}"), image("sha256:1")));
        assert_eq!(told(many.collect()).len(), MOUNTED_IMAGES_BYTES_MAX / 14, "of six and eight bytes");
    }

    #[test]
    fn what_the_runtime_tells_of_limits_and_user_is_kept() {
        assert_eq!(effective(&wire::ContainerStatus::default(), 10), None);
        let linux = wire::LinuxContainerResources {
            cpu_quota: 25_000,
            cpu_period: 100_000,
            cpu_shares: 102,
            memory_limit_in_bytes: 1 << 26,
            ..Default::default()
        };
        let user = wire::LinuxContainerUser { uid: 1, gid: 2, supplemental_groups: vec![3] };
        let mut status = wire::ContainerStatus {
            resources: Some(wire::ContainerResources { linux: Some(linux) }),
            user: Some(wire::ContainerUser { linux: Some(user) }),
            ..Default::default()
        };
        let expected = Effective {
            user: Some(User { uid: 1, gid: 2, supplemental_groups: vec![3] }),
            cpu_limit_millis: Some(250),
            cpu_request_millis: Some(100),
            memory_limit_bytes: Some(1 << 26),
            stop_signal: None,
            mounted_images: BTreeMap::new(),
        };
        assert_eq!(effective(&status, 10).as_deref(), Some(&expected));
        let unlimited = wire::LinuxContainerResources { cpu_quota: -1, ..Default::default() };
        status.resources = Some(wire::ContainerResources { linux: Some(unlimited) });
        assert!(effective(&status, 1).is_some_and(|told| told.user.is_some()));
        assert_eq!(effective(&status, 0), None, "of a user with more groups nothing is told");
        status.user = None;
        assert_eq!(effective(&status, 10), None);
        assert_eq!((groups_of_each(1), groups_of_each(3), groups_of_each(0)), (8192, 2730, 8192));
        status.message = "x".repeat(1 << 20);
        let kept = container(&listed("c", "u"), &status, 10).message.len();
        assert_eq!(kept, errors::WORDS_BYTES_MAX + 3);
    }

    #[test]
    fn a_stop_signal_has_its_name_in_the_api() {
        let told = |signal: wire::Signal| {
            let status = wire::ContainerStatus { stop_signal: signal.into(), ..Default::default() };
            effective(&status, 10).and_then(|effective| effective.stop_signal.clone())
        };
        for (signal, name) in [
            (wire::Signal::RuntimeDefault, None),
            (wire::Signal::Sigterm, Some("SIGTERM")),
            (wire::Signal::Sigrtminplus15, Some("SIGRTMIN+15")),
            (wire::Signal::Sigrtmaxminus14, Some("SIGRTMAX-14")),
            (wire::Signal::Sigrtmin, Some("SIGRTMIN")),
        ] {
            assert_eq!(told(signal).as_deref(), name);
        }
    }

    #[test]
    fn newest_first_within_a_name() {
        let make = |id: &str, attempt: u32| {
            let metadata = Some(wire::ContainerMetadata { name: "main".into(), attempt });
            container(
                &listed(id, "u"),
                &wire::ContainerStatus { id: id.into(), metadata, ..Default::default() },
                10,
            )
        };
        let mut pod = RuntimePod::absent(pod_of(&labels("u")).unwrap());
        pod.containers = vec![make("old", 0), make("new", 3), make("mid", 1)];
        let order: Vec<_> = arrange(pod).containers.iter().map(|c| c.id.to_string()).collect();
        assert_eq!(order, ["new", "mid", "old"]);
    }

    #[test]
    fn times_before_anything_happened_are_none() {
        assert_eq!(time(0), None);
        assert_eq!(time(-5), None);
        assert_eq!(time(1_000_000_000).unwrap().as_second(), 1);
    }
}
