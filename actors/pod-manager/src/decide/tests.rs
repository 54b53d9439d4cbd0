use k8s_openapi::api::core::v1::PodStatus;
use messages::facts::{SourcePod, UNSUPPORTED_FIELDS, WorkerReport, WorkerState};
use messages::runtime::{HeldPod, HeldPods};
use pod_rules::reasons::OUT_OF_KUBELET_ROOM;
use proptest::prelude::*;

use super::*;
use crate::admission::fixtures::{node_resources, requesting, with_priority};

fn candidate(uid: &str, pod: Pod) -> Candidate {
    let mut pod = pod;
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name.get_or_insert(uid.to_owned());
    pod.metadata.namespace = Some("ns".to_owned());
    pod.spec.get_or_insert_default().termination_grace_period_seconds.get_or_insert(30);
    let pod_ref = PodRef::of(&pod);
    Candidate {
        pod_ref,
        pod: SourcePod { pod: Arc::new(pod), refused: None, made_anew: None },
        source: Source::File,
    }
}

fn named(uid: &str, name: &str) -> Candidate {
    let mut pod = requesting(&[("cpu", "100m")]);
    pod.metadata.name = Some(name.to_owned());
    candidate(uid, pod)
}

fn cpu(uid: &str, amount: &str) -> Candidate {
    candidate(uid, requesting(&[("cpu", amount)]))
}

fn critical(uid: &str, amount: &str) -> Candidate {
    candidate(uid, with_priority(requesting(&[("cpu", amount)]), 2_000_001_000))
}

fn node() -> NodeView {
    let resources = Arc::new(node_resources(&[("cpu", "2")]));
    NodeView { resources, pods_max: 3, name: "n1".to_owned(), ..NodeView::default() }
}

/// A node whose runtime holds nothing.
fn known() -> ReportedFacts {
    let mut known = ReportedFacts::new(true, false);
    known.runtime(&HeldPods::default());
    known
}

fn report(pod: &PodRef, state: WorkerState, released: bool) -> Arc<WorkerReport> {
    Arc::new(WorkerReport { released, ..stage::report(pod, state) })
}

fn shown(outcome: &Outcome) -> Vec<String> {
    let show = |pod: &Arc<DesiredPod>| match &pod.rejected {
        Some(why) => format!("{} {}", pod.pod_ref.uid, why.reason),
        None => pod.pod_ref.uid.to_string(),
    };
    outcome.pods.values().map(show).collect()
}

#[test]
fn a_decision_holds() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let first = decisions.decide(&[cpu("a", "1500m"), cpu("b", "1")], true, &mut known, &node());
    assert_eq!(shown(&first), ["a", "b OutOfcpu"]);
    assert_eq!(first.refused.len(), 1);
    // Room comes too late for pod b, and a new pod gets it.
    let then = decisions.decide(&[cpu("b", "1"), cpu("c", "2")], true, &mut known, &node());
    assert_eq!((shown(&then), then.refused.len()), (vec!["b OutOfcpu".to_owned(), "c".to_owned()], 0));
    // A pod that was gone and comes again is a new pod.
    decisions.decide(&[], true, &mut known, &node());
    assert_eq!(shown(&decisions.decide(&[cpu("b", "1")], true, &mut known, &node())), ["b"]);
}

fn held(pods: &[(&Candidate, bool)]) -> HeldPods {
    let held = |(candidate, is_api): &(&Candidate, bool)| {
        let source = Some(if *is_api { Source::Api } else { Source::File });
        (candidate.pod_ref.uid.clone(), HeldPod { pod: candidate.pod_ref.clone(), source })
    };
    Arc::new(pods.iter().map(held).collect())
}

fn from_api(mut candidate: Candidate, status: PodStatus) -> Candidate {
    Arc::make_mut(&mut candidate.pod.pod).status = Some(status);
    Candidate { source: Source::Api, ..candidate }
}

