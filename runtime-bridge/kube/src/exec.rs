//! Kubeconfig users that are programs: `client.authentication.k8s.io/v1` and `v1beta1`. A program's credentials are
//! kept until they expire or the server refuses them. Calls that need new ones share a run, which no call ends: a
//! program may take longer than a call.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use kube::config::ExecConfig;
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use super::credentials::{Identity, certificate_pair};
use super::error::ConnectError;
use super::kubeconfig::Pem;
use bridge_pace::panics::{self, Carried};

mod group;
mod metrics;

use group::Group;
pub use metrics::ProgramMetrics;
use metrics::Run;

/// The longest run of a program.
const RUN_DEADLINE: Duration = Duration::from_secs(60);
/// The wait after a failed run before a request runs the program again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The environment variable that tells the program which API version and cluster are meant.
const INFO: &str = "KUBERNETES_EXEC_INFO";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Status")
            .field("expiration_timestamp", &self.expiration_timestamp)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct CachedCredential {
    identity: Identity,
    certificate: (String, String),
    fresh: bool,
    ends: Option<Timestamp>,
    failed: Option<(tokio::time::Instant, ConnectError)>,
}

/// The program, and what it gave last. Clones share that.
#[derive(Clone, Debug)]
struct Program {
    config: ExecConfig,
    deadline: Duration,
    known: Arc<Mutex<CachedCredential>>,
    metrics: Option<ProgramMetrics>,
}

type Outcome = Shared<BoxFuture<'static, Result<Result<(), ConnectError>, Carried>>>;

/// The last run that has begun. The task ends with the last of the outcome's clones.
#[derive(Debug)]
struct Begun {
    task: AbortHandle,
    outcome: Outcome,
}

/// The identity that a program yields. Dropping it ends the run under way.
#[derive(Debug)]
pub(super) struct ExecIdentity {
    program: Program,
    begun: Mutex<Option<Begun>>,
}

impl ExecIdentity {
    pub fn new(config: ExecConfig) -> Self {
        let program = Program { config, deadline: RUN_DEADLINE, known: Arc::default(), metrics: None };
        Self { program, begun: Mutex::default() }
    }

    /// Runs and certificates are counted.
    pub fn counted(&mut self, metrics: ProgramMetrics) {
        self.program.metrics = Some(metrics);
    }

    /// The identity of the last run.
    pub fn identity(&self) -> Identity {
        self.program.locked().identity.clone()
    }

    /// Marks the credentials as refused by the server: the program runs again before the next request.
    pub fn refused(&self) {
        self.program.locked().fresh = false;
    }

    /// Runs the program unless its credentials are still good. A caller that gives up leaves the run to go on.
    pub async fn refresh(&self) -> Result<(), ConnectError> {
        match self.awaited()? {
            Some(outcome) => panics::resumed(outcome.await),
            None => Ok(()),
        }
    }

    /// The outcome of the run under way, or else of one that begins now; none while the credentials are good.
    fn awaited(&self) -> Result<Option<Outcome>, ConnectError> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if self.program.is_fresh()? {
            return Ok(None);
        }
        if let Some(begun) = &*begun
            && !begun.task.is_finished()
        {
            return Ok(Some(begun.outcome.clone()));
        }
        let program = self.program.clone();
        let work = panics::caught(async move { program.renew().await });
        let run = AbortOnDropHandle::new(tokio::spawn(work.boxed()));
        let task = run.abort_handle();
        let gone = self.program.failed("the I/O runtime has shut down");
        let outcome = async move { run.await.unwrap_or(Ok(Err(gone))) }.boxed().shared();
        *begun = Some(Begun { task, outcome: outcome.clone() });
        Ok(Some(outcome))
    }
}

