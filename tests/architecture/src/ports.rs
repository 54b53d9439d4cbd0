//! What of the outside world each actor may touch: the bridge's ports that its sources name, and no type that does more.
//! Which calls a port has, and that there are no others, stands beside the port.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::files;

/// What the sources in a directory name of the bridge's traits. A directory below another one counts for itself.
const PORTS: &[(&str, &[&str])] = &[
    ("actors/certificate-manager/", &["CertificateRequests", "CertificateStore", "Clock"]),
    ("actors/config-manager/", &["StaticFiles"]),
    ("actors/event-recorder/", &["Clock", "Events"]),
    ("actors/eviction-manager/", &["CgroupReads", "NodeStats", "PodDirReads", "Stats"]),
    ("actors/garbage-collector/", &["Clock", "PodDirs", "PodRemoval"]),
    (
        "actors/image-manager/",
        &[
            "Clock",
            "Compute",
            "CredentialPlugins",
            "DockerConfigs",
            "Images",
            "NodeStats",
            "PullRecords",
            "RuntimeReads",
            "Stats",
        ],
    ),
    ("actors/log-manager/", &["Clock", "ContainerLogs", "LogReopen"]),
    (
        "actors/node-api/",
        &[
            "Checkpointing",
            "Clock",
            "ExecSync",
            "Listeners",
            "Reviews",
            "RuntimeReads",
            "StreamProxy",
            "Streaming",
        ],
    ),
    (
        "actors/node-status/",
        &["Clock", "Follow", "HostAddresses", "ImageReads", "NodeObject", "RuntimeConfiguration"],
    ),
    ("actors/node-status/src/lease/", &["Clock", "Leases"]),
    ("actors/object-cache/", &["Clock", "Follow", "PodObjects", "Read"]),
    ("actors/pleg/", &["Clock", "ExitWatcher", "PodDirReads", "RuntimeReads"]),
    ("actors/pod-manager/", &["MirrorObjects"]),
    ("actors/pod-sources/", &["CheckpointStore", "Clock", "Compute", "Follow", "ManifestUrl", "StaticFiles"]),
    (
        "actors/pod-worker/",
        &["Clock", "Compute", "ExecSync", "PodDirs", "PodLifecycle", "Prober", "RuntimeReads"],
    ),
    ("actors/probe-manager/", &["CheckpointStore", "Clock", "ExecSync", "Prober"]),
    ("actors/resource-manager/", &["Cgroups"]),
    ("actors/stats-provider/", &["Stats", "UsageReads"]),
    ("actors/status-manager/", &["CheckpointStore", "Clock", "PodStatuses"]),
    (
        "actors/volume-manager/",
        &[
            "ClaimStatuses",
            "Clock",
            "Compute",
            "CsiNodes",
            "DriverRegistry",
            "FlexDrivers",
            "Mounts",
            "NetworkDisks",
            "NodeVolumes",
            "Plugins",
            "PodDirs",
            "VolumeFigures",
            "VolumeObjects",
        ],
    ),
];

/// A port that writes what has one writer, and that writer.
const WRITERS: &[(&str, &str)] = &[
    ("Cgroups", "actors/resource-manager/"),
    ("CertificateRequests", "actors/certificate-manager/"),
    ("ClaimStatuses", "actors/volume-manager/"),
    ("CsiNodes", "actors/volume-manager/"),
    ("DriverRegistry", "actors/volume-manager/"),
    ("Events", "actors/event-recorder/"),
    ("FlexDrivers", "actors/volume-manager/"),
    ("Images", "actors/image-manager/"),
    ("Leases", "actors/node-status/src/lease/"),
    ("LogReopen", "actors/log-manager/"),
    ("MirrorObjects", "actors/pod-manager/"),
    ("Mounts", "actors/volume-manager/"),
    ("NetworkDisks", "actors/volume-manager/"),
    ("NodeObject", "actors/node-status/"),
    ("NodeVolumes", "actors/volume-manager/"),
    ("PodLifecycle", "actors/pod-worker/"),
    ("PodStatuses", "actors/status-manager/"),
    ("RuntimeConfiguration", "actors/node-status/"),
];

/// Traits of the bridge that are bounds of a kind of objects, and do nothing.
const BOUNDS: &[&str] = &["Object"];

