//! The address of a kubelet.

use std::fmt;
use std::str::FromStr;

use http::Uri;

/// The address of a kubelet: `http://host[:port]` or `https://host[:port]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    secured: bool,
    host: String,
    port: u16,
}

/// Why a server's address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is no URL.
    #[error("{0:?} is no URL such as http://127.0.0.1:10255 or https://127.0.0.1:10250")]
    Malformed(String),
    /// The scheme is one that no kubelet speaks.
    #[error(
        "{url:?}: the URL must begin with http:// (the read-only port) or https:// (the authenticated port)"
    )]
    NotHttp {
        /// The URL as given.
        url: String,
    },
    /// The URL has more than host and port.
    #[error("{url:?}: only a host and a port are allowed")]
    TooMuch {
        /// The URL as given.
        url: String,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let url = || text.to_owned();
        let malformed = || AddressError::Malformed(url());
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        let secured = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(AddressError::NotHttp { url: url() }),
            None => return Err(malformed()),
        };
        let authority = uri.authority().ok_or_else(malformed)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(AddressError::TooMuch { url: url() });
        }
        // A malformed port is an error; only an absent one has a default.
        let port = match (authority.port_u16(), authority.as_str().strip_prefix(authority.host())) {
            (Some(port), _) => port,
            (None, Some("")) if secured => 443,
            (None, Some("")) => 80,
            (None, _) => return Err(malformed()),
        };
        match authority.host() {
            "" => Err(malformed()),
            host => Ok(Self { secured, host: host.to_owned(), port }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secured { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl Address {
    /// The read-only port of the local machine, at this number.
    pub fn local(port: u16) -> Self {
        Self { secured: false, host: "127.0.0.1".to_owned(), port }
    }

    /// Whether this is HTTPS.
    pub fn is_secured(&self) -> bool {
        self.secured
    }

    /// The host without the brackets of an IPv6 address, which belong to the URL.
    pub fn host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, as a request names it.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_hosts_and_ports() {
        let shown = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        for (text, same) in [
            ("http://127.0.0.1:10255", "http://127.0.0.1:10255"),
            ("http://[::1]:10255/", "http://[::1]:10255"),
            ("http://node", "http://node:80"),
            ("https://node:10250", "https://node:10250"),
            ("https://node/", "https://node:443"),
        ] {
            assert_eq!(shown(text), Ok(same.to_owned()));
        }
        let ftp = "ftp://node:10250".to_owned();
        assert_eq!(shown(&ftp), Err(AddressError::NotHttp { url: ftp.clone() }));
        for much in ["http://node/pods", "http://me@node", "http://node/?x", "https://node:1/pods"] {
            assert_eq!(shown(much), Err(AddressError::TooMuch { url: much.to_owned() }));
        }
        for wrong in ["", "node", "node:10255", "http://", "http://node:99999", "http://no de", "/pods"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
        let six: Address = "https://[::1]:10250".parse().unwrap();
        assert_eq!((six.host(), six.port(), six.is_secured()), ("::1", 10250, true));
        assert_eq!(six.authority(), "[::1]:10250");
    }
}
