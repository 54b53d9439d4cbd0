use std::sync::mpsc;

use super::*;

/// Far longer than any work takes that does not hang.
const SOON: Duration = Duration::from_secs(60);

fn lane() -> Lane {
    Lane::new("test", Handle::current())
}

/// Work that sends its number when it begins, and hangs until the gate is dropped.
struct Gate {
    begun: mpsc::Sender<usize>,
    begins: mpsc::Receiver<usize>,
    gates: Vec<mpsc::Sender<()>>,
}

impl Gate {
    fn new() -> Self {
        let (begun, begins) = mpsc::channel();
        Self { begun, begins, gates: Vec::new() }
    }

    fn work(&mut self, number: usize) -> impl FnOnce() -> Result<usize, NotRun> + Send + use<> {
        let (gate, opened) = mpsc::channel::<()>();
        self.gates.push(gate);
        let begun = self.begun.clone();
        move || {
            let _ = begun.send(number);
            let _ = opened.recv();
            Ok(number)
        }
    }

    /// Waits until `count` pieces of work have begun since the last call.
    async fn begun(&self, count: usize) -> Vec<usize> {
        let mut begun = Vec::new();
        while begun.len() < count {
            match self.begins.try_recv() {
                Ok(number) => begun.push(number),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        begun
    }
}

#[tokio::test]
async fn slow_removals_hold_nothing_else_up_and_all_end() {
    let (lane, mut gate) = (lane(), Gate::new());
    let removals: Vec<_> =
        (0..100).map(|number| tokio::spawn(lane.remove(number.to_string(), gate.work(number)))).collect();
    gate.begun(4).await;
    let name = lane.run(|| Ok::<_, NotRun>(std::thread::current().name().map(str::to_owned)));
    let name = tokio::time::timeout(SOON, name).await.unwrap().unwrap();
    assert_ne!(name.as_deref(), Some("remove-tree"));
    assert!(gate.begins.try_recv().is_err(), "a place is kept to the end");
    drop(gate);
    let ended = futures::future::join_all(removals).await;
    let ended: Vec<_> = ended.into_iter().map(Result::unwrap).collect();
    assert_eq!(ended, (0..100).map(Ok).collect::<Vec<_>>());
}

#[tokio::test]
async fn removals_of_one_pods_trees_leave_places_to_other_pods() {
    let (lane, mut gate) = (lane(), Gate::new());
    let tree = |number: usize| format!("/var/lib/kubelet/pods/crowd/volumes/kind/{number}");
    let crowd: Vec<_> =
        (0..50).map(|number| tokio::spawn(lane.remove(tree(number), gate.work(number)))).collect();
    gate.begun(2).await;
    let other = lane.remove("/var/lib/kubelet/pods/quiet/volumes/kind/v", || Ok::<_, NotRun>(1));
    assert_eq!(tokio::time::timeout(SOON, other).await, Ok(Ok(1)));
    assert!(gate.begins.try_recv().is_err(), "a pod has half of the places");
    drop(gate);
    for one in crowd {
        one.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn hung_calls_of_one_owner_never_stop_another() {
    let (hung, other, mut gate) = (lane(), lane(), Gate::new());
    let calls: Vec<_> = (0..1000).map(|number| tokio::spawn(hung.run(gate.work(number)))).collect();
    gate.begun(LANE_THREADS_MAX).await;
    let done = tokio::time::timeout(SOON, other.run(|| Ok::<_, NotRun>(1))).await;
    assert_eq!(done, Ok(Ok(1)));
    let beside = tokio::time::timeout(SOON, hung.beside("other").run(|| Ok::<_, NotRun>(1))).await;
    assert_eq!(beside, Ok(Ok(1)));
    assert!(gate.begins.try_recv().is_err(), "no lane has more threads than are its own");
    drop(gate);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_was_queued_for_a_dead_asker_never_begins_and_what_had_begun_keeps_its_key() {
    let (lane, mut gate) = (lane(), Gate::new());
    let begun = tokio::spawn(lane.run_alone("pod", gate.work(1)));
    gate.begun(1).await;
    let mut queued = lane.run_alone("pod", gate.work(2));
    assert!(futures::poll!(&mut queued).is_pending());
    // The incarnation that asked for both pieces of work ends.
    begun.abort();
    drop(queued);
    let mut next = lane.beside("next").run_alone("pod", gate.work(3));
    assert!(futures::poll!(&mut next).is_pending(), "it waits for what has begun");
    let elsewhere = lane.run_alone("another pod", || Ok::<_, NotRun>(4));
    assert_eq!(tokio::time::timeout(SOON, elsewhere).await, Ok(Ok(4)));
    assert!(gate.begins.try_recv().is_err());
    gate.gates.clear();
    assert_eq!(tokio::time::timeout(SOON, next).await, Ok(Ok(3)));
    assert_eq!(gate.begins.try_recv(), Ok(3), "the second one has not run");
    // The thread gives its key back after it has sent its outcome.
    let all_given_back = async {
        while !lane.keys.are_free() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, all_given_back).await.unwrap();
}

#[tokio::test]
async fn a_full_lane_refuses_and_says_whose_it_is() {
    let (lane, mut gate) = (lane(), Gate::new());
    let _holds = tokio::spawn(lane.run_alone("pod", gate.work(0)));
    gate.begun(1).await;
    let mut waiting: Vec<_> =
        (0..WAITING_MAX).map(|_| lane.run_alone("pod", || Ok::<_, NotRun>(()))).collect();
    for one in &mut waiting {
        assert!(futures::poll!(one).is_pending());
    }
    let refused = lane.run(|| Ok::<_, NotRun>(())).await;
    assert_eq!(refused, Err(NotRun::Busy { owner: "test" }));
    drop(waiting);
    assert_eq!(lane.run(|| Ok::<_, NotRun>(())).await, Ok(()), "those that gave up have made room");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_begin_for_work_that_hangs_is_told_so_and_never_begins() {
    let (lane, mut gate) = (lane(), Gate::new());
    let hung: Vec<_> =
        (0..LANE_THREADS_MAX).map(|number| tokio::spawn(lane.run(gate.work(number)))).collect();
    // The paused clock stands while a thread blocks: it is moved on so that those that hang count as slow.
    let mut begun = 0;
    while begun < LANE_THREADS_MAX {
        begun += gate.begins.try_iter().count();
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let mut waiting = lane.run(gate.work(LANE_THREADS_MAX));
    assert!(futures::poll!(&mut waiting).is_pending());
    tokio::time::advance(BEGIN_WITHIN).await;
    assert_eq!(futures::poll!(&mut waiting), std::task::Poll::Ready(Err(NotRun::Late { owner: "test" })));
    drop(waiting);
    gate.gates.clear();
    for one in hung {
        one.await.unwrap().unwrap();
    }
    assert_eq!(lane.run(|| Ok::<_, NotRun>(())).await, Ok(()));
    assert!(gate.begins.try_recv().is_err());
}

#[tokio::test]
async fn a_tenant_whose_work_hangs_has_half_of_the_threads_and_of_the_line() {
    let (lane, mut gate) = (lane(), Gate::new());
    let crowd = lane.of_tenant("crowd");
    let half = LANE_THREADS_MAX / 2;
    let hung: Vec<_> = (0..half).map(|number| tokio::spawn(crowd.run(gate.work(number)))).collect();
    gate.begun(half).await;
    let mut waiting: Vec<_> = (0..WAITING_MAX / 2).map(|_| crowd.run(|| Ok::<_, NotRun>(()))).collect();
    for one in &mut waiting {
        assert!(futures::poll!(one).is_pending(), "there is no more than half");
    }
    assert_eq!(crowd.run(|| Ok::<_, NotRun>(())).await, Err(NotRun::Busy { owner: "test" }));
    for others in [lane.of_tenant("others"), lane.clone(), crowd.beside("another")] {
        let done = others.run(|| Ok::<_, NotRun>(1));
        assert_eq!(tokio::time::timeout(SOON, done).await, Ok(Ok(1)));
    }
    drop(waiting);
    gate.gates.clear();
    for one in hung {
        one.await.unwrap().unwrap();
    }
    assert_eq!(crowd.run(|| Ok::<_, NotRun>(2)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn work_waits_no_longer_for_its_key_than_for_a_thread() {
    let (lane, mut gate) = (lane(), Gate::new());
    let hung = tokio::spawn(lane.run_alone("path", gate.work(0)));
    while gate.begins.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    let mut waiting = lane.run_alone("path", || Ok::<_, NotRun>(()));
    assert!(futures::poll!(&mut waiting).is_pending());
    tokio::time::advance(BEGIN_WITHIN).await;
    assert_eq!(waiting.await, Err(NotRun::Late { owner: "test" }));
    gate.gates.clear();
    hung.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_panic_takes_its_place_along() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        panics::note(info.location().map(ToString::to_string).unwrap_or_default());
        hook(info);
    }));
    let of_job = lane().run(broken);
    let running = Handle::current().spawn(panics::caught(async { broken() }));
    let of_steps = lane().run_steps(async { broken() });
    for work in [of_job, joined(running).boxed(), of_steps] {
        let panicked = format!("{:?}", panics::caught(work).await.unwrap_err());
        assert!(panicked.contains(&format!("tests.rs:{BROKEN}:")), "{panicked}, not {BROKEN}");
    }
}

const BROKEN: u32 = line!() + 3;

fn broken() -> Result<(), NotRun> {
    panic!("in the work");
}

#[tokio::test]
async fn a_panic_goes_on_in_whoever_waits_and_gives_the_key_back() {
    let lane = lane();
    let panics = tokio::spawn(lane.run_alone("pod", || -> Result<(), NotRun> { panic!("in the work") }));
    assert!(panics.await.unwrap_err().is_panic());
    let next = lane.run_alone("pod", || Ok::<_, NotRun>(()));
    assert_eq!(tokio::time::timeout(SOON, next).await, Ok(Ok(())));
}
