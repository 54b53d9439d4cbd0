//! Validation of projected volumes and of the downward API's files.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, DownwardAPIVolumeFile, KeyToPath, PodCertificateProjection,
    ProjectedVolumeSource, ServiceAccountTokenProjection, VolumeProjection,
};

use super::field::{Errors, Path, items, text};
use super::{env, metadata, names, paths, selectors, volumes};

/// Shortest and longest life of a projected token, in seconds.
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// Bounds of a pod certificate's life, in seconds: an hour, 91 days, and one day for Kubernetes' own signers.
const CERTIFICATE_SECONDS_MIN: i32 = 3600;
const CERTIFICATE_SECONDS_MAX: i32 = 91 * 24 * 3600;
const KUBERNETES_CERTIFICATE_SECONDS_MAX: i32 = 24 * 3600;

/// Files named so far, over all sources.
type Files<'a> = BTreeSet<&'a str>;

pub(super) fn validate(projected: &ProjectedVolumeSource, path: &Path, errors: &mut Errors) {
    paths::mode(projected.default_mode, &path.child("defaultMode"), errors);
    let mut files = Files::new();
    for (index, source) in items(&projected.sources).iter().enumerate() {
        let path = path.child("sources").index(index);
        projection(source, &mut files, &path, errors);
    }
}

fn projection<'a>(source: &'a VolumeProjection, files: &mut Files<'a>, path: &Path, errors: &mut Errors) {
    let mut count = 0;
    if let Some(secret) = &source.secret {
        count += 1;
        object(&secret.name, items(&secret.items), files, &path.child("secret"), errors);
    }
    if let Some(config_map) = &source.config_map {
        count += 1;
        object(&config_map.name, items(&config_map.items), files, &path.child("configMap"), errors);
    }
    if let Some(downward) = &source.downward_api {
        count += 1;
        let path = path.child("downwardAPI").child("items");
        downward_files(items(&downward.items), &path, errors);
        for (index, item) in items(&downward.items).iter().enumerate() {
            claim_file(&item.path, files, &path.index(index).child("path"), errors);
        }
    }
    if let Some(token) = &source.service_account_token {
        count += 1;
        account_token(token, &path.child("serviceAccountToken"), errors);
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        count += 1;
        let path = path.child("clusterTrustBundle");
        trust_bundle(bundle, &path, errors);
        claim_file(&bundle.path, files, &path.child("path"), errors);
    }
    if let Some(certificate) = &source.pod_certificate {
        count += 1;
        pod_certificate(certificate, files, &path.child("podCertificate"), errors);
    }
    if count > 1 {
        errors.forbidden(path, "may not specify more than 1 volume type per source");
    }
}

/// Two sources must not write the same file.
fn claim_file<'a>(file: &'a str, files: &mut Files<'a>, path: &Path, errors: &mut Errors) {
    if !file.is_empty() && !files.insert(file) {
        errors.invalid(path, file, "conflicting duplicate paths");
    }
}

fn object<'a>(name: &str, keys: &'a [KeyToPath], files: &mut Files<'a>, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("name"), name);
    let path = path.child("items");
    volumes::keys(keys, &path, errors);
    for (index, key) in keys.iter().enumerate() {
        claim_file(&key.path, files, &path.index(index).child("path"), errors);
    }
}

pub(super) fn downward_files(files: &[DownwardAPIVolumeFile], path: &Path, errors: &mut Errors) {
    for (index, file) in files.iter().enumerate() {
        let path = path.index(index);
        errors.not_empty(&path.child("path"), &file.path);
        paths::local_non_reserved(&file.path, &path.child("path"), errors);
        match (&file.field_ref, &file.resource_field_ref) {
            (None, None) => errors.required(&path, "one of fieldRef and resourceFieldRef is required"),
            (None, Some(resource)) => {
                env::resource_ref(resource, true, &path.child("resourceFieldRef"), errors);
            }
            (Some(field), resource) => {
                env::field_ref(field, &env::FILE_FIELDS, &path.child("fieldRef"), errors);
                if resource.is_some() {
                    let message = "fieldRef and resourceFieldRef can not be specified simultaneously";
                    errors.invalid(&path, "resource", message);
                }
            }
        }
        paths::mode(file.mode, &path.child("mode"), errors);
    }
}

