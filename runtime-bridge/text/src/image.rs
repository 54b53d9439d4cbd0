//! Image names: checked as upstream checks them, and given `:latest` when they name neither a tag nor a digest (row
//! 6.1).

use std::fmt;

const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
/// The longest repository path without its registry, bytes.
const REPOSITORY_BYTES_MAX: usize = 255;
/// The longest tag, bytes.
const TAG_BYTES_MAX: usize = 128;
/// The fewest digits of a digest of any algorithm.
const DIGEST_DIGITS_MIN: usize = 32;

/// A checked image name, with Docker Hub's short forms written out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    /// Registry and path, e.g. `docker.io/library/busybox`: the key by which credentials are looked up.
    pub repository: String,
    /// The tag as written; `latest` when the name has neither tag nor digest.
    pub tag: Option<String>,
    /// The digest as written, with its algorithm.
    pub digest: Option<String>,
}

/// Why a text names no image. The words are upstream's, since people search for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {image:?}: {cause}")]
pub struct NameError {
    /// The name as the pod spec writes it.
    pub image: String,
    /// The rule that the name breaks.
    pub cause: NameFault,
}

/// The rules of image names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// 64 hexadecimal digits are an image's ID, not a name.
    Identifier(String),
    /// The repository (as completed) has capital letters.
    Uppercase(String),
    /// The name breaks no rule but the one on capital letters.
    MustBeLowercase,
    /// The text has not the form of an image name.
    Format,
    /// The repository's path has more than 255 bytes.
    TooLong,
    /// The digest's text does not fit its algorithm.
    DigestFormat,
    /// The digest has too many or too few digits for its algorithm.
    DigestLength,
    /// The digest's algorithm is not sha256, sha384 or sha512.
    DigestAlgorithm,
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identifier(id) => {
                write!(f, "invalid repository name ({id}), cannot specify 64-byte hexadecimal strings")
            }
            Self::Uppercase(repository) => {
                write!(f, "invalid reference format: repository name ({repository}) must be lowercase")
            }
            Self::MustBeLowercase => f.write_str("repository name must be lowercase"),
            Self::Format => f.write_str("invalid reference format"),
            Self::TooLong => {
                write!(f, "repository name must not be more than {REPOSITORY_BYTES_MAX} characters")
            }
            Self::DigestFormat => f.write_str("invalid checksum digest format"),
            Self::DigestLength => f.write_str("invalid checksum digest length"),
            Self::DigestAlgorithm => f.write_str("unsupported digest algorithm"),
        }
    }
}

/// Checks an image name and splits it into its parts.
///
/// # Errors
/// [`NameError`] when the name breaks a rule of image references.
pub fn parse(image: &str) -> Result<ImageName, NameError> {
    parse_parts(image).map_err(|cause| NameError { image: image.to_owned(), cause })
}

/// The name to ask the runtime for: as written, with `:latest` added where it has neither tag nor digest. Short names
/// stay short; the runtime's configuration says what they mean.
///
/// # Errors
/// [`NameError`] when the name breaks a rule of image references.
pub fn with_default_tag(image: &str) -> Result<String, NameError> {
    let name = parse(image)?;
    match (&name.tag, &name.digest) {
        (Some(tag), None) if !image.ends_with(&format!(":{tag}")) => Ok(format!("{image}:{tag}")),
        _ => Ok(image.to_owned()),
    }
}

/// Whether an absent pull policy means `Always` for this image: its tag is `latest`, or it has neither tag nor digest.
/// False for a text that names no image.
pub fn is_latest(image: &str) -> bool {
    parse(image).is_ok_and(|name| name.tag.as_deref() == Some(DEFAULT_TAG))
}

/// The name as written without its tag and digest: the key of records of pulls and of allowlists.
pub fn without_tag(image: &str) -> String {
    let (bare, _) = image.split_once('@').unwrap_or((image, ""));
    let last = bare.rfind('/').map_or(0, |at| at + 1);
    let end = bare[last..].find(':').map_or(bare.len(), |at| last + at);
    bare[..end].to_owned()
}

fn parse_parts(image: &str) -> Result<ImageName, NameFault> {
    if image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(NameFault::Identifier(image.to_owned()));
    }
    let (domain, rest) = split_domain(image);
    let repository = rest.split(':').next().unwrap_or_default();
    if repository.to_lowercase() != repository {
        return Err(NameFault::Uppercase(repository.to_owned()));
    }
    let Some((path, tag, digest)) = match_reference(&domain, &rest) else {
        let lower = (domain.to_lowercase(), rest.to_lowercase());
        return Err(match match_reference(&lower.0, &lower.1) {
            Some(_) => NameFault::MustBeLowercase,
            None => NameFault::Format,
        });
    };
    if path.len() > REPOSITORY_BYTES_MAX {
        return Err(NameFault::TooLong);
    }
    if let Some(digest) = digest {
        check_digest(digest)?;
    }
    let tag = match (tag, digest) {
        (None, None) => Some(DEFAULT_TAG.to_owned()),
        (tag, _) => tag.map(str::to_owned),
    };
    Ok(ImageName { repository: format!("{domain}/{path}"), tag, digest: digest.map(str::to_owned) })
}

