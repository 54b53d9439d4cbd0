//! Nodes that have their certificates signed by the cluster.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bridge_kube::Select;
use bridge_tls::certificates::Pair;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node as NodeObject;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::process::eventually;

use crate::api::Api;
use crate::member::condition;
use crate::node::{LATER, Node, Options};
use crate::setting::Setting;

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A node that is no member yet.
struct Stranger {
    setting: Arc<Setting>,
    api: Api,
    node: Node,
    name: String,
    dir: TempDir,
}

impl Stranger {
    fn new(setting: &Arc<Setting>, kubelet: Value, flags: &[String]) -> Self {
        static NODES: AtomicU32 = AtomicU32::new(0);
        let name = format!("stranger-{}-{}", std::process::id(), NODES.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::Builder::new().prefix("understudy-").tempdir().expect("a temporary directory");
        let path = |file: &str| dir.path().join(file).display().to_string();
        fs::write(path("bootstrap.conf"), setting.control_plane("token", &[])).expect("written");
        let own = [
            format!("--kubeconfig={}", path("kubelet.conf")),
            format!("--bootstrap-kubeconfig={}", path("bootstrap.conf")),
            format!("--hostname-override={name}"),
            format!("--node-ip={}", setting.ip),
        ];
        let flags = own.iter().chain(flags).map(Into::into).collect();
        let options = Options { kubelet, name: Some(name.clone()), flags, ..Options::default() };
        let node = Node::prepare(&setting.runtime, "stranger", options);
        Self { setting: Arc::clone(setting), api: Api::new(&setting.admin), node, name, dir }
    }

    fn current(&self, whose: &str) -> PathBuf {
        self.node.notes("certificates").join(format!("{whose}-current.pem"))
    }

    /// The pair on disk, if there is one; it must be complete.
    fn pair(&self) -> Option<Pair> {
        let path = self.current("kubelet-client");
        let bytes = fs::read(&path).ok()?;
        Some(Pair::read(&bytes, &bytes, &path).unwrap_or_else(|error| panic!("{error}")))
    }

    /// The node's requests for certificates.
    fn requests(&self) -> Vec<Value> {
        let all = self.api.list::<CertificateSigningRequest>(&Select::default()).unwrap_or_default();
        all.into_iter().filter(|csr| csr["metadata"]["name"].as_str().is_some()).collect()
    }

    /// Signs all requests for so many seconds, until the Node is Ready.
    fn becomes_ready(&self, seconds: &str) {
        eventually("the Node is Ready", LATER, || {
            self.node.assert_alive();
            self.setting.control_plane("sign", &[seconds]);
            let object = self.api.get::<NodeObject>(None, &self.name)?.ok_or("no Node")?;
            match condition(&object, "Ready")["status"].as_str() {
                Some("True") => Ok(()),
                _ => Err(format!("{}\n{}", object["status"]["conditions"], self.node.log_tail())),
            }
        });
    }

    /// The log of a kubelet that ends by itself.
    fn last_words(&self) -> String {
        self.node.start_kubelet();
        assert!(!self.node.kubelet_ends().success(), "it ends with a failure");
        self.node.log()
    }
}

pub fn first(setting: &Arc<Setting>) {
    let stranger = Stranger::new(setting, json!({}), &[]);
    stranger.node.start_kubelet();
    let named = eventually("a request that has its key's name", LATER, || {
        let mut names = stranger.requests().into_iter().filter_map(|csr| {
            let name = csr["metadata"]["name"].as_str()?.to_owned();
            let open = csr["status"]["certificate"].is_null() && csr["status"]["conditions"].is_null();
            (name.starts_with("node-csr-") && open).then_some(name)
        });
        names.next().ok_or_else(|| stranger.node.log_tail())
    });
    // The kubelet is killed while it waits: the next one finds its request again.
    stranger.node.kill_kubelet();
    stranger.node.start_kubelet();
    stranger.becomes_ready("3600");
    let names: Vec<_> = stranger.requests();
    let same = names.iter().filter(|csr| csr["metadata"]["name"] == named.as_str()).count();
    let asked = stranger.node.log().matches("csr for this node already exists, reusing").count();
    assert_eq!((same, asked), (1, 1), "{}", stranger.node.log_tail());
    let kubeconfig = fs::read_to_string(stranger.dir.path().join("kubelet.conf")).expect("a kubeconfig");
    let current = stranger.current("kubelet-client");
    assert!(kubeconfig.contains("current-context: default-context"), "{kubeconfig}");
    assert!(kubeconfig.contains(&current.display().to_string()), "{kubeconfig}");
    let mode = fs::metadata(&current).expect("a pair").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!stranger.node.notes("certificates/kubelet-client.key.tmp").exists());
    let leaf = stranger.pair().expect("a pair").leaf;
    assert_eq!(leaf.common_name, format!("system:node:{}", stranger.name));
    // The next kubelet requests nothing.
    let asked = stranger.requests().len();
    stranger.node.terminate_kubelet();
    fs::remove_file(stranger.dir.path().join("bootstrap.conf")).expect("there");
    stranger.node.start_kubelet();
    stranger.becomes_ready("3600");
    assert_eq!(stranger.requests().len(), asked);
}

