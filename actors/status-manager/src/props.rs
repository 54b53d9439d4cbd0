//! Properties that hold for every history of facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec, PodStatus};
use messages::PodUid;
use messages::facts::{
    ContainerVerdict, DesiredPod, SeenPod, Source, WaitingReason, WorkerReport, WorkerState,
};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimeHealth, RuntimePod};
use messages::supervision::PodsQuarantined;
use proptest::prelude::*;

use crate::conditions::INITIALIZED;
use crate::phase::Phase;
use crate::scenes::*;
use crate::status_cache::PodStatusCache;
use crate::{PodFacts, compute};

const NAMES: [&str; 4] = ["init", "side", "main", "other"];

fn specs() -> impl Strategy<Value = PodSpec> {
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    (policy, any::<[bool; 4]>()).prop_map(|(policy, [init, side, other, probes])| {
        let probed = |c| if probes { with_startup(with_readiness(c)) } else { c };
        let mut containers = vec![probed(container("main"))];
        containers.extend(other.then(|| container("other")));
        let mut inits = Vec::new();
        inits.extend(init.then(|| container("init")));
        inits.extend(side.then(|| probed(sidecar("side"))));
        let mut spec = spec(policy, containers);
        spec.init_containers = (!inits.is_empty()).then_some(inits);
        spec
    })
}

fn desired_pods() -> impl Strategy<Value = Arc<DesiredPod>> {
    (specs(), any::<bool>(), prop::option::weighted(0.1, Just(()))).prop_map(|(spec, api, rejected)| {
        Arc::new(DesiredPod {
            source: if api { Source::Api } else { Source::File },
            rejected: rejected.map(|()| rejection("OutOfpods")),
            ..desired(spec)
        })
    })
}

fn containers() -> impl Strategy<Value = RuntimeContainer> {
    let state = prop::sample::select(vec![
        ContainerState::Created,
        ContainerState::Running,
        ContainerState::Exited,
        ContainerState::Unknown,
    ]);
    (prop::sample::select(NAMES.to_vec()), 0_u32..3, state, prop::sample::select(vec![0, 1, 137])).prop_map(
        |(name, attempt, state, code)| {
            let id = format!("{name}{attempt}");
            RuntimeContainer { state, ..exited(name, &id, attempt, code) }
        },
    )
}

fn runtimes() -> impl Strategy<Value = Arc<RuntimePod>> {
    (prop::collection::vec(containers(), 0..6), any::<bool>()).prop_map(|(mut containers, ready)| {
        containers.sort_by(|a, b| (&a.name, b.attempt).cmp(&(&b.name, a.attempt)));
        containers.dedup_by(|a, b| a.id == b.id);
        Arc::new(if ready { observed(containers) } else { stopped(containers) })
    })
}

fn reports() -> impl Strategy<Value = Arc<WorkerReport>> {
    let state =
        prop::sample::select(vec![WorkerState::Syncing, WorkerState::Terminating, WorkerState::Terminated]);
    let waiting = prop::option::of(prop::sample::select(NAMES.to_vec()));
    let starting = prop::option::weighted(0.2, prop::sample::select(NAMES.to_vec()));
    let flags = any::<[bool; 3]>();
    (state, flags, waiting, starting).prop_map(|(state, [released, fails, deleted], waiting, starting)| {
        let why = WaitingReason { reason: "CrashLoopBackOff".into(), message: String::new() };
        Arc::new(WorkerReport {
            released: released && state == WorkerState::Terminated,
            replaced: Arc::default(),
            starting: Arc::new(starting.map(str::to_owned).into_iter().collect()),
            failed: (fails && state != WorkerState::Syncing).then(|| rejection("Evicted")),
            deleted: deleted && state != WorkerState::Syncing,
            waiting: Arc::new(waiting.map(|name| (name.to_owned(), why)).into_iter().collect()),
            ..report(state)
        })
    })
}

type Verdicts = Arc<BTreeMap<String, ContainerVerdict>>;

