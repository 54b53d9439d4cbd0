//! PURE: what a streaming request asks for.

use axum::http::HeaderMap;
use axum::http::header::UPGRADE;

/// The streams of exec and attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// Whether the process has a terminal.
    pub tty: bool,
}

impl Streams {
    /// The streams whose parameters `input`, `output`, `error` and `tty` are `1`. With a terminal there is no standard
    /// error.
    ///
    /// # Errors
    /// The answer's text, if no stream is asked for.
    pub fn of(query: &[(String, String)]) -> Result<Self, &'static str> {
        let on =
            |name: &str| query.iter().find(|(key, _)| key == name).is_some_and(|(_, value)| value == "1");
        let tty = on("tty");
        let streams = Self { stdin: on("input"), stdout: on("output"), stderr: on("error") && !tty, tty };
        if streams.stdin || streams.stdout || streams.stderr {
            Ok(streams)
        } else {
            Err("you must specify at least 1 of stdin, stdout, stderr")
        }
    }
}

/// The ports to forward that a WebSocket request names; other requests name them in their streams, and have none here.
///
/// # Errors
/// The answer's text, for a WebSocket request that names no port, or something that is not a port.
pub fn ports(headers: &HeaderMap, query: &[(String, String)]) -> Result<Vec<i32>, String> {
    if headers.get(UPGRADE).is_none_or(|upgrade| !upgrade.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Ok(Vec::new());
    }
    let named = query.iter().filter(|(key, _)| key == "port").flat_map(|(_, value)| value.split(','));
    let read = |text: &str| match text.parse::<u16>() {
        Ok(0) => Err(format!("port {text:?} must be > 0")),
        Ok(port) => Ok(i32::from(port)),
        Err(error) => Err(format!("unable to parse {text:?} as a port: {error}")),
    };
    let ports: Vec<i32> = named.map(read).collect::<Result<_, _>>()?;
    if ports.is_empty() { Err("query parameter \"port\" is required".to_owned()) } else { Ok(ports) }
}

/// The query's pairs, decoded; bytes that are not UTF-8 are replaced.
pub fn query_pairs(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let pairs = query_pairs("command=sh&command=-c&command=echo+a%26b%C3%A9&&x&bad=%zz%4");
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(
            pairs,
            [("command", "sh"), ("command", "-c"), ("command", "echo a&bé"), ("x", ""), ("bad", "%zz%4")]
        );
    }

    #[test]
    fn a_sign_is_no_digit_of_an_escape() {
        assert_eq!(query_pairs("a=%+A&b=%-1"), [("a".into(), "% A".into()), ("b".into(), "%-1".into())]);
    }

    #[test]
    fn only_websockets_name_their_ports() {
        let of = |upgrade: &str, query: &str| {
            let headers = HeaderMap::from_iter([(UPGRADE, upgrade.parse().unwrap())]);
            ports(&headers, &query_pairs(query))
        };
        assert_eq!(of("SPDY/3.1", "port=x"), Ok(vec![]));
        assert_eq!(of("WebSocket", "port=80&port=443,8080"), Ok(vec![80, 443, 8080]));
        assert!(of("websocket", "").is_err());
        assert!(of("websocket", "port=0").is_err());
        assert!(of("websocket", "port=70000").is_err());
    }

    #[test]
    fn streams_are_on_by_one() {
        let of = |query: &str| Streams::of(&query_pairs(query));
        let all = Streams { stdin: true, stdout: true, stderr: true, tty: false };
        assert_eq!(of("input=1&output=1&error=1"), Ok(all));
        assert_eq!(of("input=1&output=1&error=1&tty=1"), Ok(Streams { stderr: false, tty: true, ..all }));
        assert!(of("input=true").is_err());
        assert!(of("error=1&tty=1").is_err(), "a terminal has no standard error");
        assert_eq!(of("").unwrap_err(), "you must specify at least 1 of stdin, stdout, stderr");
    }
}