/// The name at the beginning of a text.
fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The ports of the bridge, and the types that implement some.
fn bridge() -> (BTreeSet<String>, BTreeSet<String>) {
    let sources: Vec<String> = files("runtime-bridge").iter().map(|file| file.code()).collect();
    let mut ports = BTreeSet::new();
    for code in &sources {
        let declared = code.lines().filter_map(|line| line.trim().strip_prefix("pub trait "));
        ports.extend(declared.map(name).map(str::to_owned));
        // Those that a macro makes stand in a block, each at its margin.
        let made = code.split_once("\nports! {\n").map_or("", |(_, block)| block);
        let made =
            made.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| line.ends_with('{'));
        ports.extend(made.map(name).filter(|name| name.starts_with(char::is_uppercase)).map(str::to_owned));
    }
    ports.retain(|port| !port.is_empty() && !BOUNDS.contains(&port.as_str()));
    let mut all = BTreeSet::new();
    for line in sources.iter().flat_map(|code| code.lines()) {
        let Some((head, does)) = line.trim().split_once(" for ") else { continue };
        let head =
            head.strip_suffix('>').and_then(|head| head.rsplit_once('<')).map_or(head, |(head, _)| head);
        let port = head.rsplit([' ', ':']).next().unwrap_or_default();
        // A parameter of one letter stands for others.
        let does = Some(name(does)).filter(|does| head.starts_with("impl") && does.len() > 1);
        all.extend(does.filter(|_| port == "$port" || ports.contains(port)).map(str::to_owned));
    }
    (ports, all)
}

/// The words that code names of the bridge, in `use` items and in paths.
fn named(code: &str) -> BTreeSet<&str> {
    let paths = code.match_indices("bridge_").map(|(at, _)| {
        let path = &code[at..];
        let end = path.find(|c: char| !c.is_alphanumeric() && !"_:{}, *\n".contains(c));
        &path[..end.unwrap_or(path.len())]
    });
    paths
        .flat_map(|path| path.split([':', '{', '}', ',', ' ', '\n']))
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn actors_name_only_these_ports_and_nothing_that_does_more() {
    let (ports, all) = bridge();
    for (does, known) in
        [("Operations", &all), ("ApiClient", &all), ("RuntimeReads", &ports), ("Leases", &ports)]
    {
        assert!(known.contains(does), "{does} is not among {known:?}");
    }
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for file in files("actors") {
        let code = file.code();
        let words = named(&code);
        let whole = words.iter().filter(|word| all.contains(**word) || **word == "*");
        wrong.extend(whole.map(|word| format!("{}: {word}", file.path)));
        let of = PORTS.iter().map(|(directory, _)| *directory);
        let of = of.filter(|directory| file.path.starts_with(directory)).max_by_key(|path| path.len());
        let named = words.into_iter().filter(|word| ports.contains(*word)).map(str::to_owned);
        found.entry(of.unwrap_or("another")).or_default().extend(named);
    }
    assert!(wrong.is_empty(), "actors are handed ports by the wiring, never what has them all: {wrong:#?}");
    found.retain(|_, named| !named.is_empty());
    let row =
        |(of, ports): &(&'static str, &[&str])| (*of, ports.iter().map(|port| (*port).to_owned()).collect());
    let listed: BTreeMap<&str, BTreeSet<String>> = PORTS.iter().map(row).collect();
    assert_eq!(found, listed, "left: what the sources name; right: what this list allows");
}

#[test]
fn what_has_one_writer_is_written_through_a_port_of_that_actor_alone() {
    for (port, writer) in WRITERS {
        let with: Vec<_> =
            PORTS.iter().filter(|(_, ports)| ports.contains(port)).map(|(of, _)| *of).collect();
        assert_eq!(with, [*writer], "{port}");
    }
}

#[test]
fn names_of_the_bridge_are_found() {
    let code = "use bridge_a::deep::{\n    Reads as Looks,\n    Writes,\n};\nfn f(x: &dyn bridge_b::Sends) {}\nstruct Not;";
    let words = named(code);
    let expected = ["Looks", "Reads", "Sends", "Writes", "as", "bridge_a", "bridge_b", "deep"];
    assert_eq!(words, expected.into());
}
