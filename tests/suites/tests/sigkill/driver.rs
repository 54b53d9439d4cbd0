//! A kubelet that is killed again and again, at every step of starting and stopping pods.

#[path = "witness.rs"]
mod witness;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use bridge_cri::wire::ContainerState;
use serde_json::{Value, json};
use testkit::Random;
use testkit::mortal::{Death, Fate, steps_of};
use testkit::process::eventually;

use self::witness::Witness;
use crate::cgroups;
use crate::cri::NAMESPACE_LABEL;
use crate::node::{LATER, Node, mounts_below};
use crate::pod::PodFile;
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};
use crate::view::PodView;

/// Steps of starting a pod, at each of which a kubelet dies.
const STARTING: &[&str] = &[
    "MountVolumes",
    "PreparePod",
    "RunPodSandbox",
    "PodSandboxStatus",
    "WriteHosts",
    "EnsureImage",
    "CreateContainer",
    "StartContainer",
];
/// Steps of stopping a pod, at each of which a kubelet dies.
const STOPPING: &[&str] = &[
    "StopContainer",
    "StopPodSandbox",
    "UnmountVolumes",
    "RemoveContainer",
    "RemovePodSandbox",
    "RemovePodCgroup",
    "RemovePodLogs",
];
/// Number of pods at the same time.
const PODS: usize = 5;
/// By then a kubelet has died at every step, on a machine under heavy load, too.
const COVERED_WITHIN: Duration = Duration::from_secs(900);
/// After so many lives one kubelet lives until every pod is as its manifest says.
const LIVES_BETWEEN: usize = 25;

/// A real runtime has this long to give everything back by itself.
const HEALED_AFTER: Duration = Duration::from_secs(60);

/// Does what an administrator has to do after a fault of containerd 2.3, of which no call of CRI rids it: when the caller of
/// StartContainer dies while the task is made, containerd takes the container as exited, keeps its stopped task, and refuses
/// to remove the container of a task. Then the kubelet has to remove container and sandbox by itself.
fn delete_lost_tasks(node: &Node) {
    let Ok(ctr) = std::env::var("UNDERSTUDY_CTR") else { return };
    let run = |arguments: &[&str]| {
        let namespace = ["--address", &node.environment.socket, "--namespace", "k8s.io", "tasks"];
        let output = std::process::Command::new(&ctr).args(namespace).args(arguments).output();
        String::from_utf8_lossy(&output.expect("ctr can be run").stdout).into_owned()
    };
    let tasks = run(&["ls"]);
    for container in node.cri.containers(NAMESPACE_LABEL, &node.namespace) {
        let stopped = |line: &str| line.starts_with(&container.id) && line.contains("STOPPED");
        if container.state() == ContainerState::ContainerExited && tasks.lines().any(stopped) {
            println!("containerd has lost the task {}: it is deleted", container.id);
            run(&["delete", &container.id]);
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Number of deaths at a step.
    pub kills: usize,
    /// The seed of the script; it is printed.
    pub seed: u64,
    /// No new life begins after this long, unless a step has not been met yet.
    pub within: Duration,
    /// Period of looks at the runtime.
    pub look: Duration,
    /// A life that has not come to its death by then is ended by the driver.
    pub life: Duration,
    /// A life in which no step has begun for this long is ended, too.
    pub idle: Duration,
    /// Whether the runtime never ends a container by itself; a real one may when its caller goes away.
    pub faithful: bool,
}

impl Task {
    /// From `UNDERSTUDY_KILLS` and `UNDERSTUDY_SEED`, with these defaults.
    pub fn from_environment(kills: usize, within: Duration) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let asked = number("UNDERSTUDY_KILLS").and_then(|kills| usize::try_from(kills).ok());
        let by_clock = u64::from(std::process::id())
            ^ Instant::now().elapsed().as_nanos() as u64
            ^ std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs());
        Self {
            kills: asked.unwrap_or(kills),
            seed: number("UNDERSTUDY_SEED").unwrap_or(by_clock),
            // A number of deaths that was asked for is reached.
            within: if asked.is_some() { Duration::from_secs(6 * 3600) } else { within },
            look: Duration::from_millis(10),
            life: Duration::from_secs(10),
            idle: Duration::from_millis(1500),
            faithful: true,
        }
    }
}

