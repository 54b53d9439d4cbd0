//! Reads the secrets that a pod names for its pulls (row 6.5).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::compute::{Compute, computed};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use messages::PodRef;
use messages::object_cache::GetSecret;
use supervision::AskPort;

use crate::actor::ImageManager;
use crate::credentials::{self, Credential, Keyring};

/// Longest wait for a secret; ObjectCache answers sooner.
const SECRET_DEADLINE: Duration = Duration::from_secs(10);
/// The most secrets that are asked for at once: ObjectCache serves every pod.
const AT_ONCE: usize = 4;
/// The most bytes that a pod's secrets for pulls hold together: more than a hundred registries take.
const SECRETS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The credentials of a pod's secrets.
#[derive(Debug)]
pub struct SecretsRead {
    /// The credentials that fit the image, or why the secrets cannot be understood.
    pub credentials: Result<Arc<[Credential]>, String>,
    /// The names of the secrets that ObjectCache could not give.
    pub missing: Vec<String>,
}

/// Reads the secrets of these names, and finds what fits the repository.
pub async fn read(
    secrets: AskPort<ImageManager, GetSecret>,
    compute: Arc<dyn Compute>,
    pod: PodRef,
    names: Arc<[Arc<str>]>,
    repository: String,
) -> SecretsRead {
    let mut seen = BTreeSet::new();
    let asks: Vec<GetSecret> = names
        .iter()
        .filter(|name| seen.insert(Arc::clone(name)))
        .map(|name| GetSecret { pod: pod.uid.clone(), namespace: pod.namespace.clone(), name: name.clone() })
        .collect();
    let answers = asks.into_iter().map(|ask| {
        let (name, answer) = (ask.name.clone(), secrets.ask(ask, SECRET_DEADLINE));
        async move { (name, answer.await) }
    });
    let mut answers = std::pin::pin!(stream::iter(answers).buffered(AT_ONCE));
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let mut left = Some(SECRETS_BYTES_MAX);
    while let Some((name, answer)) = answers.next().await {
        let problem = match answer {
            Ok(Ok(secret)) => {
                left = left.and_then(|left| left.checked_sub(credentials::bytes(&secret)));
                // What is not kept is not parsed: the answer is an error then.
                found.extend(left.map(|_| secret));
                continue;
            }
            Ok(Err(error)) => error.message,
            Err(error) => error.to_string(),
        };
        tracing::warn!(problem, %pod, %name, "A secret for pulls cannot be had");
        missing.push(name.to_string());
    }
    let credentials = match left {
        Some(_) => computed(&compute, pod.uid.as_str(), move || fitting(&found, &repository))
            .await
            .unwrap_or_else(|error| Err(error.to_string())),
        None => Err(format!("the pod's secrets for pulls hold more than {SECRETS_BYTES_MAX} bytes")),
    };
    SecretsRead { credentials, missing }
}

fn fitting(secrets: &[Arc<Secret>], repository: &str) -> Result<Arc<[Credential]>, String> {
    let mut keyring = Keyring::default();
    secrets.iter().try_for_each(|secret| credentials::add_secret(&mut keyring, secret))?;
    Ok(keyring.lookup(repository).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bridge_io::compute::Inline;
    use k8s_openapi::ByteString;
    use messages::PodUid;

    use super::*;

    /// What comes of secrets of this size, and how often ObjectCache was asked.
    async fn read_of(names: &[&str], bytes: usize) -> (Result<usize, String>, usize) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let asked = AskPort::answering("ObjectCache", move |ask: GetSecret| {
            counted.fetch_add(1, Ordering::Relaxed);
            let data = BTreeMap::from([(ask.name.to_string(), ByteString(vec![b' '; bytes]))]);
            Some(Ok(Arc::new(Secret { data: Some(data), ..Secret::default() })))
        });
        let pod = PodRef { namespace: Arc::from("a"), name: Arc::from("b"), uid: PodUid::new("c") };
        let names = names.iter().map(|name| Arc::from(*name)).collect();
        let read = read(asked, Arc::new(Inline), pod, names, "example.org/image".to_owned()).await;
        (read.credentials.map(|found| found.len()), count.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn the_secrets_of_a_pod_have_a_bound_together() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        assert_eq!(read_of(&names[..7], 1 << 20).await, (Ok(0), 7));
        let error = "the pod's secrets for pulls hold more than 8388608 bytes".to_owned();
        assert_eq!(read_of(&names, 1 << 20).await, (Err(error), 9));
    }

    #[tokio::test]
    async fn a_secret_that_is_named_often_is_read_once() {
        assert_eq!(read_of(&["key"; 1000], 1 << 20).await, (Ok(0), 1));
    }
}
