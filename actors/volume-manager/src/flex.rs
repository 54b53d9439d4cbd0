//! FlexVolume drivers (row 10.15): what their programs say, and what is known of them. This lies beside the actor, so that a new
//! incarnation knows it; a program that is replaced is asked anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bridge_io::watch;
use bridge_node::host::{FlexAnswer, FlexCall, FlexDrivers, FlexVersion};
use serde_json::{Map, Value};

/// The status of an answer that all went well.
const SUCCESS: &str = "Success";
/// The status of an answer that the driver has no such command.
const NOT_SUPPORTED: &str = "Not supported";
/// The most characters of what a driver said that an error shows.
const SAID_CHARS_MAX: usize = 300;

/// What a driver can do. What it does not tell it is believed to have, but for the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Able {
    /// A controller attaches its volumes to nodes.
    pub attach: bool,
    /// Its volumes take SELinux labels.
    pub relabels: bool,
    /// Its volumes can be measured.
    pub metrics: bool,
    /// Its volumes can be given to a group.
    pub group: bool,
    /// Its volumes are made larger on the node, too.
    pub resizes: bool,
}

impl Default for Able {
    fn default() -> Self {
        Self { attach: true, relabels: true, metrics: false, group: true, resizes: true }
    }
}

/// What a driver that was successful has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The path of a device.
    pub device: String,
    /// What it can do.
    pub able: Able,
}

/// Why a driver has not done what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// It has no such command.
    NotSupported,
    /// It has failed, or not answered; for people, with the driver's name.
    Failed(String),
}

impl Undone {
    /// The text for people.
    pub fn text(self) -> String {
        match self {
            Self::NotSupported => NOT_SUPPORTED.to_owned(),
            Self::Failed(text) => text,
        }
    }
}

/// What is known of a driver.
#[derive(Clone, Debug)]
struct Known {
    version: FlexVersion,
    able: Able,
    /// The commands that it does not have.
    lacks: BTreeSet<String>,
}

/// The FlexVolume drivers of the node. Cheap to clone; clones know the same.
#[derive(Clone, Debug)]
pub struct Flex {
    drivers: Arc<dyn FlexDrivers>,
    known: Arc<watch::Sender<BTreeMap<String, Known>>>,
    tenant: Arc<str>,
}

impl Flex {
    /// Of these drivers nothing is known.
    pub fn new(drivers: Arc<dyn FlexDrivers>) -> Self {
        Self { drivers, known: Arc::new(watch::Sender::new(BTreeMap::new())), tenant: Arc::default() }
    }

    /// The same for the work of one namespace, which has half of the places for programs at most.
    pub(crate) fn of_tenant(&self, namespace: &str) -> Self {
        Self { tenant: Arc::from(namespace), ..self.clone() }
    }

    /// What the driver could do when it was asked last.
    pub(crate) fn last_able(&self, driver: &str) -> Option<Able> {
        self.known.borrow().get(driver).map(|known| known.able)
    }

    /// What the driver can do: a program that is new is asked (`init`).
    ///
    /// # Errors
    /// There is no such driver, or it does not begin.
    pub(crate) async fn able(&self, driver: &str) -> Result<Able, String> {
        let found = self.drivers.find(driver).await;
        let Some(version) = found.map_err(|error| named(driver, &error))? else {
            self.known.send_if_modified(|known| known.remove(driver).is_some());
            return Err(named(driver, &format!("it is not in {}", self.drivers.dir().display())));
        };
        let known = self.known.borrow().get(driver).filter(|known| known.version == version).cloned();
        if let Some(known) = known {
            return Ok(known.able);
        }
        let said = self.run(driver, "init", vec!["init".to_owned()]).await;
        let able = said.map_err(Undone::text)?.able;
        let known = Known { version, able, lacks: BTreeSet::new() };
        self.known.send_modify(|all| {
            all.insert(driver.to_owned(), known);
        });
        Ok(able)
    }

    /// Calls a driver of which [`able`](Self::able) has told. Calls about one `place` run one after another.
    ///
    /// # Errors
    /// [`Undone`]; a command that the driver does not have it is asked for once.
    pub(crate) async fn call(
        &self,
        driver: &str,
        place: &str,
        command: &str,
        arguments: Vec<String>,
    ) -> Result<Status, Undone> {
        let is_lacking = |known: &Known| known.lacks.contains(command);
        let lacks = self.known.borrow().get(driver).is_some_and(is_lacking);
        if lacks {
            return Err(Undone::NotSupported);
        }
        let args = std::iter::once(command.to_owned()).chain(arguments).collect();
        let said = self.run(driver, place, args).await;
        if said == Err(Undone::NotSupported) {
            self.known.send_modify(|all| {
                if let Some(known) = all.get_mut(driver) {
                    known.lacks.insert(command.to_owned());
                }
            });
        }
        said
    }

    async fn run(&self, driver: &str, place: &str, args: Vec<String>) -> Result<Status, Undone> {
        let command = args.first().cloned().unwrap_or_default();
        let call = FlexCall {
            driver: Arc::from(driver),
            args,
            turn: format!("{driver} {place}"),
            tenant: self.tenant.clone(),
        };
        let answer = self.drivers.call(call).await;
        let answer = answer.map_err(|error| Undone::Failed(named(driver, &format!("{command}: {error}"))))?;
        judged(driver, &command, &answer)
    }
}

