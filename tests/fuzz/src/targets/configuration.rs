//! What the kubelet is configured by: command line, files, kubeconfigs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bridge_http::manifest_url::ManifestAddress;
use bridge_kube::{Kubeconfig, Pem};
use eviction_manager::Thresholds;
use kubelet::config::section::decode_object;
use kubelet::config::validation::{Host, parse_cpu_set, validate};
use kubelet::config::{FeatureGates, KubeletConfiguration, UnderstudyConfiguration};
use kubelet::flags::{self, KubeletFlags};
use pod_spec::quantity::Quantity;
use serde_json::{Map, Value};

/// The fields of a document, without kind and version.
fn fields(bytes: &[u8]) -> Option<Map<String, Value>> {
    let text = String::from_utf8_lossy(bytes);
    let Ok(Value::Object(mut fields)) = bridge_text::strict_value(&text) else { return None };
    fields.remove("kind");
    fields.remove("apiVersion");
    Some(fields)
}

/// A KubeletConfiguration.
pub fn kubelet_configuration(bytes: &[u8]) {
    let Some(fields) = fields(bytes) else { return };
    let mut errors = Vec::new();
    let config = KubeletConfiguration::from_object(fields, &mut errors);
    if !errors.is_empty() {
        return;
    }
    if let Ok(gates) = FeatureGates::from_settings(&config.process.feature_gates) {
        let _ = validate(&config, &gates, &Host { cgroup_v2: true });
    }
    // What is left out of the first text takes its default, as with a drop-in.
    let once = kubelet_configuration_again(&config);
    assert_eq!(kubelet_configuration_again(&once), once);
}

fn kubelet_configuration_again(config: &KubeletConfiguration) -> KubeletConfiguration {
    let mut errors = Vec::new();
    let again = KubeletConfiguration::from_object(config.to_object(), &mut errors);
    assert!(errors.is_empty(), "what was decoded is decoded again: {errors:?}");
    again
}

/// An UnderstudyConfiguration.
pub fn understudy_configuration(bytes: &[u8]) {
    let Some(fields) = fields(bytes) else { return };
    let mut errors = Vec::new();
    let decoded = decode_object::<UnderstudyConfiguration>(Value::Object(fields), "", &mut errors);
    let Some(config) = decoded.filter(|_| errors.is_empty()) else { return };
    let _ = (config.validate(), config.not_yet_away_from_default());
    let once = understudy_configuration_again(&config);
    assert_eq!(understudy_configuration_again(&once), once);
}

fn understudy_configuration_again(config: &UnderstudyConfiguration) -> UnderstudyConfiguration {
    let written = config.to_json().to_string();
    let fields = fields(written.as_bytes()).expect("it is an object");
    let mut errors = Vec::new();
    let again = decode_object::<UnderstudyConfiguration>(Value::Object(fields), "", &mut errors);
    assert!(errors.is_empty(), "what was decoded is decoded again: {errors:?}");
    again.expect("there are no errors")
}

/// A command line, a word in each line.
pub fn flags(bytes: &[u8]) {
    let words: Vec<String> = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    let Ok(parsed) = flags::parse(&words) else { return };
    let mut settings = flags::defaults();
    assert!(parsed.apply(&mut settings).is_ok(), "a flag that was read is read again");
    assert_eq!(settings, parsed.settings);
    let _ = flags::validate(&settings.flags);
    assert!(parsed.deprecations().count() <= bytes.len() && parsed.fields_set().count() <= bytes.len());
    let _ = parsed.flags_without_effect().count();
    for row in flags::rows() {
        let _ = row.value(&settings);
    }
}

/// A kubeconfig.
pub fn kubeconfig(bytes: &[u8]) {
    let path = Path::new("/etc/kubernetes/kubelet.conf");
    let Ok(config) = Kubeconfig::read(path, &String::from_utf8_lossy(bytes)) else { return };
    let _ = format!("{config:?}");
    let written = config.text_with(Path::new("/var/lib/kubelet/pki/pair.pem"));
    // A letter that no server, file or certificate has in its name may mean another in YAML than in JSON.
    if written.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)) {
        let again = Kubeconfig::read(path, &written).expect("what was written is read");
        let told = |one: &Kubeconfig| {
            let server = one.server.to_string().trim_end_matches('/').to_owned();
            let authority = one.certificate_authority.clone().filter(|pem| *pem != Pem::Inline(Vec::new()));
            (server, one.tls_server_name.clone(), authority)
        };
        assert_eq!(told(&again), told(&config));
    }
}

/// A file of credential providers.
pub fn credential_providers(bytes: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory for a file");
    let file = directory.path().join("providers.yaml");
    std::fs::write(&file, bytes).expect("a file");
    let flags = KubeletFlags {
        image_credential_provider_config: file.display().to_string(),
        image_credential_provider_bin_dir: directory.path().display().to_string(),
        ..KubeletFlags::default()
    };
    let gates = FeatureGates::from_settings(&BTreeMap::new()).expect("the defaults are right");
    let _ = kubelet::credential_providers::load(&flags, &gates);
}

/// Thresholds of eviction: an object of the four fields, of which each is an object of texts.
pub fn thresholds(bytes: &[u8]) {
    let read: Result<BTreeMap<String, BTreeMap<String, String>>, _> = serde_json::from_slice(bytes);
    let Ok(fields) = read else { return };
    let none = BTreeMap::new();
    let of = |name: &str| fields.get(name).unwrap_or(&none);
    let seconds = |text: &String| Duration::from_secs(text.parse().unwrap_or(1));
    let soft_grace: BTreeMap<String, Duration> =
        of("grace").iter().map(|(name, text)| (name.clone(), seconds(text))).collect();
    let thresholds = Thresholds {
        hard: of("hard"),
        soft: of("soft"),
        soft_grace: &soft_grace,
        min_reclaim: of("reclaim"),
        pods_enforced: true,
    };
    for threshold in thresholds.parse().into_iter().flatten() {
        let _ = threshold.value.of(Quantity::binary(u64::MAX));
        let _ = threshold.min_reclaim.map(|value| value.of(Quantity::binary(1 << 30)));
    }
}

/// A set of processors.
pub fn cpu_set(bytes: &[u8]) {
    let cpus = parse_cpu_set(&String::from_utf8_lossy(bytes));
    assert!(cpus.map_or(0, |cpus| cpus.len()) <= 65_536);
}

/// The URL of a manifest.
pub fn manifest_address(bytes: &[u8]) {
    let url = String::from_utf8_lossy(bytes);
    let Ok(address) = ManifestAddress::new(&url, &BTreeMap::new()) else { return };
    let shown = address.shown();
    let again = ManifestAddress::new(&shown, &BTreeMap::new()).expect("what is shown can be asked for");
    assert_eq!(again.shown(), shown);
}
