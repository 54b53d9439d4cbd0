use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

const WHOLE: &str = "
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: plugin
  matchImages: ['*.dkr.ecr.*.amazonaws.com', registry.io:8080/path]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get-credentials]
  env:
  - {name: PROFILE, value: hush}
  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [domain.io/Identity]
    optionalServiceAccountAnnotationKeys: [domain.io/more]
";

/// A directory of programs, with two plugins, and one of configurations.
struct Node {
    programs: TempDir,
    configs: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { programs: TempDir::new().unwrap(), configs: TempDir::new().unwrap() };
        for name in ["plugin", "other"] {
            let file = node.programs.path().join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        node
    }

    fn write(&self, name: &str, text: &str) -> String {
        let file = self.configs.path().join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn load_with(&self, config: &str, gates: &FeatureGates) -> Result<CredentialProviders, ProvidersError> {
        let flags = KubeletFlags {
            image_credential_provider_config: config.to_owned(),
            image_credential_provider_bin_dir: self.programs.path().display().to_string(),
            ..KubeletFlags::default()
        };
        load(&flags, gates)
    }

    /// What is wrong with this text, without the file's name.
    fn problems(&self, text: &str) -> Vec<String> {
        let file = self.write("config.yaml", text);
        let ProvidersError(problems) = self.load_with(&file, &FeatureGates::default()).unwrap_err();
        let begins = format!("{file}: ");
        let bare = |problem: &String| problem.strip_prefix(&begins).unwrap_or(problem).to_owned();
        problems.iter().map(bare).collect()
    }
}

/// A configuration with one provider, of which these lines replace the usual ones.
fn with(name: &str, cache: &str, more: &str) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: {name}\n  \
         defaultCacheDuration: {cache}\n{more}"
    )
}

const USUAL: &str = "  matchImages: [r.io]\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n";

#[test]
fn every_field_is_read_in_yaml_and_in_json() {
    let node = Node::new();
    let yaml = node.load_with(&node.write("a.yaml", WHOLE), &FeatureGates::default()).unwrap();
    let json = serde_json::to_string(&bridge_text::strict_value(WHOLE).unwrap()).unwrap();
    let json = node.load_with(&node.write("a.json", &json), &FeatureGates::default()).unwrap();
    assert_eq!(yaml.all, json.all);
    assert_ne!(yaml.hash, json.hash);
    let provider = &yaml.all[0];
    assert_eq!((&*provider.name, &*provider.api_version), ("plugin", "credentialprovider.kubelet.k8s.io/v1"));
    assert_eq!(provider.program, node.programs.path().join("plugin"));
    assert_eq!(provider.match_images, ["*.dkr.ecr.*.amazonaws.com", "registry.io:8080/path"]);
    assert_eq!(provider.default_cache, Duration::from_secs(12 * 3600));
    assert_eq!(*provider.args, ["get-credentials".to_owned()]);
    assert_eq!(*provider.env, [("PROFILE".to_owned(), "hush".to_owned())]);
    let tokens = TokenAttributes {
        audience: "registry".into(),
        cache: TokenCache::Token,
        required: true,
        required_keys: vec!["domain.io/Identity".to_owned()],
        optional_keys: vec!["domain.io/more".to_owned()],
    };
    assert_eq!(provider.tokens, Some(tokens));
    assert!(!format!("{yaml:?}").contains("hush"));
}

#[test]
fn without_flags_there_are_no_providers_and_with_one_both_are_needed() {
    let node = Node::new();
    assert_eq!(load(&KubeletFlags::default(), &FeatureGates::default()), Ok(CredentialProviders::default()));
    let error = node.load_with("", &FeatureGates::default()).unwrap_err().to_string();
    assert!(error.contains("--image-credential-provider-config: \"\""), "{error}");
    let config = KubeletFlags {
        image_credential_provider_config: node.write("a.yaml", WHOLE),
        ..KubeletFlags::default()
    };
    let error = load(&config, &FeatureGates::default()).unwrap_err().to_string();
    assert!(error.contains("--image-credential-provider-bin-dir: \"\""), "{error}");
}

#[test]
fn the_files_of_a_directory_are_read_in_order_and_named_by_one_hash() {
    let node = Node::new();
    let directory = node.configs.path().display().to_string();
    let error = node.load_with(&directory, &FeatureGates::default()).unwrap_err().to_string();
    assert!(error.ends_with("no configuration files found"), "{error}");
    node.write("b.yml", &with("plugin", "1h", USUAL));
    node.write("a.yaml", &with("other", "1h", USUAL));
    node.write("c.txt", "{nonsense");
    fs::create_dir(node.configs.path().join("d.yaml")).unwrap();
    let read = node.load_with(&directory, &FeatureGates::default()).unwrap();
    let names: Vec<&str> = read.all.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names, ["other", "plugin"]);
    assert!(read.hash.is_some_and(|hash| hash.len() == "sha256:".len() + 64));
    let twice = node.write("c.yaml", &with("other", "1h", USUAL));
    let error = node.load_with(&directory, &FeatureGates::default()).unwrap_err().to_string();
    assert_eq!(error, format!("{twice}: providers[0].name: Duplicate value: \"other\""));
}

