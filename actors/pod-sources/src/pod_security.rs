//! PURE: the Pod Security Standards, for pods that no API server has judged (row 17.7): upstream's checks in upstream's order,
//! each as the version of the standard has it, and upstream's words for what they forbid.

mod baseline;
mod restricted;
mod subject;
#[cfg(test)]
mod tests;

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use subject::{Subject, Violation};

/// How much a pod may do that does not come from the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecurityLevel {
    /// Everything.
    #[default]
    Privileged,
    /// What leads to no known escalation of privileges.
    Baseline,
    /// What hardened pods need.
    Restricted,
}

impl SecurityLevel {
    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Privileged, Self::Baseline, Self::Restricted].into_iter().find(|level| level.as_str() == name)
    }

    /// The level's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// A version of the standards: that of a release of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandardVersion {
    /// The newest that this kubelet knows.
    #[default]
    Latest,
    /// That of release 1 with this second number. Of one that this kubelet does not know the newest holds.
    Minor(u32),
}

impl StandardVersion {
    /// The version that a text names: `latest` or `v1.N`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let number = text.strip_prefix("v1.")?;
        let is_plain =
            number.bytes().all(|byte| byte.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
        number.parse().ok().filter(|_| is_plain).map(Self::Minor)
    }

    fn minor(self) -> u32 {
        match self {
            Self::Latest => u32::MAX,
            Self::Minor(minor) => minor,
        }
    }
}

impl fmt::Display for StandardVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// The standard that pods have to meet; every pod meets the default one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodSecurity {
    /// The level.
    pub level: SecurityLevel,
    /// The level's version.
    pub version: StandardVersion,
}

impl fmt::Display for PodSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.as_str(), self.version)
    }
}

impl PodSecurity {
    /// How a defaulted pod violates the standard, in upstream's words; `None` if the pod meets the standard.
    pub fn violation(&self, pod: &Pod) -> Option<String> {
        if self.level == SecurityLevel::Privileged {
            return None;
        }
        let missing = PodSpec::default();
        let subject = Subject::of(&pod.metadata, pod.spec.as_ref().unwrap_or(&missing));
        let violations: Vec<Violation> = self.checks().filter_map(|check| check(&subject)).collect();
        if violations.is_empty() {
            return None;
        }
        let told: Vec<String> = violations.iter().map(ToString::to_string).collect();
        Some(format!("violates PodSecurity \"{self}\": {}", told.join(", ")))
    }

    /// The checks of the level and the version, in upstream's order.
    fn checks(&self) -> impl Iterator<Item = CheckFn> {
        let (level, minor) = (self.level, self.version.minor());
        let applies = move |check: &&Check| check.level <= level && check.at(minor).is_some();
        let overridden = move |id: &str| {
            CHECKS
                .iter()
                .filter(applies)
                .filter_map(move |check| check.at(minor))
                .any(|(.., overrides)| *overrides == Some(id))
        };
        CHECKS
            .iter()
            .filter(applies)
            .filter(move |check| !overridden(check.id))
            .filter_map(move |check| check.at(minor))
            .map(|(_, check, _)| *check)
    }
}

/// Looks at one thing of a pod.
type CheckFn = fn(&Subject<'_>) -> Option<Violation>;

/// A check as one version of the standards, and those after it, have it: the second number of the first release, the check, and
/// the weaker check of the level below that this one stands for.
type Since = (u32, CheckFn, Option<&'static str>);

/// A check.
struct Check {
    level: SecurityLevel,
    id: &'static str,
    /// The oldest first.
    versions: &'static [Since],
}

impl Check {
    /// The check as the version with this second number has it, if it has the check.
    fn at(&self, minor: u32) -> Option<&'static Since> {
        self.versions.iter().rev().find(|(first, ..)| *first <= minor)
    }
}

const CAPABILITIES: &str = "capabilities_baseline";
const HOST_PATHS: &str = "hostPathVolumes";
const PROC_MOUNT: &str = "procMount";
const SECCOMP: &str = "seccompProfile_baseline";

/// All checks: those of the level baseline first, those of a level by their IDs.
const CHECKS: &[Check] = &[
    Check {
        level: SecurityLevel::Baseline,
        id: "appArmorProfile",
        versions: &[(0, baseline::app_armor, None)],
    },
    Check {
        level: SecurityLevel::Baseline,
        id: CAPABILITIES,
        versions: &[(0, baseline::capabilities, None)],
    },
    Check {
        level: SecurityLevel::Baseline,
        id: "hostNamespaces",
        versions: &[(0, baseline::host_namespaces, None)],
    },
    Check { level: SecurityLevel::Baseline, id: HOST_PATHS, versions: &[(0, baseline::host_paths, None)] },
    Check { level: SecurityLevel::Baseline, id: "hostPorts", versions: &[(0, baseline::host_ports, None)] },
    Check {
        level: SecurityLevel::Baseline,
        id: "hostProbesAndHostLifecycle",
        versions: &[(34, baseline::probed_hosts, None)],
    },
    Check { level: SecurityLevel::Baseline, id: "privileged", versions: &[(0, baseline::privileged, None)] },
    Check {
        level: SecurityLevel::Baseline,
        id: PROC_MOUNT,
        versions: &[(0, baseline::proc_mount, None), (35, baseline::proc_mount_without_user_namespace, None)],
    },
    Check {
        level: SecurityLevel::Baseline,
        id: "seLinuxOptions",
        versions: &[(0, baseline::selinux, None), (31, baseline::selinux_with_engines, None)],
    },
    Check {
        level: SecurityLevel::Baseline,
        id: SECCOMP,
        versions: &[(0, baseline::seccomp_annotations, None), (19, baseline::seccomp, None)],
    },
    Check {
        level: SecurityLevel::Baseline,
        id: "sysctls",
        versions: &[
            (0, baseline::sysctls_0, None),
            (27, baseline::sysctls_27, None),
            (29, baseline::sysctls_29, None),
            (32, baseline::sysctls_32, None),
        ],
    },
    Check {
        level: SecurityLevel::Baseline,
        id: "windowsHostProcess",
        versions: &[(0, baseline::host_process, None)],
    },
    Check {
        level: SecurityLevel::Restricted,
        id: "allowPrivilegeEscalation",
        versions: &[(8, restricted::escalation, None), (25, restricted::escalation_but_on_windows, None)],
    },
    Check {
        level: SecurityLevel::Restricted,
        id: "capabilities_restricted",
        versions: &[
            (22, restricted::capabilities, Some(CAPABILITIES)),
            (25, restricted::capabilities_but_on_windows, Some(CAPABILITIES)),
        ],
    },
    Check {
        level: SecurityLevel::Restricted,
        id: "procMount_restricted",
        versions: &[(35, baseline::proc_mount, Some(PROC_MOUNT))],
    },
    Check {
        level: SecurityLevel::Restricted,
        id: "restrictedVolumes",
        versions: &[(0, restricted::volumes, Some(HOST_PATHS))],
    },
    Check {
        level: SecurityLevel::Restricted,
        id: "runAsNonRoot",
        versions: &[(0, restricted::non_root, None), (35, restricted::non_root_without_user_namespace, None)],
    },
    Check {
        level: SecurityLevel::Restricted,
        id: "runAsUser",
        versions: &[(23, restricted::user, None), (35, restricted::user_without_user_namespace, None)],
    },
    Check {
        level: SecurityLevel::Restricted,
        id: "seccompProfile_restricted",
        versions: &[
            (19, restricted::seccomp, Some(SECCOMP)),
            (25, restricted::seccomp_but_on_windows, Some(SECCOMP)),
        ],
    },
];
