use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{ManifestUrl, ManifestUrlError};

/// A manifest that exists in scripts only. Clones share it.
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
    /// A server at `url` that nobody has started yet.
    pub fn new(url: &str) -> Self {
        let answer = Err(refused(url));
        Self { url: url.to_owned(), server: Arc::new(Mutex::new(Server { answer, gets: 0 })) }
    }

    /// From now on it answers with this body.
    pub fn serve(&self, body: &str) {
        self.locked().answer = Ok(body.as_bytes().to_vec());
    }

    /// From now on it answers with this status instead of a manifest.
    pub fn fail(&self, status: &str) {
        self.locked().answer =
            Err(ManifestUrlError::Status { url: self.url.clone(), status: status.to_owned() });
    }

    /// From now on nobody listens.
    pub fn stop(&self) {
        self.locked().answer = Err(refused(&self.url));
    }

    /// How often it was asked.
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
