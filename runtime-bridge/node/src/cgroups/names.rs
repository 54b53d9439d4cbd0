use pod_spec::resources::QosClass;

use super::CgroupError;

/// The longest UID, in bytes, that fits into a file name together with the driver's prefix and suffix.
const UID_BYTES_MAX: usize = 128;

/// The component that makes cgroups on this node, and with it their form of names (`cgroupDriver`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Kubelet and runtime make directories themselves.
    Cgroupfs,
    /// systemd makes cgroups, and names them as slices.
    Systemd,
}

impl CgroupDriver {
    /// The driver as `cgroupDriver` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}

/// Names of the kubelet's cgroups (row 14.2), as paths below a hierarchy's mount point that begin with a slash. The
/// runtime is given the same names as `cgroup_parent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupNames {
    driver: CgroupDriver,
    root: Vec<String>,
}

impl CgroupNames {
    /// Names for `driver` below `cgroup_root`, which has the form of cgroupfs (`/`, `/outer/inner`) with either driver.
    ///
    /// # Errors
    /// [`CgroupError::InvalidName`] when a part of the root is `.` or `..`.
    pub fn new(driver: CgroupDriver, cgroup_root: &str) -> Result<Self, CgroupError> {
        let parts: Vec<String> =
            cgroup_root.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        if parts.iter().any(|part| part == "." || part == ".." || part.contains('\0')) {
            return Err(CgroupError::InvalidName { field: "cgroupRoot", value: cgroup_root.to_owned() });
        }
        Ok(Self { driver, root: parts })
    }

    /// The driver that makes the cgroups.
    pub fn driver(&self) -> CgroupDriver {
        self.driver
    }

    /// The cgroup above that of all pods; empty for the root.
    pub fn root(&self) -> String {
        self.path(&[])
    }

