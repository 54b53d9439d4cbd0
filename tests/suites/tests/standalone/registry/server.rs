//! Debian's registry on the loopback address, with images made for one test.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use testkit::process::{eventually, free_ports};

use super::http;
use crate::environment::Environment;
use crate::node::SOON;

/// The user and the password of a private registry.
pub const USER: &str = "understudy";
pub const PASSWORD: &str = "open sesame";
/// The password in htpasswd's form, which here has to be bcrypt.
const PASSWORD_HASH: &str = "$2y$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A registry, which ends with its child process.
pub struct Registry {
    pub port: u16,
    credentials: Option<String>,
    child: Child,
    dir: TempDir,
}

/// An image in a registry.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// `<repository>:<tag>`, without the registry.
    pub name: String,
    /// The digest of its manifest.
    pub digest: String,
    /// The digest of its one layer that no other image has.
    pub layer: String,
}

impl Pushed {
    /// The image's name in pods, for the registry at this port.
    pub fn at(&self, port: u16) -> String {
        format!("127.0.0.1:{port}/{}", self.name)
    }
}

/// An auth entry of Docker's files.
pub fn basic(user: &str, password: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
}

impl Registry {
    /// A registry without credentials.
    pub fn open(environment: &Environment) -> Self {
        Self::start(environment, None)
    }

    /// A registry that needs the credentials of [`USER`].
    pub fn private(environment: &Environment) -> Self {
        Self::start(environment, Some(basic(USER, PASSWORD)))
    }

    fn start(environment: &Environment, credentials: Option<String>) -> Self {
        // A port that was free may be taken before the registry has it: then the registry ends, and another one is
        // tried.
        let started = (0..5).find_map(|_| Self::try_start(credentials.clone()));
        let registry = started.expect("a registry starts");
        registry.push_base(environment);
        registry
    }