struct Driver<'a> {
    node: &'a Node,
    task: Task,
    random: Random,
    slots: Vec<Option<PodFile<'a>>>,
    version: u64,
    witness: Witness,
    /// Deaths by the kind of the step.
    deaths: BTreeMap<String, usize>,
    /// Steps begun by their kind.
    begun: BTreeMap<String, usize>,
    lives: usize,
    /// Lives that did not come to the step of their death, by its kind.
    outlived: BTreeMap<String, usize>,
}

/// Kills kubelets, checks after each life, and at the end that all pods are as their manifests say and nothing is left.
///
/// # Panics
/// With the seed in the message, when a check fails.
pub fn kill_again_and_again(node: &Node, task: Task) {
    println!("UNDERSTUDY_SEED={} replays this", task.seed);
    let mut driver = Driver {
        node,
        task,
        random: Random::new(task.seed),
        slots: (0..PODS).map(|_| None).collect(),
        version: 0,
        witness: Witness::default(),
        deaths: BTreeMap::new(),
        begun: BTreeMap::new(),
        lives: 0,
        outlived: BTreeMap::new(),
    };
    let began = Instant::now();
    while driver.goes_on(began) {
        driver.life();
        if driver.lives.is_multiple_of(LIVES_BETWEEN) {
            driver.converge();
        }
    }
    driver.converge();
    let kills: usize = driver.deaths.values().sum();
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{kills} deaths at a step in {seconds:.0} s, by step: {:?}; between steps, in vain for: {:?}; steps begun: {:?}",
        driver.deaths, driver.outlived, driver.begun
    );
    driver.nothing_is_left();
    let missing: Vec<&&str> = all_steps().filter(|step| !driver.deaths.contains_key(**step)).collect();
    assert!(missing.is_empty(), "seed {}: no kubelet died at {missing:?}", task.seed);
}

fn all_steps() -> impl Iterator<Item = &'static &'static str> {
    STARTING.iter().chain(STOPPING)
}

/// A pod with an init container, a sidecar, one that fails once, and volumes on disk and in memory.
fn spec(version: u64) -> Value {
    let once = format!("test -e /data/once || {{ touch /data/once; exit 1; }}; {OBEDIENT}");
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "mem", "mountPath": "/mem"}]});
    let main = with(sleeper("main"), json!({"env": [{"name": "VERSION", "value": version.to_string()}]}));
    let side = with(sleeper("side"), json!({"restartPolicy": "Always"}));
    with(
        containers([with(main, mounts.clone()), with(shell("flaky", &once), mounts)]),
        json!({
            "initContainers": [shell("setup", "true"), side],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "mem", "emptyDir": {"medium": "Memory"}}],
            "terminationGracePeriodSeconds": 10,
        }),
    )
}

impl<'a> Driver<'a> {
    fn goes_on(&self, began: Instant) -> bool {
        let kills: usize = self.deaths.values().sum();
        let covered = all_steps().all(|step| self.deaths.contains_key(*step));
        let time = if covered { self.task.within } else { COVERED_WITHIN };
        (kills < self.task.kills || !covered) && began.elapsed() < time
    }

    /// Changes pods, so that the kubelet has work with this kind of step.
    fn churn(&mut self, stopping: bool) {
        let changes = 1 + self.random.below(2);
        for _ in 0..changes {
            let index = self.random.below(PODS as u64) as usize;
            let goes = self.slots[index].is_some() && self.random.once_in(2);
            self.change(index, goes);
        }
        let there: Vec<usize> = (0..PODS).filter(|index| self.slots[*index].is_some()).collect();
        if stopping && !there.is_empty() {
            there.iter().take(2).for_each(|index| self.change(*index, true));
        } else if let Some(index) = self.slots.iter().position(Option::is_none) {
            self.change(index, false);
        }
    }

