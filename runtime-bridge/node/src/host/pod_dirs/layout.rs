use std::path::{Component, Path, PathBuf};

use super::PodDirsError;

/// The directory, below a pod's, of files that containers write.
pub(super) const CONTAINERS: &str = "containers";
/// The file, below a pod's directory, that containers have as `/etc/hosts`.
const ETC_HOSTS: &str = "etc-hosts";
/// The directory, below a pod's, in which parts of volumes are mounted.
pub const SUBPATHS: &str = "volume-subpaths";
/// The kubelet's directories below its root, as Kubernetes names them (row 23.13).
pub(super) const DATA_DIRS: [(&str, u32); 9] = [
    ("pods", 0o750),
    ("plugins", 0o750),
    ("plugins_registry", 0o750),
    ("device-plugins", 0o750),
    ("pod-resources", 0o750),
    ("pki", 0o750),
    ("checkpoints", 0o700),
    ("image_manager", 0o750),
    ("seccomp", 0o750),
];

/// The longest file name of common file systems, bytes.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The paths of the kubelet's and the pods' directories. Paths are built here alone; names from outside are checked, so
/// that a pod with the UID `../..` names no directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
    pod_logs: PathBuf,
    // `None` without legacy links.
    container_logs: Option<PathBuf>,
}

impl Layout {
    /// `root` is the kubelet's root directory (`/var/lib/kubelet`), `pod_logs` the pods' logs (`/var/log/pods`),
    /// `container_logs` the place of the legacy links to them (`/var/log/containers`); empty for none.
    ///
    /// # Errors
    /// [`PodDirsError::NotCanonical`] unless all three are absolute and free of `.`, `..` and doubled or trailing
    /// slashes, since mounts are found by comparing paths.
    pub fn new(
        root: impl Into<PathBuf>,
        pod_logs: impl Into<PathBuf>,
        container_logs: impl Into<PathBuf>,
    ) -> Result<Self, PodDirsError> {
        let container_logs = container_logs.into();
        let container_logs = if container_logs.as_os_str().is_empty() {
            None
        } else {
            Some(canonical_form("container logs directory", container_logs)?)
        };
        Ok(Self {
            root: canonical_form("rootDirectory", root.into())?,
            pod_logs: canonical_form("podLogsDir", pod_logs.into())?,
            container_logs,
        })
    }

    /// The kubelet's root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// One of the root's directories, for instance `plugins_registry`.
    pub fn data_dir(&self, name: &'static str) -> PathBuf {
        self.root.join(name)
    }

    /// The directory that has one directory per pod, named by its UID.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The directory that has one directory of logs per pod.
    pub fn pod_logs(&self) -> &Path {
        &self.pod_logs
    }

    /// The directory of the legacy links to container logs; `None` without links.
    pub fn container_logs(&self) -> Option<&Path> {
        self.container_logs.as_deref()
    }

    /// `<root>/pods/<uid>`.
    pub fn pod(&self, uid: &str) -> Result<PathBuf, PodDirsError> {
        Ok(self.pods().join(segment("pod UID", uid)?))
    }

    /// `<root>/pods/<uid>/volumes`.
    pub fn pod_volumes(&self, uid: &str) -> Result<PathBuf, PodDirsError> {
        Ok(self.pod(uid)?.join("volumes"))
    }

    /// `<root>/pods/<uid>/volumes/<plugin>/<volume>`; the plugin's slash (`kubernetes.io/empty-dir`) becomes `~`.
    pub fn pod_volume(&self, uid: &str, plugin: &str, volume: &str) -> Result<PathBuf, PodDirsError> {
        let plugin = plugin.replace('/', "~");
        let plugin = segment("volume plugin", &plugin)?;
        Ok(self.pod_volumes(uid)?.join(plugin).join(segment("volume name", volume)?))
    }

    /// `<root>/pods/<uid>/volumeDevices/<plugin>/<volume>`: the link to a block device of a pod.
    pub fn pod_device(&self, uid: &str, plugin: &str, volume: &str) -> Result<PathBuf, PodDirsError> {
        let plugin = plugin.replace('/', "~");
        let plugin = segment("volume plugin", &plugin)?;
        let devices = self.pod(uid)?.join("volumeDevices").join(plugin);
        Ok(devices.join(segment("volume name", volume)?))
    }