/// A status with every field that a kubelet writes for a pod that it has begun with.
fn status_of_kubelet(phase: &str) -> PodStatus {
    use k8s_openapi::api::core::v1::ContainerStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    let container =
        ContainerStatus { container_id: Some("containerd://c".to_owned()), ..ContainerStatus::default() };
    PodStatus {
        phase: Some(phase.to_owned()),
        start_time: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
        container_statuses: Some(vec![container]),
        ..PodStatus::default()
    }
}

#[test]
fn what_was_refused_or_over_before_the_incarnation_stays_so() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let refused = PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some("OutOfcpu".to_owned()),
        message: Some("Pod was rejected: too much".to_owned()),
        ..PodStatus::default()
    };
    let over = PodStatus { phase: Some("Succeeded".to_owned()), ..PodStatus::default() };
    let statuses = [("done", over), ("no", refused), ("was", status_of_kubelet("Running"))];
    let statuses = statuses.into_iter().map(|(uid, status)| (PodUid::new(uid), Arc::new(status))).collect();
    decisions.restore(&mut known, &statuses);
    let all = [cpu("done", "3"), cpu("no", "100m"), cpu("was", "3"), cpu("new", "2")];
    let outcome = decisions.decide(&all, true, &mut known, &node());
    assert_eq!(shown(&outcome), ["done", "new", "no OutOfcpu", "was OutOfcpu"], "what is over takes no room");
    let why = outcome.pods[&PodUid::new("no")].rejected.clone().unwrap();
    assert_eq!((why.message.as_str(), outcome.refused.len()), ("too much", 1));
}

#[test]
fn after_a_restart_what_is_here_stays_and_all_else_is_judged_whatever_its_status_says() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let runs = from_api(cpu("runs", "3"), status_of_kubelet("Running"));
    let forged = from_api(cpu("forged", "1m"), status_of_kubelet("Running"));
    let new = from_api(cpu("new", "1m"), PodStatus::default());
    let fixed = cpu("fixed", "1m");
    known.runtime(&held(&[(&runs, true), (&fixed, false)]));
    let all = [runs.clone(), fixed.clone(), forged, new];
    let outcome = decisions.decide(&all, true, &mut known, &node());
    assert_eq!(shown(&outcome), ["fixed", "forged OutOfcpu", "new OutOfcpu", "runs"]);
    // The next incarnation of PodManager knows the pods from the workers' reports.
    let (mut decisions, mut known) = (Decisions::default(), ReportedFacts::new(true, false));
    known.runtime(&HeldPods::default());
    known.report(runs.pod_ref.uid.clone(), report(&runs.pod_ref, WorkerState::Syncing, false));
    assert!(decisions.has_admitted(&runs.pod_ref.uid, &known));
    assert_eq!(shown(&decisions.decide(&[runs], true, &mut known, &node())), ["runs"]);
}

#[test]
fn what_ran_is_shown_while_the_runtime_is_silent_and_judged_as_new_if_it_is_not_here() {
    let ran = status_of_kubelet("Running");
    let statuses: BTreeMap<_, _> =
        ["fits", "big", "runs"].map(|uid| (PodUid::new(uid), Arc::new(ran.clone()))).into();
    let (mut decisions, mut known) = (Decisions::default(), ReportedFacts::new(true, false));
    decisions.restore(&mut known, &statuses);
    let all = [cpu("fits", "1"), cpu("big", "3"), cpu("runs", "3"), cpu("new", "1m")];
    let silent = decisions.decide(&all, false, &mut known, &node());
    assert_eq!((shown(&silent), silent.waiting, silent.ask_runtime), (vec!["fits".to_owned()], 3, true));
    assert!(silent.refused.is_empty() && silent.victims.is_empty());
    known.runtime(&held(&[(&all[2], false)]));
    let told = decisions.decide(&all, true, &mut known, &node());
    assert_eq!(shown(&told), ["big OutOfcpu", "fits", "new OutOfcpu", "runs"]);
}

fn unsupported(mut candidate: Candidate) -> Candidate {
    candidate.pod.refused = Some(Rejection::new(UNSUPPORTED_FIELDS, "spec.x"));
    candidate
}

