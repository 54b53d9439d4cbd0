//! The forms of names. Each check returns one message for each error, in Kubernetes' words.

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_UNDERSCORE_FMT: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
const QUALIFIED_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
/// Longest DNS label, in bytes.
pub(super) const LABEL_BYTES_MAX: usize = 63;
/// Longest DNS subdomain, in bytes.
pub(super) const SUBDOMAIN_BYTES_MAX: usize = 253;

/// A message that shows the regular expression and examples.
fn regex_message(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples = examples.iter().map(|example| format!("'{example}', ")).collect::<Vec<_>>().join(" or ");
    format!("{message} (e.g. {examples}regex used for validation is '{regex}')")
}

fn characters_max(max: usize) -> String {
    format!("must be no more than {max} characters")
}

pub(super) fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether the first and last byte satisfy `edge`, and all others satisfy `edge` or are in `inner`.
fn framed(text: &str, edge: fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            edge(*first) && edge(*last) && bytes.iter().all(|byte| edge(*byte) || inner.contains(byte))
        }
        _ => false,
    }
}

fn is_label(text: &str) -> bool {
    framed(text, lower, b"-")
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

pub(super) fn dns_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(characters_max(LABEL_BYTES_MAX));
    }
    if !is_label(value) {
        messages.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_message(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                LABEL_FMT,
                &["my-name", "123-abc"],
            )
        });
    }
    messages
}

pub(super) fn dns_subdomain(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(characters_max(SUBDOMAIN_BYTES_MAX));
    }
    if !is_subdomain(value) {
        messages.push(regex_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character",
            &format!("{LABEL_FMT}(\\.{LABEL_FMT})*"),
            &["example.com"],
        ));
    }
    messages
}

/// Checks a DNS search domain, which may have underscores.
pub(super) fn dns_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(characters_max(SUBDOMAIN_BYTES_MAX));
    }
    let label = |text: &str| framed(text.strip_prefix('_').unwrap_or(text), lower, b"-_");
    if !value.split('.').all(label) {
        messages.push(regex_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            &format!("{LABEL_UNDERSCORE_FMT}(\\.{LABEL_UNDERSCORE_FMT})*"),
            &["example.com"],
        ));
    }
    messages
}

/// Checks the beginning of a name that will be completed: it may end with a dash.
pub(super) fn dns_subdomain_prefix(value: &str) -> Vec<String> {
    match value.strip_suffix('-') {
        Some(head) if value.len() > 1 => dns_subdomain(&format!("{head}a")),
        _ => dns_subdomain(value),
    }
}

fn is_qualified_part(text: &str) -> bool {
    framed(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

/// Checks a key of labels, annotations and the like: a name with an optional DNS prefix.
pub(super) fn qualified_name(value: &str) -> Vec<String> {
    let form = || {
        regex_message(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character",
            QUALIFIED_FMT,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut messages = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                messages.extend(
                    dns_subdomain(prefix).into_iter().map(|message| format!("prefix part {message}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                form()
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        messages.push(format!("name part must be no more than {LABEL_BYTES_MAX} bytes"));
    }
    if !is_qualified_part(name) {
        messages.push(format!("name part {}", form()));
    }
    messages
}

pub(super) fn label_value(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(format!("must be no more than {LABEL_BYTES_MAX} bytes"));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        messages.push(regex_message(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &format!("({QUALIFIED_FMT})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    messages
}

pub(super) fn port_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > 15 {
        messages.push(characters_max(15));
    }
    if value.is_empty() || !value.bytes().all(|byte| lower(byte) || byte == b'-') {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

pub(super) fn port_number(port: i32) -> Vec<String> {
    if (1..=65535).contains(&port) { Vec::new() } else { vec![between(1, 65535)] }
}

/// Checks a user or group ID.
pub(super) fn user_or_group(id: i64) -> Vec<String> {
    let max = i64::from(i32::MAX);
    if (0..=max).contains(&id) { Vec::new() } else { vec![between(0, max)] }
}

/// Checks the name of an environment variable: anything that can stand before the `=`.
pub(super) fn env_name(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

pub(super) fn config_map_key(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(characters_max(SUBDOMAIN_BYTES_MAX));
    }
    if value.is_empty()
        || !value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        messages.push(regex_message(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

pub(super) fn http_header_name(value: &str) -> Vec<String> {
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    vec![regex_message(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// Whether the text is a kernel parameter's name, with dots or slashes between its segments.
pub(super) fn is_sysctl(value: &str) -> bool {
    value.len() <= SUBDOMAIN_BYTES_MAX && value.split(['.', '/']).all(|segment| framed(segment, lower, b"-_"))
}

/// Checks an IP address. Octets with leading zeros and IPv4 in IPv6 are refused: programs disagree on their meaning.
pub(super) fn ip_address(value: &str) -> Vec<String> {
    match value.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) => Vec::new(),
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        type Case = (fn(&str) -> Vec<String>, &'static [&'static str], &'static [&'static str]);
        let cases: [Case; 10] = [
            (dns_label, &["a", "a-1", "1"], &["", "A", "-a", "a-", "a.b", "a_b", "é"]),
            (dns_subdomain, &["a", "a.b-c.1"], &["", "a..b", ".a", "a.", "A.b", "a_b"]),
            (dns_subdomain_with_underscore, &["_a.b_c", "a"], &["", "_", "a_.b", "A"]),
            (qualified_name, &["a", "A.b_c", "x.y/Z"], &["", "/a", "a/", "a/b/c", "X/a", "-a", "a b"]),
            (label_value, &["", "A_b.c-1"], &["-a", "a b", "a/"]),
            (
                port_name,
                &["http", "a-1", "1a"],
                &["", "1", "-a", "a-", "a--b", "A", "a_b", "abcdefghijklmnop"],
            ),
            (env_name, &["A", "1a", "a b.c-d"], &["", "a=b", "é", "a\n"]),
            (config_map_key, &["a.b_c-D"], &["", ".", "..", "..a", "a/b"]),
            (http_header_name, &["X-A"], &["", "a b", "a_b"]),
            (ip_address, &["1.2.3.4", "::1"], &["", "1.2.3", "01.2.3.4", "::ffff:1.2.3.4", "a"]),
        ];
        for (index, (check, good, bad)) in cases.into_iter().enumerate() {
            for value in good {
                assert_eq!(check(value), Vec::<String>::new(), "case {index}: {value}");
            }
            for value in bad {
                assert!(!check(value).is_empty(), "case {index}: {value}");
            }
        }
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(dns_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert!(dns_subdomain_prefix("a-").is_empty() && !dns_subdomain_prefix("-").is_empty());
        assert!(is_sysctl("net.ipv4/ip_forward") && !is_sysctl("net..a") && !is_sysctl("A"));
    }

    #[test]
    fn messages_are_upstreams() {
        assert_eq!(
            dns_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
              and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
    }
}
