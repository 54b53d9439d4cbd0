//! Whether a pod may use an image that is on the node already, or has to prove its access by a pull.

use std::sync::Arc;

use bridge_text::image;

use super::format::{PullCredentials, PullSecret, PulledRecord};
use super::merge::{pull_account, pull_secret};
use crate::credentials::Credential;

/// With this many secrets in a record, a use adds no further one: the names of namespaces come and go without
/// bound.
const SECRETS_ADDED_MAX: usize = 100;

/// `imagePullCredentialsVerificationPolicy`, with `preloadedImagesVerificationAllowlist`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// The gate `KubeletEnsureSecretPulledImages` is off: pulls are not recorded and access is not verified.
    Off,
    /// Every pod may use every image that is there.
    NeverVerify,
    /// Access to images that the kubelet has pulled is verified.
    #[default]
    NeverVerifyPreloadedImages,
    /// Access is verified to all images but these: names, or prefixes that end in `/*`.
    NeverVerifyAllowlistedImages(Arc<[String]>),
    /// Access is verified to all images.
    AlwaysVerify,
}

impl Verification {
    /// Whether the result can depend on the records.
    pub fn looks_at_records(&self) -> bool {
        !matches!(self, Verification::Off | Verification::NeverVerify)
    }

    /// Whether an image that is there without a record is for all pods.
    pub fn opens_preloaded(&self) -> bool {
        matches!(self, Verification::NeverVerifyPreloadedImages)
    }

    fn must_verify(&self, image: &str, pulled_by_kubelet: bool) -> bool {
        match self {
            Verification::Off | Verification::NeverVerify => false,
            Verification::NeverVerifyPreloadedImages => pulled_by_kubelet,
            Verification::NeverVerifyAllowlistedImages(patterns) => {
                let bare = image::without_tag(image);
                !patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(prefix) if prefix.ends_with('/') => bare.starts_with(prefix),
                    _ => *pattern == bare,
                })
            }
            Verification::AlwaysVerify => true,
        }
    }
}

/// The result of a check, as the metric labels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// `credentialPolicyAllowed`.
    PolicyAllowed,
    /// `credentialRecordFound`.
    RecordFound,
    /// `mustAuthenticate`.
    MustAuthenticate,
    /// `error`.
    Error,
}

impl Checked {
    /// The metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Checked::PolicyAllowed => "credentialPolicyAllowed",
            Checked::RecordFound => "credentialRecordFound",
            Checked::MustAuthenticate => "mustAuthenticate",
            Checked::Error => "error",
        }
    }
}

/// The ask of a pod for an image that is there.
#[derive(Clone, Debug)]
pub struct AccessQuestion<'a> {
    /// The image's name as the container spells it.
    pub image: &'a str,
    /// Whether one of the kubelet's own unrecorded pulls has, or may have, made the image.
    pub intended: bool,
    /// The image's record, or why it cannot be read.
    pub record: Result<Option<&'a PulledRecord>, &'a str>,
    /// The pod's credentials for the image, or why they cannot be had.
    pub credentials: Result<&'a [Credential], &'a str>,
}

/// The result of the judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// The pod may use the image.
    Use {
        /// The rule that allows it.
        why: Checked,
        /// A secret to add to the record, so that it is recognised later or after a change.
        add: Option<PullSecret>,
    },
    /// The pod has to prove its access by a pull.
    Prove(Checked),
    /// The pod's credentials cannot be had, for this reason, so access cannot be judged.
    Broken(String),
}

/// Judges by upstream's rules.
pub fn judge(verification: &Verification, question: &AccessQuestion<'_>) -> AccessDecision {
    let Ok(record) = question.record else { return AccessDecision::Prove(Checked::Error) };
    let pulled_by_kubelet = record.is_some() || question.intended;
    if !verification.must_verify(question.image, pulled_by_kubelet) {
        return AccessDecision::Use { why: Checked::PolicyAllowed, add: None };
    }
    let known = record.and_then(|record| record.credential_mapping.get(&image::without_tag(question.image)));
    let Some(known) = known else { return AccessDecision::Prove(Checked::MustAuthenticate) };
    if known.node_pods_accessible {
        return AccessDecision::Use { why: Checked::RecordFound, add: None };
    }
    if known.kubernetes_secrets.is_empty() && known.kubernetes_service_accounts.is_empty() {
        return AccessDecision::Prove(Checked::MustAuthenticate);
    }
    match question.credentials {
        Ok(credentials) => by_secrets(known, credentials),
        Err(error) => AccessDecision::Broken(error.to_owned()),
    }
}

/// Whether the record opens the image under this name to some service accounts, and not to all pods.
pub fn opened_by_accounts(record: Option<&PulledRecord>, image: &str) -> bool {
    let known = record.and_then(|record| record.credential_mapping.get(&image::without_tag(image)));
    known.is_some_and(|known| !known.node_pods_accessible && !known.kubernetes_service_accounts.is_empty())
}

/// A secret gives access when it holds a credential that has proven its access, and also when it is the
/// secret that held it: its owner has changed it since.
fn by_secrets(known: &PullCredentials, credentials: &[Credential]) -> AccessDecision {
    let room = known.kubernetes_secrets.len() < SECRETS_ADDED_MAX;
    for own in credentials.iter().filter_map(pull_secret) {
        for other in &known.kubernetes_secrets {
            let same_secret = own.coordinates() == other.coordinates();
            let same_content =
                !other.credential_hash.is_empty() && own.credential_hash == other.credential_hash;
            if same_content {
                let add = (!same_secret && room).then_some(own);
                return AccessDecision::Use { why: Checked::RecordFound, add };
            }
            if same_secret && room {
                return AccessDecision::Use { why: Checked::RecordFound, add: Some(own) };
            }
        }
    }
    // A pod has one service account: providers give it credentials for no other.
    let account = credentials.iter().find_map(pull_account);
    if account.is_some_and(|own| known.kubernetes_service_accounts.contains(&own)) {
        return AccessDecision::Use { why: Checked::RecordFound, add: None };
    }
    AccessDecision::Prove(Checked::MustAuthenticate)
}

#[cfg(test)]
mod tests;
