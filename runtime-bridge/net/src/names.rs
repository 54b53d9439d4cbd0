//! Lookups of host names, on threads of their own, so that a name whose server does not answer holds up no mount, no
//! checkpoint and no other pod's lookup.
//!
//! The system's resolver blocks for as long as `resolv.conf` says. Each asker (a pod, or a part of the node) has its
//! share of threads, and may always use one even when all others are taken.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_pace::panics::{self, Carried};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// The most threads that look names up at the same time, besides one per asker.
const THREADS_MAX: usize = 128;
/// The most threads of one asker.
const THREADS_OF_ASKER_MAX: usize = 8;
/// How long one address may be silent before the next one is tried as well, as Go does between address families.
const NEXT_AFTER: Duration = Duration::from_millis(300);
/// The stack of a thread: the resolver's buffers lie there, and their pages are allocated only when touched.
const STACK_BYTES: usize = 512 * 1024;

static SYSTEM: LazyLock<Arc<Resolver>> = LazyLock::new(|| Arc::new(Resolver::new(Box::new(look_up))));

/// The addresses of `host`, a name or an address without brackets, in the resolver's order. Two lookups of one name by
/// one asker are one. It ends when the system's resolver gives up; a caller with a deadline drops the future.
///
/// # Errors
/// The resolver's error.
pub async fn resolve(asker: &str, host: &str) -> io::Result<Vec<IpAddr>> {
    match host.parse() {
        Ok(ip) => Ok(vec![ip]),
        Err(_) => SYSTEM.resolve(asker, host).await,
    }
}

/// The first success of several attempts. The next attempt begins as soon as one fails or `NEXT_AFTER` has passed, so
/// that an address that drops packets does not use up the time of the others.
///
/// # Errors
/// The error of the first attempt that failed; `None` if there was none to try.
pub async fn first_of<F, T, E>(tries: impl IntoIterator<Item = F>) -> Result<T, Option<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let (mut under_way, mut failed) = (FuturesUnordered::new(), None);
    for next in tries {
        under_way.push(next);
        match tokio::time::timeout(NEXT_AFTER, under_way.next()).await {
            Ok(Some(Ok(done))) => return Ok(done),
            Ok(Some(Err(error))) => {
                failed.get_or_insert(error);
            }
            Ok(None) | Err(_) => {}
        }
    }
    while let Some(done) = under_way.next().await {
        match done {
            Ok(done) => return Ok(done),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    Err(failed)
}

/// Opens a connection to the first address of `host` that accepts one.
///
/// # Errors
/// The resolver's error, or that of the first address that refused.
pub async fn connect(asker: &str, host: &str, port: u16) -> io::Result<TcpStream> {
    let found = resolve(asker, host).await?;
    first_of(found.into_iter().map(|ip| TcpStream::connect(SocketAddr::new(ip, port)))).await.map_err(
        |failed| {
            failed.unwrap_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("{host:?} has no address"))
            })
        },
    )
}

fn look_up(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in (host, 0).to_socket_addrs()? {
        if !found.contains(&address.ip()) {
            found.push(address.ip());
        }
    }
    Ok(found)
}

type LookUp = Box<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;
type Found = Result<io::Result<Vec<IpAddr>>, Carried>;
type Answer = oneshot::Sender<Found>;

struct Resolver {
    look_up: LookUp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    threads: usize,
    askers: BTreeMap<Arc<str>, Asker>,
}

/// The lookups of one asker, waiting or under way.
#[derive(Default)]
struct Asker {
    threads: usize,
    /// The names that wait for a thread.
    waiting: VecDeque<Arc<str>>,
    /// The waiting callers, by name.
    wanted: BTreeMap<Arc<str>, Vec<Answer>>,
}

struct Job {
    asker: Arc<str>,
    host: Arc<str>,
}

impl State {
    fn want(&mut self, asker: &str, host: &str, answer: Answer) {
        let asker = self.askers.entry(Arc::from(asker)).or_default();
        if let Some(others) = asker.wanted.get_mut(host) {
            others.retain(|other| !other.is_closed());
            others.push(answer);
        } else {
            let host: Arc<str> = Arc::from(host);
            asker.waiting.push_back(host.clone());
            asker.wanted.insert(host, vec![answer]);
        }
    }