    fn try_start(credentials: Option<String>) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("understudy-registry-").tempdir().expect("a directory");
        let [port] = free_ports();
        let path = dir.path();
        let mut config = json!({
            "version": "0.1",
            "log": {"accesslog": {"disabled": true}, "level": "warn"},
            "storage": {"filesystem": {"rootdirectory": path.join("data")}},
            "http": {"addr": format!("127.0.0.1:{port}"), "secret": "of this test"},
        });
        if credentials.is_some() {
            fs::write(path.join("htpasswd"), format!("{USER}:{PASSWORD_HASH}\n")).expect("a file");
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": path.join("htpasswd")}});
        }
        // JSON is YAML.
        fs::write(path.join("config.yml"), config.to_string()).expect("a file");
        let log = File::create(path.join("log")).expect("a file");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(path.join("config.yml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("docker-registry is installed: tests/env/install-runtime --tests does that");
        let mut registry = Self { port, credentials, child, dir };
        let answers = eventually("the registry answers or ends", SOON, || {
            if registry.child.try_wait().expect("a child of ours can be waited for").is_some() {
                return Ok(false);
            }
            let (status, _, _) = http::ask(port, "GET", "/v2/", &[], b"")?;
            if matches!(status, 200 | 401) { Ok(true) } else { Err(format!("status {status}")) }
        });
        if !answers {
            eprintln!("{}", fs::read_to_string(registry.dir.path().join("log")).unwrap_or_default());
        }
        answers.then_some(registry)
    }

    /// Pushes the image that the runtime has as `base:1`; the other images are made from it.
    fn push_base(&self, environment: &Environment) {
        let ctr = std::env::var("UNDERSTUDY_CTR").unwrap_or_else(|_| "ctr".to_owned());
        let remote = format!("127.0.0.1:{}/base:1", self.port);
        let mut command = Command::new(ctr);
        command.args(["-a", &environment.socket, "-n", "k8s.io", "images", "push", "--plain-http"]);
        if self.credentials.is_some() {
            command.args(["--user", &format!("{USER}:{PASSWORD}")]);
        }
        let output = command.args([&remote, &environment.image]).output().expect("ctr can be run");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn ask(&self, method: &str, target: &str, kind: &str, body: &[u8]) -> (u16, http::Head, Vec<u8>) {
        let mut fields = vec![("Accept", MANIFEST.to_owned()), ("Content-Type", kind.to_owned())];
        fields.extend(self.credentials.iter().map(|auth| ("Authorization", format!("Basic {auth}"))));
        http::ask(self.port, method, target, &fields, body).expect("the registry answers")
    }

    fn push_blob(&self, repository: &str, blob: &[u8]) -> String {
        let digest = digest(blob);
        let (status, head, _) = self.ask("POST", &format!("/v2/{repository}/blobs/uploads/"), "", b"");
        assert_eq!(status, 202, "{head:?}");
        let place = head.field("location").expect("where to upload to");
        let place = place.split_once("//").map_or(place, |(_, rest)| &rest[rest.find('/').unwrap_or(0)..]);
        let joint = if place.contains('?') { '&' } else { '?' };
        let (status, head, body) =
            self.ask("PUT", &format!("{place}{joint}digest={digest}"), "application/octet-stream", blob);
        assert_eq!(status, 201, "{head:?} {}", String::from_utf8_lossy(&body));
        digest
    }

    /// Pushes an image that runs like the base, with a layer of so many bytes of its own.
    pub fn push(&self, name: &str, bytes: usize) -> Pushed {
        self.push_layer(name, &layer(bytes), 0)
    }

    /// As [`Self::push`] with this layer, whose size is overstated in the manifest.
    pub fn push_layer(&self, name: &str, layer: &[u8], overstated: usize) -> Pushed {
        let (repository, tag) = name.split_once(':').expect("a name with a tag");
        let (status, _, base) = self.ask("GET", "/v2/base/manifests/1", "", b"");
        assert_eq!(status, 200, "the base is there");
        let mut manifest: Value = serde_json::from_slice(&base).expect("a manifest");
        let config = manifest["config"]["digest"].as_str().expect("a digest").to_owned();
        let (_, _, config) = self.ask("GET", &format!("/v2/base/blobs/{config}"), "", b"");
        let mut config: Value = serde_json::from_slice(&config).expect("an image configuration");
        let layers = manifest["layers"].as_array_mut().expect("layers");
        for below in layers.iter() {
            let below = below["digest"].as_str().expect("a digest");
            let target = format!("/v2/{repository}/blobs/uploads/?mount={below}&from=base");
            assert_eq!(self.ask("POST", &target, "", b"").0, 201, "{below} is taken over");
        }
        let layer_digest = self.push_blob(repository, layer);
        layers.push(json!({"mediaType": LAYER, "digest": layer_digest, "size": layer.len() + overstated}));
        config["rootfs"]["diff_ids"].as_array_mut().expect("layers").push(json!(layer_digest));
        let config = config.to_string();
        manifest["mediaType"] = json!(MANIFEST);
        manifest["config"] = json!({
            "mediaType": CONFIG,
            "digest": self.push_blob(repository, config.as_bytes()),
            "size": config.len(),
        });
        let manifest = manifest.to_string();
        let target = format!("/v2/{repository}/manifests/{tag}");
        let (status, _, body) = self.ask("PUT", &target, MANIFEST, manifest.as_bytes());
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&body));
        Pushed { name: name.to_owned(), digest: digest(manifest.as_bytes()), layer: layer_digest }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _status = self.child.wait();
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A tar archive of one file with so many bytes, unlike any other archive.
pub fn layer(bytes: usize) -> Vec<u8> {
    static LAYERS: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let mut state = u64::try_from(now & u128::from(u64::MAX)).expect("cut")
        ^ LAYERS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        | 1;
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, "filler");
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, "00000000000\0");
    // The checksum is computed with spaces in its own place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = header.to_vec();
    tar.extend(
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .take(bytes),
    );
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar
}
