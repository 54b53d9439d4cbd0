//! The phase of a pod from its container statuses (row 8.1).

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodSpec};
use pod_rules::phases;

use crate::container_state::{RESTARTING_ALL, by_name, last_terminated, running, terminated, waiting};
use crate::spec::{self, ContainerSpec, Kind};

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not every container has been started.
    Pending,
    /// All have been started and at least one runs or will be started again.
    Running,
    /// All have ended well, for good.
    Succeeded,
    /// All have ended, at least one badly, or the node ended the pod.
    Failed,
}

impl Phase {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => phases::PENDING,
            Self::Running => phases::RUNNING,
            Self::Succeeded => phases::SUCCEEDED,
            Self::Failed => phases::FAILED,
        }
    }

    /// The phase of this name; `None` if it is not one of the four.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed].into_iter().find(|p| p.as_str() == text)
    }

    /// Whether the phase is one that a pod never leaves.
    pub fn is_terminal(self) -> bool {
        phases::is_terminal(self.as_str())
    }
}

/// The facts on which the phase depends besides the spec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseInput<'a> {
    /// Statuses of the init containers.
    pub(crate) init: &'a [ContainerStatus],
    /// Statuses of the regular containers.
    pub(crate) regular: &'a [ContainerStatus],
    /// No container will be started again, whatever the restart policy says.
    pub(crate) ended: bool,
    /// A regular container has been started in the sandbox that is in use: sidecars that start again do not make
    /// the pod Pending.
    pub(crate) has_initialized: bool,
}

#[derive(Default)]
struct Tally {
    pending_init: u32,
    failed_init: u32,
    pending_sidecars: u32,
    unknown: u32,
    running: u32,
    waiting: u32,
    stopped: u32,
    stopped_for_good: u32,
    succeeded: u32,
}

/// The phase that follows from the containers alone.
pub(crate) fn phase(pod: &PodSpec, input: &PhaseInput<'_>) -> Phase {
    let policy = pod.restart_policy.as_deref();
    let (init, regular) = (by_name(input.init), by_name(input.regular));
    let mut tally = Tally::default();
    for container in spec::init(pod) {
        let status = init.get(container.name).copied();
        match container.kind {
            Kind::Sidecar => tally.sidecar(status),
            _ => tally.init(&container, status, policy),
        }
    }
    for container in spec::regular(pod) {
        tally.regular(&container, regular.get(container.name).copied(), policy);
    }
    tally.phase(input)
}

/// Whether the container will be started again: it was removed to be restarted, or its rules and policies say so.
fn comes_back(spec: &ContainerSpec<'_>, end: &ContainerStateTerminated, policy: Option<&str>) -> bool {
    end.reason.as_deref() == Some(RESTARTING_ALL) || spec.should_restart(policy, end.exit_code)
}

impl Tally {
    fn init(&mut self, spec: &ContainerSpec<'_>, status: Option<&ContainerStatus>, policy: Option<&str>) {
        let end = status.and_then(|s| terminated(s).or_else(|| waiting(s).and_then(|_| last_terminated(s))));
        match end {
            None => self.pending_init += 1,
            Some(end) if end.exit_code != 0 && !comes_back(spec, end, policy) => self.failed_init += 1,
            Some(_) => {}
        }
    }

    /// A sidecar that has ended does not count: it is started again or no longer needed.
    fn sidecar(&mut self, status: Option<&ContainerStatus>) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        if running(status).is_some() {
            self.running += 1;
            self.pending_sidecars += u32::from(status.started != Some(true));
        } else if waiting(status).is_some() {
            if last_terminated(status).is_none() {
                self.pending_sidecars += 1;
                self.waiting += 1;
            }
        } else if terminated(status).is_none() {
            self.pending_sidecars += 1;
            self.unknown += 1;
        }
    }

    fn regular(&mut self, spec: &ContainerSpec<'_>, status: Option<&ContainerStatus>, policy: Option<&str>) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        if running(status).is_some() {
            self.running += 1;
        } else if let Some(end) = terminated(status) {
            self.stopped += 1;
            self.stopped_for_good += u32::from(!comes_back(spec, end, policy));
            self.succeeded += u32::from(end.exit_code == 0);
        } else if waiting(status).is_some() {
            match last_terminated(status) {
                Some(end) => {
                    self.stopped += 1;
                    self.stopped_for_good += u32::from(!comes_back(spec, end, policy));
                }
                None => self.waiting += 1,
            }
        } else {
            self.unknown += 1;
        }
    }

    fn phase(&self, input: &PhaseInput<'_>) -> Phase {
        if self.failed_init > 0 {
            return Phase::Failed;
        }
        let uninitialized = self.pending_init > 0 || (self.pending_sidecars > 0 && !input.has_initialized);
        if uninitialized || self.waiting > 0 || self.unknown > 0 {
            return Phase::Pending;
        }
        if self.running > 0 {
            return Phase::Running;
        }
        if self.stopped == 0 {
            return Phase::Pending;
        }
        let for_good = input.ended || self.stopped == self.stopped_for_good;
        match (for_good, self.stopped == self.succeeded) {
            (false, _) => Phase::Running,
            (true, true) => Phase::Succeeded,
            (true, false) => Phase::Failed,
        }
    }
}

/// The reason of the conditions of a pod that has ended; empty before.
pub(crate) fn terminal_reason(phase: Phase) -> &'static str {
    match phase {
        Phase::Failed => "PodFailed",
        Phase::Succeeded => "PodCompleted",
        Phase::Pending | Phase::Running => "",
    }
}
