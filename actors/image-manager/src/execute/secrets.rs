//! Reads the secrets that a pod names for its pulls (row 6.5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::compute::{Compute, computed};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use messages::PodRef;
use messages::object_cache::GetSecret;
use supervision::AskPort;
use tokio::time::Instant;

use crate::actor::ImageManager;
use crate::credentials::{self, Credential, Keyring};

/// Longest wait for a secret; ObjectCache answers sooner.
const SECRET_DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait for all secrets of a pod: those that are not there by then are missing.
const SECRETS_WITHIN: Duration = Duration::from_secs(60);
/// The most secrets that are asked for at once: ObjectCache serves every pod.
const AT_ONCE: usize = 4;
/// The most bytes that a pod's secrets for pulls hold together: more than a hundred registries take.
const SECRETS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A pod's secrets.
#[derive(Debug)]
pub struct SecretsRead {
    /// What ObjectCache gave, or why that is too much.
    pub found: Result<Vec<Arc<Secret>>, String>,
    /// The names of the secrets that ObjectCache could not give.
    pub missing: Vec<String>,
}

/// Reads the secrets of these names.
pub async fn read(
    secrets: AskPort<ImageManager, GetSecret>,
    pod: PodRef,
    names: Arc<[Arc<str>]>,
) -> SecretsRead {
    let mut seen = BTreeSet::new();
    let asks: Vec<GetSecret> = names
        .iter()
        .filter(|name| seen.insert(Arc::clone(name)))
        .map(|name| GetSecret { pod: pod.uid.clone(), namespace: pod.namespace.clone(), name: name.clone() })
        .collect();
    let until = Instant::now() + SECRETS_WITHIN;
    let answers = asks.into_iter().map(|ask| {
        let (name, secrets) = (ask.name.clone(), secrets.clone());
        async move {
            if Instant::now() >= until {
                return (
                    name,
                    Err(format!("the pod's secrets for pulls took longer than {SECRETS_WITHIN:?}")),
                );
            }
            let answer = match secrets.ask(ask, SECRET_DEADLINE).await {
                Ok(Ok(secret)) => Ok(secret),
                Ok(Err(error)) => Err(error.message),
                Err(error) => Err(error.to_string()),
            };
            (name, answer)
        }
    });
    let mut answers = std::pin::pin!(stream::iter(answers).buffered(AT_ONCE));
    let mut read = SecretsRead { found: Ok(Vec::new()), missing: Vec::new() };
    let (mut left, mut problem) = (SECRETS_BYTES_MAX, None);
    while let Some((name, answer)) = answers.next().await {
        match answer {
            Ok(secret) => {
                let bytes = credentials::bytes(&secret);
                let Some(rest) = left.checked_sub(bytes) else {
                    read.found =
                        Err(format!("the pod's secrets for pulls hold more than {SECRETS_BYTES_MAX} bytes"));
                    break;
                };
                left = rest;
                read.found.iter_mut().for_each(|found| found.push(secret.clone()));
            }
            Err(error) => {
                problem.get_or_insert(error);
                read.missing.push(name.to_string());
            }
        }
    }
    if let Some(problem) = problem {
        let (missing, first) = (read.missing.len(), &read.missing[0]);
        tracing::warn!(problem, %pod, missing, first, "Secrets for pulls cannot be had");
    }
    read
}

/// The credentials of a pod's secrets that fit each of these repositories, or why a secret cannot be understood.
pub type Fitting = Result<BTreeMap<String, Arc<[Credential]>>, String>;

/// Parses a pod's secrets once, and finds what fits each of these repositories.
pub async fn fitting(
    compute: Arc<dyn Compute>,
    pod: PodRef,
    secrets: Vec<Arc<Secret>>,
    repositories: BTreeSet<String>,
) -> Fitting {
    let parse = move || {
        let mut keyring = Keyring::default();
        secrets.iter().try_for_each(|secret| credentials::add_secret(&mut keyring, secret))?;
        let fitting = |repository: String| {
            let found = keyring.lookup(&repository).into();
            (repository, found)
        };
        Ok(repositories.into_iter().map(fitting).collect())
    };
    computed(&compute, pod.uid.as_str(), parse).await.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::ByteString;
    use messages::PodUid;
    use supervision::fake::Received;

    use super::*;

    /// What comes of secrets of these names from this cache.
    async fn read_from(secrets: AskPort<ImageManager, GetSecret>, names: &[&str]) -> SecretsRead {
        let pod = PodRef { namespace: Arc::from("a"), name: Arc::from("b"), uid: PodUid::new("c") };
        read(secrets, pod, names.iter().map(|name| Arc::from(*name)).collect()).await
    }

    /// How many secrets of this size are had, and how often ObjectCache was asked.
    async fn read_of(names: &[&str], bytes: usize) -> (Result<usize, String>, usize) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let secrets = AskPort::answering("ObjectCache", move |ask: GetSecret| {
            counted.fetch_add(1, Ordering::Relaxed);
            let data = BTreeMap::from([(ask.name.to_string(), ByteString(vec![b' '; bytes]))]);
            Some(Ok(Arc::new(Secret { data: Some(data), ..Secret::default() })))
        });
        let read = read_from(secrets, names).await;
        (read.found.map(|found| found.len()), count.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn the_secrets_of_a_pod_have_a_bound_together() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        assert_eq!(read_of(&names[..7], 1 << 20).await, (Ok(7), 7));
        let error = "the pod's secrets for pulls hold more than 8388608 bytes".to_owned();
        assert_eq!(read_of(&names, 1 << 20).await, (Err(error), 8), "with its name the eighth is too much");
        let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (read, asked) = read_of(&many, 1 << 20).await;
        assert!(read.is_err() && asked < 20, "what comes too late is not asked for: {asked}");
    }

    #[tokio::test]
    async fn a_secret_that_is_named_often_is_read_once() {
        assert_eq!(read_of(&["key"; 1000], 1 << 20).await, (Ok(1), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn secrets_that_are_long_in_coming_hold_no_pull_up_for_long() {
        let names: Vec<String> = (0..1200).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let began = Instant::now();
        let silent = AskPort::scripted("ObjectCache", |_: GetSecret| Received::Kept);
        let read = read_from(silent, &names).await;
        assert_eq!((read.found, read.missing.len()), (Ok(Vec::new()), 1200));
        assert!(began.elapsed() <= SECRETS_WITHIN + SECRET_DEADLINE, "{:?}", began.elapsed());
    }
}
