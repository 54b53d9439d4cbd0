//! Validation of file paths: none may lead out of its directory.

use super::field::{Errors, Path};

/// No element of the path may be `..`.
pub(super) fn no_backsteps(target: &str, path: &Path, errors: &mut Errors) {
    if has_backsteps(target) {
        errors.invalid(path, target, "must not contain '..'");
    }
}

pub(super) fn has_backsteps(target: &str) -> bool {
    target.split('/').any(|element| element == "..")
}

/// The path must be relative and without `..`.
pub(super) fn local_descending(target: &str, path: &Path, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    no_backsteps(target, path, errors);
}

/// The path must be relative and without `..`, and its name must not begin like the kubelet's own entries of a volume.
pub(super) fn local_non_reserved(target: &str, path: &Path, errors: &mut Errors) {
    local_descending(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") && target != ".." {
        errors.invalid(path, target, "must not start with '..'");
    }
}

/// A file mode must be between 0 and 0777.
pub(super) fn mode(mode: Option<i32>, path: &Path, errors: &mut Errors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(path, &mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}