    /// `<root>/plugins/<plugin>/volumeDevices/<volume>`: the directory in which a block device is mounted for each pod.
    pub fn device_maps(&self, plugin: &str, volume: &str) -> Result<PathBuf, PodDirsError> {
        let plugin = plugin.replace('/', "~");
        let plugin = segment("volume plugin", &plugin)?;
        let devices = self.root.join("plugins").join(plugin).join("volumeDevices");
        Ok(devices.join(segment("volume name", volume)?))
    }

    /// `<root>/plugins/<plugin>/mounts/<volume>`: where a device is mounted for all pods of the node; the plugin's slash stays.
    pub fn device_mount(&self, plugin: &str, volume: &str) -> Result<PathBuf, PodDirsError> {
        let (vendor, plugin) = plugin.split_once('/').unwrap_or(("", plugin));
        let plugin = Path::new(vendor).join(segment("volume plugin", plugin)?);
        Ok(self.root.join("plugins").join(plugin).join("mounts").join(segment("volume name", volume)?))
    }

    /// `<root>/pods/<uid>/plugins`.
    pub fn pod_plugins(&self, uid: &str) -> Result<PathBuf, PodDirsError> {
        Ok(self.pod(uid)?.join("plugins"))
    }

    /// `<root>/pods/<uid>/plugins/<plugin>/<volume>`: a plugin's notes about a volume.
    pub fn pod_plugin(&self, uid: &str, plugin: &str, volume: &str) -> Result<PathBuf, PodDirsError> {
        let plugin = plugin.replace('/', "~");
        let plugin = segment("volume plugin", &plugin)?;
        Ok(self.pod_plugins(uid)?.join(plugin).join(segment("volume name", volume)?))
    }

    /// `<root>/pods/<uid>/volume-subpaths/<volume>/<container>/<index>`: the mount point of a part of a volume for the
    /// container's mount of that index.
    pub fn pod_subpath(
        &self,
        uid: &str,
        volume: &str,
        container: &str,
        index: usize,
    ) -> Result<PathBuf, PodDirsError> {
        let volume = self.pod(uid)?.join(SUBPATHS).join(segment("volume name", volume)?);
        Ok(volume.join(segment("container name", container)?).join(index.to_string()))
    }

    /// `<root>/pods/<uid>/containers/<container>`, with the container's termination messages.
    pub fn pod_container(&self, uid: &str, container: &str) -> Result<PathBuf, PodDirsError> {
        Ok(self.pod(uid)?.join(CONTAINERS).join(segment("container name", container)?))
    }

    /// `<root>/pods/<uid>/etc-hosts`: a file, mounted into containers as `/etc/hosts`.
    pub fn pod_etc_hosts(&self, uid: &str) -> Result<PathBuf, PodDirsError> {
        Ok(self.pod(uid)?.join(ETC_HOSTS))
    }

    /// What a pod's containers can fill below the pod's directory beside its volumes: its hosts file, and the directory of
    /// termination messages. `root` is the kubelet's root directory.
    pub(crate) fn filled_by_containers(root: &Path, uid: &str) -> Result<[PathBuf; 2], PodDirsError> {
        let pod = root.join("pods").join(segment("pod UID", uid)?);
        Ok([pod.join(ETC_HOSTS), pod.join(CONTAINERS)])
    }

    /// `<podLogsDir>/<namespace>_<name>_<uid>`: the sandbox's log directory in CRI.
    pub fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> Result<PathBuf, PodDirsError> {
        let joined = format!(
            "{}_{}_{}",
            segment("namespace", namespace)?,
            segment("pod name", name)?,
            segment("pod UID", uid)?
        );
        Ok(self.pod_logs.join(segment("pod log directory", &joined)?))
    }

    /// The container's directory below the pod's log directory.
    pub fn container_log_dir(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        container: &str,
    ) -> Result<PathBuf, PodDirsError> {
        Ok(self.pod_log_dir(namespace, name, uid)?.join(segment("container name", container)?))
    }

    /// The file into which an instance of a container writes its termination message (row 5.21).
    pub fn termination_log(&self, uid: &str, container: &str, suffix: &str) -> Result<PathBuf, PodDirsError> {
        Ok(self.pod_container(uid, container)?.join(segment("termination log", suffix)?))
    }