    /// Removes the pod of a slot, or writes it anew.
    fn change(&mut self, index: usize, goes: bool) {
        self.version += 1;
        let spec = spec(self.version);
        match (self.slots[index].take(), goes) {
            (Some(file), true) => drop(file),
            (Some(file), false) => {
                file.write(spec);
                self.slots[index] = Some(file);
            }
            (None, _) => self.slots[index] = Some(self.node.pod("mortal", spec)),
        }
    }

    /// The next death: at the kind of step with the fewest deaths, or at any.
    fn next_death(&mut self) -> Death {
        // Kinds of steps of which one pod has several.
        let several =
            ["EnsureImage", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer"];
        let rarest = all_steps().min_by_key(|step| self.deaths.get(**step).copied().unwrap_or(0));
        let rare = !self.random.once_in(3);
        let step = rarest.filter(|_| rare).map_or_else(String::new, |step| (*step).to_owned());
        let bound = match &*step {
            "" => 40,
            step if several.contains(&step) => 3,
            _ => 1,
        };
        let nth = 1 + self.random.below(bound);
        let after = if self.random.once_in(2) { 0 } else { self.random.below(20_000) };
        Death { step, nth, after: Duration::from_micros(after) }
    }

    fn life(&mut self) {
        self.lives += 1;
        let death = self.next_death();
        let stopping = STOPPING.contains(&death.step.as_str());
        let steps = self.node.notes("steps");
        let _none = fs::remove_file(&steps);
        self.churn(stopping);
        let fate = Fate { steps: steps.clone(), death: Some(death.clone()), orders: None };
        self.node.start_mortal(&fate.environment());
        let born = Instant::now();
        let (mut died, mut moved, mut noted) = (false, Instant::now(), 0);
        while !died && born.elapsed() < self.task.life && (noted == 0 || moved.elapsed() < self.task.idle) {
            died = self.node.has_died();
            self.look(&death);
            let length = fs::metadata(&steps).map_or(0, |file| file.len());
            if length != noted {
                (moved, noted) = (Instant::now(), length);
            }
            std::thread::sleep(self.task.look);
        }
        if !died && !self.node.has_died() {
            self.node.kill_kubelet();
        }
        self.look(&death);
        let (begun, at) = steps_of(&steps);
        for step in begun {
            *self.begun.entry(step).or_default() += 1;
        }
        match at {
            Some(step) => *self.deaths.entry(step).or_default() += 1,
            None if died => {
                let log = self.node.log_tail();
                panic!("seed {}: the kubelet has ended by itself:\n{log}", self.task.seed);
            }
            None => *self.outlived.entry(death.step).or_default() += 1,
        }
    }

    /// The environment of a kubelet that lives until the driver kills it.
    fn immortal(&self) -> Vec<(OsString, OsString)> {
        Fate { steps: self.node.notes("steps"), death: None, orders: None }.environment()
    }

    fn look(&mut self, death: &Death) {
        if let Err(wrong) = self.witness.look(self.node) {
            panic!("seed {}, life {}, {death:?}: {wrong}", self.task.seed, self.lives);
        }
    }

    /// Runs a kubelet until every pod runs, and asserts that its status agrees with the instances seen.
    fn converge(&mut self) {
        let seed = self.task.seed;
        self.node.start_mortal(&self.immortal());
        let witness = &mut self.witness;
        let wanted: Vec<&PodFile<'_>> = self.slots.iter().flatten().collect();
        let (node, faithful) = (self.node, self.task.faithful);
        eventually(&format!("seed {seed}: all pods run"), LATER, || {
            witness.look(node).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            let pods = node.pods()?;
            if pods.len() != wanted.len() {
                let names: Vec<&str> = pods.iter().map(PodView::name).collect();
                return Err(format!("{names:?} instead of {} pods", wanted.len()));
            }
            for file in &wanted {
                let pod = file.look()?;
                let flaky = witness.instances(pod.uid(), "flaky");
                // On the fake runtime the first attempt alone fails; one that a death has kept from its start never ran.
                let is_cut_off = faithful
                    && pod.restarts("flaky") > 0
                    && flaky
                        .iter()
                        .all(|one| one.attempt > 0 || one.state == ContainerState::ContainerCreated);
                let ended = flaky.iter().any(|one| one.state == ContainerState::ContainerExited);
                if !pod.is_ready() || pod.phase() != "Running" || !(ended || is_cut_off) {
                    return Err(format!("{} {}", pod.name(), pod.status()));
                }
                let running = file.running(pod.uid()).len();
                if running != 3 {
                    return Err(format!("{}: {running} containers run", pod.name()));
                }
            }
            let running = node.cri.running(NAMESPACE_LABEL, &node.namespace).len();
            if running == 3 * wanted.len() { Ok(()) } else { Err(format!("{running} containers run")) }
        });
        for file in &wanted {
            let pod = file.look().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for name in ["setup", "side", "main", "flaky"] {
                self.counted(&pod, name);
            }
        }
        self.node.kill_kubelet();
    }

    /// Asserts that each restart in the status has an instance that is dead or was never started.
    fn counted(&self, pod: &PodView, name: &str) {
        let seed = self.task.seed;
        let all = self.witness.instances(pod.uid(), name);
        let restarts = usize::try_from(pod.restarts(name)).unwrap_or(usize::MAX);
        let told = || format!("seed {seed}: {name} of {}: {restarts} restarts, {all:?}", pod.name());
        let dead = all.iter().filter(|one| one.state != ContainerState::ContainerRunning).count();
        let ends = usize::from(name == "setup");
        assert!(restarts + ends <= dead.max(ends), "{}", told());
        if self.task.faithful && matches!(name, "main" | "side") {
            let stopped = all.iter().any(|one| one.ran && one.state == ContainerState::ContainerExited);
            assert!(!stopped, "stopped without a cause: {}", told());
        }
    }

    fn nothing_is_left(&mut self) {
        let (node, seed) = (self.node, self.task.seed);
        self.slots.clear();
        node.start_mortal(&self.immortal());
        let began = Instant::now();
        eventually(&format!("seed {seed}: nothing is left"), LATER, || {
            if !self.task.faithful && began.elapsed() > HEALED_AFTER {
                delete_lost_tasks(node);
            }
            let mut left: Vec<String> = node.pods()?.iter().map(|pod| pod.name().to_owned()).collect();
            let sandboxes = node.cri.sandboxes(NAMESPACE_LABEL, &node.namespace);
            left.extend(sandboxes.iter().map(|sandbox| format!("sandbox {}", sandbox.id)));
            let all = node.cri.containers(NAMESPACE_LABEL, &node.namespace);
            left.extend(all.iter().map(|container| format!("container {}", container.id)));
            // The kubelet mounts its root onto itself, to share the mounts below it.
            let mounts = mounts_below(&node.root()).into_iter().filter(|mount| *mount != node.root());
            left.extend(mounts.map(|mount| format!("mount {}", mount.display())));
            let cgroups = cgroups::named(&node.cgroup(), "pod");
            // The QoS cgroups of all pods are named kubepods.
            let pods = cgroups
                .iter()
                .filter(|dir| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pod")));
            left.extend(pods.map(|dir| format!("cgroup {}", dir.display())));
            for dir in [node.root().join("pods"), node.logs(), node.links()] {
                let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
                left.extend(entries.map(|entry| entry.path().display().to_string()));
            }
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        });
        node.kill_kubelet();
    }
}
