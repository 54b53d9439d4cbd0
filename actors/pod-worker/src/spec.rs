//! Reads a pod's spec: kinds of containers, restart policies, network, grace period.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, EphemeralContainer, Pod, PodSpec};
use pod_rules::restart::{self, RestartPolicy};
use serde::Serialize;

use crate::ephemeral::as_container;

/// The kind of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ContainerKind {
    /// An init container that runs to completion before the next one starts.
    Init,
    /// An init container with restart policy Always (row 5.13).
    Sidecar,
    /// One of `spec.containers`.
    Regular,
    /// One of `spec.ephemeralContainers`: started once, independently of the other containers (row 5.14).
    Ephemeral,
}

impl ContainerKind {
    /// The field path of events about a container: `spec.initContainers{name}`, `spec.containers{name}` or
    /// `spec.ephemeralContainers{name}`.
    pub fn field_path(self, name: &str) -> String {
        match self {
            Self::Init | Self::Sidecar => format!("spec.initContainers{{{name}}}"),
            Self::Regular => format!("spec.containers{{{name}}}"),
            Self::Ephemeral => format!("spec.ephemeralContainers{{{name}}}"),
        }
    }

    /// The value of the label `container_type` of the metrics of started containers.
    pub fn metric_label(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "init_container",
            Self::Regular => "container",
            Self::Ephemeral => "ephemeral_container",
        }
    }
}

/// The containers of a pod by name; of several of one name the first.
#[derive(Debug)]
pub struct ByName<'a>(BTreeMap<&'a str, Listed<'a>>);

/// A container of a pod's spec.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its kind.
    pub kind: ContainerKind,
    /// Its place in the order init, regular, ephemeral containers.
    pub place: usize,
    entry: Entry<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Entry<'a> {
    Lasting(&'a Container),
    Ephemeral(&'a EphemeralContainer),
}

impl<'a> ByName<'a> {
    /// The container of this name.
    pub fn get(&self, name: &str) -> Option<Listed<'a>> {
        self.0.get(name).copied()
    }

    /// The container of this name and its kind.
    pub fn find(&self, name: &str) -> Option<(ContainerKind, Cow<'a, Container>)> {
        self.get(name).map(|listed| (listed.kind, listed.container()))
    }
}

impl<'a> Listed<'a> {
    /// The container; an ephemeral one as an ordinary one.
    pub fn container(self) -> Cow<'a, Container> {
        match self.entry {
            Entry::Lasting(container) => Cow::Borrowed(container),
            Entry::Ephemeral(container) => Cow::Owned(as_container(container)),
        }
    }
}

/// A pod's spec, with the questions that planning asks about it. An absent spec has no containers.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a> {
    spec: Option<&'a PodSpec>,
}

impl<'a> PodView<'a> {
    /// The view of this pod.
    pub fn of(pod: &'a Pod) -> Self {
        Self { spec: pod.spec.as_ref() }
    }

    /// `spec.initContainers`, with the sidecars.
    pub fn init(self) -> &'a [Container] {
        self.spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
    }

    /// `spec.containers`.
    pub fn regular(self) -> &'a [Container] {
        self.spec.map(|spec| spec.containers.as_slice()).unwrap_or_default()
    }

    /// `spec.ephemeralContainers`.
    pub fn ephemeral(self) -> &'a [EphemeralContainer] {
        self.spec.and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default()
    }

    /// Every container except the ephemeral ones, with its kind; init containers first.
    pub fn containers(self) -> impl Iterator<Item = (ContainerKind, &'a Container)> {
        self.init()
            .iter()
            .map(|container| (init_kind(container), container))
            .chain(self.regular().iter().map(|container| (ContainerKind::Regular, container)))
    }

    /// Every container with its name.
    fn listed(self) -> impl Iterator<Item = (&'a str, Listed<'a>)> {
        let lasting =
            self.containers().map(|(kind, container)| (&container.name, kind, Entry::Lasting(container)));
        let ephemeral = self
            .ephemeral()
            .iter()
            .map(|ephemeral| (&ephemeral.name, ContainerKind::Ephemeral, Entry::Ephemeral(ephemeral)));
        let all = lasting.chain(ephemeral).enumerate();
        all.map(|(place, (name, kind, entry))| (name.as_str(), Listed { kind, place, entry }))
    }

    /// The container of this name: for a single question. A step that has several asks [`PodView::by_name`].
    pub fn find(self, name: &str) -> Option<Listed<'a>> {
        self.listed().find(|(listed, _)| *listed == name).map(|(_, listed)| listed)
    }

    /// Every container by its name. Made once for all questions of a step: a pod's author chooses how many containers there are.
    pub fn by_name(self) -> ByName<'a> {
        let mut containers = BTreeMap::new();
        for (name, listed) in self.listed() {
            containers.entry(name).or_insert(listed);
        }
        ByName(containers)
    }

    /// The pod's restart policy; Always if it is absent or unknown.
    pub fn restart_policy(self) -> RestartPolicy {
        RestartPolicy::of(self.spec.and_then(|spec| spec.restart_policy.as_deref()))
    }

    /// Whether the pod shares the node's network namespace.
    pub fn host_network(self) -> bool {
        self.spec.and_then(|spec| spec.host_network).unwrap_or(false)
    }

    /// `spec.terminationGracePeriodSeconds`.
    pub fn grace_seconds(self) -> Option<i64> {
        self.spec.and_then(|spec| spec.termination_grace_period_seconds)
    }

    /// The spec, if the pod has one.
    pub fn spec(self) -> Option<&'a PodSpec> {
        self.spec
    }

    /// Whether an exit of a container is followed by a restart: its rules, else its own policy, else the pod's
    /// (rows 5.10 and 5.11).
    pub fn restarts_after(self, container: &Container, exit_code: i32) -> bool {
        let own = container.restart_policy.as_deref();
        restart::restarts_after(own, rules(container), self.restart_policy(), exit_code)
    }

    /// Whether a container is restarted that is killed for a failed probe, or whose state is unknown. It has
    /// no exit code, so that only policies count and no rules.
    pub fn restarts_after_kill(self, container: &Container) -> bool {
        match container.restart_policy.as_deref() {
            Some(own) => RestartPolicy::of(Some(own)) != RestartPolicy::Never,
            None => self.restart_policy() != RestartPolicy::Never,
        }
    }
}

/// The kind of an init container: init container or sidecar.
pub fn init_kind(container: &Container) -> ContainerKind {
    if restart::is_sidecar(container) { ContainerKind::Sidecar } else { ContainerKind::Init }
}

/// Whether this exit of a container restarts all containers of its pod.
pub fn restarts_all(container: &Container, exit_code: i32) -> bool {
    restart::restarts_all(rules(container), exit_code)
}

fn rules(container: &Container) -> &[ContainerRestartRule] {
    container.restart_policy_rules.as_deref().unwrap_or_default()
}