#[test]
fn what_asks_for_what_is_not_done_waits_without_taking_room_until_it_does_not() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let wants = unsupported(from_api(cpu("wants", "2"), PodStatus::default()));
    let file = unsupported(cpu("file", "1m"));
    let forged = unsupported(from_api(cpu("forged", "1m"), status_of_kubelet("Running")));
    let fits = cpu("fits", "1");
    let all = [wants.clone(), file, forged, fits.clone()];
    let mut decide = |all: &[Candidate]| decisions.decide(all, true, &mut known, &node());
    let first = decide(&all);
    let shown_first =
        ["file UnsupportedFields", "fits", "forged UnsupportedFields", "wants UnsupportedFields"];
    assert_eq!(shown(&first), shown_first);
    assert_eq!((first.refused.len(), first.unsupported.len(), first.kept.len()), (0, 3, 0));
    assert_eq!(decide(&all).unsupported, [], "it is said once");
    // A deleted pod goes without a worker, also when its end has been reported.
    let mut ends = wants.clone();
    Arc::make_mut(&mut ends.pod.pod).status = Some(status_of_kubelet("Failed"));
    assert_eq!(shown(&decide(&[ends, fits.clone()])), ["fits", "wants UnsupportedFields"]);
    let mut less = from_api(cpu("wants", "1"), PodStatus::default());
    assert_eq!(shown(&decide(&[less.clone(), fits.clone()])), ["fits", "wants"], "judged only now");
    less.pod.refused = wants.pod.refused;
    let kept = decide(&[less, fits]);
    assert_eq!((shown(&kept), kept.kept.len()), (vec!["fits".to_owned(), "wants".to_owned()], 1));
}

#[test]
fn a_pod_of_which_its_source_has_kept_nothing_is_refused_once_and_takes_no_room() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let mut none = from_api(cpu("none", "2"), PodStatus::default());
    none.pod.refused = Some(Rejection::new(OUT_OF_KUBELET_ROOM, "no room"));
    let all = [none, cpu("fits", "2")];
    let first = decisions.decide(&all, true, &mut known, &node());
    assert_eq!(shown(&first), ["fits", "none OutOfKubeletRoom"]);
    assert_eq!((first.refused.len(), first.unsupported.len(), first.waiting), (1, 0, 0));
    let again = decisions.decide(&all, true, &mut known, &node());
    assert_eq!((shown(&again), again.refused.len()), (shown(&first), 0));
}

#[test]
fn what_runs_is_not_ended_for_what_a_new_pod_waits_for() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let runs = unsupported(from_api(cpu("run", "1m"), status_of_kubelet("Running")));
    known.runtime(&held(&[(&runs, true)]));
    let first = decisions.decide(std::slice::from_ref(&runs), true, &mut known, &node());
    assert_eq!((shown(&first), first.kept.len(), first.unsupported.len()), (vec!["run".to_owned()], 1, 0));
    // It is reported once, and its end is no refusal.
    let ended = unsupported(from_api(cpu("run", "1m"), status_of_kubelet("Failed")));
    let then = decisions.decide(&[ended], true, &mut known, &node());
    assert_eq!((shown(&then), then.kept.len()), (vec!["run".to_owned()], 0));
}

#[test]
fn what_a_source_that_is_not_heard_yet_may_name_is_not_forgotten() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    known.runtime(&held(&[(&cpu("a", "1"), false)]));
    decisions.decide(&[cpu("b", "2")], false, &mut known, &node());
    let outcome = decisions.decide(&[cpu("a", "1"), cpu("b", "2")], true, &mut known, &node());
    assert_eq!(shown(&outcome), ["a", "b"]);
}

fn selecting(uid: &str) -> Candidate {
    let mut pod = requesting(&[]);
    let selector = [("zone".to_owned(), "a".to_owned())].into();
    pod.spec.get_or_insert_default().node_selector = Some(selector);
    Candidate { source: Source::Api, ..candidate(uid, pod) }
}

