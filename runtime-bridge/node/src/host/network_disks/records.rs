//! Secrets of CHAP in the records of `iscsiadm`. The program takes them as arguments alone, which every process of the node may
//! read, so that they are written into its records here.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::{DisksError, IscsiRecord};
use crate::host::SecretContent;

/// Where `iscsiadm` keeps its records: which of them it is was chosen when the program was built.
pub(super) const ROOTS: [&str; 2] = ["/etc/iscsi", "/var/lib/iscsi"];
/// The most bytes of a record.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// The longest secret, as the program has it.
const SECRET_BYTES_MAX: usize = 255;
/// The last line of a record.
const END: &str = "# END RECORD";

/// PURE: address and port of a portal as the names of records have them.
fn address(portal: &str) -> Option<String> {
    let (host, port) = portal.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_name = |text: &str| !text.is_empty() && !text.contains('/') && !text.starts_with('.');
    (is_name(host) && is_name(port)).then(|| format!("{host},{port}"))
}

/// The files of a record below one root.
fn files(root: &Path, record: &IscsiRecord) -> Vec<PathBuf> {
    let is_segment = |text: &str| !text.is_empty() && !text.contains('/') && !text.starts_with('.');
    match record {
        IscsiRecord::Discovery { portal } => {
            let dir = address(portal).map(|address| root.join("send_targets").join(address));
            dir.map(|dir| dir.join("st_config")).into_iter().filter(|file| file.is_file()).collect()
        }
        IscsiRecord::Node { target, portal, iface } => {
            let Some(address) = address(portal).filter(|_| is_segment(target) && is_segment(iface)) else {
                return Vec::new();
            };
            let Ok(entries) = fs::read_dir(root.join("nodes").join(target)) else { return Vec::new() };
            let of_portal = |name: &str| {
                name.strip_prefix(&address).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
            };
            let dirs = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(of_portal));
            dirs.map(|dir| dir.path().join(iface)).filter(|file| file.is_file()).collect()
        }
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DisksError {
    let path = path.to_path_buf();
    move |error| DisksError::Io { operation, path, reason: error.to_string() }
}

/// PURE: the text of a record with these settings, each of which stands there once.
///
/// # Errors
/// The name of a setting that has no such value.
fn with(text: &str, settings: &[(String, SecretContent)]) -> Result<Vec<u8>, String> {
    let mut values = Vec::new();
    for (key, value) in settings {
        let value = std::str::from_utf8(value.expose()).map_err(|_| key.clone())?;
        if value.len() > SECRET_BYTES_MAX || value.chars().any(char::is_control) {
            return Err(key.clone());
        }
        values.push(format!("{key} = {value}"));
    }
    let is_set = |line: &str| {
        let key = line.split_once('=').map(|(key, _)| key.trim());
        key.is_some_and(|key| settings.iter().any(|(set, _)| set == key))
    };
    let kept = text.lines().filter(|line| !is_set(line) && line.trim() != END).map(str::to_owned);
    let mut lines: Vec<String> = kept.chain(values).collect();
    if text.lines().any(|line| line.trim() == END) {
        lines.push(END.to_owned());
    }
    let mut whole = lines.join("\n").into_bytes();
    whole.push(b'\n');
    Ok(whole)
}

fn rewrite(root: &Path, file: &Path, settings: &[(String, SecretContent)]) -> Result<(), DisksError> {
    let no_link = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = fs::OpenOptions::new().read(true).custom_flags(no_link).open(file);
    let mut text = String::new();
    let read = opened.and_then(|opened| opened.take(RECORD_BYTES_MAX).read_to_string(&mut text));
    read.map_err(failed("read", file))?;
    let whole = with(&text, settings).map_err(|key| DisksError::Failed {
        why: format!("the value of {key:?} in the Secret cannot be that of a setting"),
    })?;
    // Not beside the record, where the program would take it for another one.
    let new = root.join(".kubelet-record");
    let write = || {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&new)?.write_all(&whole)?;
        fs::rename(&new, file)
    };
    write().map_err(failed("write", file))
}

/// Writes settings into a record.
pub(super) fn set(
    roots: &[PathBuf],
    record: &IscsiRecord,
    settings: &[(String, SecretContent)],
) -> Result<(), DisksError> {
    let mut is_found = false;
    for root in roots {
        for file in files(root, record) {
            rewrite(root, &file, settings)?;
            is_found = true;
        }
    }
    if is_found {
        return Ok(());
    }
    let (IscsiRecord::Discovery { portal } | IscsiRecord::Node { portal, .. }) = record;
    Err(DisksError::Failed { why: format!("iscsiadm has no record of portal {portal} to be written") })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn secret(key: &str, value: &str) -> (String, SecretContent) {
        (key.to_owned(), SecretContent::new(value.as_bytes()))
    }

    #[test]
    fn secrets_are_written_into_the_record_of_their_portal_and_interface_alone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        let at = |portal: &str, iface: &str| root.join("nodes/iqn.2020-01.test:a").join(portal).join(iface);
        let before = "# BEGIN RECORD 2.1\nnode.name = iqn.2020-01.test:a\nnode.session.auth.password = old\n# END RECORD\n";
        for (portal, iface) in
            [("10.0.0.1,3260,1", "default"), ("10.0.0.1,3260,1", "other"), ("10.0.0.11,3260,1", "default")]
        {
            fs::create_dir_all(at(portal, iface).parent().unwrap()).unwrap();
            fs::write(at(portal, iface), before).unwrap();
        }
        let record = |portal: &str| IscsiRecord::Node {
            target: "iqn.2020-01.test:a".to_owned(),
            portal: portal.to_owned(),
            iface: "default".to_owned(),
        };
        let settings =
            [secret("node.session.auth.username", "me"), secret("node.session.auth.password", "p = w")];
        set(std::slice::from_ref(&root), &record("10.0.0.1:3260"), &settings).unwrap();
        let written = fs::read_to_string(at("10.0.0.1,3260,1", "default")).unwrap();
        assert_eq!(
            written,
            "# BEGIN RECORD 2.1\nnode.name = iqn.2020-01.test:a\nnode.session.auth.username = me\n\
             node.session.auth.password = p = w\n# END RECORD\n"
        );
        assert_eq!(fs::metadata(at("10.0.0.1,3260,1", "default")).unwrap().mode() & 0o777, 0o600);
        for (portal, iface) in [("10.0.0.1,3260,1", "other"), ("10.0.0.11,3260,1", "default")] {
            assert_eq!(fs::read_to_string(at(portal, iface)).unwrap(), before);
        }
        let none = set(std::slice::from_ref(&root), &record("10.0.0.2:3260"), &settings).unwrap_err();
        assert_eq!(none.to_string(), "iscsiadm has no record of portal 10.0.0.2:3260 to be written");
    }

    #[test]
    fn a_secret_sets_nothing_else_and_is_in_no_error() {
        for bad in ["a\nnode.startup = automatic", "a\rb", &"x".repeat(256)] {
            let told = with("# END RECORD\n", &[secret("node.session.auth.password", bad)]);
            assert_eq!(told, Err("node.session.auth.password".to_owned()));
        }
        assert_eq!(address("[fd00::1]:3260").as_deref(), Some("fd00::1,3260"));
        for odd in ["host", "../x:1", ":3260", "a/b:1", "a:"] {
            assert_eq!(address(odd), None, "{odd}");
        }
        let odd = IscsiRecord::Node {
            target: "../x".to_owned(),
            portal: "a:1".to_owned(),
            iface: "default".to_owned(),
        };
        assert!(files(Path::new("/"), &odd).is_empty());
    }
}
