//! The tag of an image's name, for the default pull policy.

/// Whether a pull policy left out means `Always` for this image: its tag is `latest`, or it names neither tag nor digest.
/// A name that is no image reference counts as not latest, as upstream has it.
pub fn is_latest(image: &str) -> bool {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) if is_digest(digest) => (named, true),
        Some(_) => return false,
        None => (image, false),
    };
    let slash = named.rfind('/').map_or(0, |index| index + 1);
    let (repository, tag) = match named[slash..].find(':') {
        Some(colon) => (&named[..slash + colon], Some(&named[slash + colon + 1..])),
        None => (named, None),
    };
    if !is_repository(repository) || is_bare_id(image) {
        return false;
    }
    match tag {
        Some(tag) => is_tag(tag) && tag == "latest",
        None => !digest,
    }
}

/// 64 hex digits name an image by its ID, never a repository.
fn is_bare_id(image: &str) -> bool {
    image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().enumerate().all(|(at, byte)| word(byte) || (at > 0 && matches!(byte, b'.' | b'-')))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
            && hex.len() >= 32
            && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn is_repository(repository: &str) -> bool {
    if repository.is_empty() || repository.len() > 255 {
        return false;
    }
    let path = match repository.split_once('/') {
        Some((domain, path))
            if domain.contains(['.', ':']) || domain == "localhost" || domain.to_lowercase() != domain =>
        {
            let host = domain.rsplit_once(':').map_or(domain, |(host, _)| host);
            let host_ok = !host.is_empty()
                && host.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'[' | b']' | b':')
                });
            if !host_ok {
                return false;
            }
            path
        }
        _ => repository,
    };
    path.split('/').all(is_component)
}

/// Lower-case letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_component(component: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    component.starts_with(alphanumeric)
        && component.ends_with(alphanumeric)
        && component
            .split(alphanumeric)
            .all(|run| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_latest_from_other_tags() {
        let digest = format!("@sha256:{}", "a".repeat(64));
        for image in [
            "nginx",
            "nginx:latest",
            "docker.io/library/nginx",
            "localhost:5000/a/b",
            "Host/a",
            "a__b/c-d.e",
            "r.io:443/x:latest",
        ] {
            assert!(is_latest(image), "{image}");
        }
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
            &"a".repeat(64),
        ] {
            assert!(!is_latest(image), "{image}");
        }
        assert!(!is_latest(&format!("nginx{digest}")));
        assert!(is_latest(&format!("nginx:latest{digest}")));
    }
}