#[test]
fn a_node_is_fetched_before_pods_are_refused_for_its_labels() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    known.fetches_node = true;
    let (a, b) = (selecting("a"), selecting("b"));
    let first = decisions.decide(std::slice::from_ref(&a), true, &mut known, &node());
    assert_eq!((shown(&first), first.waiting), (vec![], 1));
    assert_eq!(first.ask_node, [a.pod_ref.uid.clone()].into());
    // A pod that comes after that call began waits for another call.
    known.fetched_for.insert(a.pod_ref.uid.clone());
    let second = decisions.decide(&[a.clone(), b.clone()], true, &mut known, &node());
    assert_eq!(shown(&second), ["a NodeAffinity"]);
    assert_eq!(second.ask_node, [b.pod_ref.uid.clone()].into());
    known.fetched_for = [b.pod_ref.uid.clone()].into();
    let labelled = NodeView { labels: [("zone".to_owned(), "a".to_owned())].into(), ..node() };
    let third = decisions.decide(&[a, b], true, &mut known, &labelled);
    assert_eq!((shown(&third), third.waiting), (vec!["a NodeAffinity".to_owned(), "b".to_owned()], 0));
    // Where no Node can be fetched, no pod waits for it.
    known.fetches_node = false;
    let alone = Decisions::default().decide(&[selecting("c")], true, &mut known, &node());
    assert_eq!(shown(&alone), ["c NodeAffinity"]);
}

#[test]
fn a_pod_of_the_api_server_keeps_no_static_pod_of_its_name_out() {
    let old = Candidate { source: Source::Api, ..named("old", "web") };
    let fixed = named("fixed", "web");
    for ends in [false, true] {
        for is_told_by_runtime in [false, true] {
            let (mut decisions, mut known) = (Decisions::default(), known());
            if is_told_by_runtime {
                known.runtime(&held(&[(&old, true)]));
            } else {
                decisions.decide(std::slice::from_ref(&old), true, &mut known, &node());
                known.report(old.pod_ref.uid.clone(), report(&old.pod_ref, WorkerState::Syncing, false));
            }
            let both = [old.clone(), fixed.clone()];
            let outcome = decisions.decide(if ends { &both[1..] } else { &both }, true, &mut known, &node());
            assert!(shown(&outcome).contains(&"fixed".to_owned()), "{ends} {is_told_by_runtime}");
            assert!(!known.names_of_statics().contains("web_ns"), "no mirror waits for its end");
        }
    }
}

#[test]
fn ended_pods_take_no_room() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let job = cpu("job", "2");
    decisions.decide(std::slice::from_ref(&job), true, &mut known, &node());
    known.report(job.pod_ref.uid.clone(), report(&job.pod_ref, WorkerState::Terminating, false));
    let early = decisions.decide(&[job.clone(), cpu("early", "1")], true, &mut known, &node());
    assert_eq!(shown(&early), ["early OutOfcpu", "job"]);
    known.report(job.pod_ref.uid.clone(), report(&job.pod_ref, WorkerState::Terminated, true));
    let late = decisions.decide(&[job, cpu("late", "1")], true, &mut known, &node());
    assert_eq!(shown(&late), ["job", "late"]);
}

#[test]
fn places_are_bounded() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let pods: Vec<Candidate> = ["a", "b", "c", "d"].map(|uid| cpu(uid, "1m")).into();
    assert_eq!(shown(&decisions.decide(&pods, true, &mut known, &node())), ["a", "b", "c", "d OutOfpods"]);
}

#[test]
fn a_successor_waits_until_its_predecessor_has_gone() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let (old, new) = (named("old", "web"), named("new", "web"));
    let mut decide =
        |known: &mut ReportedFacts| decisions.decide(&[new.clone(), cpu("x", "1m")], true, known, &node());
    known.report(old.pod_ref.uid.clone(), report(&old.pod_ref, WorkerState::Terminating, false));
    let waits = decide(&mut known);
    assert_eq!((shown(&waits), waits.waiting), (vec!["x".to_owned()], 1));
    assert!(known.report(old.pod_ref.uid.clone(), report(&old.pod_ref, WorkerState::Terminated, true)));
    let outcome = decide(&mut known);
    assert_eq!((shown(&outcome), outcome.waiting), (vec!["new".to_owned(), "x".to_owned()], 0));
}