fn verdict_maps() -> impl Strategy<Value = Verdicts> {
    let answer = || prop::option::of(any::<bool>());
    let one = (prop::sample::select(NAMES.to_vec()), 0_u32..3, answer(), answer());
    prop::collection::vec(one, 0..4).prop_map(|list| {
        let entry = |(name, attempt, startup, readiness): (&str, u32, _, _)| {
            (name.to_owned(), verdict(&format!("{name}{attempt}"), startup, readiness))
        };
        Arc::new(list.into_iter().map(entry).collect())
    })
}

#[derive(Clone, Debug)]
enum Fact {
    Desired(Arc<DesiredPod>),
    Observed(Arc<RuntimePod>),
    Reported(Arc<WorkerReport>),
    Verdicts(Verdicts),
    Quarantined(bool),
    Runtime,
    Restart,
}

fn facts() -> impl Strategy<Value = Fact> {
    prop_oneof![
        1 => desired_pods().prop_map(Fact::Desired),
        4 => runtimes().prop_map(Fact::Observed),
        3 => reports().prop_map(Fact::Reported),
        2 => verdict_maps().prop_map(Fact::Verdicts),
        1 => any::<bool>().prop_map(Fact::Quarantined),
        1 => Just(Fact::Restart),
    ]
}

/// Sets of facts with one fact of each kind.
fn full_sets() -> impl Strategy<Value = Vec<Fact>> {
    (desired_pods(), runtimes(), reports(), verdict_maps()).prop_map(|(pod, runtime, report, verdicts)| {
        vec![
            Fact::Desired(pod),
            Fact::Observed(runtime),
            Fact::Reported(report),
            Fact::Verdicts(verdicts),
            Fact::Quarantined(true),
            Fact::Runtime,
        ]
    })
}

fn learn(facts: &mut PodFacts, fact: Fact) {
    match fact {
        Fact::Desired(pod) => facts.desired = Some(pod),
        Fact::Observed(pod) => facts.observed = Some(pod),
        Fact::Reported(report) => facts.report = Some(report),
        Fact::Verdicts(verdicts) => facts.verdicts = Some(verdicts),
        Fact::Quarantined(true) => {
            facts.quarantine.insert(Arc::from("Pleg"), Arc::from("panic"));
        }
        Fact::Quarantined(false) => facts.quarantine.clear(),
        Fact::Runtime => {}
        Fact::Restart => *facts = PodFacts { desired: facts.desired.take(), ..PodFacts::default() },
    }
}

