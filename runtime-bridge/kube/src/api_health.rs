//! Whether the API server answers at all. While it does not, one small request about once a second asks the server on
//! behalf of all waiting calls, so that they neither flood a server that is down nor sleep on when it is back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bridge_io::watch::{Receiver, Sender};
use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::time::{sleep, timeout};

use super::connect::Redial;
use super::error::{ConnectError, retry_after};
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_pace::stretched;

/// The path that is asked: the server answers as soon as it can serve requests, to every authenticated user.
const READY: &str = "/readyz";
/// The pause between two questions, stretched at random up to twice: nodes that lost their server together do not ask
/// in step.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long a question waits for its answer; the next one uses a new connection.
const ASK_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct State {
    /// A task is asking the server.
    asking: bool,
    /// The last question did not get the answer of a server that is well.
    silent: bool,
    /// How often the server has come back.
    back: u64,
}

/// The knowledge about the server. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ApiHealth {
    state: Arc<Sender<State>>,
    clock: Arc<dyn Clock>,
}

/// Whether an answer's status is that of a server that is well.
pub(super) fn is_well(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}

/// Whether a failure is the server's: missing credentials of the kubelet are not.
pub(super) fn is_the_servers(error: &kube::Error) -> bool {
    let kube::Error::Service(error) = error else { return true };
    let ours = error.downcast_ref::<ConnectError>();
    ours.is_none_or(|error| matches!(error, ConnectError::Connection { .. }))
}

/// `wait`, stretched at random up to twice.
fn jittered(wait: Duration, clock: &dyn Clock) -> Duration {
    stretched(wait, 1.0, clock.random_u64())
}

impl ApiHealth {
    /// The knowledge about a server that was not asked yet; random numbers come from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Arc::new(Sender::new(State::default())), clock }
    }

    /// `wait`, stretched at random up to twice, so that waiting calls do not repeat in step.
    pub fn jittered(&self, wait: Duration) -> Duration {
        jittered(wait, &*self.clock)
    }

    /// Records that a server that is well has answered a call.
    pub fn answered(&self) {
        back(&self.state);
    }

    /// Records that a call got no answer, or the answer of a server that is not well; starts asking the server, unless
    /// that is under way.
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

    /// A wait for the server's return.
    pub fn recovery(&self) -> RecoveryWaiter {
        let heard = self.state.subscribe();
        let before = heard.borrow().back;
        RecoveryWaiter { heard, before }
    }
}

/// Waits for the server's return, counted from the time this was made.
pub(super) struct RecoveryWaiter {
    heard: Receiver<State>,
    before: u64,
}

impl RecoveryWaiter {
    /// Ends when a server that did not answer does so again. A server that fails only this caller's calls has not been
    /// away.
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

/// The server is being asked until this is dropped, whatever ends the asking.
struct Asking(Weak<Sender<State>>);

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(state) = self.0.upgrade() else { return };
        state.send_if_modified(|state| {
            state.asking = false;
            false
        });
    }
}

/// Asks until the server is well, another call was answered, or the last user of this knowledge has gone.
async fn ask(
    api_health: Weak<Sender<State>>,
    client: Client,
    redial: Vec<Arc<dyn Redial>>,
    clock: Arc<dyn Clock>,
) {
    let _asking = Asking(api_health.clone());
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
        let Some(state) = api_health.upgrade() else { return };
        let others_were_answered = !is_first && !state.borrow().silent;
        if well || others_were_answered {
            back(&state);
            return;
        }
        state.send_modify(|state| state.silent = true);
        drop(state);
        is_first = false;
        sleep(jittered(ASK_EVERY, &*clock).max(asked.unwrap_or_default())).await;
    }
}

/// What an answer says about the server.
enum Found {
    Well,
    /// The server is not well; with the time after which it wants to be asked again.
    Unwell(Option<Duration>),
}

async fn question(client: &Client) -> Found {
    let Ok(request) = Request::get(READY).body(Body::empty()) else { return Found::Unwell(None) };
    match client.send(request).await {
        Ok(answer) if is_well(answer.status()) => Found::Well,
        Ok(answer) => Found::Unwell(retry_after(answer.headers())),
        // The failure is the client's own.
        Err(error) if !is_the_servers(&error) => Found::Well,
        Err(_) => Found::Unwell(None),
    }
}