impl Program {
    fn count(&self, count: impl FnOnce(&ProgramMetrics)) {
        if let Some(metrics) = &self.metrics {
            count(metrics);
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, CachedCredential> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self) -> &str {
        self.config.command.as_deref().unwrap_or_default()
    }

    fn failed(&self, reason: impl Into<String>) -> ConnectError {
        ConnectError::Exec { command: self.command().to_owned(), reason: reason.into() }
    }

    fn is_fresh(&self) -> Result<bool, ConnectError> {
        let known = self.locked();
        if known.fresh && known.ends.is_none_or(|ends| Timestamp::now() < ends) {
            return Ok(true);
        }
        match &known.failed {
            Some((at, error)) if at.elapsed() < RETRY_AFTER => Err(error.clone()),
            _ => Ok(false),
        }
    }

    /// Runs the program and keeps what it gives, or why it failed.
    async fn renew(&self) -> Result<(), ConnectError> {
        let outcome = self.run().await.and_then(|output| self.take(&output));
        if let Err(error) = &outcome {
            self.locked().failed = Some((tokio::time::Instant::now(), error.clone()));
        }
        outcome
    }

    async fn run(&self) -> Result<Vec<u8>, ConnectError> {
        let mut spec = json!({"interactive": false});
        if self.config.provide_cluster_info
            && let Some(cluster) = &self.config.cluster
        {
            spec["cluster"] = serde_json::to_value(cluster).unwrap_or_default();
        }
        let info = json!({"kind": "ExecCredential", "apiVersion": self.config.api_version, "spec": spec});
        let mut command = Command::new(self.command());
        command.args(self.config.args.iter().flatten());
        for variable in self.config.env.iter().flatten() {
            if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
                command.env(name, value);
            }
        }
        command.env(INFO, info.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = Group::begin(&mut command).map_err(|error| {
            self.count(|metrics| metrics.ran(Run::NotFound));
            let hint = self.config.install_hint.as_deref().map(|hint| format!("; {}", hint.trim()));
            self.failed(format!("cannot be run: {error}{}", hint.unwrap_or_default()))
        })?;
        let ended = tokio::time::timeout(self.deadline, group.ended()).await;
        self.count(|metrics| {
            metrics.ran(match &ended {
                Ok(Ok(ended)) if ended.status.success() => Run::Done,
                Ok(Ok(ended)) => Run::Failed(ended.status.code().unwrap_or(-1)),
                Ok(Err(_)) | Err(_) => Run::Internal,
            });
        });
        let late = |_| self.failed(format!("has not ended within {} s", self.deadline.as_secs_f64()));
        let ended = ended.map_err(late)?.map_err(|error| self.failed(error.to_string()))?;
        if ended.status.success() {
            return Ok(ended.output);
        }
        let said = String::from_utf8_lossy(&ended.said[..ended.said.len().min(1024)]).trim().to_owned();
        Err(self.failed(format!("failed with {}: {said}", ended.status)))
    }

    fn take(&self, output: &[u8]) -> Result<(), ConnectError> {
        // The output is left out of the error, since it holds a secret.
        let read = serde_json::from_slice::<Credential>(output);
        let read = read.map_err(|error| {
            self.failed(format!(
                "printed no ExecCredential (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        let wanted = self.config.api_version.as_deref().unwrap_or_default();
        if read.kind != "ExecCredential" || read.api_version != wanted {
            return Err(self.failed(format!(
                "is to give an ExecCredential of API version {wanted}, and gave a {} of {}",
                read.kind, read.api_version
            )));
        }
        let status = read.status.ok_or_else(|| self.failed("gave no status"))?;
        let pair = (status.client_certificate_data, status.client_key_data);
        match (pair.0.is_empty(), pair.1.is_empty(), status.token.is_empty()) {
            (true, true, true) => {
                return Err(self.failed("gave neither a token nor a certificate with its key"));
            }
            (false, true, _) | (true, false, _) => {
                return Err(self.failed("gave only one of certificate and key"));
            }
            _ => {}
        }
        let mut known = self.locked();
        let mut identity = Identity {
            token: Some(status.token).filter(|token| !token.is_empty()).map(Arc::from),
            ..known.identity.clone()
        };
        if pair != known.certificate {
            let before = identity.validity();
            identity.generation += 1;
            identity.certificate = None;
            if !pair.0.is_empty() {
                let inline = |text: &str| Pem::Inline(text.as_bytes().to_vec());
                let parsed = certificate_pair(&inline(&pair.0), &inline(&pair.1));
                identity.certificate =
                    Some(Arc::new(parsed.map_err(|error| self.failed(error.to_string()))?));
            }
            self.count(|metrics| {
                if let Some((began, _)) = before {
                    metrics.rotated(began, Timestamp::now());
                }
                metrics.ends(identity.validity().map(|(_, ends)| ends));
            });
        }
        *known = CachedCredential {
            identity,
            certificate: pair,
            fresh: true,
            ends: status.expiration_timestamp,
            failed: None,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn program(script: &str) -> ExecIdentity {
        let config = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh",
            "args": ["-c", script], "env": [{"name": "GIVEN", "value": "x"}], "interactiveMode": "Never",
            "installHint": "install it"});
        ExecIdentity::new(serde_json::from_value(config).unwrap())
    }

    fn credential(status: &str) -> String {
        format!(
            r#"echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'"#
        )
    }

    fn lines(file: &Path) -> usize {
        std::fs::read_to_string(file).unwrap_or_default().lines().count()
    }

    /// A script that starts a process, of which `pid` is told, and waits for its end.
    fn hanging(pid: &Path) -> String {
        format!("sleep 600 & echo $! >{0}.new; mv {0}.new {0}; wait", pid.display())
    }

    /// Waits for the death of the process that a [`hanging`] script has started.
    async fn dies(pid: &Path) {
        let stat = format!("/proc/{}/stat", std::fs::read_to_string(pid).unwrap().trim());
        // What has died is no process any longer, or waits for its new parent.
        let lives = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let death = async {
            while lives() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), death).await.expect("it is killed");
    }

    /// Waits for `is_so` beside a caller that waits for credentials, and then gives up.
    async fn gives_up(identity: &ExecIdentity, is_so: impl Fn() -> bool) {
        let becomes_so = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            outcome = identity.refresh() => panic!("the run has ended: {outcome:?}"),
            () = becomes_so => {}
        }
    }

    async fn error(script: &str) -> String {
        program(script).refresh().await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn what_a_program_gives_is_kept_until_it_expires() {
        let directory = tempfile::tempdir().unwrap();
        let count = directory.path().join("count");
        let runs = || lines(&count);
        let counted = format!("echo run >>{}; ", count.display());
        let lasting = program(&(counted.clone() + &credential(r#"{"token":"t"}"#)));
        for _ in 0..3 {
            lasting.refresh().await.unwrap();
        }
        assert_eq!((runs(), lasting.identity().token.as_deref()), (1, Some("t")));
        lasting.refused();
        lasting.refresh().await.unwrap();
        assert_eq!(runs(), 2);
        let ended = r#"{"token":"t","expirationTimestamp":"2020-01-02T03:04:05Z"}"#;
        let ended = program(&(counted + &credential(ended)));
        for _ in 0..2 {
            ended.refresh().await.unwrap();
        }
        assert_eq!(runs(), 4);
    }

    #[tokio::test]
    async fn callers_share_a_run_and_its_outcome() {
        let directory = tempfile::tempdir().unwrap();
        let count = directory.path().join("count");
        let counted = format!("echo run >>{}; ", count.display());
        // What has expired already is good for those alone that have waited for it.
        let ended = r#"{"token":"t","expirationTimestamp":"2020-01-02T03:04:05Z"}"#;
        let shared = program(&(counted.clone() + &credential(ended)));
        let outcomes = tokio::join!(shared.refresh(), shared.refresh());
        assert_eq!((outcomes, lines(&count)), ((Ok(()), Ok(())), 1));
        let failing = program(&(counted + "exit 7"));
        let (one, other) = tokio::join!(failing.refresh(), failing.refresh());
        assert!(one.as_ref().is_err_and(|error| error.to_string().contains("exit status: 7")), "{one:?}");
        assert_eq!((one, lines(&count)), (other, 2));
    }

    #[tokio::test]
    async fn a_run_goes_on_without_the_caller_that_began_it() {
        let directory = tempfile::tempdir().unwrap();
        let (count, go) = (directory.path().join("count"), directory.path().join("go"));
        let waits =
            format!("echo run >>{}; until [ -e {} ]; do sleep 0.01; done; ", count.display(), go.display());
        let slow = program(&(waits + &credential(r#"{"token":"t"}"#)));
        gives_up(&slow, || lines(&count) == 1).await;
        std::fs::write(&go, "").unwrap();
        slow.refresh().await.unwrap();
        assert_eq!((lines(&count), slow.identity().token.as_deref()), (1, Some("t")));
    }

    #[tokio::test]
    async fn a_run_over_time_is_killed_with_what_it_has_started_and_is_not_repeated_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (count, pid) = (directory.path().join("count"), directory.path().join("pid"));
        let mut late = program(&format!("echo run >>{}; {}", count.display(), hanging(&pid)));
        late.program.deadline = Duration::from_secs(2);
        let error = late.refresh().await.unwrap_err();
        assert!(error.to_string().contains("has not ended within 2 s"), "{error}");
        assert_eq!((late.refresh().await, lines(&count)), (Err(error), 1));
        dies(&pid).await;
    }

    #[tokio::test]
    async fn a_run_is_killed_with_what_it_has_started_when_its_identity_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let dropped = program(&hanging(&pid));
        gives_up(&dropped, || pid.exists()).await;
        drop(dropped);
        dies(&pid).await;
    }

    #[tokio::test]
    async fn runs_are_counted_and_certificates_have_an_age() {
        let metrics = ProgramMetrics::new().unwrap();
        let registry = bridge_metrics::Registry::new();
        metrics.register(&registry).unwrap();
        let counted = async |mut program: ExecIdentity| {
            program.counted(metrics.clone());
            program.refused();
            drop(program.refresh().await);
            program
        };
        let value = |line: &str| {
            let page = bridge_metrics::page(registry.gather(), "", "");
            let page = String::from_utf8(page.body).unwrap();
            let found = page.lines().find_map(|shown| shown.strip_prefix(line).map(str::to_owned));
            found.unwrap_or_else(|| panic!("no {line} in {page}"))
        };
        let calls = |labels: &str| value(&format!("rest_client_exec_plugin_call_total{{{labels}}} "));
        counted(program(&credential(r#"{"token":"t"}"#))).await;
        assert_eq!(calls(r#"call_status="no_error",code="0""#), "1");
        assert_eq!(value("rest_client_exec_plugin_ttl_seconds "), "+Inf", "a token is no certificate");
        counted(program("exit 7")).await;
        assert_eq!(calls(r#"call_status="plugin_execution_error",code="7""#), "1");
        counted(program("kill -9 $$")).await;
        assert_eq!(calls(r#"call_status="plugin_execution_error",code="-1""#), "1");
        let mut absent = program("");
        absent.program.config.command = Some("/no/such/program".to_owned());
        counted(absent).await;
        assert_eq!(calls(r#"call_status="plugin_not_found_error",code="1""#), "1");

        let pair = || {
            let signed = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
            json!({"clientCertificateData": signed.cert.pem(), "clientKeyData": signed.signing_key.serialize_pem()})
        };
        let directory = tempfile::tempdir().unwrap();
        let status = directory.path().join("status");
        let give = |status_of: &serde_json::Value| {
            let given = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                "status": status_of});
            std::fs::write(&status, given.to_string()).unwrap();
        };
        give(&pair());
        let giving = counted(program(&format!("cat {}", status.display()))).await;
        assert!(value("rest_client_exec_plugin_ttl_seconds ").parse::<f64>().unwrap() > 3600.0);
        assert_eq!(value("rest_client_exec_plugin_certificate_rotation_age_count "), "0");
        give(&pair());
        counted(giving).await;
        assert_eq!(value("rest_client_exec_plugin_certificate_rotation_age_count "), "1");
    }

    #[tokio::test]
    async fn a_program_is_told_what_is_asked_of_it() {
        let script =
            r#"case "$GIVEN$KUBERNETES_EXEC_INFO" in x*'"interactive":false'*) ;; *) exit 3 ;; esac; "#;
        program(&(script.to_owned() + &credential(r#"{"token":"t"}"#))).refresh().await.unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_said() {
        assert!(error("echo no way >&2; exit 7").await.contains("exit status: 7: no way"));
        assert!(error("echo hello").await.contains("printed no ExecCredential"));
        assert!(error(&credential("{}")).await.contains("neither a token nor a certificate"));
        assert!(error(&credential("null")).await.contains("gave no status"));
        let half = credential(r#"{"clientKeyData":"k"}"#);
        assert!(error(&half).await.contains("only one of certificate and key"));
        let old = credential(r#"{"token":"t"}"#).replace("k8s.io/v1", "k8s.io/v1beta1");
        assert!(error(&old).await.contains("API version client.authentication.k8s.io/v1,"));
        let mut absent = program("");
        absent.program.config.command = Some("/no/such/program".to_owned());
        let said = absent.refresh().await.unwrap_err().to_string();
        assert!(said.contains("/no/such/program: cannot be run") && said.contains("install it"), "{said}");
    }
}