    /// The name of an administrator's cgroup (`kubeReservedCgroup`, `systemReservedCgroup`), configured in the driver's
    /// own form or in that of cgroupfs.
    ///
    /// # Errors
    /// [`CgroupError::InvalidName`] when a part of it is `.` or `..`.
    pub fn configured(&self, field: &'static str, name: &str) -> Result<String, CgroupError> {
        let mut parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| *part == "." || *part == ".." || part.contains('\0')) {
            return Err(CgroupError::InvalidName { field, value: name.to_owned() });
        }
        if self.driver == CgroupDriver::Systemd {
            // The last part contains the names of all slices above.
            let last = parts.pop().unwrap_or_default();
            parts = last.strip_suffix(".slice").unwrap_or(last).split('-').collect();
            parts.retain(|part| !part.is_empty());
        }
        Ok(self.joined(parts.into_iter()))
    }

    /// A cgroup that is named by its whole path below the hierarchies, whatever the driver and `cgroupRoot`, since the kubelet makes
    /// it itself (`kubeletCgroups`, `systemCgroups`); empty for the root.
    ///
    /// # Errors
    /// [`CgroupError::InvalidName`] when a part of it is `.` or `..`.
    pub fn whole(field: &'static str, name: &str) -> Result<String, CgroupError> {
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| *part == "." || *part == ".." || part.contains('\0')) {
            return Err(CgroupError::InvalidName { field, value: name.to_owned() });
        }
        Ok(parts.into_iter().fold(String::new(), |path, part| path + "/" + part))
    }

    /// A cgroup as upstream's messages write it: `["kubepods" "burstable"]`.
    pub fn in_words(&self, cgroup: &str) -> String {
        let parts: Vec<String> = match self.driver {
            CgroupDriver::Cgroupfs => {
                cgroup.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
            }
            CgroupDriver::Systemd => {
                let last = cgroup.rsplit('/').next().unwrap_or_default();
                let last = last.strip_suffix(".slice").unwrap_or(last);
                last.split('-').filter(|part| !part.is_empty()).map(|part| part.replace('_', "-")).collect()
            }
        };
        let quoted: Vec<String> = parts.iter().map(|part| format!("{part:?}")).collect();
        format!("[{}]", quoted.join(" "))
    }

    /// The cgroup of all pods: `/kubepods`, `/kubepods.slice`.
    pub fn kubepods(&self) -> String {
        self.path(&["kubepods"])
    }

    /// The cgroup of all pods of a class; for guaranteed pods, the cgroup of all pods.
    pub fn qos(&self, qos: QosClass) -> String {
        self.path(parts_of(qos))
    }

    /// The cgroup of a pod: `/kubepods/burstable/pod<uid>`, or with systemd
    /// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice` with the UID's dashes as
    /// underscores.
    ///
    /// # Errors
    /// [`CgroupError::InvalidName`] when the UID is empty, longer than 128 bytes, or contains a slash or an underscore,
    /// since the driver systemd writes dashes as underscores.
    pub fn pod(&self, qos: QosClass, uid: &str) -> Result<String, CgroupError> {
        let bad = uid.is_empty() || uid.len() > UID_BYTES_MAX || uid.contains(['/', '_', '\0']);
        if bad {
            return Err(CgroupError::InvalidName { field: "pod UID", value: uid.to_owned() });
        }
        let mut parts = parts_of(qos).to_vec();
        let pod = format!("pod{uid}");
        parts.push(&pod);
        Ok(self.path(&parts))
    }

    /// The UID of the pod whose cgroup has the name `file` below that of its class; `None` if it is no pod's.
    pub(super) fn uid_of(&self, qos: QosClass, file: &str) -> Option<String> {
        let uid = match self.driver {
            CgroupDriver::Cgroupfs => file.strip_prefix("pod")?.to_owned(),
            CgroupDriver::Systemd => {
                let parent = self.qos(qos);
                let parent = parent.rsplit('/').next()?.strip_suffix(".slice")?;
                let pod = file.strip_suffix(".slice")?.strip_prefix(parent)?.strip_prefix("-pod")?;
                // A further dash means a slice below the pod's.
                if pod.contains('-') {
                    return None;
                }
                pod.replace('_', "-")
            }
        };
        (!uid.is_empty()).then_some(uid)
    }

    fn path(&self, below: &[&str]) -> String {
        self.joined(self.root.iter().map(String::as_str).chain(below.iter().copied()))
    }

    fn joined<'a>(&self, parts: impl Iterator<Item = &'a str>) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => parts.fold(String::new(), |path, part| path + "/" + part),
            CgroupDriver::Systemd => {
                // A slice's name contains all slices above it, with dashes between them.
                let (mut path, mut slice) = (String::new(), String::new());
                for part in parts {
                    if !slice.is_empty() {
                        slice.push('-');
                    }
                    slice.push_str(&part.replace('-', "_"));
                    path.push_str(&format!("/{slice}.slice"));
                }
                path
            }
        }
    }
}

