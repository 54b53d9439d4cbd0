//! The floor: an actor that does nothing, told and asked as often as the subject.

use std::time::Duration;

use actix::{Actor, Handler};
use futures::future::join_all;
use messages::{PodUid, delivery};
use supervision::{Address, AskPort, Ctx, Outside, Place, Subsystem, Vitality};

use super::{Stage, Traffic, uid};

#[derive(Clone, Debug)]
struct Told(PodUid);
delivery!(Told => (): Command, LatestPerKey, pod = |m| Some(&m.0));

#[derive(Clone, Debug)]
struct Asked;
delivery!(Asked => u64: Query, Reject);

struct Nothing(u64);

impl Actor for Nothing {
    type Context = Ctx<Self>;
}

impl Subsystem for Nothing {
    const NAME: &'static str = "Nothing";
    type Timer = ();
}

impl Handler<Told> for Nothing {
    type Result = ();
    fn handle(&mut self, _: Told, _: &mut Ctx<Self>) {
        self.0 += 1;
    }
}

impl Handler<Asked> for Nothing {
    type Result = u64;
    fn handle(&mut self, _: Asked, _: &mut Ctx<Self>) -> u64 {
        self.0
    }
}

/// The do-nothing actor of one size.
pub(super) struct Floor {
    pods: Vec<PodUid>,
    told: Address<Told>,
    asked: AskPort<Outside, Asked>,
}

const DEADLINE: Duration = Duration::from_secs(60);

impl Floor {
    pub fn start(stage: &Stage, pods: usize) -> Self {
        let seat = stage.tree.seat::<Nothing>(Vitality::Degradable);
        let (told, asked) = (seat.address(), seat.asked());
        seat.start(&Place::Here, || Nothing(0));
        Self { pods: (0..pods).map(uid).collect(), told, asked }
    }

    pub async fn round(&self, traffic: Traffic) -> u64 {
        match traffic {
            Traffic::Tells => {
                for pod in &self.pods {
                    self.told.tell(Told(pod.clone())).expect("there is room");
                }
                // Answered after all messages that were told before.
                self.asked.ask(Asked, DEADLINE).await.expect("it answers");
            }
            Traffic::Asks => {
                let answers = self.pods.iter().map(|_| self.asked.ask(Asked, DEADLINE));
                assert!(join_all(answers).await.into_iter().all(|answer| answer.is_ok()), "it answers");
            }
        }
        self.pods.len() as u64
    }

    pub async fn ask(&self) -> bool {
        self.asked.ask(Asked, DEADLINE).await.is_ok()
    }
}
