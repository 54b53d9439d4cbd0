//! PURE: where logs are, which are to be rotated, and the steps of a rotation (row 21.7).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bridge_node::host::{COMPRESSED, LogPlace, UNFINISHED};
use messages::PodRef;
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod};

/// A log that has grown to so many times its maximum size before a look is compressed at the next look, not only at the
/// next rotation.
const OVERSIZED: u64 = 2;

/// A running container with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The runtime's ID.
    pub container: Arc<str>,
    /// Its pod.
    pub pod: PodRef,
    /// Its log.
    pub log: LogPlace,
}

/// The running containers of one pod that have logs, by the runtime's ID.
pub type Writers = BTreeMap<Arc<str>, Writer>;

/// The running containers of a pod whose logs are where a kubelet puts them.
pub fn writers(pod: &RuntimePod) -> Writers {
    let running = pod.containers.iter().filter(|container| container.state == ContainerState::Running);
    let writer = |container: &RuntimeContainer| {
        let log = log_place(&pod.pod, container)?;
        let id = container.id.clone();
        Some((id.clone(), Writer { container: id, pod: pod.pod.clone(), log }))
    };
    running.filter_map(writer).collect()
}

/// The parts of the log's path, which is `<namespace>_<name>_<uid>/<container>/<restart count>.log` below the log
/// directory of the kubelet that made the container.
fn log_place(pod: &PodRef, container: &RuntimeContainer) -> Option<LogPlace> {
    let path = Path::new(&*container.log_path);
    let straight = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    let file = path.file_name()?.to_str()?;
    let container_dir = path.parent()?;
    let pod_dir = container_dir.parent()?;
    let count = file.strip_suffix(".log")?;
    let expected = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
    let is_ours = path.is_absolute()
        && straight
        && !count.is_empty()
        && count.bytes().all(|byte| byte.is_ascii_digit())
        && container_dir.file_name()?.to_str()? == &*container.name
        && pod_dir.file_name()?.to_str()? == expected;
    is_ours.then_some(LogPlace {
        root: pod_dir.parent()?.to_owned(),
        pod: expected,
        container: container.name.to_string(),
        file: file.to_owned(),
    })
}

/// The action that the size of a log requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Tell the runtime to reopen the log: there is no file.
    Reopen,
    /// Rotate the log: it has reached its maximum size.
    Rotate {
        /// Whether it is far larger than that.
        oversized: bool,
    },
}

/// The action for a log of this size in bytes; `size` is `None` without a file.
pub fn need(size: Option<u64>, bytes_max: u64) -> Option<Need> {
    match size {
        None => Some(Need::Reopen),
        Some(size) if size >= bytes_max => {
            Some(Need::Rotate { oversized: size > bytes_max.saturating_mul(OVERSIZED) })
        }
        Some(_) => None,
    }
}

/// The steps of a rotation, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Files to remove: leftovers, and the oldest ones beyond [`LogRotation::files_max`](messages::log_manager::LogRotation::files_max).
    pub remove: Vec<String>,
    /// The new name of the file that is the log now.
    pub aside: String,
    /// Files to compress.
    pub compress: Vec<String>,
}