fn parts_of(qos: QosClass) -> &'static [&'static str] {
    match qos {
        QosClass::Guaranteed => &["kubepods"],
        QosClass::Burstable => &["kubepods", "burstable"],
        QosClass::BestEffort => &["kubepods", "besteffort"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(driver: CgroupDriver, root: &str) -> CgroupNames {
        CgroupNames::new(driver, root).unwrap()
    }

    #[test]
    fn cgroupfs_names() {
        let at_root = names(CgroupDriver::Cgroupfs, "/");
        assert_eq!(at_root.kubepods(), "/kubepods");
        assert_eq!(at_root.qos(QosClass::Guaranteed), "/kubepods");
        assert_eq!(at_root.pod(QosClass::Guaranteed, "1-2").unwrap(), "/kubepods/pod1-2");
        assert_eq!(at_root.pod(QosClass::Burstable, "1-2").unwrap(), "/kubepods/burstable/pod1-2");
        assert_eq!(at_root.pod(QosClass::BestEffort, "1-2").unwrap(), "/kubepods/besteffort/pod1-2");
        assert_eq!(names(CgroupDriver::Cgroupfs, "/a/b").kubepods(), "/a/b/kubepods");
    }

    #[test]
    fn systemd_names() {
        let at_root = names(CgroupDriver::Systemd, "/");
        assert_eq!(at_root.kubepods(), "/kubepods.slice");
        assert_eq!(
            at_root.pod(QosClass::Guaranteed, "1-2").unwrap(),
            "/kubepods.slice/kubepods-pod1_2.slice"
        );
        assert_eq!(
            at_root.pod(QosClass::Burstable, "1-2").unwrap(),
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
        );
        assert_eq!(
            names(CgroupDriver::Systemd, "/a-b/c").kubepods(),
            "/a_b.slice/a_b-c.slice/a_b-c-kubepods.slice"
        );
    }

    #[test]
    fn a_pods_name_gives_its_uid_back() {
        for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
            for root in ["/", "/outer-x/inner"] {
                let names = names(driver, root);
                for qos in QosClass::ALL {
                    let path = names.pod(qos, "0a-1b-2c").unwrap();
                    let (parent, file) = path.rsplit_once('/').unwrap();
                    assert_eq!(parent, names.qos(qos));
                    assert_eq!(names.uid_of(qos, file).as_deref(), Some("0a-1b-2c"), "{path}");
                }
            }
        }
        let cgroupfs = names(CgroupDriver::Cgroupfs, "/");
        assert_eq!(cgroupfs.uid_of(QosClass::Guaranteed, "burstable"), None);
        assert_eq!(cgroupfs.uid_of(QosClass::Guaranteed, "pod"), None);
        let systemd = names(CgroupDriver::Systemd, "/");
        for other in
            ["kubepods-burstable.slice", "kubepods-burstable-podx.slice", "podx", "kubepods-podx.scope"]
        {
            assert_eq!(systemd.uid_of(QosClass::Guaranteed, other), None, "{other}");
        }
    }

    #[test]
    fn names_of_others_and_names_in_messages() {
        let plain = names(CgroupDriver::Cgroupfs, "/a-b");
        assert_eq!((plain.root().as_str(), names(CgroupDriver::Systemd, "/").root().as_str()), ("/a-b", ""));
        assert_eq!(plain.configured("kubeReservedCgroup", "/kube.slice/x").unwrap(), "/kube.slice/x");
        assert_eq!(plain.in_words(&plain.kubepods()), r#"["a-b" "kubepods"]"#);
        let slices = names(CgroupDriver::Systemd, "/a-b");
        for (configured, expected) in [
            ("/kube.slice", "/kube.slice"),
            ("/podruntime.slice/podruntime-kube.slice", "/podruntime.slice/podruntime-kube.slice"),
            ("podruntime-kube.slice", "/podruntime.slice/podruntime-kube.slice"),
            ("/kubelet", "/kubelet.slice"),
        ] {
            assert_eq!(
                slices.configured("kubeReservedCgroup", configured).unwrap(),
                expected,
                "{configured}"
            );
        }
        assert_eq!(slices.in_words(&slices.kubepods()), r#"["a-b" "kubepods"]"#);
        let error = slices.configured("systemReservedCgroup", "/../x").unwrap_err();
        assert_eq!(error.to_string(), "systemReservedCgroup \"/../x\" cannot be part of a cgroup's name");
    }

    #[test]
    fn hostile_names_are_refused() {
        let names = names(CgroupDriver::Cgroupfs, "/");
        for uid in ["", "a/../..", "a_b", &"x".repeat(129)] {
            assert!(
                matches!(names.pod(QosClass::Burstable, uid), Err(CgroupError::InvalidName { .. })),
                "{uid}"
            );
        }
        assert!(CgroupNames::new(CgroupDriver::Cgroupfs, "/a/../b").is_err());
    }
}