    /// The next name to look up: one of the asker that holds the fewest threads.
    fn take(&mut self) -> Option<Job> {
        loop {
            let room = self.threads < THREADS_MAX;
            let may = |one: &Asker| one.threads == 0 || (room && one.threads < THREADS_OF_ASKER_MAX);
            let waiting = self.askers.iter_mut().filter(|(_, one)| !one.waiting.is_empty() && may(one));
            let (name, asker) = waiting.min_by_key(|(_, one)| one.threads)?;
            let host = asker.waiting.pop_front()?;
            let name = name.clone();
            if asker.wanted.get(&host).is_some_and(|wanted| wanted.iter().any(|one| !one.is_closed())) {
                asker.threads += 1;
                self.threads += 1;
                return Some(Job { asker: name, host });
            }
            // All callers that waited for this name have gone meanwhile.
            asker.wanted.remove(&host);
            self.forget_idle(&name);
        }
    }

    /// The callers that wait for a lookup that has ended.
    fn ended(&mut self, job: &Job) -> Vec<Answer> {
        self.threads = self.threads.saturating_sub(1);
        let Some(asker) = self.askers.get_mut(&job.asker) else { return Vec::new() };
        asker.threads = asker.threads.saturating_sub(1);
        let wanted = asker.wanted.remove(&job.host).unwrap_or_default();
        self.forget_idle(&job.asker);
        wanted
    }

    fn forget_idle(&mut self, name: &str) {
        if self.askers.get(name).is_some_and(|asker| asker.threads == 0 && asker.wanted.is_empty()) {
            self.askers.remove(name);
        }
    }
}