/// A text about a driver.
pub(crate) fn named(driver: &str, what: &dyn std::fmt::Display) -> String {
    format!("flexVolume driver {driver}: {what}")
}

/// PURE: what a driver's answer says. The words are upstream's, behind the driver's name.
///
/// # Errors
/// [`Undone`].
pub fn judged(driver: &str, command: &str, answer: &FlexAnswer) -> Result<Status, Undone> {
    let failed = |what: String| Undone::Failed(named(driver, &what));
    // Upstream reads both streams as one; a driver may also log to one of them.
    let both = [answer.out.as_slice(), answer.err.as_slice()].concat();
    let read = serde_json::from_slice(&answer.out).or_else(|_| serde_json::from_slice::<Value>(&both));
    let fields = match read {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err(failed(format!("{command} command failed: its answer is no object of JSON"))),
        Err(error) => {
            let said: String = String::from_utf8_lossy(&both).trim().chars().take(SAID_CHARS_MAX).collect();
            let ended = answer.failed.as_ref().map(|how| format!("{how}, ")).unwrap_or_default();
            return Err(failed(format!("{command} command failed: {ended}{error}: {said:?}")));
        }
    };
    let text = |name: &str| field(&fields, name).and_then(Value::as_str).unwrap_or_default();
    match text("status") {
        NOT_SUPPORTED => Err(Undone::NotSupported),
        SUCCESS => match &answer.failed {
            None => Ok(Status { device: text("device").to_owned(), able: able(&fields) }),
            Some(how) => Err(failed(format!("{command} command failed: {how}"))),
        },
        status => {
            let [status, reason] = [status, text("message")]
                .map(|said| -> String { said.chars().take(SAID_CHARS_MAX).collect() });
            Err(failed(format!("{command} command failed, status: {status}, reason: {reason}")))
        }
    }
}

/// The field of this name, whose case does not matter, as in Go.
fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn able(fields: &Map<String, Value>) -> Able {
    let usual = Able::default();
    let told = field(fields, "capabilities").and_then(Value::as_object);
    let of = |name: &str, usual: bool| {
        told.and_then(|told| field(told, name)).and_then(Value::as_bool).unwrap_or(usual)
    };
    Able {
        attach: of("attach", usual.attach),
        relabels: of("selinuxRelabel", usual.relabels),
        metrics: of("supportsMetrics", usual.metrics),
        group: of("fsGroup", usual.group),
        resizes: of("requiresFSResize", usual.resizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(failed: Option<&str>, out: &str, err: &str) -> Result<Status, Undone> {
        let answer = FlexAnswer {
            failed: failed.map(str::to_owned),
            out: out.as_bytes().to_vec(),
            err: err.as_bytes().to_vec(),
        };
        judged("vendor/tool", "mount", &answer)
    }

    #[test]
    fn an_answer_is_read_as_the_go_kubelet_reads_it() {
        assert_eq!(said(None, r#"{"status": "Success"}"#, ""), Ok(Status::default()));
        let device = said(None, r#"{"status": "Success", "device": "/dev/sdb"}"#, "a line of a log");
        assert_eq!(device.map(|status| status.device), Ok("/dev/sdb".to_owned()));
        assert_eq!(said(None, "", r#"{"status":"Success"}"#), Ok(Status::default()), "on either stream");
        for failed in [None, Some("exit status 1")] {
            assert_eq!(said(failed, r#"{"status": "Not supported"}"#, ""), Err(Undone::NotSupported));
        }
        let text = |failed: Option<&str>, out: &str, err: &str| said(failed, out, err).map_err(Undone::text);
        assert_eq!(
            text(Some("exit status 1"), r#"{"status": "Failure", "message": "no share"}"#, ""),
            Err("flexVolume driver vendor/tool: mount command failed, status: Failure, reason: no share"
                .to_owned())
        );
        assert_eq!(
            text(Some("exit status 2"), r#"{"status": "Success"}"#, ""),
            Err("flexVolume driver vendor/tool: mount command failed: exit status 2".to_owned())
        );
        let noise = text(Some("exit status 127"), "", "jq: not found").expect_err("it is no JSON");
        assert!(noise.starts_with("flexVolume driver vendor/tool: mount command failed: exit status 127, "));
        assert!(noise.ends_with(": \"jq: not found\""), "{noise}");
        assert!(text(None, "[]", "").is_err() && text(None, "{}", "").is_err());
        let many = "x".repeat(10_000);
        for out in [many.clone(), format!("{{\"status\": \"{many}\", \"message\": \"{many}\"}}")] {
            let long = text(None, &out, "").expect_err("it is no answer");
            assert!(long.len() < 1000, "{long}");
        }
    }

    #[test]
    fn what_a_driver_does_not_tell_it_is_believed_to_have() {
        let of = |capabilities: &str| {
            let out = format!(r#"{{"status": "Success", "capabilities": {capabilities}}}"#);
            said(None, &out, "").map(|status| status.able)
        };
        assert_eq!(of("null"), Ok(Able::default()));
        assert_eq!(of(r#"{"attach": false}"#), Ok(Able { attach: false, ..Able::default() }));
        let all = r#"{"attach": false, "selinuxRelabel": false, "supportsMetrics": true, "fsGroup": false, "requiresFSResize": false}"#;
        let expected = Able { attach: false, relabels: false, metrics: true, group: false, resizes: false };
        assert_eq!(of(all), Ok(expected));
    }
}
