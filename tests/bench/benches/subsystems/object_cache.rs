//! ObjectCache alone: every pod's secret is asked for, all at the same time; its watch has told it before. Ten pods
//! share a secret.

use std::sync::Arc;
use std::time::Duration;

use bench::alone::{Count, Stage, Subject, Traffic, wait};
use bridge_io::Io;
use bridge_kube::fake::FakeApi;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use messages::PodUid;
use messages::object_cache::GetSecret;
use object_cache::{ObjectCache, ObjectCacheDeps};
use supervision::{Outside, Place, Supervised, Vitality};

const DEADLINE: Duration = Duration::from_secs(60);
/// Pods that share a secret.
const SHARING: usize = 10;

struct Alone {
    actor: Supervised<ObjectCache>,
    pods: usize,
}

impl Alone {
    async fn get(&self, number: usize) -> bool {
        let name = format!("secret-{}", number / SHARING);
        let ask = GetSecret {
            pod: PodUid::new(&number.to_string()),
            namespace: Arc::from("default"),
            name: Arc::from(name),
        };
        let secret = self.actor.asked::<Outside, GetSecret>().ask(ask, DEADLINE).await;
        secret.is_ok_and(|secret| secret.is_ok())
    }

    async fn get_all(&self) -> bool {
        let all = join_all((0..self.pods).map(|number| self.get(number))).await;
        all.into_iter().all(|known| known)
    }
}

impl Subject for Alone {
    const NAME: &'static str = "ObjectCache";
    const TRAFFIC: Traffic = Traffic::Asks;

    async fn start(stage: &Stage, count: usize) -> Self {
        let api = FakeApi::new(stage.clock.clone());
        for number in 0..count.div_ceil(SHARING) {
            let mut secret = Secret::default();
            secret.metadata.name = Some(format!("secret-{number}"));
            secret.metadata.namespace = Some("default".to_owned());
            api.put(&secret);
        }
        let sinks = Count::default();
        let deps = ObjectCacheDeps {
            api: Some(Arc::new(api.client(&Io::current()))),
            strategy: object_cache::Strategy::Watch,
            clock: stage.clock.clone(),
            observers: vec![sinks.sink(), sinks.sink()],
            resend_desired: sinks.sink(),
            resend_node: None,
        };
        let seat = stage.tree.seat::<ObjectCache>(Vitality::Degradable);
        let actor = seat.start(&Place::Here, move || ObjectCache::new(deps.clone()));
        let alone = Self { actor, pods: count };
        wait("all secrets", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        assert!(self.get_all().await, "every secret is known");
        self.pods as u64
    }

    async fn ask(&self) -> bool {
        self.get(0).await
    }

    async fn whole(&self) -> bool {
        self.get_all().await
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