/// Registry and remainder of a name, with Docker Hub's short forms completed.
fn split_domain(image: &str) -> (String, String) {
    let Some((first, rest)) = image.split_once('/') else {
        return (DEFAULT_DOMAIN.to_owned(), format!("library/{image}"));
    };
    let (domain, rest) = if first == "index.docker.io" {
        (DEFAULT_DOMAIN, rest)
    } else if first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first {
        (first, rest)
    } else {
        (DEFAULT_DOMAIN, image)
    };
    if domain == DEFAULT_DOMAIN && !rest.contains('/') {
        return (DEFAULT_DOMAIN.to_owned(), format!("library/{rest}"));
    }
    (domain.to_owned(), rest.to_owned())
}

type Parts<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

/// `<path>[:tag][@digest]` below a domain; `None` when it does not have that form.
fn match_reference<'a>(domain: &str, rest: &'a str) -> Option<Parts<'a>> {
    let (named, digest) = match rest.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (rest, None),
    };
    let (path, tag) = match named.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (named, None),
    };
    // A text that looks like a host and is none may still be the first component of a path, as in `a_b.c/d`.
    let domain_fits = is_host_and_port(domain) || is_path_component(domain);
    let fits = domain_fits
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(has_digest_form);
    fits.then_some((path, tag, digest))
}

fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((address, after)) = rest.split_once(']') else { return false };
            if address.is_empty() || !address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':') {
                return false;
            }
            match after.strip_prefix(':') {
                Some(port) => (None, Some(port)),
                None if after.is_empty() => (None, None),
                None => return false,
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    host.is_none_or(|host| host.split('.').all(is_host_label))
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

fn is_host_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Lower-case letters and digits, parted by one dot, one or two underscores, or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let alphanumeric = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9');
    let mut rest = component.as_bytes();
    loop {
        let word = rest.iter().take_while(|b| alphanumeric(**b)).count();
        if word == 0 {
            return false;
        }
        rest = &rest[word..];
        if rest.is_empty() {
            return true;
        }
        let gap = rest.iter().take_while(|b| !alphanumeric(**b)).count();
        let (separator, after) = rest.split_at(gap);
        if !matches!(separator, b"." | b"_" | b"__") && !separator.iter().all(|b| *b == b'-') {
            return false;
        }
        rest = after;
    }
}

fn is_tag(tag: &str) -> bool {
    let bytes = tag.as_bytes();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    bytes.len() <= TAG_BYTES_MAX
        && bytes.first().is_some_and(|b| word(*b))
        && bytes.iter().all(|b| word(*b) || matches!(b, b'.' | b'-'))
}