#[test]
fn a_predecessor_goes_as_soon_as_its_own_source_has_another() {
    let (old, new, other) = (named("old", "web"), named("new", "web"), named("other", "other"));
    let of = |uids: &[&str]| uids.iter().map(|uid| PodUid::new(uid)).collect::<BTreeSet<_>>();
    let superseded = |known: &mut ReportedFacts, listed: &[Candidate]| {
        Decisions::default().decide(listed, false, known, &node()).superseded
    };
    let mut known = known();
    known.runtime(&held(&[(&old, false), (&other, false)]));
    assert_eq!(superseded(&mut known, &[]), of(&[]), "the source may not have been heard");
    assert_eq!(superseded(&mut known, std::slice::from_ref(&new)), of(&["old"]));
    assert_eq!(superseded(&mut known, &[old.clone(), new.clone()]), of(&[]));
    let url = Candidate { source: Source::Http, ..new.clone() };
    assert_eq!(superseded(&mut known, &[url]), of(&[]), "another source says nothing of it");
    // A pod with a worker, until the worker has released everything.
    known.report(old.pod_ref.uid.clone(), report(&old.pod_ref, WorkerState::Terminating, false));
    assert_eq!(superseded(&mut known, std::slice::from_ref(&new)), of(&["old"]));
    let mut gone = WorkerReport::clone(&report(&old.pod_ref, WorkerState::Terminated, true));
    gone.deleted = true;
    known.report(old.pod_ref.uid.clone(), Arc::new(gone));
    let outcome = Decisions::default().decide(std::slice::from_ref(&new), false, &mut known, &node());
    assert_eq!((shown(&outcome), outcome.superseded), (vec!["new".to_owned()], of(&[])));
    // A pod whose source has not been heard, and a pod without a source, stay.
    known.runtime(&held(&[(&old, true)]));
    assert_eq!(superseded(&mut known, std::slice::from_ref(&new)), of(&[]));
    let mut lone = ReportedFacts::default();
    lone.runtime(&Arc::new(
        [(old.pod_ref.uid.clone(), HeldPod { pod: old.pod_ref.clone(), source: None })].into(),
    ));
    assert_eq!(superseded(&mut lone, &[new]), of(&[]));
}

#[test]
fn a_predecessor_may_be_one_that_only_the_runtime_still_knows() {
    let (mut decisions, mut known) = (Decisions::default(), ReportedFacts::default());
    let (old, new) = (named("old", "web"), named("new", "web"));
    let mut decide =
        |known: &mut ReportedFacts| decisions.decide(std::slice::from_ref(&new), true, known, &node());
    let unasked = decide(&mut known);
    assert_eq!((unasked.pods.len(), unasked.ask_runtime), (0, true), "the runtime has not told yet");
    known.runtime(&held(&[(&old, false)]));
    assert_eq!(decide(&mut known).waiting, 1);
    known.report(old.pod_ref.uid.clone(), report(&old.pod_ref, WorkerState::Terminating, false));
    assert_eq!(decide(&mut known).waiting, 1);
    known.report(old.pod_ref.uid.clone(), report(&old.pod_ref, WorkerState::Terminated, true));
    assert_eq!(shown(&decide(&mut known)), ["new"]);
}

