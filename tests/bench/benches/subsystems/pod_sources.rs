//! PodSources alone: every manifest of a directory changes, is read, decoded, defaulted and validated again.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Stage, Subject, wait};
use bridge_node::host::{FakeDisk, FakeStaticFiles};
use messages::pod_manager::PodsChanged;
use messages::pod_sources::ResendPods;
use pod_sources::{PodSources, PodSourcesConfig, PodSourcesDeps};
use supervision::{Address, Place, Supervised, Vitality};

const MANIFESTS: &str = "/etc/kubernetes/manifests";

struct Alone {
    actor: Supervised<PodSources>,
    disk: FakeDisk,
    pods: usize,
    /// Pods of the newest set that have the newest label.
    newest: Count,
    sets: Count,
}

fn write(disk: &FakeDisk, count: usize, round: u64) {
    for number in 0..count {
        let yaml = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-{number}\n  labels:\n    round: \"{round}\"\nspec:\n  \
             containers:\n  - name: web\n    image: understudy.dev/demo:1\n    ports:\n    - containerPort: 80\n    \
             volumeMounts:\n    - name: data\n      mountPath: /data\n  volumes:\n  - name: data\n    emptyDir: {{}}\n"
        );
        disk.write(format!("{MANIFESTS}/web-{number}.yaml"), yaml, 0o644);
    }
}

impl Alone {
    async fn until(&self, round: u64) {
        // Counted as round * 1000000 + pods, so that one number has both.
        let all = round * 1_000_000 + self.pods as u64;
        wait("all manifests of the round", async || {
            tokio::time::sleep(Duration::from_micros(100)).await;
            self.newest.get() == all
        })
        .await;
    }
}

impl Subject for Alone {
    const NAME: &'static str = "PodSources";

    async fn start(stage: &Stage, count: usize) -> Self {
        stage.disk.mkdir(MANIFESTS, 0o755);
        write(&stage.disk, count, 0);
        let (newest, sets) = (Count::default(), Count::default());
        let (told, counted) = (newest.clone(), sets.clone());
        let manager = Address::sink("PodManager", move |changed: PodsChanged| {
            let round = |pod: &messages::facts::SourcePod| {
                let label = pod.pod.metadata.labels.as_ref().and_then(|labels| labels.get("round"));
                label.and_then(|label| label.parse::<u64>().ok()).unwrap_or(0)
            };
            let last = changed.pods.iter().map(round).max().unwrap_or(0);
            let of_last = changed.pods.iter().filter(|pod| round(pod) == last).count();
            told.set(last * 1_000_000 + of_last as u64);
            counted.add(1);
        });
        let deps = PodSourcesDeps {
            config: PodSourcesConfig {
                path: Some(MANIFESTS.into()),
                check: Duration::from_secs(20),
                url_check: Duration::from_secs(20),
                node: "node".to_owned(),
                security: Default::default(),
                restart_rules: Default::default(),
            },
            files: Arc::new(FakeStaticFiles::new(stage.disk.clone())),
            url: None,
            api: None,
            submissions: None,
            node: None,
            compute: stage.compute.clone(),
            clock: stage.clock.clone(),
            manager,
            api_pods: Count::default().sink(),
            events: Count::default().sink(),
        };
        let seat = stage.tree.seat::<PodSources>(Vitality::Vital);
        let actor = seat.start(&Place::Here, move || PodSources::new(deps.clone()));
        let alone = Self { actor, disk: stage.disk.clone(), pods: count, newest, sets };
        alone.until(0).await;
        alone
    }

    async fn round(&self, round: u64) -> u64 {
        write(&self.disk, self.pods, round + 1);
        self.until(round + 1).await;
        self.pods as u64
    }

    /// PodSources answers no asks; it sends everything again when it is told to.
    async fn ask(&self) -> bool {
        let before = self.sets.get();
        let told = self.actor.address::<ResendPods>().tell(ResendPods).is_ok();
        wait("the pods again", async || self.sets.get() > before).await;
        told
    }

    async fn whole(&self) -> bool {
        self.ask().await
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