/// Fails with the lines in which two statuses differ.
fn same(expected: Option<&PodStatus>, found: Option<&PodStatus>) -> Result<(), TestCaseError> {
    let lines = |status| {
        let text = serde_json::to_string_pretty(&status).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (expected, found) = (lines(expected), lines(found));
    let missing: Vec<_> = expected.iter().filter(|l| !found.contains(l)).collect();
    let extra: Vec<_> = found.iter().filter(|l| !expected.contains(l)).collect();
    prop_assert!(expected == found, "missing {missing:#?}, instead {extra:#?}");
    Ok(())
}

fn counts(status: &PodStatus) -> BTreeMap<&str, &ContainerStatus> {
    [&status.container_statuses, &status.init_container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .map(|s| (&*s.name, s))
        .collect()
}

fn forward(before: &PodStatus, after: &PodStatus) -> Result<(), TestCaseError> {
    let phase = |s: &PodStatus| Phase::parse(s.phase.as_deref().unwrap()).unwrap();
    if phase(before).is_terminal() {
        prop_assert_eq!(phase(before), phase(after));
        prop_assert_eq!(&before.reason, &after.reason);
    }
    if phase(after).is_terminal() {
        for condition in after.conditions.iter().flatten().filter(|c| c.type_.ends_with("Ready")) {
            prop_assert_eq!(&*condition.status, "False");
        }
    }
    prop_assert_eq!(&before.start_time, &after.start_time);
    let known = counts(before);
    for (name, status) in counts(after) {
        if let Some(known) = known.get(name) {
            prop_assert!(known.restart_count <= status.restart_count, "{}", name);
        }
    }
    Ok(())
}

fn tell(status_cache: &mut PodStatusCache, fact: &Fact) {
    let uid = PodUid::new("uid-1");
    match fact.clone() {
        Fact::Desired(pod) => {
            status_cache.desired(pod_set::snapshot(1, [(uid.clone(), pod)], true));
        }
        Fact::Observed(state) => status_cache.observed(&uid, SeenPod { state, touch: 0 }),
        Fact::Reported(report) => status_cache.reported(&uid, report),
        Fact::Verdicts(verdicts) => status_cache.verdicts(&uid, verdicts),
        Fact::Quarantined(on) => {
            let panic = on.then(|| ((Arc::from("Pleg"), uid.clone()), Arc::from("panic")));
            status_cache.quarantined(PodsQuarantined(Arc::new(panic.into_iter().collect())));
        }
        Fact::Runtime => {
            let name = Arc::from("containerd");
            drop(status_cache.runtime(&RuntimeHealth { name, ..RuntimeHealth::default() }));
        }
        Fact::Restart => {}
    }
    status_cache.compute(&uid, at(500));
}

/// The final status after these facts have come in this order on top of `known`.
fn end(known: Option<&PodStatus>, facts: &[Fact]) -> Option<PodStatus> {
    let uid = PodUid::new("uid-1");
    let mut status_cache = PodStatusCache::new(node().host_ips);
    let restored = known.map(|status| (uid.clone(), status.clone())).into_iter().collect();
    status_cache.restored(restored);
    facts.iter().for_each(|fact| tell(&mut status_cache, fact));
    let mut status = status_cache.status(&uid).map(|s| (*s).clone());
    for conditions in status.iter_mut().flat_map(|s| &mut s.conditions) {
        // A pod that was once told to be initialized stays so, and whether it was told depends on the order of facts.
        conditions.retain(|condition| condition.type_ != INITIALIZED);
        // The time of a condition's change depends on the order of facts, too.
        conditions.iter_mut().for_each(|condition| condition.last_transition_time = None);
    }
    status
}

/// The status of a pod that was checkpointed after this history.
fn written(pod: &Arc<DesiredPod>, history: Option<Vec<Fact>>) -> Option<PodStatus> {
    let mut known = PodFacts { desired: Some(pod.clone()), ..PodFacts::default() };
    let mut status = None;
    for (second, fact) in history?.into_iter().enumerate() {
        if !matches!(fact, Fact::Desired(_)) {
            learn(&mut known, fact);
        }
        status = compute(&known, &node(), status.as_ref(), at(second as i64));
    }
    status
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_status_only_moves_forward_and_repeats_itself(
        pod in desired_pods(),
        history in prop::collection::vec(facts(), 1..25),
    ) {
        let mut known = PodFacts { desired: Some(pod), ..PodFacts::default() };
        let mut status: Option<PodStatus> = None;
        for (second, fact) in history.into_iter().enumerate() {
            learn(&mut known, fact);
            let now = at(second as i64 * 10);
            let next = compute(&known, &node(), status.as_ref(), now).unwrap();
            let again = compute(&known, &node(), Some(&next), at(second as i64 * 10 + 7)).unwrap();
            same(Some(&next), Some(&again))?;
            let read = serde_json::from_value(serde_json::to_value(&next).unwrap()).unwrap();
            prop_assert_eq!(&next, &read, "what was written down is what is read");
            if let Some(before) = &status {
                forward(before, &next)?;
            }
            status = Some(next);
        }
    }

    #[test]
    fn the_order_in_which_facts_arrive_does_not_matter(
        history in prop::option::of(prop::collection::vec(facts(), 0..6)),
        (order, shuffled) in full_sets().prop_flat_map(|set| (Just(set.clone()), Just(set).prop_shuffle())),
        twice in prop::collection::vec(0_usize..6, 0..4),
    ) {
        let pod = order.iter().find_map(|f| if let Fact::Desired(pod) = f { Some(pod.clone()) } else { None });
        let known = written(&pod.unwrap(), history);
        let expected = end(known.as_ref(), &order);
        same(expected.as_ref(), end(known.as_ref(), &shuffled).as_ref())?;
        let repeated: Vec<Fact> =
            shuffled.iter().cloned().chain(twice.into_iter().map(|i| shuffled[i].clone())).collect();
        same(expected.as_ref(), end(known.as_ref(), &repeated).as_ref())?;
    }
}
