//! `UnderstudyConfiguration` (`understudy.dev/v1alpha1`): the settings that this kubelet has in addition to upstream's.
//!
//! The kind has a file of its own (`--understudy-config`), so that a KubeletConfiguration stays usable with either
//! kubelet. Every field may be left out; a value of zero means zero.

use std::collections::BTreeMap;
use std::path::Path;

use pod_sources::{SecurityLevel, StandardVersion};
use serde_json::{Map, Value as Json};

use super::document::read_document;
use super::duration::GoDuration;
use super::effects::Effect;
use super::error::{ConfigError, field_errors};
use super::section::{FieldValue, Section, decode_object, section};

/// The group and version of [`UnderstudyConfiguration`].
pub const API_VERSION: &str = "understudy.dev/v1alpha1";
/// The kind of [`UnderstudyConfiguration`].
pub const KIND: &str = "UnderstudyConfiguration";

section! {
    /// Supervision, budgets and periods of this kubelet.
    pub struct UnderstudyConfiguration {
        /// When subsystems are restarted, and when they are given up.
        "supervision" supervision: SupervisionPolicy = Pointer(SupervisionPolicy::default()), Used;
        /// When a pod that makes a subsystem panic is quarantined.
        "quarantine" quarantine: QuarantinePolicy = Pointer(QuarantinePolicy::default()), Used;
        /// Budgets of the workers, one of which belongs to each pod.
        "podWorker" pod_worker: PodWorkerBudget = Pointer(PodWorkerBudget::default()), Used;
        /// Bounds of the mailboxes.
        "mailbox" mailbox: MailboxBounds = Pointer(MailboxBounds::default()), Used;
        /// Pods accepted over HTTP.
        "podSubmission" pod_submission: PodSubmission = Pointer(PodSubmission::default()), Used;
        /// The Pod Security Standard of pods that do not come from the API server.
        "podSecurity" pod_security: PodSecurityPolicy = Pointer(PodSecurityPolicy::default()), Used;
        /// The HTTPS server.
        "server" server: ServerPolicy = Pointer(ServerPolicy::default()), Used;
        /// How often the runtime is asked for its containers.
        "relist" relist: RelistPeriods = Pointer(RelistPeriods::default()), Used;
        /// Directory of the symbolic links that older log collectors follow; empty makes none.
        "legacyLogSymlinkDir" legacy_log_symlink_dir: String = Pointer("/var/log/containers".to_owned()), Used;
        /// Directory of the kernel's settings that a node needs; empty leaves them as they are, and demands nothing of them.
        "sysctlDir" sysctl_dir: String = Pointer("/proc/sys".to_owned()), Used;
    }
}

section! {
    /// Restart with backoff, within limits (guarantees G2, G6 and G7).
    pub struct SupervisionPolicy {
        /// Wait before the first restart.
        "backoffInitial" backoff_initial: GoDuration = Pointer(GoDuration::from_millis(100)), Used;
        /// Longest wait before a restart; each wait doubles the one before.
        "backoffMax" backoff_max: GoDuration = Pointer(GoDuration::from_secs(10)), Used;
        /// Restarts within `restartsWindow` at most; one more and the subsystem is given up.
        "restartsMax" restarts_max: u32 = Pointer(5), Used;
        /// The time over which restarts are counted.
        "restartsWindow" restarts_window: GoDuration = Pointer(GoDuration::from_secs(60)), Used;
        /// Time without a crash after which the backoff and the count start anew.
        "healthyAfter" healthy_after: GoDuration = Pointer(GoDuration::from_secs(60)), Used;
        /// Time after which a subsystem that was given up is tried again.
        "dormantRetry" dormant_retry: GoDuration = Pointer(GoDuration::from_mins(5)), Used;
        /// Time without progress in one message after which an actor is killed and restarted.
        "stallAfter" stall_after: GoDuration = Pointer(GoDuration::from_secs(30)), Used;
        /// Time after which a blocked thread is reported with the message it is handling.
        "threadReportAfter" thread_report_after: GoDuration = Pointer(GoDuration::from_secs(10)), Used;
        /// Time after which a blocked thread ends the process.
        "threadExitAfter" thread_exit_after: GoDuration = Pointer(GoDuration::from_secs(30)), Used;
        /// Seed of the backoff's jitter; absent draws one at start and logs it.
        "seed" seed: Option<u64> = Value(None), Used;
    }
}

