//! PURE: upstream's rules for credential providers, in its words, each with the place of the field.

use std::collections::BTreeSet;

use image_manager::check_pattern;
use pod_rules::durations::GoDuration;
use pod_rules::label_syntax::qualified_name_errors;

use super::decode::{Entry, Tokens};

/// The versions of requests and answers; the first alone has tokens.
const VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];

/// The rules that these providers break; `with_tokens` is the gate of service accounts' tokens.
pub(super) fn problems(config: &str, entries: &[Entry], with_tokens: bool) -> Vec<String> {
    if entries.is_empty() {
        return vec![format!("{config}: providers: Required value: at least 1 item in plugins is required")];
    }
    let (mut problems, mut seen) = (Vec::new(), BTreeSet::new());
    for entry in entries {
        let mut of_entry = Problems { place: &entry.place, found: &mut problems };
        if !seen.insert(&*entry.name) {
            of_entry.add("name", format!("Duplicate value: {:?}", entry.name));
        }
        of_entry.name(&entry.name);
        of_entry.version(&entry.api_version);
        of_entry.patterns(&entry.match_images);
        match entry.default_cache {
            None => of_entry.add("defaultCacheDuration", "Required value".to_owned()),
            Some(duration) if duration < GoDuration::ZERO => of_entry.add(
                "defaultCacheDuration",
                format!("Invalid value: {:?}: must be greater than or equal to 0", duration.to_string()),
            ),
            Some(_) => {}
        }
        if let Some(tokens) = &entry.tokens {
            of_entry.tokens(tokens, &entry.api_version, with_tokens);
        }
    }
    problems
}

struct Problems<'a> {
    place: &'a str,
    found: &'a mut Vec<String>,
}

impl Problems<'_> {
    fn add(&mut self, field: &str, problem: String) {
        self.found.push(format!("{}.{field}: {problem}", self.place));
    }

    fn invalid(&mut self, field: &str, value: &str, reason: &str) {
        self.add(field, format!("Invalid value: {value:?}: {reason}"));
    }

    fn name(&mut self, name: &str) {
        if name.is_empty() {
            self.add("name", "Required value".to_owned());
        }
        for (broken, reason) in [
            (name.contains('/'), "provider name cannot contain '/'"),
            (name.contains(' '), "provider name cannot contain spaces"),
            (name == ".", "provider name cannot be '.'"),
            (name == "..", "provider name cannot be '..'"),
            (name.contains('\0'), "provider name cannot contain NUL"),
        ] {
            if broken {
                self.invalid("name", name, reason);
            }
        }
    }

    fn version(&mut self, version: &str) {
        if version.is_empty() {
            self.add("apiVersion", "Required value".to_owned());
        } else if !VERSIONS.contains(&version) {
            let supported = VERSIONS.map(|version| format!("{version:?}")).join(", ");
            self.add("apiVersion", format!("Unsupported value: {version:?}: supported values: {supported}"));
        }
    }

    fn patterns(&mut self, patterns: &[String]) {
        if patterns.is_empty() {
            self.add("matchImages", "Required value: at least 1 item in matchImages is required".to_owned());
        }
        for pattern in patterns {
            if let Err(error) = check_pattern(pattern) {
                self.invalid("matchImages", pattern, &format!("match image is invalid: {error}"));
            }
        }
    }

    fn tokens(&mut self, tokens: &Tokens, version: &str, with_tokens: bool) {
        const FIELD: &str = "tokenAttributes";
        if !with_tokens {
            let gate = "KubeletServiceAccountTokenForCredentialProviders feature gate is disabled";
            self.add(FIELD, format!("Forbidden: tokenAttributes is not supported when {gate}"));
        }
        if version != VERSIONS[0] {
            let only = format!("tokenAttributes is only supported for {} API version", VERSIONS[0]);
            self.add(FIELD, format!("Forbidden: {only}"));
        }
        if tokens.audience.is_empty() {
            self.add("tokenAttributes.serviceAccountTokenAudience", "Required value".to_owned());
        }
        if tokens.required.is_none() {
            self.add("tokenAttributes.requireServiceAccount", "Required value".to_owned());
        }
        const REQUIRED: &str = "tokenAttributes.requiredServiceAccountAnnotationKeys";
        if tokens.required == Some(false) && !tokens.required_keys.is_empty() {
            let reason =
                "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set";
            self.add(REQUIRED, format!("Forbidden: {reason}"));
        }
        self.keys(REQUIRED, &tokens.required_keys);
        self.keys("tokenAttributes.optionalServiceAccountAnnotationKeys", &tokens.optional_keys);
        let required: BTreeSet<&String> = tokens.required_keys.iter().collect();
        let both: BTreeSet<&String> =
            tokens.optional_keys.iter().filter(|key| required.contains(key)).collect();
        if !both.is_empty() {
            let reason = "annotation keys cannot be both required and optional";
            self.add(FIELD, format!("Invalid value: {both:?}: {reason}"));
        }
        let cache = tokens.cache.as_str();
        if cache.is_empty() {
            let supported = CACHE_TYPES.join(", ");
            let reason = "cacheType is required to be set when tokenAttributes is specified";
            self.add(
                "tokenAttributes.cacheType",
                format!("Required value: {reason}. Supported values are: {supported}"),
            );
        } else if !CACHE_TYPES.contains(&cache) {
            let supported = CACHE_TYPES.map(|one| format!("{one:?}")).join(", ");
            self.add(
                "tokenAttributes.cacheType",
                format!("Unsupported value: {cache:?}: supported values: {supported}"),
            );
        }
    }

    fn keys(&mut self, field: &str, keys: &[String]) {
        let mut seen = BTreeSet::new();
        for key in keys {
            for reason in qualified_name_errors(&key.to_lowercase()) {
                self.invalid(field, key, &reason);
            }
            if !seen.insert(key) {
                self.add(field, format!("Duplicate value: {key:?}"));
            }
        }
    }
}