    /// The path itself, if it is below the pods' directory or that of their logs, without `..`.
    pub(super) fn pods_own(&self, file: &Path) -> Result<PathBuf, PodDirsError> {
        let straight = file.components().all(|part| !matches!(part, std::path::Component::ParentDir));
        if straight && (file.starts_with(self.pods()) || file.starts_with(self.pod_logs())) {
            Ok(file.to_path_buf())
        } else {
            Err(PodDirsError::NotOurs { path: file.to_path_buf() })
        }
    }

    /// `<container>/<restart count>.log`: a container's log path in CRI, relative to the pod's log directory.
    pub fn container_log_path(container: &str, restart_count: u32) -> String {
        format!("{container}/{restart_count}.log")
    }

    /// The legacy link to a container's log, `<pod>_<namespace>_<container>-<id>.log`, cut to 255 bytes (row
    /// 5.23); none where there are no links.
    pub fn legacy_link(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        container_id: &str,
    ) -> Result<Option<PathBuf>, PodDirsError> {
        let mut file = format!(
            "{}_{}_{}-{}",
            segment("pod name", name)?,
            segment("namespace", namespace)?,
            segment("container name", container)?,
            segment("container ID", container_id)?
        );
        let mut end = file.len().min(FILE_NAME_BYTES_MAX - ".log".len());
        while !file.is_char_boundary(end) {
            end -= 1;
        }
        file.truncate(end);
        Ok(self.container_logs.as_ref().map(|dir| dir.join(file + ".log")))
    }
}

fn canonical_form(field: &'static str, path: PathBuf) -> Result<PathBuf, PodDirsError> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => return Err(PodDirsError::NotCanonical { field, path }),
            part => clean.push(part),
        }
    }
    // Compared as bytes, since `Path` ignores doubled and trailing slashes.
    if !path.is_absolute() || clean.as_os_str() != path.as_os_str() {
        return Err(PodDirsError::NotCanonical { field, path });
    }
    Ok(path)
}

fn segment<'a>(field: &'static str, value: &'a str) -> Result<&'a str, PodDirsError> {
    let bad = value.is_empty()
        || value == "."
        || value == ".."
        || value.len() > FILE_NAME_BYTES_MAX
        || value.bytes().any(|b| b == b'/' || b == 0);
    if bad { Err(PodDirsError::BadName { field, value: value.to_owned() }) } else { Ok(value) }
}

/// The restart count that follows from existing logs: one more than the highest `<n>` of files named `<n>.log`, also
/// with a suffix after a further dot; 0 without any.
pub(super) fn next_restart_count<'a>(files: impl Iterator<Item = &'a str>) -> u32 {
    files.filter_map(restart_count_of).max().map_or(0, |highest| highest.saturating_add(1))
}

fn restart_count_of(file: &str) -> Option<u32> {
    let (count, rest) = file.split_once(".log")?;
    let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    // `1.logs` counts as well: upstream's pattern is not anchored at the end either.
    let _ = rest;
    if digits { count.parse().ok() } else { None }
}

/// Whether a file is the log of the instance with this restart count, or was rotated from it.
pub(super) fn is_log_of(file: &str, restart_count: u32) -> bool {
    file.split_once(".log").is_some_and(|(count, rest)| {
        count == restart_count.to_string() && (rest.is_empty() || rest.starts_with('.'))
    })
}

/// The namespace, name and UID of a directory `<namespace>_<name>_<uid>`. By the API's rules none of them contains an
/// underscore, but a static pod's UID may, so the UID is the rest.
pub(super) fn parse_pod_log_dir(file: &str) -> Option<(&str, &str, &str)> {
    let (namespace, rest) = file.split_once('_')?;
    let (name, uid) = rest.split_once('_')?;
    let full = [namespace, name, uid].iter().all(|part| !part.is_empty());
    full.then_some((namespace, name, uid))
}