#[test]
fn a_critical_pod_waits_for_its_victims_and_its_room_is_its_own() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let plain = cpu("plain", "1500m");
    decisions.decide(std::slice::from_ref(&plain), true, &mut known, &node());
    let all = [plain.clone(), critical("vital", "2"), cpu("late", "1")];
    let begun = decisions.decide(&all, true, &mut known, &node());
    assert_eq!(shown(&begun), ["late OutOfcpu", "plain"]);
    let victim = Victim { pod: plain.pod_ref.clone(), wait_seconds: 45, resource: "cpu".to_owned() };
    assert_eq!((begun.victims, begun.waiting), (vec![victim], 1));
    assert_eq!(decisions.victims(), [&plain.pod_ref.uid].into());
    known.report(plain.pod_ref.uid.clone(), report(&plain.pod_ref, WorkerState::Terminating, false));
    let waits = decisions.decide(&all, true, &mut known, &node());
    assert_eq!((waits.victims.len(), waits.waiting), (0, 1), "asked for once");
    known.report(plain.pod_ref.uid.clone(), report(&plain.pod_ref, WorkerState::Terminated, false));
    let done = decisions.decide(&all, true, &mut known, &node());
    assert_eq!(
        (shown(&done), done.waiting),
        (vec!["late OutOfcpu".into(), "plain".into(), "vital".into()], 0)
    );
    assert!(decisions.victims().is_empty());
}

#[test]
fn a_victim_that_does_not_end_is_not_waited_for_for_ever() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let all = [cpu("plain", "1500m"), critical("vital", "2")];
    decisions.decide(&all[..1], true, &mut known, &node());
    decisions.decide(&all, true, &mut known, &node());
    decisions.give_up(&all[0].pod_ref.uid);
    assert_eq!(shown(&decisions.decide(&all, true, &mut known, &node())), ["plain", "vital"]);
}

#[test]
fn pods_that_end_anyway_are_not_judged() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let mut over = requesting(&[("cpu", "100")]);
    over.status = Some(PodStatus { phase: Some("Succeeded".to_owned()), ..PodStatus::default() });
    let outcome = decisions.decide(&[candidate("over", over)], true, &mut known, &node());
    assert_eq!(shown(&outcome), ["over"]);
}

#[test]
fn the_wait_is_half_as_long_again_as_the_grace() {
    let of = |grace: i64| {
        let mut pod = requesting(&[]);
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(grace);
        wait_seconds(&pod)
    };
    assert_eq!([of(0), of(6), of(7), of(30), of(i64::MAX)], [10, 10, 10, 45, i64::MAX as u64]);
}

#[test]
fn a_pod_of_the_api_server_waits_for_the_node_and_a_static_one_does_not() {
    let api = Candidate { source: Source::Api, ..cpu("a", "100m") };
    let (mut decisions, mut known) = (Decisions::default(), ReportedFacts::new(false, false));
    known.runtime(&HeldPods::default());
    let outcome = decisions.decide(&[api.clone(), cpu("f", "100m")], true, &mut known, &node());
    assert_eq!((shown(&outcome), outcome.waiting), (vec!["f".to_owned()], 1));
    known.node = true;
    let outcome = decisions.decide(&[api, cpu("f", "100m")], true, &mut known, &node());
    assert_eq!((shown(&outcome).len(), outcome.waiting), (2, 0));
}

proptest! {
    /// Whatever other clients wrote into the pods' statuses: pods that the node holds stay, no other pod
    /// comes in that does not fit beside them, and unsupported pods take no room.
    #[test]
    fn only_what_is_here_is_not_judged(
        pods in prop::collection::vec((1u32..15, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()), 1..8),
    ) {
        let candidates: Vec<Candidate> = pods.iter().enumerate().map(|(number, &(tenths, _, is_api, lacks, is_forged))| {
            let mut pod = cpu(&number.to_string(), &format!("{}m", tenths * 100));
            if is_api {
                pod = from_api(pod, if is_forged { status_of_kubelet("Running") } else { PodStatus::default() });
            }
            if lacks { unsupported(pod) } else { pod }
        }).collect();
        let mut known = ReportedFacts::new(true, false);
        let here: Vec<(&Candidate, bool)> = candidates.iter().zip(&pods)
            .filter(|(_, (_, is_here, ..))| *is_here)
            .map(|(candidate, (_, _, is_api, ..))| (candidate, *is_api))
            .collect();
        known.runtime(&held(&here));
        let mut decisions = Decisions::default();
        let mut sorted = candidates.clone();
        sorted.sort_by_key(|candidate| !decisions.has_admitted(&candidate.pod_ref.uid, &known));
        let node = NodeView { pods_max: 100, ..node() };
        let outcome = decisions.decide(&sorted, true, &mut known, &node);
        prop_assert_eq!(&decisions.decide(&sorted, true, &mut known, &node).pods, &outcome.pods, "a decision holds");
        let (mut taken, mut is_judged) = (0, false);
        for (candidate, &(tenths, is_here, is_api, lacks, _)) in candidates.iter().zip(&pods) {
            let rejected = outcome.pods[&candidate.pod_ref.uid].rejected.as_ref().map(|why| why.reason.as_str());
            if lacks && !(is_here && is_api) {
                prop_assert_eq!(rejected, Some(UNSUPPORTED_FIELDS));
            } else if is_here {
                prop_assert_eq!(rejected, None);
            } else {
                prop_assert!(matches!(rejected, None | Some("OutOfcpu")));
            }
            if rejected.is_none() {
                taken += tenths;
                is_judged |= !is_here;
            }
        }
        prop_assert!(!is_judged || taken <= 20, "{taken} tenths of 2 CPUs");
    }
}

