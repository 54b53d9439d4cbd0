//! Whether the server answers at all. While it does not, one small request about once a second asks it for all who
//! wait, so that they neither hammer at a server that is down nor sleep on when it is back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{sleep, timeout};

use super::connect::Redial;
use super::error::{ConnectError, retry_after};
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_pace::stretched;

/// Answered as soon as requests can be served; every authenticated user may ask.
const READY: &str = "/readyz";
/// Between two questions, with as much again at random: nodes that lost their server together do not ask in step.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// A question without an answer is asked anew, on a new connection.
const ASK_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct State {
    /// Somebody asks.
    asking: bool,
    /// The last question was not answered as a server that is well would.
    silent: bool,
    /// How often it has come back.
    back: u64,
}

/// What is known of the server. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    state: Arc<Sender<State>>,
    clock: Arc<dyn Clock>,
}

/// How an answer tells of the server as a whole.
pub(super) fn is_well(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}

/// Whether a failure is the server's: that we cannot say who we are is not.
pub(super) fn is_the_servers(error: &kube::Error) -> bool {
    let kube::Error::Service(error) = error else { return true };
    let ours = error.downcast_ref::<ConnectError>();
    ours.is_none_or(|error| matches!(error, ConnectError::Connection { .. }))
}

/// Up to twice `wait`, at random.
fn jittered(wait: Duration, clock: &dyn Clock) -> Duration {
    stretched(wait, 1.0, clock.random_u64())
}

impl Reach {
    /// Chance comes from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Arc::new(Sender::new(State::default())), clock }
    }

    /// Up to twice `wait`, at random: those who wait for the server do not ask in step.
    pub fn jittered(&self, wait: Duration) -> Duration {
        jittered(wait, &*self.clock)
    }

    /// A call was answered by a server that is well.
    pub fn answered(&self) {
        back(&self.state);
    }

    /// A call was not answered, or by a server that is not well: it is asked how it is, unless it is asked already.
    pub fn doubted(&self, client: &Client, io: &Io, redial: &[Arc<dyn Redial>]) {
        let mut is_first = false;
        self.state.send_if_modified(|state| {
            is_first = !std::mem::replace(&mut state.asking, true);
            false
        });
        if is_first {
            let state = Arc::downgrade(&self.state);
            let asking = ask(state, client.clone(), redial.to_vec(), self.clock.clone());
            drop(io.spawn(asking));
        }
    }

    /// What to wait for.
    pub fn hope(&self) -> Hope {
        let heard = self.state.subscribe();
        let before = heard.borrow().back;
        Hope { heard, before }
    }
}

/// For the server's return, from when this was made.
pub(super) struct Hope {
    heard: Receiver<State>,
    before: u64,
}

impl Hope {
    /// Ends when a server that did not answer does so again. One that fails only this caller has not been away.
    pub async fn fulfilled(&mut self) {
        let before = self.before;
        if self.heard.wait_for(|state| state.back != before).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn back(state: &Sender<State>) {
    state.send_if_modified(|state| {
        let returns = std::mem::replace(&mut state.silent, false);
        state.back += u64::from(returns);
        returns
    });
}

/// Asks until the server is well, or some other call was answered, or nobody is left who would care.
async fn ask(
    reach: Weak<Sender<State>>,
    client: Client,
    redial: Vec<Arc<dyn Redial>>,
    clock: Arc<dyn Clock>,
) {
    let mut is_first = true;
    loop {
        let (well, asked) = match timeout(ASK_DEADLINE, question(&client)).await {
            Ok(Found::Well) => (true, None),
            Ok(Found::Unwell(asked)) => (false, asked),
            Err(_) => {
                redial.iter().for_each(|redial| redial.redial());
                (false, None)
            }
        };
        let Some(state) = reach.upgrade() else { return };
        let others_were_answered = !is_first && !state.borrow().silent;
        if well || others_were_answered {
            back(&state);
            state.send_modify(|state| state.asking = false);
            return;
        }
        state.send_modify(|state| state.silent = true);
        drop(state);
        is_first = false;
        sleep(jittered(ASK_EVERY, &*clock).max(asked.unwrap_or_default())).await;
    }
}

/// What an answer tells of the server.
enum Found {
    Well,
    /// With the time after which it wants to be asked again.
    Unwell(Option<Duration>),
}

async fn question(client: &Client) -> Found {
    let Ok(request) = Request::get(READY).body(Body::empty()) else { return Found::Unwell(None) };
    match client.send(request).await {
        Ok(answer) if is_well(answer.status()) => Found::Well,
        Ok(answer) => Found::Unwell(retry_after(answer.headers())),
        // The server has nothing to do with it.
        Err(error) if !is_the_servers(&error) => Found::Well,
        Err(_) => Found::Unwell(None),
    }
}
