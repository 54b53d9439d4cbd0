//! PURE: how long each call to the runtime may take.

use std::time::Duration;

use super::rpc::Rpc;
use super::wire::{CheckpointContainerRequest, ExecSyncRequest, StopContainerRequest};

/// The deadlines of all calls, derived from `runtimeRequestTimeout` (default 2 minutes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// The deadline of calls without a rule of their own: `runtimeRequestTimeout`.
    pub request: Duration,
    /// The deadline of calls that only read what the runtime holds in memory; never above `request`.
    pub short: Duration,
    /// The deadline of a pull, which `runtimeRequestTimeout` exempts: a bound against a runtime that never answers. A
    /// pull without progress is ended by the runtime's own limit, or by cancelling it.
    pub pull: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new(Duration::from_secs(120))
    }
}

impl Deadlines {
    /// The deadlines that follow from `runtimeRequestTimeout`.
    #[must_use]
    pub fn new(request: Duration) -> Self {
        Self { request, short: request.min(Duration::from_secs(20)), pull: Duration::from_secs(24 * 3600) }
    }

    /// The deadline of an RPC by its name alone.
    #[must_use]
    pub fn of(&self, rpc: Rpc) -> Duration {
        match rpc {
            // Starting a sandbox includes its network, and network plugins are slow.
            Rpc::RunPodSandbox => self.request * 2,
            Rpc::PullImage => self.pull,
            Rpc::Version | Rpc::Status | Rpc::RuntimeConfig => self.short,
            _ => self.request,
        }
    }
}

/// A request with a deadline that may depend on its content.
pub(crate) trait Bounded {
    /// The deadline of this request; by default that of its RPC.
    fn deadline(&self, rpc: Rpc, deadlines: &Deadlines) -> Duration {
        deadlines.of(rpc)
    }
}

/// The longest deadline, 100 years: the API's seconds may be any `i64`, and gRPC cannot express more than some thousand
/// years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The longest deadline of a checkpoint, whatever its caller asks for.
const CHECKPOINT_MAX: Duration = Duration::from_secs(3600);

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0)).min(LONGEST)
}

macro_rules! bounded_by_rpc {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident $label:literal;)* })*) => {
        $($(bounded_by_rpc!(@one $name $request);)*)*
    };
    (@one StopContainer $request:ident) => {};
    (@one ExecSync $request:ident) => {};
    (@one CheckpointContainer $request:ident) => {};
    (@one $name:ident $request:ident) => {
        impl Bounded for super::wire::$request {}
    };
}
super::rpc::for_each_rpc!(bounded_by_rpc);

impl Bounded for StopContainerRequest {
    fn deadline(&self, rpc: Rpc, deadlines: &Deadlines) -> Duration {
        // The stop may take the container's grace period, and the runtime its usual time on top.
        deadlines.of(rpc).saturating_add(seconds(self.timeout))
    }
}

impl Bounded for ExecSyncRequest {
    fn deadline(&self, rpc: Rpc, deadlines: &Deadlines) -> Duration {
        if self.timeout == 0 {
            deadlines.pull
        } else {
            deadlines.of(rpc).saturating_add(seconds(self.timeout))
        }
    }
}

impl Bounded for CheckpointContainerRequest {
    fn deadline(&self, rpc: Rpc, deadlines: &Deadlines) -> Duration {
        deadlines.of(rpc).max(seconds(self.timeout).min(CHECKPOINT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{RunPodSandboxRequest, VersionRequest};

    #[test]
    fn each_call_has_the_deadline_of_its_kind() {
        let rules = Deadlines::default();
        let secs = Duration::from_secs;
        assert_eq!(RunPodSandboxRequest::default().deadline(Rpc::RunPodSandbox, &rules), secs(240));
        assert_eq!(VersionRequest::default().deadline(Rpc::Version, &rules), secs(20));
        let stop = |timeout| StopContainerRequest { timeout, ..Default::default() };
        assert_eq!(stop(30).deadline(Rpc::StopContainer, &rules), secs(150));
        assert_eq!(stop(-1).deadline(Rpc::StopContainer, &rules), secs(120));
        let exec = |timeout| ExecSyncRequest { timeout, ..Default::default() };
        assert_eq!(exec(1).deadline(Rpc::ExecSync, &rules), secs(121));
        assert!(exec(0).deadline(Rpc::ExecSync, &rules) > secs(3600));
    }
}