section! {
    /// When a pod that makes a subsystem panic again and again is quarantined in that subsystem (guarantee G11).
    pub struct QuarantinePolicy {
        /// Panics over one pod within `window` after which it is quarantined.
        "panicsMax" panics_max: u32 = Pointer(3), Used;
        /// The time over which panics are counted.
        "window" window: GoDuration = Pointer(GoDuration::from_mins(10)), Used;
    }
}

section! {
    /// Restart budgets of one pod's worker, and of all workers together.
    pub struct PodWorkerBudget {
        /// Restarts of one worker within `restartsWindow` at most; one more and only that pod is quarantined.
        "restartsMax" restarts_max: u32 = Pointer(5), Used;
        /// The time over which one worker's restarts are counted.
        "restartsWindow" restarts_window: GoDuration = Pointer(GoDuration::from_secs(60)), Used;
        /// Number of different causes of crashing workers within `restartsWindow` above which the pool itself counts as
        /// failing. Pods that crash at one place are one cause.
        "crashingPodsMax" crashing_pods_max: u32 = Pointer(10), Used;
    }
}

section! {
    /// The bounds of mailboxes.
    pub struct MailboxBounds {
        /// Messages that may wait for one actor, unless `perActor` sets another bound.
        "default" default: u32 = Pointer(1024), Used;
        /// Messages that may wait, by actor.
        "perActor" per_actor: BTreeMap<String, u32> = Value(BTreeMap::new()), Used;
    }
}

section! {
    /// Pods accepted over HTTP.
    pub struct PodSubmission {
        /// Whether the HTTPS server accepts pods (`POST /pods`, `DELETE /pods/{namespace}/{name}`), and those that it has
        /// accepted run.
        "enabled" enabled: bool = Pointer(false), Used;
    }
}

section! {
    /// The Pod Security Standard that pods of manifests and submitted ones have to meet.
    pub struct PodSecurityPolicy {
        /// The level: `privileged`, `baseline` or `restricted`.
        "enforce" enforce: String = Pointer("privileged".to_owned()), Used;
        /// The level's version: `latest`, or that of a release, as `v1.36`.
        "version" version: String = Pointer("latest".to_owned()), Used;
    }
}

section! {
    /// The HTTPS server.
    pub struct ServerPolicy {
        /// Whether exec, attach, run and port-forward need the verb of their method, as with Kubernetes' kubelet, where
        /// `get` is enough for a GET; else they need `create` by any method.
        "execByMethod" exec_by_method: bool = Pointer(false), Used;
    }
}

section! {
    /// How often the runtime is asked for its containers, in addition to its events.
    pub struct RelistPeriods {
        /// The period of a list of all pods, as a safety net for pods whose exits are announced.
        "notified" notified: GoDuration = Pointer(GoDuration::from_secs(10)), Used;
        /// The period of looks at a pod with a running container whose exit is not announced.
        "unnotified" unnotified: GoDuration = Pointer(GoDuration::from_secs(1)), Used;
    }
}

impl UnderstudyConfiguration {
    /// Reads `file`, as strictly as a KubeletConfiguration.
    ///
    /// # Errors
    /// All problems of the file, each naming field and value.
    pub fn load(file: &Path) -> Result<Self, Vec<ConfigError>> {
        let object = read_document(file, KIND, API_VERSION).map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        let decoded = decode_object(Json::Object(object), "", &mut errors);
        match (decoded, errors.is_empty()) {
            (Some(config), true) => Ok(config),
            _ => Err(field_errors(file, errors)),
        }
    }

    /// The whole document as JSON.
    pub fn to_json(&self) -> Json {
        let mut object = Map::new();
        self.put(&mut object);
        object.insert("kind".to_owned(), Json::from(KIND));
        object.insert("apiVersion".to_owned(), Json::from(API_VERSION));
        Json::Object(object)
    }

