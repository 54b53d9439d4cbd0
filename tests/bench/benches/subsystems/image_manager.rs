//! ImageManager alone: every pod's image is asked for, all at the same time; the runtime has it.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, IMAGE, Stage, Subject, Traffic, pods};
use bridge_node::host::{FakeCredentialPlugins, FakeDockerConfigs, FakePullRecords};
use bridge_node::stats::FakeStats;
use futures::future::join_all;
use image_manager::{ImageHistory, ImageManager, ImageManagerDeps, ImageMetrics, ImageSettings, KeptAnswers};
use messages::image_manager::{EnsureImage, PullPolicy};
use supervision::{AskPort, Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);

struct Alone {
    actor: Supervised<ImageManager>,
    pods: usize,
}

impl Alone {
    async fn ensure(&self, number: usize) -> bool {
        let ask = EnsureImage {
            pod: pods(self.pods)[number].pod_ref.clone(),
            container: Arc::from("web"),
            field_path: Arc::from("spec.containers{web}"),
            image: Arc::from(IMAGE),
            policy: PullPolicy::IfNotPresent,
            pull_secrets: Arc::from([]),
            service_account: Arc::default(),
            annotations: Arc::default(),
            sandbox_config: Arc::default(),
            runtime_handler: Arc::default(),
        };
        let present = self.actor.asked::<Outside, EnsureImage>().ask(ask, DEADLINE).await;
        present.is_ok_and(|present| present.is_ok())
    }
}

impl Subject for Alone {
    const NAME: &'static str = "ImageManager";
    const TRAFFIC: Traffic = Traffic::Asks;

    async fn start(stage: &Stage, count: usize) -> Self {
        let deps = ImageManagerDeps {
            images: stage.operations.clone(),
            runtime: stage.operations.clone(),
            usage: stage.operations.clone(),
            stats: Arc::new(FakeStats::default()),
            configs: Arc::new(FakeDockerConfigs::new(stage.disk.clone())),
            plugins: Arc::new(FakeCredentialPlugins::default()),
            records: Arc::new(FakePullRecords::new(stage.disk.clone())),
            clock: stage.clock.clone(),
            secrets: AskPort::answering("ObjectCache", |_| None),
            accounts: AskPort::answering("ObjectCache", |_| None),
            tokens: AskPort::answering("ObjectCache", |_| None),
            compute: stage.compute.clone(),
            events: Count::default().sink(),
            configuration: Count::default().sink(),
            settings: ImageSettings::default(),
            history: ImageHistory::default(),
            answers: KeptAnswers::default(),
            metrics: ImageMetrics::new(),
        };
        let seat = stage.tree.seat::<ImageManager>(Vitality::Degradable);
        let actor = seat.start(&Place::Here, move || ImageManager::new(deps.clone()));
        let alone = Self { actor, pods: count };
        alone.round(0).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        let all = join_all((0..self.pods).map(|number| self.ensure(number))).await;
        assert!(all.into_iter().all(|present| present), "the image is there");
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.ensure(0).await
    }

    async fn whole(&self) -> bool {
        self.ask().await
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
