//! Rules on paths.

use super::super::KubeletConfiguration;
use super::Problems;
use super::words::quoted;

pub(super) fn check(config: &KubeletConfiguration, problems: &mut Problems) {
    let directory = &config.pods.pod_logs_dir;
    problems.config(directory.is_empty(), || "podLogsDir was not specified".to_owned());
    problems.config(!directory.starts_with('/'), || {
        format!("pod logs path {} must be absolute path", quoted(directory))
    });
    problems.config(clean_path(directory) != *directory, || {
        format!("pod logs path {} must be normalized", quoted(directory))
    });
    problems.config(!directory.is_ascii(), || {
        format!("pod logs path {} mut contains ASCII characters only", quoted(directory))
    });
}

/// The shortest equivalent path, without looking at the file system, as Go's `filepath.Clean` computes it.
pub fn clean_path(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|&last| last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            other => parts.push(other),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::clean_path;

    #[test]
    fn paths_are_shortened_as_go_shortens_them() {
        for (path, clean) in [
            ("/var/log/pods", "/var/log/pods"),
            ("/var//log/./pods/", "/var/log/pods"),
            ("/a/../../b", "/b"),
            ("../a/..", ".."),
            ("a/..", "."),
            ("", "."),
            ("/", "/"),
        ] {
            assert_eq!(clean_path(path), clean);
        }
    }
}