#[test]
fn what_is_left_alone_runs_on_or_waits_and_is_decided_when_it_is_let_in() {
    let (mut decisions, mut known) = (Decisions::default(), known());
    let (runs, refused) = (cpu("runs", "1"), cpu("refused", "9"));
    decisions.decide(&[runs.clone(), refused.clone()], true, &mut known, &node());
    let all = [runs, refused, cpu("new", "500m")];
    decisions.leave_alone(all.iter().map(|candidate| candidate.pod_ref.uid.clone()).collect());
    let outcome = decisions.decide(&all, true, &mut known, &node());
    assert_eq!(
        (shown(&outcome), outcome.waiting),
        (vec!["refused OutOfcpu".to_owned(), "runs".to_owned()], 1)
    );
    decisions.leave_alone(BTreeSet::new());
    assert_eq!(
        shown(&decisions.decide(&all, true, &mut known, &node())),
        ["new", "refused OutOfcpu", "runs"]
    );
}

proptest! {
    /// A pod that is decided about alone gets the decision of a round over all pods.
    #[test]
    fn a_pod_that_comes_changes_or_goes_is_decided_about_as_beside_all_others(
        events in prop::collection::vec((0u8..6, 0u8..4, 1u32..12), 1..40),
    ) {
        let (mut alone, mut known_alone) = (Decisions::default(), known());
        let (mut whole, mut known_whole) = (Decisions::default(), known());
        let node = node();
        let mut all: Vec<Candidate> = Vec::new();
        let mut told: BTreeMap<PodUid, Arc<DesiredPod>> = BTreeMap::new();
        for (number, event, tenths) in events {
            let pod = from_api(cpu(&number.to_string(), &format!("{}m", tenths * 100)), PodStatus::default());
            let uid = pod.pod_ref.uid.clone();
            let at = all.iter().position(|one| one.pod_ref.uid == uid);
            match (event, at) {
                (0, Some(at)) => {
                    all.remove(at);
                    prop_assert!(alone.forget(&uid, &mut known_alone));
                    told.remove(&uid);
                }
                (1, Some(at)) => {
                    // Its worker says that nothing of it runs any more.
                    let over = report(&pod.pod_ref, WorkerState::Terminated, false);
                    known_alone.report(uid.clone(), over.clone());
                    known_whole.report(uid.clone(), over);
                    alone.settle(&uid, Some(&all[at].pod.pod), &known_alone);
                }
                (_, Some(at)) => {
                    all[at] = pod.clone();
                    if let Some(outcome) = alone.decide_again(&pod, &mut known_alone, &node) {
                        told.extend(outcome.pods);
                    }
                }
                (_, None) => {
                    all.push(pod.clone());
                    let outcome = alone.decide_new(&pod, &mut known_alone, &node);
                    told.extend(outcome.expect("nothing waits").pods);
                }
            }
            let outcome = whole.decide(&all, true, &mut known_whole, &node);
            prop_assert_eq!(&outcome.pods, &told);
            prop_assert_eq!(&whole.room, &alone.room);
        }
    }
}