    /// Every broken rule, naming field and value; empty when the configuration is valid.
    pub fn validate(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let supervision = &self.supervision;
        for (name, period) in [
            ("supervision.backoffInitial", supervision.backoff_initial),
            ("supervision.restartsWindow", supervision.restarts_window),
            ("supervision.healthyAfter", supervision.healthy_after),
            ("supervision.dormantRetry", supervision.dormant_retry),
            ("supervision.stallAfter", supervision.stall_after),
            ("supervision.threadReportAfter", supervision.thread_report_after),
            ("quarantine.window", self.quarantine.window),
            ("podWorker.restartsWindow", self.pod_worker.restarts_window),
            ("relist.notified", self.relist.notified),
            ("relist.unnotified", self.relist.unnotified),
        ] {
            if period <= GoDuration::ZERO {
                broken.push(format!("{name} {period} must be greater than 0s"));
            }
        }
        for (name, long, least_name, least) in [
            (
                "supervision.backoffMax",
                supervision.backoff_max,
                "supervision.backoffInitial",
                supervision.backoff_initial,
            ),
            (
                "supervision.threadExitAfter",
                supervision.thread_exit_after,
                "supervision.threadReportAfter",
                supervision.thread_report_after,
            ),
        ] {
            if long < least {
                broken.push(format!("{name} {long} must not be less than {least_name} ({least})"));
            }
        }
        let bounds =
            self.mailbox.per_actor.iter().map(|(actor, &bound)| (format!("perActor.{actor}"), bound));
        for (name, bound) in bounds.chain([("default".to_owned(), self.mailbox.default)]) {
            if bound == 0 {
                broken.push(format!("mailbox.{name} 0 must be at least 1"));
            }
        }
        if self.quarantine.panics_max == 0 {
            broken.push("quarantine.panicsMax 0 must be at least 1".to_owned());
        }
        let security = &self.pod_security;
        if SecurityLevel::named(&security.enforce).is_none() {
            broken.push(format!(
                "podSecurity.enforce {:?} must be one of privileged, baseline, restricted",
                security.enforce
            ));
        }
        if StandardVersion::parse(&security.version).is_none() {
            broken.push(format!("podSecurity.version {:?} must be \"latest\" or \"v1.x\"", security.version));
        }
        for (name, dir) in
            [("legacyLogSymlinkDir", &self.legacy_log_symlink_dir), ("sysctlDir", &self.sysctl_dir)]
        {
            if !dir.is_empty() && !dir.starts_with('/') {
                broken.push(format!("{name} {dir:?} must be an absolute path or empty"));
            }
        }
        broken.into_iter().map(|text| format!("invalid understudy configuration: {text}")).collect()
    }

    /// The fields without effect yet that differ from their default.
    pub fn not_yet_away_from_default(&self) -> Vec<String> {
        let (ours, theirs) = (self.encode(), Self::default().encode());
        Self::ROWS
            .iter()
            .filter(|row| row.effect == Effect::NotYet && ours.get(row.name) != theirs.get(row.name))
            .map(|row| format!("{} (understudy)", row.name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::UnderstudyConfiguration;

    #[test]
    fn defaults_are_the_documented_ones_and_valid() {
        let config = UnderstudyConfiguration::default();
        assert_eq!(config.validate(), Vec::<String>::new());
        assert_eq!(
            config.to_json()["supervision"],
            json!({
                "backoffInitial": "100ms", "backoffMax": "10s", "restartsMax": 5, "restartsWindow": "1m0s",
                "healthyAfter": "1m0s", "dormantRetry": "5m0s", "stallAfter": "30s",
                "threadReportAfter": "10s", "threadExitAfter": "30s"
            })
        );
        assert_eq!(config.to_json()["relist"], json!({"notified": "10s", "unnotified": "1s"}));
        assert_eq!(config.to_json()["sysctlDir"], json!("/proc/sys"));
    }

    #[test]
    fn every_broken_rule_is_reported() {
        let mut config = UnderstudyConfiguration::default();
        config.supervision.backoff_max = super::GoDuration::from_millis(1);
        config.mailbox.per_actor.insert("pleg".to_owned(), 0);
        config.quarantine.panics_max = 0;
        config.sysctl_dir = "proc/sys".to_owned();
        config.pod_security.enforce = "strict".to_owned();
        config.pod_security.version = "1.36".to_owned();
        assert_eq!(
            config.validate(),
            vec![
                "invalid understudy configuration: supervision.backoffMax 1ms must not be less than \
                 supervision.backoffInitial (100ms)",
                "invalid understudy configuration: mailbox.perActor.pleg 0 must be at least 1",
                "invalid understudy configuration: quarantine.panicsMax 0 must be at least 1",
                "invalid understudy configuration: podSecurity.enforce \"strict\" must be one of privileged, \
                 baseline, restricted",
                "invalid understudy configuration: podSecurity.version \"1.36\" must be \"latest\" or \"v1.x\"",
                "invalid understudy configuration: sysctlDir \"proc/sys\" must be an absolute path or empty",
            ]
        );
    }
}