pub fn rotating(setting: &Arc<Setting>) {
    let kubelet = json!({"rotateCertificates": true, "serverTLSBootstrap": true});
    let stranger = Stranger::new(setting, kubelet, &[]);
    stranger.node.start_kubelet();
    stranger.becomes_ready("90");
    let first = stranger.pair().expect("a pair").leaf;
    eventually("a serving certificate with the node's address", LATER, || {
        stranger.setting.control_plane("sign", &["90"]);
        let path = stranger.current("kubelet-server");
        let bytes = fs::read(&path).map_err(|error| error.to_string())?;
        let leaf = Pair::read(&bytes, &bytes, &path).expect("it is whole").leaf;
        if leaf.ips.contains(&stranger.setting.ip) { Ok(()) } else { Err(format!("{leaf:?}")) }
    });
    let left = stranger.node.metric("kubelet_certificate_manager_client_ttl_seconds").expect("a metric");
    assert!(left < 100.0, "{left}");
    // A kubelet that runs on renews both.
    let pid = stranger.node.kubelet_pid();
    eventually("both certificates are renewed", LATER, || {
        stranger.setting.control_plane("sign", &["600"]);
        let rotated = stranger.node.metric("kubelet_certificate_manager_server_rotation_seconds_count")?;
        let now = stranger.pair().expect("a pair").leaf.not_before;
        if now > first.not_before && rotated > 0.0 {
            Ok(())
        } else {
            Err(format!("{now} after {}, {rotated}", first.not_before))
        }
    });
    assert_eq!(stranger.node.kubelet_pid(), pid);
    stranger.becomes_ready("600");
}

pub fn killed(setting: &Arc<Setting>) {
    let kubelet = json!({"rotateCertificates": true});
    let stranger = Stranger::new(setting, kubelet, &[]);
    stranger.node.start_kubelet();
    eventually("the first certificate", LATER, || {
        stranger.setting.control_plane("sign", &["20"]);
        stranger.pair().map(drop).ok_or_else(|| stranger.node.log_tail())
    });
    let (mut seen, begun, over) = (BTreeSet::new(), Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // The thread ends however the checks below end.
        let _guard = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                stranger.setting.control_plane("sign", &["20"]);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let mut round = 0;
        while seen.len() < 4 {
            assert!(begun.elapsed() < LATER, "{seen:?}\n{}", stranger.node.log_tail());
            // A different moment in each round; the pair is checked all the while.
            let end = Instant::now() + Duration::from_millis(500 + 1500 * (round % 6));
            while Instant::now() < end {
                seen.insert(stranger.pair().expect("there is always a pair").leaf.not_before);
                std::thread::sleep(Duration::from_millis(2));
            }
            stranger.node.kill_kubelet();
            seen.insert(stranger.pair().expect("there is always a pair").leaf.not_before);
            stranger.node.start_kubelet();
            round += 1;
        }
    });
    // On a busy machine a certificate of 20 s may end before it is renewed: then the kubelet ends, and the next one asks anew.
    eventually("a certificate that lasts", LATER, || {
        if stranger.node.has_died() {
            assert!(stranger.node.log_tail().contains("expired"), "{}", stranger.node.log_tail());
            stranger.node.start_kubelet();
        }
        stranger.setting.control_plane("sign", &["600"]);
        let leaf = stranger.pair().expect("there is always a pair").leaf;
        let seconds = leaf.not_after.duration_since(leaf.not_before).as_secs();
        (seconds > 100).then_some(()).ok_or_else(|| format!("{seconds} s"))
    });
    stranger.becomes_ready("600");
}

pub fn refused(setting: &Arc<Setting>) {
    let stranger = Stranger::new(setting, json!({}), &[]);
    stranger.node.start_kubelet();
    eventually("the request is denied", LATER, || {
        stranger.setting.control_plane("deny", &[]);
        if stranger.node.has_died() { Ok(()) } else { Err(stranger.node.log_tail()) }
    });
    let said = "cannot watch on the certificate signing request: certificate signing request is denied, reason: \
                Harness, message: denied by the test harness";
    assert!(stranger.node.log().contains(said), "{}", stranger.node.log_tail());
    assert!(!stranger.dir.path().join("kubelet.conf").exists(), "no kubeconfig without a certificate");
}

pub fn wrong(setting: &Arc<Setting>) {
    let stranger = Stranger::new(setting, json!({}), &["--bootstrap-kubeconfig=".to_owned()]);
    let said = stranger.last_words();
    assert!(
        said.contains("there is no --bootstrap-kubeconfig to ask for a first certificate with"),
        "{said}"
    );
    assert!(said.contains("kubelet.conf") && said.contains("No such file"), "{said}");
    let stranger = Stranger::new(setting, json!({}), &["--bootstrap-kubeconfig=/no/such.conf".to_owned()]);
    let said = stranger.last_words();
    assert!(said.contains("--bootstrap-kubeconfig /no/such.conf") && said.contains("No such file"), "{said}");
    let stranger = Stranger::new(setting, json!({}), &[]);
    let bootstrap = stranger.dir.path().join("bootstrap.conf");
    let text = fs::read_to_string(&bootstrap).expect("a kubeconfig");
    let token = text.lines().find(|line| line.contains("token:")).expect("a token");
    fs::write(&bootstrap, text.replace(token, "    token: abcdef.0123456789abcdef")).expect("written");
    // kube-apiserver closes a connection without a known user (UnauthenticatedHTTP2DOSMitigation), at times before its
    // answer has been read. The kubelet ends in both cases, and is started again as systemd would start it.
    let closed =
        |said: &String| said.contains("http2 error: connection error received: not a result of an error");
    let said = std::iter::repeat_with(|| stranger.last_words()).take(5).find(|said| !closed(said));
    let said = said.expect("the answer is read sooner or later");
    assert!(
        said.contains("cannot create certificate signing request: ") && said.contains("Unauthorized"),
        "{said}"
    );
    let file = stranger.dir.path().join("a-file");
    fs::write(&file, "").expect("written");
    let stranger = Stranger::new(setting, json!({}), &[format!("--cert-dir={}/pki", file.display())]);
    let said = stranger.last_words();
    assert!(said.contains("a-file/pki") && said.contains("Not a directory"), "{said}");
}
