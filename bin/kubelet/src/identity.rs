//! The kubelet's identity towards its cluster: that of a kubeconfig, that of a first certificate requested with a
//! bootstrap kubeconfig, or certificates that are renewed while the kubelet runs (rows 20.2, 20.3).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_kube::{
    ApiClient, FileIdentity, IdentitySource, Kubeconfig, PairIdentity, ProgramMetrics, RateLimit,
    request_certificate, wait_for_certificate,
};
use bridge_tls::certificates::{
    CertificateStore, CurrentPair, DirCertificates, KeyPem, Names, Pair, Purpose, Subject,
};

use crate::api_client::connect_settings;
use crate::load::Loaded;

/// The most bytes of a kubeconfig.
const KUBECONFIG_BYTES_MAX: u64 = 1024 * 1024;
/// The longest time of a call about certificates.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// How long a kubelet without a certificate waits for the API server before it asks anyway.
const SERVER_WITHIN: Duration = Duration::from_secs(60);
/// How long a kubelet waits for its first certificate.
const SIGNED_WITHIN: Duration = Duration::from_secs(3600);
/// The file with the key of a request that is not signed yet.
const KEY_FILE: &str = "kubelet-client.key.tmp";
const UNLIMITED: RateLimit = RateLimit { per_second: 0.0, burst: 1 };

/// The inputs of the identity, from flags and configuration.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap: Option<PathBuf>,
    /// `--cert-dir`.
    pub directory: PathBuf,
    /// `rotateCertificates`.
    pub rotate: bool,
    /// The node's name.
    pub node: String,
    /// The I/O runtime for calls to the API server.
    pub io: Io,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The metrics of a kubeconfig's program.
    pub programs: ProgramMetrics,
}

/// The kubelet's identity, and the server that it is for.
pub struct Identified {
    /// The server.
    pub kubeconfig: Kubeconfig,
    /// The source of the identity at the moment.
    pub source: Arc<dyn IdentitySource>,
    /// The client certificate that CertificateManager renews, if there is one.
    pub renewed: Option<Renewed>,
}

/// A client certificate that is renewed.
pub struct Renewed {
    /// The store of its pairs.
    pub store: Arc<dyn CertificateStore>,
    /// The pair in use.
    pub current: CurrentPair,
    /// The client that requests a certificate while there is no valid one.
    pub bootstrap: Option<ApiClient>,
}

/// The inputs from flags and configuration; `None` without `--kubeconfig`.
pub fn wanted(
    loaded: &Loaded,
    node: &str,
    io: &Io,
    clock: Arc<dyn Clock>,
    programs: &ProgramMetrics,
) -> Option<Wanted> {
    let flags = &loaded.flags;
    let path = |text: &String| Some(text).filter(|text| !text.is_empty()).map(PathBuf::from);
    let Some(kubeconfig) = path(&flags.kubeconfig) else {
        if !flags.bootstrap_kubeconfig.is_empty() {
            tracing::warn!(
                "--bootstrap-kubeconfig has no effect without --kubeconfig: the kubelet runs standalone"
            );
        }
        return None;
    };
    Some(Wanted {
        kubeconfig,
        bootstrap: path(&flags.bootstrap_kubeconfig),
        directory: PathBuf::from(&flags.cert_dir),
        rotate: loaded.config.server.rotate_certificates,
        node: node.to_owned(),
        io: io.clone(),
        clock,
        programs: programs.clone(),
    })
}

fn text(flag: &str, path: &Path) -> anyhow::Result<String> {
    use std::io::Read;
    let named = || format!("{flag} {}", path.display());
    let file = std::fs::File::open(path).with_context(named)?;
    let mut text = String::new();
    file.take(KUBECONFIG_BYTES_MAX).read_to_string(&mut text).with_context(named)?;
    Ok(text)
}

fn read(flag: &'static str, path: &Path) -> anyhow::Result<Kubeconfig> {
    Kubeconfig::read(path, &text(flag, path)?).context(flag)
}

/// A client with the identity of a kubeconfig.
fn client(kubeconfig: &Kubeconfig, io: &Io) -> anyhow::Result<ApiClient> {
    let identity = Arc::new(FileIdentity::new(kubeconfig.user.clone()));
    let settings = connect_settings(identity, kubeconfig.clone());
    Ok(ApiClient::connected(&settings, io, UNLIMITED, CALL_DEADLINE)?)
}

