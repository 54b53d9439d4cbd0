//! Orders to the driver, a line each:
//!
//! ```text
//! fault RPC TIMES latency MS | error CODE WORDS | hang | lost-reply | broken-connection | acts-late MS | lie | acts-and-fails
//! clear                    takes back the faults that no call has met
//! node ID MAX [KEY=VALUE]  what the driver tells of the node
//! can NAME…                what it can do, as `STAGE_UNSTAGE_VOLUME`
//! limit BYTES              no volume grows beyond that
//! condition WORDS          every volume is ill
//! down on|off              every call fails, or none
//! unregister, register     takes the registration's socket away, or makes it anew
//! restart                  breaks every connection and serves anew
//! count RPC                how often it was called
//! held, broken, statuses   what it holds, which rules were broken, what the registration was told; as JSON
//! die                      ends the process at once, as SIGKILL does
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_csi::fake::{FakeDriver, Fault};
use bridge_csi::wire::node_service_capability::rpc::Type as Can;
use bridge_csi::{CsiErrorKind, Rpc};

/// A word of a table of ours, as `NodeStageVolume` or `Internal`.
fn word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|error| error.to_string())
}

fn number<T: std::str::FromStr>(text: Option<&str>) -> Result<T, String> {
    text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("{text:?} is no number"))
}

/// The fault as an order says it.
#[must_use]
pub fn fault_words(fault: &Fault) -> String {
    match fault {
        Fault::Latency(latency) => format!("latency {}", latency.as_millis()),
        Fault::Error(kind, message) => format!("error {kind:?} {message}"),
        Fault::Hang => "hang".to_owned(),
        Fault::LostReply => "lost-reply".to_owned(),
        Fault::BrokenConnection => "broken-connection".to_owned(),
        Fault::ActsLate(latency) => format!("acts-late {}", latency.as_millis()),
        Fault::Lie => "lie".to_owned(),
        Fault::ActsAndFails => "acts-and-fails".to_owned(),
    }
}

fn fault(words: &[&str]) -> Result<Fault, String> {
    let ms = || number(words.get(1).copied()).map(Duration::from_millis);
    match words.first().copied() {
        Some("latency") => Ok(Fault::Latency(ms()?)),
        Some("acts-late") => Ok(Fault::ActsLate(ms()?)),
        Some("error") => {
            let kind: CsiErrorKind = word(words.get(1).copied().unwrap_or_default())?;
            Ok(Fault::Error(kind, words.get(2..).unwrap_or_default().join(" ")))
        }
        Some("hang") => Ok(Fault::Hang),
        Some("lost-reply") => Ok(Fault::LostReply),
        Some("broken-connection") => Ok(Fault::BrokenConnection),
        Some("lie") => Ok(Fault::Lie),
        Some("acts-and-fails") => Ok(Fault::ActsAndFails),
        other => Err(format!("{other:?} is no fault")),
    }
}

/// Obeys an order to the driver itself; `None`: it is one to the process.
pub(crate) fn obey(driver: &FakeDriver, words: &[&str]) -> Option<Result<String, String>> {
    let rest = words.get(1..).unwrap_or_default();
    let done = |outcome: Result<(), String>| Some(outcome.map(|()| String::new()));
    match words.first().copied().unwrap_or_default() {
        "fault" => done((|| {
            let rpc: Rpc = word(rest.first().copied().unwrap_or_default())?;
            let times = number(rest.get(1).copied())?;
            driver.fault(rpc, times, fault(rest.get(2..).unwrap_or_default())?);
            Ok(())
        })()),
        "clear" => done({
            driver.clear_faults();
            Ok(())
        }),
        "node" => done((|| {
            let id = rest.first().ok_or("a node has an ID")?;
            let max = number(rest.get(1).copied())?;
            let pairs = rest.iter().skip(2).filter_map(|pair| pair.split_once('='));
            let topology: BTreeMap<_, _> =
                pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            driver.set_node(id, max, topology);
            Ok(())
        })()),
        "can" => done((|| {
            let named =
                |name: &&str| Can::from_str_name(name).ok_or_else(|| format!("{name:?} is no capability"));
            driver.set_capabilities(&rest.iter().map(named).collect::<Result<Vec<_>, _>>()?);
            Ok(())
        })()),
        "limit" => done(number(rest.first().copied()).map(|bytes| driver.set_bytes_max(bytes))),
        "condition" => done({
            driver.set_condition(true, &rest.join(" "));
            Ok(())
        }),
        "down" => done({
            driver.set_down(rest.first() == Some(&"on"));
            Ok(())
        }),
        "count" => {
            let rpc = word::<Rpc>(rest.first().copied().unwrap_or_default());
            Some(rpc.map(|rpc| driver.count(rpc).to_string()))
        }
        "held" => Some(serde_json::to_string(&driver.held()).map_err(|error| error.to_string())),
        "broken" => Some(serde_json::to_string(&driver.broken_rules()).map_err(|error| error.to_string())),
        _ => None,
    }
}
