//! Which credentials fit an image: hosts with globs, ports and paths; the most specific first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Credential;
use super::config::without_user;

/// The registry under which Docker Hub's credentials are kept: `https://index.docker.io/v1/` without scheme
/// and version.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Credentials by the registry that they are for, a host and perhaps a path. In reverse order, so that a
/// longer path comes before its prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    credentials: BTreeMap<Reverse<String>, Vec<Credential>>,
}

/// Host and path of a registry or an image.
struct Location<'a> {
    host: &'a str,
    port: &'a str,
    path: &'a str,
}

impl Keyring {
    /// Adds a credential for `registry`: a host or a URL, in which `*` stands for any characters within a
    /// label.
    ///
    /// # Errors
    /// Why `registry` is no host with a port and a path.
    pub fn add(&mut self, registry: &str, credential: Credential) -> Result<(), String> {
        let shown = without_user(registry);
        let bare =
            ["https://", "http://"].iter().find_map(|scheme| shown.strip_prefix(scheme)).unwrap_or(shown);
        let bare = bare.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
        let location = location(bare);
        if location.host.is_empty() {
            return Err(format!("{shown:?}: there is no host"));
        }
        if !location.port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("{shown:?}: the port is not a number"));
        }
        // The versions of the registry's API are no part of image names.
        let path = match path.strip_prefix("/v1/").or_else(|| path.strip_prefix("/v2/")) {
            Some("") => "",
            Some(_) => &path[3..],
            None if path == "/" => "",
            None => path,
        };
        self.credentials.entry(Reverse(format!("{authority}{path}"))).or_default().push(credential);
        Ok(())
    }

    /// The credentials that fit a repository (`docker.io/library/busybox`), in the order in which to try
    /// them. Docker Hub's credentials are for its images only, and only when no others fit.
    pub fn lookup(&self, repository: &str) -> Vec<Credential> {
        let image = location(repository);
        let fitting = self.credentials.iter().filter(|(key, _)| fits(&location(&key.0), &image));
        let found: Vec<Credential> = fitting.flat_map(|(_, credentials)| credentials).cloned().collect();
        if !found.is_empty() || !is_default_registry(repository) {
            return found;
        }
        self.credentials.get(&Reverse(DEFAULT_REGISTRY.to_owned())).cloned().unwrap_or_default()
    }
}

fn location(text: &str) -> Location<'_> {
    let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    // The colons within the brackets of an IPv6 address do not begin a port.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    };
    Location { host, port, path }
}

fn fits(glob: &Location<'_>, image: &Location<'_>) -> bool {
    let (labels, of_image) = (glob.host.split('.'), image.host.split('.'));
    glob.port == image.port
        && image.path.starts_with(glob.path)
        && labels.clone().count() == of_image.clone().count()
        && labels.zip(of_image).all(|(glob, label)| label_fits(glob, label))
}

/// Matches one label of a host name, where `*` stands for any number of characters. Time is bounded by the
/// product of both lengths: after a mismatch only the last star grows.
fn label_fits(glob: &str, label: &str) -> bool {
    let (glob, label) = (glob.as_bytes(), label.as_bytes());
    let (mut at, mut seen, mut star) = (0, 0, None);
    while seen < label.len() {
        if glob.get(at) == Some(&b'*') {
            star = Some((at, seen));
            at += 1;
        } else if glob.get(at) == Some(&label[seen]) {
            at += 1;
            seen += 1;
        } else if let Some((star_at, taken)) = star {
            at = star_at + 1;
            seen = taken + 1;
            star = Some((star_at, taken + 1));
        } else {
            return false;
        }
    }
    glob[at..].iter().all(|b| *b == b'*')
}

