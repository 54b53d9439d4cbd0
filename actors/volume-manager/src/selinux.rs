//! PURE: the SELinux label that a volume is mounted with, so that no file of the volume has to be labelled one by one (row
//! 10.24). Upstream decides in the same way.

use std::collections::BTreeSet;

use bridge_node::host::SelinuxLabels;
use k8s_openapi::api::core::v1::{Container, Pod, SELinuxOptions};

use crate::source::{ONE_POD, Source};

/// How volumes are labelled on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selinux {
    /// The labels of containers.
    pub labels: SelinuxLabels,
    /// Whether volumes of every access mode are mounted with a label (gate SELinuxMount), and not only those that one pod has
    /// alone.
    pub every_mode: bool,
}

/// What was judged of a volume, for upstream's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Containers of the pod use the volume with different labels.
    PodMismatch,
    /// Pods use the volume with different labels.
    VolumeMismatch,
    /// A volume that the node did not have can be mounted with a label.
    Admitted,
}

/// What was judged of a volume, and of which one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What was found.
    pub what: What,
    /// Whether the pod is refused for that; otherwise it would be if volumes of every access mode were mounted with a label.
    pub is_error: bool,
    /// The volume's plugin, with the driver's name.
    pub plugin: String,
    /// The access mode.
    pub mode: &'static str,
}

/// A volume whose label is asked for.
pub(crate) struct Asked<'a> {
    pub selinux: &'a Selinux,
    pub pod: &'a Pod,
    /// The volume's name in the pod.
    pub name: &'a str,
    pub source: &'a Source,
    /// The volume's plugin, with the driver's name.
    pub plugin: &'a str,
}

/// The label of a volume for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The label that the volume would have if volumes of every access mode were mounted with one; empty if there is none.
    pub label: String,
    /// Whether the volume is mounted with it.
    pub is_mounted: bool,
}

impl Wish {
    /// The label that the volume is mounted with.
    pub fn effective(&self) -> Option<&str> {
        Some(self.label.as_str()).filter(|label| self.is_mounted && !label.is_empty())
    }
}

impl Asked<'_> {
    /// The label of all containers that use the volume, if they agree. `Err` has what is wrong, and whether the pod may not
    /// start for that.
    pub fn of_containers(&self) -> Result<Option<String>, (String, Judged)> {
        let Some(spec) = &self.pod.spec else { return Ok(None) };
        let of_pod = spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let mut labels = BTreeSet::new();
        let mut note = |mounts: bool, own: Option<&SELinuxOptions>| {
            if let Some(options) = own.or(of_pod).filter(|_| mounts) {
                labels.insert(self.selinux.of(options).unwrap_or_default());
            }
        };
        for container in containers {
            note(self.is_mounted_by(container), options_of(container));
        }
        for one in spec.ephemeral_containers.iter().flatten() {
            let mut mounts = one.volume_mounts.iter().flatten();
            let own = one.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
            note(mounts.any(|mount| mount.name == self.name), own);
        }
        if labels.len() > 1 {
            let all: Vec<String> = labels.into_iter().collect();
            let text = format!("multiple SELinux labels found: {}", all.join(","));
            return Err((text, self.judged(What::PodMismatch)));
        }
        let policy =
            spec.security_context.as_ref().and_then(|context| context.se_linux_change_policy.as_deref());
        Ok(labels.pop_first().filter(|label| !label.is_empty() && policy != Some("Recursive")))
    }

    fn is_mounted_by(&self, container: &Container) -> bool {
        container.volume_mounts.iter().flatten().any(|mount| mount.name == self.name)
    }

    /// Whether volumes of this access mode are mounted with a label.
    pub fn is_eligible(&self) -> bool {
        let persistent = self.source.persistent();
        persistent.is_some_and(|persistent| self.selinux.every_mode || persistent.is_for_one_pod())
    }

    pub fn judged(&self, what: What) -> Judged {
        let is_error = what != What::Admitted && self.is_eligible();
        Judged { what, is_error, plugin: self.plugin.replacen(':', "/", 1), mode: self.mode() }
    }

    /// The access mode by upstream's short names: the one that shares most.
    fn mode(&self) -> &'static str {
        let Some(persistent) = self.source.persistent() else { return "inline" };
        let modes = persistent.spec().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        let names =
            [("ReadWriteMany", "RWX"), ("ReadOnlyMany", "ROX"), ("ReadWriteOnce", "RWO"), (ONE_POD, "RWOP")];
        let known = names.iter().find(|(mode, _)| modes.iter().any(|has| has == mode));
        known.map_or("", |(_, short)| short)
    }

    /// What is wrong with a volume that other pods have with another label.
    pub fn conflict(&self, found: &str, wanted: &str) -> (String, Judged) {
        let name = self.source.spec_name();
        let text = format!("conflicting SELinux labels of volume {name}: {found:?} and {wanted:?}");
        (text, self.judged(What::VolumeMismatch))
    }
}

