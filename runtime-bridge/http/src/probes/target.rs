//! The address of a request, made from a probe or from a redirect's `Location`.

use super::words::{join_host_port, quoted};
use super::{HttpProbe, Scheme};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    /// The host, without brackets.
    pub(crate) host: String,
    /// The port as written; a redirect may leave it out.
    port: Option<u16>,
    /// Begins with a slash, and holds only characters that may stand in a request.
    pub(crate) path_and_query: String,
}

impl Target {
    pub(crate) fn of(probe: &HttpProbe) -> Self {
        let path = probe.path.split('#').next().unwrap_or_default();
        // Kubernetes takes a path with a broken escape literally, question mark included.
        let mut path = if has_broken_escape(path) { escape(path, BROKEN) } else { escape(path, ODD) };
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        Self { scheme: probe.scheme, host: probe.host.clone(), port: Some(probe.port), path_and_query: path }
    }

    /// The target of an absolute URL, or why there is none.
    pub(crate) fn absolute(url: &str) -> Result<Self, String> {
        let nowhere =
            Self { scheme: Scheme::Http, host: String::new(), port: None, path_and_query: "/".to_owned() };
        let target = nowhere.follow(url).map_err(|_| "is no URL".to_owned())?;
        if target.host.is_empty() { Err("names no host".to_owned()) } else { Ok(target) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        })
    }

    /// The value of the header `Host`, unless the probe sets one.
    pub(crate) fn authority(&self) -> String {
        match self.port {
            Some(port) => join_host_port(&self.host, port),
            None if self.host.contains(':') => format!("[{}]", self.host),
            None => self.host.clone(),
        }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        format!("{scheme}://{}{}", self.authority(), self.path_and_query)
    }

    /// The target of `location` relative to this one (RFC 3986, 5.2), or why there is none.
    pub(crate) fn follow(&self, location: &str) -> Result<Self, String> {
        let location = location.split('#').next().unwrap_or_default();
        let broken =
            |reason: &str| Err(format!("failed to parse Location header {}: {reason}", quoted(location)));
        if has_broken_escape(location) {
            return broken("invalid URL escape");
        }
        let (scheme, rest) = match scheme_of(location) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            Some((scheme, _)) => return Err(format!("unsupported protocol scheme {}", quoted(scheme))),
            None => (self.scheme, location),
        };
        if let Some(rest) = rest.strip_prefix("//") {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let Some((host, port)) = split_authority(authority) else {
                return broken("invalid host or port");
            };
            let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
            return Ok(Self { scheme, host, port, path_and_query: clean(&path) });
        }
        let (base, _) = self.path_and_query.split_once('?').unwrap_or((&self.path_and_query, ""));
        let path = match rest.as_bytes().first() {
            None => self.path_and_query.clone(),
            Some(b'/') => rest.to_owned(),
            Some(b'?') => format!("{base}{rest}"),
            Some(_) => format!("{}/{rest}", base.rsplit_once('/').map_or("", |(directory, _)| directory)),
        };
        Ok(Self { scheme, path_and_query: clean(&path), ..self.clone() })
    }
}

/// Whether a location names a scheme: the probe's own header `Host` does not apply to it then.
pub(crate) fn is_absolute(location: &str) -> bool {
    scheme_of(location).is_some()
}

fn scheme_of(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let mut bytes = scheme.bytes();
    let valid = bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    valid.then_some((scheme, rest))
}

fn split_authority(authority: &str) -> Option<(String, Option<u16>)> {
    // A user name and password are left out: the redirecting server could have them sent to any host.
    let address = authority.rsplit('@').next()?;
    let (host, port) = match address.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']')?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))?)
        }
        None => address.split_once(':').unwrap_or((address, "")),
    };
    let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
    let odd = host.is_empty() || host.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control());
    (!odd).then(|| (host.to_owned(), port))
}

/// A path without `.` and `..`, in which characters that may not stand in a request are escaped.
fn clean(path_and_query: &str) -> String {
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (index, segment) in segments.iter().enumerate() {
        let last = index + 1 == segments.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." {
                    kept.pop();
                }
                // A path that ends in `.` or `..` names a directory.
                if last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    let path = format!("/{}", kept.join("/"));
    escape(&query.map_or(path.clone(), |query| format!("{path}?{query}")), ODD)
}

fn has_broken_escape(text: &str) -> bool {
    text.split('%').skip(1).any(|after| {
        let digits = after.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// The characters that may not stand in a path and query unescaped.
const ODD: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// The characters to escape in a path with a broken escape, which is taken literally.
const BROKEN: &AsciiSet = &ODD.add(b'%').add(b'?');

fn escape(text: &str, odd: &'static AsciiSet) -> String {
    utf8_percent_encode(text, odd).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn target(path: &str) -> Target {
        Target::of(&HttpProbe {
            scheme: Scheme::Http,
            host: "10.0.0.1".into(),
            port: 8080,
            path: path.into(),
            headers: vec![],
            timeout: Duration::from_secs(1),
            asker: "pod".into(),
        })
    }

    #[test]
    fn paths_become_requests() {
        for (path, sent) in [
            ("/healthz", "/healthz"),
            ("healthz", "/healthz"),
            ("", "/"),
            ("/a?b=c&d=%20#fragment", "/a?b=c&d=%20"),
            ("/a b/ä", "/a%20b/%C3%A4"),
            ("/100%?x", "/100%25%3Fx"),
            ("/a\r\nHost: evil", "/a%0D%0AHost:%20evil"),
        ] {
            assert_eq!(target(path).path_and_query, sent, "{path}");
        }
        assert_eq!(target("/x").url(), "http://10.0.0.1:8080/x");
        let ipv6 = Target { host: "fd00::1".into(), ..target("/x") };
        assert_eq!(ipv6.url(), "http://[fd00::1]:8080/x");
    }

    #[test]
    fn redirects_are_resolved() {
        for (location, url) in [
            ("/other", "http://10.0.0.1:8080/other"),
            ("other?q", "http://10.0.0.1:8080/a/other?q"),
            ("../up", "http://10.0.0.1:8080/up"),
            ("../../..", "http://10.0.0.1:8080/"),
            ("./", "http://10.0.0.1:8080/a/"),
            ("?q=2", "http://10.0.0.1:8080/a/b?q=2"),
            ("", "http://10.0.0.1:8080/a/b?q=1"),
            ("https://10.0.0.1/x", "https://10.0.0.1/x"),
            ("HTTP://user:pass@host:81", "http://host:81/"),
            ("//host?x", "http://host/?x"),
            ("http://[::1]:9/x#f", "http://[::1]:9/x"),
        ] {
            assert_eq!(target("/a/b?q=1").follow(location).unwrap().url(), url, "{location}");
        }
        let https = target("/").follow("https://h").unwrap();
        assert_eq!((https.port(), https.scheme, https.host.as_str()), (443, Scheme::Https, "h"));
        for location in ["ftp://h/x", "http://", "http://h:99999/", "http://[::1/", "/%zz", "mailto:x"] {
            assert!(target("/").follow(location).is_err(), "{location}");
        }
    }
}
