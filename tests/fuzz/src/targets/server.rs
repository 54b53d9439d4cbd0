//! What clients send to the kubelet's server, and the logs that it reads for them.

use bridge_serve::websocket;
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use jiff::Timestamp;
use node_api::reading::{
    Asked, LogQuery, More, PresentedCredentials, Streams, Writer, attributes, format_of, is_plain,
    log_options, namespace, parse, part, ports, query_pairs, take_token,
};
use prometheus::proto::MetricFamily;

/// The first line, and what follows it.
fn first_line(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes.get(end + 1..).unwrap_or_default())
}

/// A query of the machine's logs.
pub fn log_query(bytes: &[u8]) {
    let Ok(Some(query)) = LogQuery::parse(&String::from_utf8_lossy(bytes)) else { return };
    if query.validate().is_err() {
        return;
    }
    let services: Vec<&str> = query.services.iter().map(String::as_str).collect();
    let arguments = query.arguments(&services);
    let units = arguments.iter().filter(|word| word.starts_with("--unit=")).count();
    assert_eq!(units, services.len(), "{arguments:?}");
}

/// A query for a container's log in the first line, and the log in the others.
pub fn container_log(bytes: &[u8]) {
    let (query, log) = first_line(bytes);
    let Ok(options) = log_options(&query_pairs(&query), Timestamp::UNIX_EPOCH, true) else { return };
    let most = options.limit_bytes;
    let mut lines = log.split_inclusive(|byte| *byte == b'\n').peekable();
    let Some(format) = lines.peek().and_then(|line| format_of(line)) else { return };
    let (mut writer, mut out) = (Writer::new(options), Vec::new());
    for line in lines.filter_map(|line| parse(format, line)) {
        assert!(line.stamp.len() <= log.len() + 16, "{}", line.stamp);
        if writer.write(&line, &mut out) == More::No {
            break;
        }
    }
    assert!(most.is_none_or(|most| out.len() as u64 <= most));
}

/// A method and a path.
pub fn server_paths(bytes: &[u8]) {
    let (method, path) = first_line(bytes);
    let path = String::from_utf8_lossy(path);
    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
    for by_method in [false, true] {
        assert!(!attributes(&method, &path, by_method).subresources.is_empty());
    }
    assert!(namespace(&path).is_none_or(|namespace| !namespace.contains('/')));
    if is_plain(&path) {
        assert!(
            path.starts_with('/') && path.split('/').all(|segment| segment != ".." && segment != "."),
            "{path}"
        );
    }
}

/// Headers, one in each line.
pub fn request_headers(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else {
            continue;
        };
        if headers.try_append(name, value).is_err() {
            return;
        }
    }
    let _ = websocket::Handshake::of(&Method::GET, &headers);
    let _ = websocket::offers(&headers, |protocol| protocol.ends_with(".k8s.io"));
    let _ = ports(&headers, &[("port".to_owned(), "80".to_owned())]);
    let _ = take_token(&mut headers);
    assert!(!headers.contains_key(AUTHORIZATION));
    assert_eq!(take_token(&mut headers), PresentedCredentials::Nothing, "no token is left");
}

/// The query of exec, attach and port-forward.
pub fn streaming_query(bytes: &[u8]) {
    let pairs = query_pairs(&String::from_utf8_lossy(bytes));
    if let Ok(streams) = Streams::of(&pairs) {
        assert!(streams.stdin || streams.stdout || streams.stderr);
    }
    let headers = HeaderMap::from_iter([(UPGRADE, HeaderValue::from_static("websocket"))]);
    if let Ok(ports) = ports(&headers, &pairs) {
        assert!(!ports.is_empty() && ports.iter().all(|port| (1..=65_535).contains(port)), "{ports:?}");
    }
}

/// A header Range in the first line, and the size of a file behind it.
pub fn http_range(bytes: &[u8]) {
    let (range, size) = first_line(bytes);
    let size = String::from_utf8_lossy(size).trim().parse().unwrap_or(10);
    if let Asked::Part(part) = part(&range, size) {
        assert!(part.start < part.end && part.end <= size, "{part:?} of {size}");
    }
}

/// `Accept` in the first line, and `Accept-Encoding` behind it.
pub fn accept_headers(bytes: &[u8]) {
    let (accept, encoding) = first_line(bytes);
    let encoding = String::from_utf8_lossy(encoding);
    let page = bridge_metrics::page(std::iter::empty::<MetricFamily>(), &accept, &encoding);
    assert!(HeaderValue::from_str(&page.content_type).is_ok(), "{}", page.content_type);
}