/// The rotation of a log at a time (`20060102-150405`), with these files beside it. `None` if the new name is taken.
pub fn rotation(log: &str, beside: &[String], files_max: usize, time: &str) -> Option<Rotation> {
    let aside = format!("{log}.{time}");
    let compressed = format!("{aside}{COMPRESSED}");
    if beside.iter().any(|name| *name == aside || *name == compressed) {
        return None;
    }
    let is_leftover = |name: &&String| {
        name.ends_with(UNFINISHED)
            || !name.ends_with(COMPRESSED) && beside.contains(&format!("{name}{COMPRESSED}"))
    };
    let (mut remove, mut kept): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for name in beside {
        if is_leftover(&name) { remove.push(name.clone()) } else { kept.push(name.clone()) }
    }
    // Their times sort the oldest first. The file that is rotated now and the new log are not among them.
    kept.sort();
    let surplus = kept.len().saturating_sub(files_max.saturating_sub(2));
    remove.extend(kept.drain(..surplus));
    kept.retain(|name| !name.ends_with(COMPRESSED));
    Some(Rotation { remove, aside, compress: kept })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use messages::PodUid;
    use proptest::prelude::*;

    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn container(log: &str, state: ContainerState) -> RuntimeContainer {
        RuntimeContainer {
            id: Arc::from("id"),
            sandbox_id: Arc::from("sandbox"),
            name: Arc::from("c"),
            attempt: 0,
            state,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: Arc::from(""),
            message: Arc::from(""),
            image: Arc::from(""),
            image_ref: Arc::from(""),
            hash: None,
            annotations: Arc::default(),
            log_path: Arc::from(log),
            effective: None,
        }
    }

    fn places(log: &str, state: ContainerState) -> Vec<LogPlace> {
        let pod_ref = PodRef { uid: PodUid::new("u_1"), namespace: Arc::from("n"), name: Arc::from("p") };
        let mut pod = RuntimePod::absent(pod_ref);
        pod.containers = vec![container(log, state)];
        writers(&pod).into_values().map(|writer| writer.log).collect()
    }

    #[test]
    fn only_logs_of_running_containers_where_a_kubelet_puts_them() {
        let place = LogPlace {
            root: "/var/log/pods".into(),
            pod: "n_p_u_1".to_owned(),
            container: "c".to_owned(),
            file: "3.log".to_owned(),
        };
        assert_eq!(places("/var/log/pods/n_p_u_1/c/3.log", ContainerState::Running), [place]);
        for state in [ContainerState::Created, ContainerState::Exited, ContainerState::Unknown] {
            assert_eq!(places("/var/log/pods/n_p_u_1/c/3.log", state), [], "{state:?}");
        }
        for path in [
            "",
            "/",
            "n_p_u_1/c/3.log",
            "/var/log/pods/n_p_other/c/3.log",
            "/var/log/pods/n_p_u_1/d/3.log",
            "/var/log/pods/n_p_u_1/c/.log",
            "/var/log/pods/n_p_u_1/c/x.log",
            "/var/log/pods/n_p_u_1/c/3.txt",
            "/var/log/../log/n_p_u_1/c/3.log",
            "/etc/passwd",
        ] {
            assert_eq!(places(path, ContainerState::Running), [], "{path}");
        }
    }

    #[test]
    fn sizes_decide() {
        assert_eq!(need(None, 10), Some(Need::Reopen));
        assert_eq!(need(Some(9), 10), None);
        assert_eq!(need(Some(10), 10), Some(Need::Rotate { oversized: false }));
        assert_eq!(need(Some(20), 10), Some(Need::Rotate { oversized: false }));
        assert_eq!(need(Some(21), 10), Some(Need::Rotate { oversized: true }));
        assert_eq!(need(Some(u64::MAX), u64::MAX), Some(Need::Rotate { oversized: false }));
    }

    #[test]
    fn leftovers_and_the_oldest_go_and_the_rest_is_compressed() {
        let beside = texts(&[
            "0.log.20260101-000001.gz",
            "0.log.20260101-000002.gz",
            "0.log.20260101-000002",
            "0.log.20260101-000003.gz.tmp",
            "0.log.20260101-000003",
            "0.log.20260101-000004.tmp",
        ]);
        let planned = rotation("0.log", &beside, 4, "20260101-000005").unwrap();
        let expected = Rotation {
            remove: texts(&[
                "0.log.20260101-000002",
                "0.log.20260101-000003.gz.tmp",
                "0.log.20260101-000004.tmp",
                "0.log.20260101-000001.gz",
            ]),
            aside: "0.log.20260101-000005".to_owned(),
            compress: texts(&["0.log.20260101-000003"]),
        };
        assert_eq!(planned, expected);
        let two = rotation("0.log", &texts(&["0.log.20260101-000001"]), 2, "20260101-000005").unwrap();
        assert_eq!((two.remove.len(), two.compress.len()), (1, 0), "the log and the one put aside are two");
    }

    #[test]
    fn a_name_that_is_taken_waits_for_the_next_second() {
        for taken in ["0.log.20260101-000005", "0.log.20260101-000005.gz"] {
            assert_eq!(rotation("0.log", &texts(&[taken]), 5, "20260101-000005"), None);
        }
    }

    proptest! {
        #[test]
        fn never_more_files_than_allowed_and_nothing_is_both_kept_and_removed(
            beside in proptest::collection::btree_set((0u8..30, 0u8..4), 0..30),
            files_max in 2usize..8,
        ) {
            let ends = ["", ".gz", ".tmp", ".gz.tmp"];
            let names: Vec<String> = beside
                .iter()
                .map(|(second, end)| format!("0.log.20260101-0000{second:02}{}", ends[usize::from(*end)]))
                .collect();
            let planned = rotation("0.log", &names, files_max, "20260101-000100").unwrap();
            let left: Vec<&String> = names.iter().filter(|name| !planned.remove.contains(name)).collect();
            prop_assert!(left.len() + 2 <= files_max.max(2));
            prop_assert!(left.iter().all(|name| !name.ends_with(".tmp")));
            prop_assert!(planned.compress.iter().all(|name| left.contains(&name) && !name.ends_with(".gz")));
            let oldest_left = left.iter().map(|name| name.as_str()).min().unwrap_or("~");
            let in_use = |name: &&String| {
                !name.ends_with(".tmp") && (name.ends_with(".gz") || !names.contains(&format!("{name}.gz")))
            };
            prop_assert!(planned.remove.iter().filter(in_use).all(|name| name.as_str() < oldest_left));
        }
    }
}
