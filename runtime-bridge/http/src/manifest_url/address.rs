//! PURE: the manifest URL and the headers of its requests.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

use crate::probes::target::Target;

/// The header `User-Agent`, unless the configuration sets another.
const USER_AGENT: &str = "understudy-kubelet";

/// The error of a URL that cannot be requested, or of headers that cannot be sent. It does not show the headers'
/// values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadUrl(String);

/// The manifest's URL, and the headers to request it with.
#[derive(Clone, PartialEq, Eq)]
pub struct ManifestAddress {
    pub(super) target: Target,
    pub(super) headers: Vec<(String, String)>,
}

impl std::fmt::Debug for ManifestAddress {
    /// Leaves out the headers' values, which may be credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("ManifestAddress").field("url", &self.target.url()).field("headers", &names).finish()
    }
}

impl ManifestAddress {
    /// An absolute `http` or `https` URL. A user name and password in it become the header `Authorization`, unless
    /// `headers` has one.
    ///
    /// # Errors
    /// What is wrong with the URL or with a header's name or value.
    pub fn new(url: &str, headers: &BTreeMap<String, Vec<String>>) -> Result<Self, BadUrl> {
        // The URL may hold a password, so the error leaves that part out.
        let rest = ["http://", "https://"].iter().find_map(|scheme| {
            let (start, rest) = url.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        });
        let rest = rest.ok_or_else(|| BadUrl("must be an absolute URL of http or https".to_owned()))?;
        let target = Target::absolute(url).map_err(BadUrl)?;
        let mut all: Vec<(String, String)> = Vec::new();
        for (name, values) in headers {
            all.extend(values.iter().map(|value| (name.clone(), value.clone())));
        }
        let has = |all: &[(String, String)], wanted: &str| {
            all.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if let Some((user, _)) = authority.rsplit_once('@').filter(|_| !has(&all, "authorization")) {
            let user = if user.contains(':') { user.to_owned() } else { format!("{user}:") };
            let user: Vec<u8> = percent_decode_str(&user).collect();
            all.push(("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(user))));
        }
        if !has(&all, "user-agent") {
            all.push(("User-Agent".to_owned(), USER_AGENT.to_owned()));
        }
        crate::probes::exchange::Say::new(&all).map_err(BadUrl)?;
        Ok(Self { target, headers: all })
    }

    /// The URL without its user name and password.
    pub fn shown(&self) -> String {
        self.target.url()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str, headers: &[(&str, &str)]) -> Result<ManifestAddress, String> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            all.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        ManifestAddress::new(url, &all).map_err(|error| error.to_string())
    }

    #[test]
    fn secrets_are_not_shown() {
        let address = address("http://jane:s%3Acret@host:8080/pods?a=b", &[("X-Token", "hidden")]).unwrap();
        assert_eq!(address.shown(), "http://host:8080/pods?a=b");
        let debug = format!("{address:?}");
        assert!(!debug.contains("cret") && !debug.contains("hidden") && !debug.contains("amFuZT"), "{debug}");
        let authorization = address.headers.iter().find(|(name, _)| name == "Authorization").unwrap();
        assert_eq!(authorization.1, format!("Basic {}", STANDARD.encode("jane:s:cret")));
    }

    #[test]
    fn headers_of_the_configuration_win() {
        let given = [("authorization", "Bearer x"), ("user-agent", "me")];
        let address = address("https://jane@host/", &given).unwrap();
        assert_eq!(address.headers, given.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(address.shown(), "https://host/");
    }

    #[test]
    fn what_cannot_be_asked() {
        for url in [
            "",
            "host/pods",
            "ftp://host/",
            "http://",
            "http://host:99999/",
            "/pods",
            "http://h/%zz",
            "http://a:%+A@h/",
        ] {
            assert!(address(url, &[]).is_err(), "{url}");
        }
        let error = address("http://host/", &[("X Y", "hidden")]).unwrap_err();
        assert!(error.contains("X Y") && !error.contains("hidden"), "{error}");
        let error = address("http://host/", &[("X", "hid\nden")]).unwrap_err();
        assert!(!error.contains("hid"), "{error}");
    }
}