impl Wanted {
    fn store(&self, first: Option<(PathBuf, PathBuf)>) -> DirCertificates {
        DirCertificates::new(self.io.clone(), &self.directory, Purpose::Client.prefix(), first)
    }

    fn subject(&self) -> Subject {
        Subject::node(&self.node, Names::default())
    }

    /// Whether the kubeconfig exists with a client certificate that can be used.
    fn is_still_valid(&self) -> anyhow::Result<bool> {
        let path = &self.kubeconfig;
        let there = path.try_exists();
        if !there
            .with_context(|| format!("error reading existing bootstrap kubeconfig {}", path.display()))?
        {
            return Ok(false);
        }
        let usable = || -> anyhow::Result<()> {
            let kubeconfig = read("--kubeconfig", path)?;
            // Checks the authorities and everything else that a connection needs.
            client(&kubeconfig, &self.io)?;
            let pair = kubeconfig.client_pair()?.context("it names no client certificate")?;
            if self.clock.now() > pair.first_end {
                bail!("part of the existing bootstrap client certificate is expired: {}", pair.first_end);
            }
            Ok(())
        };
        let usable = usable();
        if let Err(error) = &usable {
            tracing::error!(
                path = %path.display(), err = format!("{error:#}"),
                "The existing kubeconfig cannot be used; a certificate is asked for with the bootstrap kubeconfig"
            );
        }
        Ok(usable.is_ok())
    }

    /// Finds the kubelet's identity. Without rotation this lasts until the first certificate is signed.
    ///
    /// # Errors
    /// A kubeconfig cannot be used, or no certificate can be had.
    pub async fn identify(self) -> anyhow::Result<Identified> {
        let Some(bootstrap) = &self.bootstrap else {
            return self.as_it_is().await;
        };
        if self.is_still_valid()? {
            tracing::info!("Current kubeconfig file contents are still valid, no bootstrap necessary");
            return self.as_it_is().await;
        }
        let by = read("--bootstrap-kubeconfig", bootstrap)?;
        if !self.rotate {
            self.first_certificate(&by).await?;
            return self.as_it_is().await;
        }
        // The kubeconfig is written first: it names the certificate's link, which leads to the certificate as soon as
        // there is one.
        by.write_with(&self.store(None).current_path(), &self.kubeconfig)?;
        tracing::info!(
            "Use the bootstrap credentials to request a cert, and set kubeconfig to point to the certificate dir"
        );
        let kubeconfig = read("--kubeconfig", &self.kubeconfig)?;
        self.renewed(kubeconfig, &by, true).await
    }

    async fn as_it_is(&self) -> anyhow::Result<Identified> {
        let missing = self.bootstrap.is_none() && !self.kubeconfig.exists();
        let kubeconfig = read("--kubeconfig", &self.kubeconfig);
        let kubeconfig = if missing {
            kubeconfig.context("there is no --bootstrap-kubeconfig to ask for a first certificate with")?
        } else {
            kubeconfig?
        };
        if self.rotate {
            let by = kubeconfig.clone();
            return self.renewed(kubeconfig, &by, false).await;
        }
        let source = Arc::new(FileIdentity::new(kubeconfig.user.clone()).counted(&self.programs));
        Ok(Identified { kubeconfig, source, renewed: None })
    }

