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

/// Whether a pattern of a provider (`matchImages`) fits a repository.
pub(super) fn matches(pattern: &str, repository: &str) -> bool {
    let bare = without_user(pattern).split(['?', '#']).next().unwrap_or_default();
    fits(&location(bare), &location(repository))
}

/// Whether a text can be a pattern of a provider (`matchImages`).
///
/// # Errors
/// The reason, in Go's words.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    let failed = |why: String| Err(format!("parse {:?}: {why}", format!("https://{pattern}")));
    if pattern.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return failed("net/url: invalid control character in URL".to_owned());
    }
    let authority = pattern.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = without_user(authority);
    if authority.starts_with('[') && !authority.contains(']') {
        return failed("missing ']' in host".to_owned());
    }
    if let Some(wrong) = authority.chars().find(|c| " \\^`{|}%".contains(*c)) {
        return failed(format!("invalid character {:?} in host name", wrong.to_string()));
    }
    let Location { port, .. } = location(authority);
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return failed(format!("invalid port {:?} after host", format!(":{port}")));
    }
    Ok(())
}

fn location(text: &str) -> Location<'_> {
    let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    // The colons within the brackets of an IPv6 address do not begin a port.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // What is between brackets and no address is one of several characters.
    let host = bare.filter(|host| host.contains(':')).unwrap_or(host);
    Location { host, port, path }
}

fn fits(glob: &Location<'_>, image: &Location<'_>) -> bool {
    let (labels, of_image) = (glob.host.split('.'), image.host.split('.'));
    glob.port == image.port
        && image.path.starts_with(glob.path)
        && labels.clone().count() == of_image.clone().count()
        && labels.zip(of_image).all(|(glob, label)| label_fits(glob, label))
}

/// A part of a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `*`: any number of characters.
    Star,
    /// `[a-c]` or `[^a-c]`: one character that is in one of these ranges, or in none.
    Class { ranges: Vec<(char, char)>, negated: bool },
    /// One character.
    One(char),
}

impl Part {
    fn takes(&self, c: char) -> bool {
        match self {
            Part::Star => false,
            Part::Class { ranges, negated } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
            }
            Part::One(one) => *one == c,
        }
    }
}

/// The parts of a glob; `None` if a bracket is not closed or holds nothing.
fn parts(glob: &str) -> Option<Vec<Part>> {
    let (mut parts, mut rest) = (Vec::new(), glob.chars().peekable());
    while let Some(c) = rest.next() {
        parts.push(match c {
            '*' => Part::Star,
            '[' => {
                let negated = rest.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                loop {
                    match rest.next()? {
                        ']' if !ranges.is_empty() => break,
                        ']' | '-' => return None,
                        from => {
                            let to = match rest.next_if_eq(&'-') {
                                Some(_) => rest.next().filter(|to| !"-]".contains(*to))?,
                                None => from,
                            };
                            ranges.push((from, to));
                        }
                    }
                }
                Part::Class { ranges, negated }
            }
            one => Part::One(one),
        });
    }
    Some(parts)
}

/// Matches one label of a host name. Time is bounded by the product of both lengths: after a mismatch only the last star grows.
fn label_fits(glob: &str, label: &str) -> bool {
    let Some(glob) = parts(glob) else { return false };
    let label: Vec<char> = label.chars().collect();
    let (mut at, mut seen, mut star) = (0, 0, None);
    while seen < label.len() {
        if glob.get(at) == Some(&Part::Star) {
            star = Some((at, seen));
            at += 1;
        } else if glob.get(at).is_some_and(|part| part.takes(label[seen])) {
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
    glob[at..].iter().all(|part| *part == Part::Star)
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
    fn patterns_of_providers_are_matched_part_by_part() {
        for (pattern, repository, fits) in [
            ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu-1.amazonaws.com/app", true),
            ("*.dkr.ecr.*.amazonaws.com", "dkr.ecr.eu-1.amazonaws.com/app", false),
            ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu-1.amazonaws.com:443/app", false),
            ("*.*.registry.io", "a.b.registry.io/app", true),
            ("registry.io:8080/path", "registry.io:8080/path/app", true),
            ("registry.io:8080/path", "registry.io:8080/pat", false),
            ("registry.io:8080/path", "registry.io/path/app", false),
            ("registry.io/*", "registry.io/app", false),
            ("docker.io", "docker.io/library/busybox", true),
            ("registry[1-3].io", "registry2.io/app", true),
            ("registry[1-3].io", "registry4.io/app", false),
            ("registry[^1-3x].io", "registry4.io/app", true),
            ("registry[^1-3x].io", "registryx.io/app", false),
            ("registry[1-.io", "registry1.io/app", false),
            ("registry[].io", "registry.io/app", false),
            ("[::1]:5000", "[::1]:5000/app", true),
            ("", "registry.io/app", false),
        ] {
            assert_eq!(super::matches(pattern, repository), fits, "{pattern} {repository}");
        }
    }

    #[test]
    fn what_can_be_no_pattern_is_refused_in_gos_words() {
        for fine in ["*.io", "r.io:5000/path", "a[bc].io", "[::1]:5000", "me@r.io", "r.io/a b", ""] {
            assert_eq!(check_pattern(fine), Ok(()), "{fine}");
        }
        for (wrong, why) in [
            ("r.io:port", "parse \"https://r.io:port\": invalid port \":port\" after host"),
            ("r io", "parse \"https://r io\": invalid character \" \" in host name"),
            ("[::1", "parse \"https://[::1\": missing ']' in host"),
            ("r.io\n", "parse \"https://r.io\\n\": net/url: invalid control character in URL"),
        ] {
            assert_eq!(check_pattern(wrong).unwrap_err(), why);
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
            let _ = (check_pattern(&registry), super::matches(&registry, &image));
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