fn has_digest_form(digest: &str) -> bool {
    let Some((algorithm, digits)) = digest.split_once(':') else { return false };
    let part_fits = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(part_fits)
        && digits.len() >= DIGEST_DIGITS_MIN
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn check_digest(digest: &str) -> Result<(), NameFault> {
    let (algorithm, digits) = digest.split_once(':').ok_or(NameFault::DigestFormat)?;
    let expected = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ if algorithm.bytes().any(|b| b.is_ascii_uppercase()) => return Err(NameFault::DigestFormat),
        _ => return Err(NameFault::DigestAlgorithm),
    };
    if digits.len() != expected {
        return Err(NameFault::DigestLength);
    }
    if digits.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(NameFault::DigestFormat);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn fault(image: &str) -> String {
        parse(image).expect_err("it should not be a name").to_string()
    }

    #[test]
    fn names_are_completed_like_docker_hub_names() {
        for (image, repository, tag, digest) in [
            ("busybox", "docker.io/library/busybox", Some("latest"), None),
            ("busybox:1.36", "docker.io/library/busybox", Some("1.36"), None),
            ("me/app", "docker.io/me/app", Some("latest"), None),
            ("docker.io/app", "docker.io/library/app", Some("latest"), None),
            ("index.docker.io/me/app", "docker.io/me/app", Some("latest"), None),
            ("localhost/app", "localhost/app", Some("latest"), None),
            ("host:5000/a/b:c", "host:5000/a/b", Some("c"), None),
            ("[::1]:5000/a", "[::1]:5000/a", Some("latest"), None),
            ("Host/app", "Host/app", Some("latest"), None),
            ("a_b.c/d", "a_b.c/d", Some("latest"), None),
            ("registry.k8s.io/pause@DIGEST", "registry.k8s.io/pause", None, Some(SHA)),
            ("registry.k8s.io/pause:3.10@DIGEST", "registry.k8s.io/pause", Some("3.10"), Some(SHA)),
        ] {
            let image = image.replace("DIGEST", SHA);
            let parsed = parse(&image).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                parsed,
                ImageName {
                    repository: repository.to_owned(),
                    tag: tag.map(str::to_owned),
                    digest: digest.map(str::to_owned)
                },
                "{image}"
            );
        }
    }

    #[test]
    fn tells_latest_from_other_tags() {
        let latest = [
            "nginx",
            "nginx:latest",
            "docker.io/library/nginx",
            "localhost:5000/a/b",
            "Host/a",
            "a__b/c-d.e",
            "r.io:443/x:latest",
            // A text that looks like a host and is none is the first component of a path.
            "a_b.c/d",
        ];
        for image in latest {
            assert!(is_latest(image), "{image}");
        }
        let id = "a".repeat(64);
        for image in [
            "",
            "nginx:1",
            "Nginx",
            "a/B",
            "a//b",
            "nginx:",
            "nginx:-x",
            "a___b",
            "a@sha256:12",
            "r.io:443/x:1",
            &id,
        ] {
            assert!(!is_latest(image), "{image}");
        }
        assert!(!is_latest(&format!("nginx@{SHA}")));
        assert!(is_latest(&format!("nginx:latest@{SHA}")));
    }

    #[test]
    fn the_default_tag_is_added_only_where_nothing_is_named() {
        assert_eq!(with_default_tag("busybox").as_deref(), Ok("busybox:latest"));
        assert_eq!(with_default_tag("host:5000/a").as_deref(), Ok("host:5000/a:latest"));
        assert_eq!(with_default_tag("busybox:latest").as_deref(), Ok("busybox:latest"));
        let pinned = format!("busybox@{SHA}");
        assert_eq!(with_default_tag(&pinned), Ok(pinned.clone()));
        let both = format!("busybox:1@{SHA}");
        assert_eq!(with_default_tag(&both), Ok(both.clone()));
    }

    #[test]
    fn refusals_are_worded_as_upstream_words_them() {
        assert_eq!(fault(""), "couldn't parse image name \"\": invalid reference format");
        assert_eq!(
            fault("Busybox"),
            "couldn't parse image name \"Busybox\": invalid reference format: repository name (library/Busybox) must be lowercase"
        );
        assert_eq!(fault("a//b"), "couldn't parse image name \"a//b\": invalid reference format");
        assert_eq!(fault("x:-t"), "couldn't parse image name \"x:-t\": invalid reference format");
        assert_eq!(
            fault("A_b.c/d"),
            "couldn't parse image name \"A_b.c/d\": repository name must be lowercase"
        );
        let id = SHA.trim_start_matches("sha256:");
        assert!(fault(id).ends_with("cannot specify 64-byte hexadecimal strings"));
        assert!(
            fault(&format!("{}abc", "abc/".repeat(140)))
                .ends_with("repository name must not be more than 255 characters")
        );
        assert!(fault(&format!("x@{}", &SHA[..60])).ends_with("invalid checksum digest length"));
        assert!(
            fault(&format!("x@{}", SHA.replace("sha256", "md5"))).ends_with("unsupported digest algorithm")
        );
        assert!(
            fault(&format!("x:1@{}", SHA.replace("sha256", "Sha256")))
                .ends_with("invalid checksum digest format")
        );
        assert!(
            fault(&format!("x@{}", SHA.replace("abc", "ABC"))).ends_with("invalid checksum digest format")
        );
    }

    proptest! {
        #[test]
        fn any_text_gets_an_answer(image in "\\PC{0,80}") {
            let _ = with_default_tag(&image);
        }

        #[test]
        fn adding_the_default_tag_twice_changes_nothing(
            image in "([a-z0-9.]{1,8}(:[0-9]{1,4})?/)?[a-z0-9]{1,6}([._-][a-z0-9]{1,4}){0,2}(:[a-z0-9_.-]{1,8})?"
        ) {
            if let Ok(once) = with_default_tag(&image) {
                prop_assert_eq!(with_default_tag(&once), Ok(once.clone()));
                let (before, after) = (parse(&image), parse(&once));
                prop_assert_eq!(before, after);
            }
        }

        #[test]
        fn separators_follow_the_grammar(words in proptest::collection::vec("[a-z0-9]{1,4}", 1..4), gap in "[._-]{1,3}") {
            let allowed = matches!(&*gap, "." | "_" | "__") || gap.bytes().all(|b| b == b'-');
            let name = words.join(&gap);
            prop_assert_eq!(parse(&name).is_ok(), allowed || words.len() == 1);
        }
    }
}