#[test]
fn what_is_no_configuration_is_refused_with_its_place() {
    let node = Node::new();
    let kind = "expected \"CredentialProviderConfig\" and one of kubelet.config.k8s.io/v1alpha1, \
                kubelet.config.k8s.io/v1beta1, kubelet.config.k8s.io/v1";
    for (text, problem) in [
        (
            "kind: Pod\napiVersion: v1\n".to_owned(),
            format!("found kind \"Pod\" and apiVersion \"v1\", {kind}"),
        ),
        (
            with("plugin", "soon", USUAL),
            "providers[0].defaultCacheDuration: invalid value \"soon\": expected a duration such as \"12h\""
                .to_owned(),
        ),
        (
            with("plugin", "1h", &format!("{USUAL}  arguments: [a]\n")),
            "providers[0]: unknown field \"arguments\" (value [\"a\"])".to_owned(),
        ),
        (
            with("plugin", "1h", &format!("{USUAL}  args: [1]\n")),
            "providers[0].args: invalid value: expected a list of strings".to_owned(),
        ),
        (
            with("plugin", "1h", &format!("{USUAL}  env: [{{name: A, secret: hush}}]\n")),
            "providers[0].env[0]: unknown field \"secret\" (value null)".to_owned(),
        ),
        (
            with("plugin", "1h", &format!("{USUAL}  tokenAttributes: {{}}\n"))
                .replace("io/v1\nkind", "io/v1beta1\nkind"),
            "providers[0]: unknown field \"tokenAttributes\" (value {})".to_owned(),
        ),
    ] {
        let problems = node.problems(&text);
        assert!(problems.len() == 1 && problems[0].ends_with(&problem), "{problems:?} {problem}");
        assert!(!problems[0].contains("hush"), "{problems:?}");
    }
    let large = node.write("config.yaml", &format!("# {}", "x".repeat(1 << 20)));
    let error = node.load_with(&large, &FeatureGates::default()).unwrap_err().to_string();
    assert_eq!(error, format!("{large}: the file is larger than 1048576 bytes"));
}

#[test]
fn upstreams_rules_hold() {
    let node = Node::new();
    let none = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n";
    assert_eq!(node.problems(none), ["providers: Required value: at least 1 item in plugins is required"]);
    assert_eq!(
        node.problems(&with("'a/b c'", "-1s", "  matchImages: ['r.io:port']\n  apiVersion: v9\n")),
        [
            "providers[0].name: Invalid value: \"a/b c\": provider name cannot contain '/'",
            "providers[0].name: Invalid value: \"a/b c\": provider name cannot contain spaces",
            "providers[0].apiVersion: Unsupported value: \"v9\": supported values: \
             \"credentialprovider.kubelet.k8s.io/v1\", \"credentialprovider.kubelet.k8s.io/v1alpha1\", \
             \"credentialprovider.kubelet.k8s.io/v1beta1\"",
            "providers[0].matchImages: Invalid value: \"r.io:port\": match image is invalid: parse \
             \"https://r.io:port\": invalid port \":port\" after host",
            "providers[0].defaultCacheDuration: Invalid value: \"-1s\": must be greater than or equal to 0",
        ]
    );
    assert_eq!(
        node.problems(&with("..", "null", "")),
        [
            "providers[0].name: Invalid value: \"..\": provider name cannot be '..'",
            "providers[0].apiVersion: Required value",
            "providers[0].matchImages: Required value: at least 1 item in matchImages is required",
            "providers[0].defaultCacheDuration: Required value",
        ]
    );
    let missing = node.problems(&with("absent", "0s", USUAL));
    assert_eq!(missing.len(), 1);
    assert!(missing[0].contains("absent: No such file or directory"), "{missing:?}");
}

#[test]
fn tokens_have_rules_and_a_gate() {
    let node = Node::new();
    let wrong = "  matchImages: [r.io]\n  apiVersion: credentialprovider.kubelet.k8s.io/v1beta1\n  tokenAttributes:\n    \
                 requireServiceAccount: false\n    requiredServiceAccountAnnotationKeys: [a, a, '-']\n    \
                 optionalServiceAccountAnnotationKeys: [a]\n    cacheType: Pod\n";
    let problems = node.problems(&with("plugin", "1h", wrong));
    let starts = [
        "providers[0].tokenAttributes: Forbidden: tokenAttributes is only supported for",
        "providers[0].tokenAttributes.serviceAccountTokenAudience: Required value",
        "providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot",
        "providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys: Duplicate value: \"a\"",
        "providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys: Invalid value: \"-\": name part must",
        "providers[0].tokenAttributes: Invalid value: {\"a\"}: annotation keys cannot be both",
        "providers[0].tokenAttributes.cacheType: Unsupported value: \"Pod\": supported values: \"ServiceAccount\"",
    ];
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
    let off = BTreeMap::from([("KubeletServiceAccountTokenForCredentialProviders".to_owned(), false)]);
    let off = FeatureGates::from_settings(&off).unwrap();
    let error = node.load_with(&node.write("a.yaml", WHOLE), &off).unwrap_err().to_string();
    assert!(
        error.contains("providers[0].tokenAttributes: Forbidden: tokenAttributes is not supported"),
        "{error}"
    );
}