/// The container's ID in a legacy link's name: after the last dash, at least 6 characters.
pub(super) fn container_id_of_link(file: &str) -> Option<&str> {
    let (_, id) = file.strip_suffix(".log")?.rsplit_once('-')?;
    (id.len() >= 6).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("/var/lib/kubelet", "/var/log/pods", "/var/log/containers").unwrap()
    }

    #[test]
    fn paths_are_kubernetes_own() {
        let layout = layout();
        let text = |path: Result<PathBuf, PodDirsError>| path.unwrap().display().to_string();
        assert_eq!(text(layout.pod("u")), "/var/lib/kubelet/pods/u");
        assert_eq!(
            text(layout.pod_volume("u", "kubernetes.io/empty-dir", "v")),
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v"
        );
        let mount = layout.device_mount("kubernetes.io/local-volume", "pv");
        assert_eq!(text(mount), "/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv");
        assert_eq!(text(layout.pod_plugins("u")), "/var/lib/kubelet/pods/u/plugins");
        assert_eq!(text(layout.pod_container("u", "c")), "/var/lib/kubelet/pods/u/containers/c");
        assert_eq!(
            text(layout.pod_plugin("u", "kubernetes.io/empty-dir", "v")),
            "/var/lib/kubelet/pods/u/plugins/kubernetes.io~empty-dir/v"
        );
        let subpath = layout.pod_subpath("u", "v", "c", 2);
        assert_eq!(text(subpath), "/var/lib/kubelet/pods/u/volume-subpaths/v/c/2");
        assert_eq!(text(layout.pod_etc_hosts("u")), "/var/lib/kubelet/pods/u/etc-hosts");
        let [hosts, messages] = Layout::filled_by_containers(layout.root(), "u").unwrap();
        assert_eq!(Ok(hosts), layout.pod_etc_hosts("u"));
        assert_eq!(Ok(messages.join("c")), layout.pod_container("u", "c"));
        assert!(Layout::filled_by_containers(layout.root(), "../..").is_err());
        assert_eq!(text(layout.container_log_dir("ns", "p", "u", "c")), "/var/log/pods/ns_p_u/c");
        assert_eq!(Layout::container_log_path("c", 3), "c/3.log");
        assert_eq!(
            text(layout.legacy_link("ns", "p", "c", "id").map(Option::unwrap)),
            "/var/log/containers/p_ns_c-id.log"
        );
    }

    #[test]
    fn a_long_legacy_link_is_cut_to_255_bytes() {
        let (name, id) = ("p".repeat(200), "a".repeat(64));
        let link = layout().legacy_link("ns", &name, "container", &id).unwrap().unwrap();
        let file = link.file_name().unwrap().to_str().unwrap();
        assert_eq!(file.len(), 255);
        assert!(file.starts_with(&name) && file.ends_with("a.log"), "{file}");
    }

    #[test]
    fn hostile_names_make_no_path() {
        for bad in ["", ".", "..", "a/b", "../..", "a\0b", &"x".repeat(256)] {
            assert!(matches!(layout().pod(bad), Err(PodDirsError::BadName { .. })), "{bad:?}");
            assert!(layout().container_log_dir("ns", "p", "u", bad).is_err(), "{bad:?}");
            assert!(layout().legacy_link(bad, "p", "c", "id").is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_canonical_directories_are_taken() {
        for bad in ["relative", "/a/../b", "/a//b", "/a/", "/a/./b", ""] {
            assert!(
                matches!(Layout::new(bad, "/l", "/c"), Err(PodDirsError::NotCanonical { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn counts_restarts_from_names_of_logs() {
        let count = |files: &[&str]| next_restart_count(files.iter().copied());
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&["0.log"]), 1);
        assert_eq!(count(&["0.log", "2.log", "1.log"]), 3);
        assert_eq!(count(&["3.log.20260501-120000.gz", "1.log"]), 4);
        assert_eq!(count(&["a.log", ".log", "-1.log", "1.txt", "x1.log", "+5.log"]), 0);
        assert_eq!(count(&["99999999999.log", "1.log"]), 2, "too large to be ours");
        assert_eq!(count(&["4294967295.log"]), u32::MAX);
    }

    #[test]
    fn an_empty_directory_of_links_is_none() {
        let layout = Layout::new("/var/lib/kubelet", "/var/log/pods", "").unwrap();
        assert_eq!(layout.legacy_link("ns", "p", "c", "id"), Ok(None));
    }

    #[test]
    fn reads_names_back() {
        assert_eq!(parse_pod_log_dir("ns_p_u"), Some(("ns", "p", "u")));
        assert_eq!(parse_pod_log_dir("ns_p_u_v"), Some(("ns", "p", "u_v")));
        for bad in ["", "ns", "ns_p", "__", "ns__u", "ns_p_"] {
            assert_eq!(parse_pod_log_dir(bad), None, "{bad}");
        }
        assert_eq!(container_id_of_link("p_ns_a-b-0123456.log"), Some("0123456"));
        assert_eq!(container_id_of_link("p_ns_a-01234.log"), None);
        assert_eq!(container_id_of_link("p_ns_a-0123456"), None);
    }
}
