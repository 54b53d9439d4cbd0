use bridge_io::IoRuntime;
use bridge_node::host::StartFacts;
use tempfile::TempDir;

use super::*;

/// What a kubelet without a cluster needs to be configured with.
const ALONE: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
authentication: {webhook: {enabled: false}, x509: {clientCAFile: /ca.crt}}
authorization: {mode: AlwaysAllow}
";

/// A kubelet's files, and what it has read of them.
struct Running {
    directory: TempDir,
    files: ConfigFiles,
    verbosity: Verbosity,
    _io: IoRuntime,
}

impl Running {
    /// One that was started with these lines more in its file, and with these flags more.
    fn start(lines: &str, flags: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("kubelet.yaml"), format!("{ALONE}{lines}")).unwrap();
        std::fs::create_dir(directory.path().join("conf.d")).unwrap();
        std::fs::write(directory.path().join("understudy.yaml"), UNDERSTUDY).unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let own = ["--config", &path("kubelet.yaml"), "--config-dir", &path("conf.d")].map(str::to_owned);
        let understudy = ["--understudy-config".to_owned(), path("understudy.yaml")];
        let more = flags.iter().map(|flag| (*flag).to_owned());
        let args: Vec<String> = own.into_iter().chain(understudy).chain(more).collect();
        let loaded = match load(&args, &Host::probe(), &mut std::io::sink()) {
            Ok(Invocation::Run(loaded)) => *loaded,
            other => panic!("{other:?}"),
        };
        let facts = StartFacts { swaps: "Filename\n".to_owned(), cpus_online: "0-3".to_owned() };
        let machine = MachineCapacity { cpus: 4, memory_bytes: 8 << 30, ..MachineCapacity::default() };
        let start = Start {
            loaded,
            node: "node".to_owned(),
            host_ip: None,
            machine,
            host: HostFacts { facts, cgroup_v2: true },
            driver: CgroupDriver::Systemd,
        };
        let io = Io::start(1).unwrap();
        let verbosity = Verbosity::new(start.loaded.config.process.logging.verbosity, &[]);
        let files = ConfigFiles::new(&io.io(), start, Some(verbosity.clone())).unwrap();
        Self { directory, files, verbosity, _io: io }
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.directory.path().join(file), text).unwrap();
    }

    /// Reads the files, with these lines more in the first one, and puts what is right in force.
    fn read(&self, lines: &str) -> Result<Arc<Configuration>, Vec<String>> {
        self.write("kubelet.yaml", &format!("{ALONE}{lines}"));
        let now = self.files.kept.read()?;
        self.files.put_in_force(now.clone());
        Ok(now)
    }
}

const UNDERSTUDY: &str = "
apiVersion: understudy.dev/v1alpha1
kind: UnderstudyConfiguration
";

#[test]
fn what_may_change_is_in_force_and_the_rest_is_named() {
    let running = Running::start("maxPods: 100\n", &[]);
    let start = running.files.in_force();
    assert_eq!((start.generation, &start.shown["cgroupDriver"]), (1, &"systemd".into()));
    assert_eq!(running.read("maxPods: 100\n").unwrap(), start, "nothing has changed");
    let lines = "maxPods: 50\ncontainerLogMaxFiles: 9\nclusterDomain: another\nlogging: {verbosity: 4, format: json}\n";
    let now = running.read(lines).unwrap();
    assert_eq!((now.generation, now.rotation.files_max, running.verbosity.level()), (2, 9, 4));
    assert_eq!(now.waits, ["clusterDomain", "logging.format"]);
    assert_eq!((&now.shown["maxPods"], now.shown.get("clusterDomain")), (&50.into(), None));
    let pods = now.resources.capacity["pods"];
    assert_eq!(pods.units_rounded_up(), 50);
    let more = running.read("maxPods: 101\ncontainerLogMaxFiles: 9\n").unwrap();
    assert_eq!(
        (&more.shown["maxPods"], more.waits.as_slice()),
        (&100.into(), &["maxPods (above 100)".to_owned()][..])
    );
    assert_eq!((more.generation, running.verbosity.level()), (3, 0));
}

#[test]
fn thresholds_are_those_of_the_file_and_change_what_pods_may_have() {
    let running = Running::start("", &[]);
    let before = running.files.in_force();
    let lines = "evictionHard: {memory.available: 1Gi}\nevictionSoft: {memory.available: 2Gi}\nevictionSoftGracePeriod: {memory.available: 30s}\n";
    let now = running.read(lines).unwrap();
    assert_eq!(now.eviction.hard.len(), 1, "the defaults are for a file that names none");
    assert_eq!(now.eviction.soft_grace["memory.available"].as_secs(), 30);
    let memory = |of: &Configuration| of.resources.allocatable["memory"];
    assert!(memory(&now) < memory(&before));
    assert!(now.waits.is_empty(), "{:?}", now.waits);
}

#[test]
fn flags_go_before_files_and_drop_ins_before_the_file() {
    let running = Running::start("", &["--max-pods=60", "--v=2"]);
    running.write("conf.d/10.conf", &ALONE.replace("failCgroupV1: false", "containerLogMaxFiles: 7"));
    let now = running.read("maxPods: 50\ncontainerLogMaxFiles: 9\nlogging: {verbosity: 4}\n").unwrap();
    assert_eq!((&now.shown["maxPods"], now.rotation.files_max), (&60.into(), 7));
    assert_eq!(running.verbosity.level(), 2);
    running.write("understudy.yaml", &format!("{UNDERSTUDY}relist: {{notified: 20s}}\n"));
    let now = running.read("").unwrap();
    assert_eq!(now.waits, ["UnderstudyConfiguration.relist.notified"]);
}

#[test]
fn what_is_wrong_anywhere_changes_nothing_and_is_named() {
    let running = Running::start("", &[]);
    let before = running.files.in_force();
    let refused = |lines: &str| running.read(lines).unwrap_err().join("; ");
    let file = running.directory.path().join("kubelet.yaml").display().to_string();
    for (lines, words) in [
        ("containerLogMaxFiles: 9\nmaxPods: many\n", vec![file.as_str(), "\"maxPods\"", "many"]),
        ("containerLogMaxFiles: 9\nmaxPod: 9\n", vec![file.as_str(), "unknown field", "maxPod"]),
        (
            "containerLogMaxFiles: 9\nimageGCHighThresholdPercent: 101\n",
            vec!["imageGCHighThresholdPercent", "101"],
        ),
        ("containerLogMaxFiles: 9\nevictionHard: {memory.available: lots}\n", vec!["evictionHard", "lots"]),
        ("containerLogMaxFiles: [", vec![file.as_str()]),
    ] {
        let told = refused(lines);
        for word in words {
            assert!(told.contains(word), "{word} is not in: {told}");
        }
    }
    std::fs::remove_file(&file).unwrap();
    assert!(running.files.kept.read().unwrap_err().join("; ").contains(&file));
    assert_eq!(running.files.in_force(), before);
    assert_eq!(running.read("containerLogMaxFiles: 9\n").unwrap().generation, 2, "the next change mends it");
}

#[test]
fn a_verbosity_that_was_set_otherwise_stays_until_the_configured_one_changes() {
    let running = Running::start("logging: {verbosity: 1}\n", &[]);
    running.verbosity.shared().store(8, Ordering::Relaxed);
    running.read("logging: {verbosity: 1}\ncontainerLogMaxFiles: 9\n").unwrap();
    assert_eq!(running.verbosity.level(), 8);
    running.read("logging: {verbosity: 2}\ncontainerLogMaxFiles: 9\n").unwrap();
    assert_eq!(running.verbosity.level(), 2);
}