    /// The identity of renewed certificates; `by` requests them while there is none.
    async fn renewed(
        &self,
        kubeconfig: Kubeconfig,
        by: &Kubeconfig,
        bootstrapping: bool,
    ) -> anyhow::Result<Identified> {
        tracing::info!("Client rotation is on, will bootstrap in background");
        let files =
            kubeconfig.client_files().map(|(certificate, key)| (certificate.to_owned(), key.to_owned()));
        let store = Arc::new(self.store(files));
        let now = self.clock.now();
        let kept = match store.load(now).await {
            Ok(kept) => kept,
            Err(error) if bootstrapping => {
                tracing::error!(%error, "The client certificate cannot be used; another one is asked for");
                None
            }
            Err(error) => return Err(error).context("failed to initialize client certificate store"),
        };
        let current = CurrentPair::default();
        match kept {
            Some(pair) if !pair.is_expired(now) => current.show(Some(pair), false),
            kept => {
                if let Some(expired) = kept {
                    tracing::error!(end = %expired.leaf.not_after, "The client certificate has expired");
                }
                if let Some(pair) = self.seed(&kubeconfig, &store).await? {
                    current.show(Some(pair), true);
                }
            }
        }
        let bootstrap = match client(by, &self.io) {
            Ok(client) => Some(client),
            Err(error) if current.get().is_some() => {
                tracing::warn!(
                    err = format!("{error:#}"),
                    "Without a valid certificate there will be no way to ask for one"
                );
                None
            }
            Err(error) => {
                let flag = if bootstrapping { "--bootstrap-kubeconfig" } else { "--kubeconfig" };
                return Err(error.context(flag));
            }
        };
        let source = Arc::new(PairIdentity::new(current.clone()));
        Ok(Identified { kubeconfig, source, renewed: Some(Renewed { store, current, bootstrap }) })
    }

    /// Saves the pair of the kubeconfig itself, as control planes are given it; it is used at first and replaced soon.
    async fn seed(
        &self,
        kubeconfig: &Kubeconfig,
        store: &DirCertificates,
    ) -> anyhow::Result<Option<Arc<Pair>>> {
        if kubeconfig.client_files().is_some() {
            return Ok(None);
        }
        let Some((certificate, key, named)) = kubeconfig.client_pem().context("--kubeconfig")? else {
            return Ok(None);
        };
        let pair = Pair::read(&certificate, key.text().as_bytes(), &named).context("--kubeconfig")?;
        let now = self.clock.now();
        if pair.is_expired(now) {
            tracing::error!(end = %pair.leaf.not_after, "The client certificate of --kubeconfig has expired");
            return Ok(None);
        }
        if let Err(error) = store.save(&certificate, &key, now).await {
            tracing::error!(%error, "Unable to set the cert/key pair to the bootstrap certificate");
        }
        Ok(Some(Arc::new(pair)))
    }

    /// Requests a certificate, waits for it, and writes a kubeconfig that names it.
    async fn first_certificate(&self, by: &Kubeconfig) -> anyhow::Result<()> {
        tracing::info!("Using bootstrap kubeconfig to generate TLS client cert, key and kubeconfig file");
        let api = client(by, &self.io).context("--bootstrap-kubeconfig")?;
        let store = self.store(None);
        let kept = store.load(self.clock.now()).await.ok().flatten();
        let key_file = self.directory.join(KEY_FILE);
        let key = match kept.and_then(|pair| KeyPem::of(&pair).ok()) {
            Some(key) => key,
            // With the same key, the request of an earlier kubelet is found again.
            None => KeyPem::of_file(&key_file)?,
        };
        self.wait_for_server(&api).await;
        let subject = self.subject();
        let name = key.request_name(&subject, &Purpose::Client.usages())?;
        let requested = request_certificate(&api, &key, &subject, Purpose::Client, Some(&name)).await?;
        tracing::info!(csr = requested.name, "Waiting for client certificate to be issued");
        let signed = tokio::time::timeout(SIGNED_WITHIN, wait_for_certificate(&api, &requested)).await;
        let signed = signed.map_err(|_| {
            anyhow!("certificate signing request {:?}: timed out waiting for the condition", requested.name)
        })??;
        store.save(&signed, &key, self.clock.now()).await?;
        if let Err(error) = std::fs::remove_file(&key_file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %key_file.display(), "Failed cleaning up private key file");
        }
        by.write_with(&store.current_path(), &self.kubeconfig)?;
        Ok(())
    }

    async fn wait_for_server(&self, api: &ApiClient) {
        let api = api.with_deadline(Duration::from_secs(1));
        let up = async {
            while let Err(error) = api.healthz().await {
                if error.is_unauthorized() || error.is_forbidden() {
                    // The server is up; a refusal will be reported by the next call.
                    return;
                }
                tracing::info!(%error, "Failed to connect to apiserver");
                tokio::time::sleep(Duration::from_millis(2000 + self.clock.random_u64() % 400)).await;
            }
        };
        if tokio::time::timeout(SERVER_WITHIN, up).await.is_err() {
            tracing::warn!(
                err = "timed out waiting to connect to apiserver",
                "Error waiting for apiserver to come up"
            );
        }
    }
}