fn account_token(token: &ServiceAccountTokenProjection, path: &Path, errors: &mut Errors) {
    let (seconds, seconds_path) = (token.expiration_seconds.unwrap_or(0), path.child("expirationSeconds"));
    if seconds < TOKEN_SECONDS_MIN {
        errors.invalid(&seconds_path, &seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > TOKEN_SECONDS_MAX {
        errors.invalid(&seconds_path, &seconds, "may not specify a duration larger than 2^32 seconds");
    }
    errors.not_empty(&path.child("path"), &token.path);
    paths::local_non_reserved(&token.path, &path.child("path"), errors);
}

fn trust_bundle(bundle: &ClusterTrustBundleProjection, path: &Path, errors: &mut Errors) {
    match (&bundle.name, &bundle.signer_name) {
        (Some(name), Some(_)) => {
            errors.invalid(path, name, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            let name_path = path.child("name");
            if name.is_empty() {
                errors.required(&name_path, "must be a valid object name");
            }
            // A signer's bundle is named `signer:name`, with colons for the signer's slashes.
            let own = name.rsplit_once(':').map_or(name.as_str(), |(_, own)| own);
            for message in names::dns_subdomain(own) {
                errors.invalid(&name_path, name, format!("not a valid clustertrustbundlename: {message}"));
            }
            if bundle.label_selector.is_some() {
                let message = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), "", message);
            }
        }
        (None, Some(signer)) => {
            signer_name(signer, &path.child("signerName"), errors);
            if let Some(selector) = &bundle.label_selector {
                selectors::label_selector(selector, &path.child("labelSelector"), errors);
            }
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    errors.not_empty(&path.child("path"), &bundle.path);
    paths::local_non_reserved(&bundle.path, &path.child("path"), errors);
}

fn pod_certificate<'a>(
    certificate: &'a PodCertificateProjection,
    files: &mut Files<'a>,
    path: &Path,
    errors: &mut Errors,
) {
    signer_name(&certificate.signer_name, &path.child("signerName"), errors);
    if let Some(annotations) = &certificate.user_annotations {
        let path = path.child("userAnnotations");
        for key in annotations.keys().filter(|key| !key.contains('/')) {
            errors.invalid(&path, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
        }
        metadata::annotations(Some(annotations), &path, errors);
    }
    let key_types = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    errors.one_of(&path.child("keyType"), &certificate.key_type, key_types);
    if let Some(seconds) = certificate.max_expiration_seconds {
        let path = path.child("maxExpirationSeconds");
        let domain = certificate.signer_name.split('/').next().unwrap_or_default();
        let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        let max = if own { KUBERNETES_CERTIFICATE_SECONDS_MAX } else { CERTIFICATE_SECONDS_MAX };
        if seconds < CERTIFICATE_SECONDS_MIN {
            errors.invalid(&path, &seconds, "if provided, maxExpirationSeconds must be >= 3600");
        }
        if seconds > max {
            let message = format!("if provided, maxExpirationSeconds must be <= {max}");
            errors.invalid(&path, &seconds, message);
        }
    }
    let mut count = 0;
    for (name, file) in [
        ("credentialBundlePath", text(&certificate.credential_bundle_path)),
        ("keyPath", text(&certificate.key_path)),
        ("certificateChainPath", text(&certificate.certificate_chain_path)),
    ] {
        if !file.is_empty() {
            count += 1;
            paths::local_non_reserved(file, &path.child(name), errors);
            claim_file(file, files, &path.child(name), errors);
        }
    }
    if count == 0 {
        let message = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, message);
    }
}

/// `domain.example/name`
fn signer_name(signer: &str, path: &Path, errors: &mut Errors) {
    if signer.is_empty() {
        return errors.required(path, "");
    }
    let Some((domain, name)) = signer.split_once('/').filter(|(_, name)| !name.contains('/')) else {
        let message = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, signer, message);
    };
    const MAX: usize = names::SUBDOMAIN_BYTES_MAX;
    if domain.len() > MAX {
        errors.too_long(path, MAX);
    }
    first_bad_label(domain, names::dns_label, path, errors);
    if !domain.contains('.') {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
    first_bad_label(name, names::dns_subdomain, path, errors);
    let signer_max = MAX + 1 + MAX + 1 + names::LABEL_BYTES_MAX;
    if signer.len() > signer_max {
        errors.too_long(path, signer_max);
    }
}

fn first_bad_label(labels: &str, check: fn(&str) -> Vec<String>, path: &Path, errors: &mut Errors) {
    let bad = labels.split('.').map(|label| (label, check(label))).find(|(_, messages)| !messages.is_empty());
    for (label, message) in bad
        .into_iter()
        .flat_map(|(label, messages)| messages.into_iter().map(move |message| (label, message)))
    {
        errors.invalid(path, labels, format!("validating label {label:?}: {message}"));
    }
}