fn options_of(container: &Container) -> Option<&SELinuxOptions> {
    container.security_context.as_ref()?.se_linux_options.as_ref()
}

impl Selinux {
    /// The label of the files of a container with these options; `None` if they say nothing, or leave a part to the runtime.
    fn of(&self, options: &SELinuxOptions) -> Option<String> {
        let SELinuxOptions { level, role, type_, user } = options;
        let says = [level, role, type_, user].into_iter().flatten().any(|part| !part.is_empty());
        if says { self.labels.of_files(user.as_deref(), level.as_deref()) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::tests::{inline, persistent};

    const CONTEXTS: &str = "process = \"system_u:system_r:container_t:s0\"\n\
                            file = \"system_u:object_r:container_file_t:s0\"\n";

    fn host(every_mode: bool) -> Selinux {
        Selinux { labels: SelinuxLabels::parse(CONTEXTS).expect("a policy"), every_mode }
    }

    fn pod(of_pod: Value, containers: &[(&str, Value)]) -> Pod {
        let containers: Vec<Value> = containers
            .iter()
            .map(|(volume, options)| {
                json!({"name": "c", "volumeMounts": [{"name": volume, "mountPath": "/v"}],
                       "securityContext": {"seLinuxOptions": options}})
            })
            .collect();
        let pod = json!({"spec": {"securityContext": of_pod, "containers": containers}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn volume(modes: &[&str]) -> Source {
        persistent(json!({"accessModes": modes, "csi": {"driver": "d", "volumeHandle": "h"}}), false)
    }

    fn asked<'a>(selinux: &'a Selinux, pod: &'a Pod, source: &'a Source) -> Asked<'a> {
        Asked { selinux, pod, name: "v", source, plugin: "kubernetes.io/csi:d" }
    }

    #[test]
    fn the_label_is_the_containers_else_the_pods() {
        let (selinux, source) = (host(false), volume(&["ReadWriteOncePod"]));
        let of = |of_pod: Value, containers: &[(&str, Value)]| {
            asked(&selinux, &pod(of_pod, containers), &source).of_containers()
        };
        let label = |level: &str| Ok(Some(format!("system_u:object_r:container_file_t:{level}")));
        let of_pod = json!({"seLinuxOptions": {"level": "s0:c1,c2"}});
        assert_eq!(of(of_pod.clone(), &[("v", json!(null)), ("v", json!(null))]), label("s0:c1,c2"));
        assert_eq!(of(of_pod.clone(), &[("v", json!({"level": "s0:c7"}))]), label("s0:c7"));
        let other = [("other", json!({"level": "s0:c7"})), ("v", json!(null))];
        assert_eq!(of(of_pod.clone(), &other), label("s0:c1,c2"), "what does not use it does not count");
        for unknown in [json!(null), json!({}), json!({"type": "spc_t"})] {
            assert_eq!(of(json!({}), &[("v", unknown)]), Ok(None), "the runtime draws it");
        }
        let recursive = json!({"seLinuxOptions": {"level": "s0:c1"}, "seLinuxChangePolicy": "Recursive"});
        assert_eq!(of(recursive, &[("v", json!(null))]), Ok(None));
        let two = of(of_pod, &[("v", json!(null)), ("v", json!({"level": "s0:c3"}))]);
        let (text, judged) = two.expect_err("they differ");
        let file = "system_u:object_r:container_file_t:s0";
        assert_eq!(text, format!("multiple SELinux labels found: {file}:c1,c2,{file}:c3"));
        let plugin = "kubernetes.io/csi/d".to_owned();
        assert_eq!(judged, Judged { what: What::PodMismatch, is_error: true, plugin, mode: "RWOP" });
    }

    #[test]
    fn which_volumes_are_mounted_with_a_label_follows_from_their_access_mode() {
        let pod = pod(json!({}), &[]);
        let scratch = inline(&json!({"name": "v", "csi": {"driver": "d"}}));
        let sources = [
            (volume(&["ReadWriteOncePod"]), "RWOP", true),
            (volume(&["ReadWriteOncePod", "ReadWriteOnce"]), "RWO", false),
            (volume(&["ReadWriteOnce"]), "RWO", false),
            (volume(&["ReadOnlyMany", "ReadWriteMany"]), "RWX", false),
            (volume(&["ReadOnlyMany"]), "ROX", false),
            (scratch, "inline", false),
        ];
        let (one, all) = (host(false), host(true));
        for (source, mode, alone) in &sources {
            let (usual, with_gate) = (asked(&one, &pod, source), asked(&all, &pod, source));
            assert_eq!((usual.mode(), usual.is_eligible()), (*mode, *alone));
            assert_eq!(with_gate.is_eligible(), *mode != "inline");
        }
        let (text, judged) = asked(&one, &pod, &sources[2].0).conflict("a", "b");
        assert_eq!(text, "conflicting SELinux labels of volume pv: \"a\" and \"b\"");
        assert!(!judged.is_error && judged.what == What::VolumeMismatch);
    }
}