impl Resolver {
    fn new(look_up: LookUp) -> Self {
        Self { look_up, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn resolve(self: &Arc<Self>, asker: &str, host: &str) -> io::Result<Vec<IpAddr>> {
        let (answer, answered) = oneshot::channel();
        self.state().want(asker, host, answer);
        self.begin();
        let unanswered = |_| Err(io::Error::other("the lookup ended without an answer"));
        answered.await.map_or_else(unanswered, panics::resumed)
    }

    /// Starts a thread for each name that may have one.
    fn begin(self: &Arc<Self>) {
        loop {
            let Some(job) = self.state().take() else { return };
            let this = self.clone();
            let (asker, host) = (job.asker.clone(), job.host.clone());
            let thread = std::thread::Builder::new().name("resolver".to_owned()).stack_size(STACK_BYTES);
            if let Err(error) = thread.spawn(move || this.work(job)) {
                self.answer(&Job { asker, host }, &Ok(Err(error)));
            }
        }
    }

    /// Looks names up one after another, as long as there are any.
    fn work(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            let found = panics::catch(|| (self.look_up)(&job.host));
            self.answer(&job, &found);
            next = self.state().take();
        }
    }

    /// A panic of the lookup goes on in each caller.
    fn answer(&self, job: &Job, found: &Found) {
        let wanted = self.state().ended(job);
        for answer in wanted {
            let found = match found {
                Ok(Ok(found)) => Ok(Ok(found.clone())),
                Ok(Err(error)) => Ok(Err(io::Error::new(error.kind(), error.to_string()))),
                Err(panic) => Err(panic.clone()),
            };
            // The caller may have gone.
            let _ = answer.send(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;

    use futures::future::join_all;

    use super::*;

    /// A resolver in which names under `hang.` have no answer before the gate opens.
    #[derive(Default)]
    struct Gate {
        open: Mutex<bool>,
        opened: Condvar,
        asked: Mutex<Vec<String>>,
    }

    fn resolver() -> (Arc<Resolver>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        let inner = gate.clone();
        let look_up = move |host: &str| {
            inner.asked.lock().unwrap().push(host.to_owned());
            if host.starts_with("hang.") {
                let open = inner.open.lock().unwrap();
                drop(inner.opened.wait_while(open, |open| !*open).unwrap());
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no server answers"));
            }
            Ok(vec![IpAddr::from([192, 0, 2, 1])])
        };
        (Arc::new(Resolver::new(Box::new(look_up))), gate)
    }

    fn open(gate: &Gate) {
        *gate.open.lock().unwrap() = true;
        gate.opened.notify_all();
    }

    #[tokio::test]
    async fn names_that_hang_hold_up_nobody_else() {
        let (resolver, gate) = resolver();
        // Many pods with many names each: more names than threads.
        let hanging: Vec<_> = (0..40)
            .flat_map(|pod| (0..20).map(move |name| (format!("pod-{pod}"), format!("hang.{pod}.{name}"))))
            .map(|(pod, host)| {
                let resolver = resolver.clone();
                tokio::spawn(async move { resolver.resolve(&pod, &host).await })
            })
            .collect();
        while gate.asked.lock().unwrap().len() < THREADS_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let others = (0..100).map(|pod| {
            let resolver = resolver.clone();
            async move { resolver.resolve(&format!("other-{pod}"), "good.example").await }
        });
        let found = tokio::time::timeout(Duration::from_secs(20), join_all(others)).await.unwrap();
        assert!(found.iter().all(Result::is_ok), "{found:?}");
        let threads = resolver.state().threads;
        assert!(threads <= THREADS_MAX + 40, "{threads}");
        // Names that waited for a thread are never looked up once their askers are gone.
        hanging.iter().for_each(tokio::task::JoinHandle::abort);
        join_all(hanging).await;
        // A thread that had taken its name before that still looks it up.
        let hanging = || gate.asked.lock().unwrap().iter().filter(|host| host.starts_with("hang")).count();
        while hanging() < resolver.state().threads {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let asked = gate.asked.lock().unwrap().len();
        open(&gate);
        while !resolver.state().askers.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((gate.asked.lock().unwrap().len(), resolver.state().threads), (asked, 0));
    }

    #[tokio::test]
    async fn one_name_of_one_asker_is_looked_up_once_at_a_time() {
        let (resolver, gate) = resolver();
        let asking = (0..15).map(|_| resolver.resolve("pod", "hang.x"));
        let asking = join_all(asking);
        let opening = async {
            while gate.asked.lock().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            open(&gate);
        };
        let (answers, ()) = tokio::join!(asking, opening);
        assert!(
            answers.iter().all(|answer| answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut))
        );
        assert_eq!(*gate.asked.lock().unwrap(), ["hang.x"]);
    }

    #[tokio::test]
    async fn a_panic_of_a_lookup_goes_on_in_its_callers_and_gives_its_thread_back() {
        let broken = |_: &str| {
            panics::note("there".to_owned());
            panic!("in the lookup")
        };
        let resolver = Arc::new(Resolver::new(Box::new(broken)));
        for host in ["a.example", "b.example"] {
            let panic = panics::caught(resolver.resolve("pod", host)).await.unwrap_err();
            assert_eq!(panic.to_string(), "in the lookup at there");
        }
        let state = resolver.state();
        assert_eq!((state.threads, state.askers.len()), (0, 0));
    }

    #[tokio::test]
    async fn addresses_need_no_lookup_and_localhost_has_one() {
        let ip: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(resolve("a", "2001:db8::1").await.unwrap(), [ip]);
        assert!(resolve("a", "localhost").await.unwrap().iter().any(IpAddr::is_loopback));
        assert!(resolve("a", "does-not-exist.invalid").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_never_answers_holds_up_no_other() {
        let begun = tokio::time::Instant::now();
        let tried = |after_ms: u64, outcome: Result<u32, u32>| async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            outcome
        };
        let hangs = 3_600_000;
        let tries = [tried(hangs, Ok(1)), tried(hangs, Ok(2)), tried(20, Err(3)), tried(30, Ok(4))];
        assert_eq!(first_of(tries).await, Ok(4));
        assert_eq!(begun.elapsed(), Duration::from_millis(300 + 300 + 20 + 30));
        // An address that is only slow is not given up.
        let begun = tokio::time::Instant::now();
        assert_eq!(first_of([tried(500, Ok(1)), tried(hangs, Ok(2))]).await, Ok(1));
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
        assert_eq!(first_of([tried(1, Err(1)), tried(1, Err(2))]).await, Err(Some(1)));
        assert_eq!(first_of(std::iter::empty::<std::future::Ready<Result<u32, u32>>>()).await, Err(None));
    }
}
