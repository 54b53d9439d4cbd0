//! Error texts as Go's net package words them, since people search events for them.

use std::io;
use std::time::Duration;

use pod_rules::durations::GoDuration;

/// An address as `host:port`, with brackets around an IPv6 address.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The most characters of an address in a text: an event has room for a thousand, and a server's redirect may name an
/// address of half a megabyte.
const URL_CHARS_MAX: usize = 1024;

/// An address, or a part of one, in quotes.
pub(crate) fn quoted(url: &str) -> String {
    match url.char_indices().nth(URL_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &url[..end]),
        None => format!("{url:?}"),
    }
}

/// The text of a failed GET.
pub(crate) fn get_failed(url: &str, reason: &str) -> String {
    format!("Get {}: {reason}", quoted(url))
}

pub(crate) const TIMED_OUT_BEFORE_HEADERS: &str =
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
pub(crate) const TIMED_OUT_IN_BODY: &str =
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// The text of TLS spoken to a server of plain HTTP.
pub(super) const NOT_TLS: &str = "http: server gave HTTP response to HTTPS client";

/// The text of a connection that did not open.
pub(crate) fn dial_failed(address: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut {
        return format!("dial tcp {address}: connect: connection timed out");
    }
    format!("dial tcp {address}: connect: {}", system(error))
}

/// The text of a connection that did not open in time.
pub(crate) fn dial_timed_out(address: &str) -> String {
    format!("dial tcp {address}: i/o timeout")
}

/// The text of a name without an address.
pub(crate) fn no_such_host(host: &str) -> String {
    format!("dial tcp: lookup {host}: no such host")
}

/// The text of a health check that found no connection.
pub(super) fn health_not_connected(address: &str, timeout: Duration) -> String {
    let within = GoDuration::whole_millis(timeout);
    format!("timeout: failed to connect service {address:?} within {within}: context deadline exceeded")
}

/// The text of a health check without an answer in time.
pub(super) fn health_timed_out(timeout: Duration) -> String {
    format!("timeout: health rpc did not complete within {}", GoDuration::whole_millis(timeout))
}

/// The text of a server that does not offer health checks.
pub(super) fn health_unimplemented(message: &str) -> String {
    let protocol = "grpc health protocol (grpc.health.v1.Health)";
    format!("error: this server does not implement the {protocol}: {message}")
}

/// The text of a health check that was answered with an error.
pub(super) fn health_failed(code: &str, message: &str) -> String {
    format!("error: health rpc probe failed: rpc error: code = {code} desc = {message}")
}

/// The text of a health check that was answered with anything but SERVING.
pub(super) fn health_bad(status: &str) -> String {
    format!("service unhealthy (responded with {status:?})")
}

/// The operating system's text of an error, without the number that Rust adds, and in lower case.
pub(crate) fn system(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut characters = text.chars();
    match characters.next() {
        Some(first) if error.raw_os_error().is_some() => first.to_lowercase().chain(characters).collect(),
        _ => text.to_owned(),
    }
}
