//! Keys, requests and pairs on disk, including damaged and missing files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use bridge_io::{Io, IoRuntime};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() + seconds).unwrap()
}

fn subject() -> Subject {
    let names = Names {
        dns: ["node".to_owned()].into(),
        ips: ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()].into(),
    };
    Subject::node("n1", names)
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

struct Disk {
    io: IoRuntime,
    directory: tempfile::TempDir,
    authority: FakeAuthority,
}

impl Disk {
    fn new() -> Self {
        Self {
            io: Io::start(1).unwrap(),
            directory: tempfile::tempdir().unwrap(),
            authority: FakeAuthority::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("pki").join(name)
    }

    fn store(&self) -> DirCertificates {
        DirCertificates::new(self.io.io(), &self.path(""), "kubelet-client", None)
    }

    fn pem(&self, key: &KeyPem, from: Timestamp) -> Vec<u8> {
        self.authority.sign(&key.request(&subject()).unwrap(), from, DAY).into_bytes()
    }

    fn save(&self, at: Timestamp) -> Result<Timestamp, CertificateError> {
        let key = KeyPem::generate().unwrap();
        let saved = self.store().save(&self.pem(&key, at), &key, at);
        wait(saved).map(|pair| pair.leaf.not_before)
    }

    fn load(&self, at: Timestamp) -> Result<Option<Timestamp>, CertificateError> {
        wait(self.store().load(at)).map(|pair| pair.map(|pair| pair.leaf.not_before))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn a_signed_request_names_the_node_and_its_addresses() {
    let (key, authority) = (KeyPem::generate().unwrap(), FakeAuthority::default());
    let certificate = authority.sign(&key.request(&subject()).unwrap(), now(), DAY);
    let pair = Pair::read(certificate.as_bytes(), key.text().as_bytes(), Path::new("x")).unwrap();
    assert_eq!(pair.leaf.common_name, "system:node:n1");
    assert_eq!(pair.leaf.organizations, ["system:nodes".to_owned()].into());
    assert_eq!((&pair.leaf.dns_names, &pair.leaf.ips), (&subject().names.dns, &subject().names.ips));
    assert_eq!((pair.leaf.not_before, pair.leaf.not_after), (now(), later(24 * 3600)));
    assert!(!pair.is_expired(later(24 * 3600)) && pair.is_expired(later(24 * 3600 + 1)));
    assert_eq!(KeyPem::of(&pair).unwrap().public(), key.public());
    let other = KeyPem::generate().unwrap();
    let error = Pair::read(certificate.as_bytes(), other.text().as_bytes(), Path::new("x")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not convert data from \"x\" into cert/key pair: the key is not that of the certificate"
    );
}

#[test]
fn the_name_of_a_request_stands_for_key_subject_and_usages() {
    let (key, other) = (KeyPem::generate().unwrap(), KeyPem::generate().unwrap());
    let named = |key: &KeyPem, node: &str, usages: &[&str]| {
        key.request_name(&Subject::node(node, Names::default()), usages).unwrap()
    };
    let usages = Purpose::Client.usages();
    let name = named(&key, "n1", &usages);
    assert!(name.starts_with("node-csr-") && name.len() == "node-csr-".len() + 43, "{name}");
    assert_eq!(name, named(&key, "n1", &usages));
    let others = [named(&other, "n1", &usages), named(&key, "n2", &usages), named(&key, "n1", &usages[..1])];
    assert!(!others.contains(&name));
}

#[test]
fn a_pair_is_private_and_the_link_leads_to_the_newest() {
    let disk = Disk::new();
    assert_eq!(disk.load(now()).unwrap(), None);
    disk.save(now()).unwrap();
    disk.save(later(1)).unwrap();
    assert_eq!(disk.load(later(2)), Ok(Some(later(1))));
    let names = ["kubelet-client-2026-01-02-03-04-05.pem", "kubelet-client-2026-01-02-03-04-06.pem"];
    assert_eq!(disk.names(), [names[0], names[1], "kubelet-client-current.pem"]);
    assert_eq!(std::fs::read_link(disk.store().current_path()).unwrap(), disk.path(names[1]));
    let mode = std::fs::metadata(disk.path(names[1])).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // More pairs than are kept, and the names of two links, which are no pairs.
    (2..20).for_each(|second| {
        disk.save(later(second)).unwrap();
    });
    assert_eq!((disk.names().len(), disk.load(later(20))), (11, Ok(Some(later(19)))));
}

#[test]
fn whoever_is_killed_leaves_a_pair_that_holds() {
    let disk = Disk::new();
    disk.save(now()).unwrap();
    // Killed while it wrote the next pair.
    std::fs::write(disk.path(".kubelet-client-2026-01-02-03-04-06.pem.tmp"), "half").unwrap();
    assert_eq!(disk.load(later(1)), Ok(Some(now())));
    assert_eq!(disk.names().len(), 2, "what was half written is gone");
    // Killed after the next link was made and before it replaced the old one, which another kubelet had removed.
    std::fs::rename(disk.path("kubelet-client-current.pem"), disk.path("kubelet-client-updated.pem"))
        .unwrap();
    assert_eq!(disk.load(later(1)), Ok(Some(now())));
    assert_eq!(disk.names()[1], "kubelet-client-current.pem");
    std::os::unix::fs::symlink("/nowhere", disk.path("kubelet-client-updated.pem")).unwrap();
    disk.save(later(2)).unwrap();
    assert_eq!(disk.load(later(2)), Ok(Some(later(2))));
}

#[test]
fn a_damaged_pair_is_named_and_an_older_one_that_holds_is_used() {
    let disk = Disk::new();
    disk.save(now()).unwrap();
    disk.save(later(60)).unwrap();
    let newest = disk.path("kubelet-client-2026-01-02-03-05-05.pem");
    let text = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &text[..text.len() / 2]).unwrap();
    assert_eq!(disk.load(later(61)), Ok(Some(now())));
    // First both pairs are damaged, then one is an expired pair.
    std::fs::write(&newest, "").unwrap();
    std::os::unix::fs::symlink(&newest, disk.path("kubelet-client-updated.pem")).unwrap();
    std::fs::rename(disk.path("kubelet-client-updated.pem"), disk.path("kubelet-client-current.pem"))
        .unwrap();
    let error = disk.load(later(3 * 24 * 3600)).unwrap_err().to_string();
    let current = disk.path("kubelet-client-current.pem");
    assert_eq!(
        error,
        format!("could not convert data from {current:?} into cert/key pair: it holds no certificate")
    );
}

#[test]
fn what_cannot_be_written_is_named_and_harms_nothing() {
    let disk = Disk::new();
    std::fs::write(disk.directory.path().join("pki"), "a file").unwrap();
    let error = disk.save(now()).unwrap_err().to_string();
    assert!(error.starts_with("create ") && error.contains("/pki"), "{error}");
    let disk = Disk::new();
    disk.save(now()).unwrap();
    let key = KeyPem::generate().unwrap();
    let of_another = disk.pem(&KeyPem::generate().unwrap(), now());
    assert!(wait(disk.store().save(&of_another, &key, later(1))).is_err());
    assert_eq!(disk.load(later(1)), Ok(Some(now())));
    let current = disk.path("kubelet-client-current.pem");
    std::fs::remove_file(&current).unwrap();
    std::fs::write(&current, "somebody's").unwrap();
    let error = disk.save(later(2)).unwrap_err().to_string();
    assert_eq!(error, format!("expected {current:?} to be a symlink but it is a file"));
}

#[test]
fn a_pair_of_other_files_holds_until_there_is_one_of_ours() {
    let disk = Disk::new();
    let key = KeyPem::generate().unwrap();
    let (certificate, key_file) = (disk.directory.path().join("c"), disk.directory.path().join("k"));
    std::fs::write(&certificate, disk.pem(&key, now())).unwrap();
    std::fs::write(&key_file, key.text()).unwrap();
    let first = Some((certificate, key_file));
    let store = DirCertificates::new(disk.io.io(), &disk.path(""), "kubelet-client", first);
    let held = || wait(store.load(later(9))).unwrap().unwrap().leaf.not_before;
    assert_eq!(held(), now());
    disk.save(later(5)).unwrap();
    assert_eq!(held(), later(5));
}
