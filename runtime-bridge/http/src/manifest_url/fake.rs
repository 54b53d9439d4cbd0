use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{ManifestUrl, ManifestUrlError};

/// A manifest that a test scripts. Clones share it.
#[derive(Debug, Clone)]
pub struct FakeManifestUrl {
    url: String,
    server: Arc<Mutex<Server>>,
}

#[derive(Debug)]
struct Server {
    answer: Result<Vec<u8>, ManifestUrlError>,
    gets: u64,
}

impl FakeManifestUrl {
    /// A server at `url` that refuses connections until it is told to serve.
    pub fn new(url: &str) -> Self {
        let answer = Err(refused(url));
        Self { url: url.to_owned(), server: Arc::new(Mutex::new(Server { answer, gets: 0 })) }
    }

    /// Answers with this body from now on.
    pub fn serve(&self, body: &str) {
        self.locked().answer = Ok(body.as_bytes().to_vec());
    }

    /// Answers with this status instead of a manifest from now on.
    pub fn fail(&self, status: &str) {
        self.locked().answer =
            Err(ManifestUrlError::Status { url: self.url.clone(), status: status.to_owned() });
    }

    /// Refuses connections from now on.
    pub fn stop(&self) {
        self.locked().answer = Err(refused(&self.url));
    }

    /// The number of requests so far.
    pub fn gets(&self) -> u64 {
        self.locked().gets
    }

    fn locked(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no code panics while it holds this lock")
    }
}

fn refused(url: &str) -> ManifestUrlError {
    let reason = "dial tcp: connect: connection refused".to_owned();
    ManifestUrlError::Failed { url: url.to_owned(), reason }
}

impl ManifestUrl for FakeManifestUrl {
    fn shown(&self) -> String {
        self.url.clone()
    }

    fn get(&self) -> BoxFuture<'static, Result<Vec<u8>, ManifestUrlError>> {
        let mut server = self.locked();
        server.gets += 1;
        std::future::ready(server.answer.clone()).boxed()
    }
}