fn is_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("", _)) => false,
        Some((first, _)) => matches!(first, "docker.io" | "index.docker.io") || !first.contains(['.', ':']),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keyring(registries: &[&str]) -> Keyring {
        let mut keyring = Keyring::default();
        for registry in registries {
            let credential = Credential { username: (*registry).to_owned(), ..Credential::default() };
            keyring.add(registry, credential).unwrap();
        }
        keyring
    }

    fn found(registries: &[&str], repository: &str) -> Vec<String> {
        keyring(registries).lookup(repository).into_iter().map(|credential| credential.username).collect()
    }

    fn matches(registry: &str, repository: &str) -> bool {
        !found(&[registry], repository).is_empty()
    }

    #[test]
    fn hosts_ports_paths_and_globs_are_matched() {
        for (registry, repository, fits) in [
            ("quay.io", "quay.io/me/app", true),
            ("https://quay.io", "quay.io/me/app", true),
            ("http://quay.io/", "quay.io/me/app", true),
            ("https://quay.io/v1/", "quay.io/me/app", true),
            ("https://quay.io/v2/me", "quay.io/me/app", true),
            ("quay.io", "quay.io:443/me/app", false),
            ("quay.io:5000", "quay.io:5000/app", true),
            ("quay.io:5000", "quay.io:5001/app", false),
            ("quay.io/me", "quay.io/me/app", true),
            // A path is a prefix of the text, as upstream has it.
            ("quay.io/me", "quay.io/meow/app", true),
            ("quay.io/you", "quay.io/me/app", false),
            ("*.io", "quay.io/app", true),
            ("*.quay.io", "quay.io/app", false),
            ("*.quay.io", "a.b.quay.io/app", false),
            ("*.*.quay.io", "a.b.quay.io/app", true),
            ("prefix*suffix.io", "prefix-and-suffix.io/app", true),
            ("prefix*suffix.io", "prefix-and-suffi.io/app", false),
            ("*.kubernetes.io:8080", "a.kubernetes.io:8080/app", true),
            ("a.*.io/path", "a.b.io/path/app", true),
            ("127.0.0.1:5000", "127.0.0.1:5000/app", true),
            ("[::1]:5000", "[::1]:5000/app", true),
            ("[::1]", "[::1]:5000/app", false),
            ("localhost", "localhost/app", true),
        ] {
            assert_eq!(matches(registry, repository), fits, "{registry} {repository}");
        }
    }

    #[test]
    fn the_longest_match_comes_first_and_all_are_tried() {
        let registries = ["quay.io", "quay.io/coreos", "*.io", "https://quay.io/coreos/", "other.io"];
        assert_eq!(
            found(&registries, "quay.io/coreos/etcd"),
            ["https://quay.io/coreos/", "quay.io/coreos", "quay.io", "*.io"]
        );
        assert_eq!(found(&["https://r.io", "r.io"], "r.io/a"), ["https://r.io", "r.io"], "two for one host");
    }

    #[test]
    fn docker_hub_is_the_default_registry() {
        let hub = "https://index.docker.io/v1/";
        for repository in
            ["docker.io/library/busybox", "docker.io/me/app", "index.docker.io/a", "localhost/a"]
        {
            assert_eq!(found(&[hub, "quay.io"], repository), [hub], "{repository}");
        }
        assert_eq!(found(&[hub], "quay.io/app"), [""; 0]);
        assert_eq!(found(&[hub], "localhost:5000/app"), [""; 0]);
        // Only when nothing else fits.
        assert_eq!(found(&[hub, "docker.io"], "docker.io/me/app"), ["docker.io"]);
    }

    #[test]
    fn what_names_no_registry_is_refused_without_its_secrets() {
        let mut keyring = Keyring::default();
        for (registry, error) in [
            ("", "\"\": there is no host"),
            ("https:///v1/", "\"https:///v1/\": there is no host"),
            ("r.io:port/", "\"r.io:port/\": the port is not a number"),
            ("https://me:hush@r.io:port/", "\"r.io:port/\": the port is not a number"),
        ] {
            assert_eq!(keyring.add(registry, Credential::default()).unwrap_err(), error);
        }
        assert_eq!(keyring, Keyring::default());
    }

    proptest! {
        #[test]
        fn any_registry_and_any_image_get_an_answer(registry in "\\PC{0,30}", image in "\\PC{0,30}") {
            let mut keyring = Keyring::default();
            let _ = keyring.add(&registry, Credential::default());
            let _ = keyring.lookup(&image);
        }

        #[test]
        fn a_glob_fits_what_it_was_made_from(label in "[a-z0-9-]{1,12}", from in 0usize..12, to in 0usize..12) {
            let (from, to) = (from.min(label.len()), to.min(label.len()));
            let (from, to) = (from.min(to), from.max(to));
            let glob = format!("{}*{}", &label[..from], &label[to..]);
            prop_assert!(label_fits(&glob, &label), "{} {}", glob, label);
            prop_assert!(label_fits(&label, &label));
        }
    }
}
