//! Which crates open files, sockets and processes: the bridge, and few others with a reason each.

use std::collections::BTreeSet;

use crate::source::{files, has_word};

/// The kinds of things that code opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Opens {
    Files,
    Sockets,
    Processes,
}

use Opens::{Files, Processes, Sockets};

/// Directories of shipped crates, what each may open, and why. Crates that are not listed open nothing; tests may open
/// anything.
const MAY: &[(&str, &[Opens], &str)] = &[
    (
        "runtime-bridge/",
        &[Files, Sockets, Processes],
        "effects are what the bridge is for, each behind a trait",
    ),
    (
        "bin/kubelet/",
        &[Files],
        "configuration, kubeconfig and host name are read before there is a tree; a changed configuration by the same code",
    ),
    ("bin/understudy/", &[Files, Sockets, Processes], "a companion for people, no part of the kubelet"),
];
/// The directories of everything that is shipped.
const SHIPPED: &[&str] = &["messages", "actors", "runtime-bridge", "bin"];

fn opens(line: &str) -> Option<Opens> {
    const SOCKETS: &[&str] =
        &["TcpListener", "TcpStream", "TcpSocket", "UdpSocket", "UnixListener", "UnixStream", "UnixDatagram"];
    if SOCKETS.iter().any(|socket| has_word(line, socket)) {
        return Some(Sockets);
    }
    if line.contains("Command::new(") || line.contains("process::Command") {
        return Some(Processes);
    }
    let modules = ["std::fs", "tokio::fs", "rustix::fs", "fs::read", "fs::write"];
    let opened = modules.iter().any(|module| line.contains(module));
    let file = has_word(line, "File") && (line.contains("File::open(") || line.contains("File::create("));
    (opened || file || has_word(line, "OpenOptions")).then_some(Files)
}

#[test]
fn only_these_crates_open_files_sockets_and_processes() {
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for file in SHIPPED.iter().flat_map(|directory| files(directory)) {
        let may = MAY.iter().find(|(directory, ..)| file.path.starts_with(directory));
        for (number, line) in file.code().lines().enumerate() {
            let Some(kind) = opens(line) else { continue };
            match may.filter(|(_, kinds, _)| kinds.contains(&kind)) {
                Some((directory, ..)) => drop(used.insert((*directory, kind))),
                None => wrong.push(format!("{}:{}: {kind:?}: {}", file.path, number + 1, line.trim())),
            }
        }
    }
    assert!(wrong.is_empty(), "effects live in the bridge, behind a trait: {wrong:#?}");
    let rows = MAY.iter().flat_map(|(directory, kinds, _)| kinds.iter().map(move |kind| (*directory, *kind)));
    assert_eq!(rows.collect::<BTreeSet<_>>(), used, "left: what the list allows; right: what is done");
}

#[test]
fn what_opens_is_recognised() {
    assert_eq!(opens("let listener = TcpListener::bind(address).await?;"), Some(Sockets));
    assert_eq!(opens("use tokio::net::{UnixStream, unix};"), Some(Sockets));
    assert_eq!(opens("let text = std::fs::read_to_string(path)?;"), Some(Files));
    assert_eq!(opens("let file = File::open(path)?;"), Some(Files));
    assert_eq!(opens("let child = Command::new(binary).spawn()?;"), Some(Processes));
    for harmless in ["std::process::exit(1);", "use std::net::SocketAddr;", "LogFile::open(&io, path)"] {
        assert_eq!(opens(harmless), None, "{harmless}");
    }
}
