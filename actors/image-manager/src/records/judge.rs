//! Whether a pod may use an image that is there already, or has to prove by a pull that it may.

use std::sync::Arc;

use bridge_text::image;

use super::format::{PullCredentials, PullSecret, PulledRecord};
use super::merge::pull_secret;
use crate::credentials::Credential;

/// Beyond this many secrets, a use adds no further one to a record: names of namespaces come and go.
const SECRETS_ADDED_MAX: usize = 100;

/// `imagePullCredentialsVerificationPolicy`, with `preloadedImagesVerificationAllowlist`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// The gate `KubeletEnsureSecretPulledImages` is off: nothing is recorded, and nobody is asked.
    Off,
    /// Whoever finds an image may use it.
    NeverVerify,
    /// What the kubelet has pulled has to be proven.
    #[default]
    NeverVerifyPreloadedImages,
    /// All but these images: names, or prefixes that end in `/*`.
    NeverVerifyAllowlistedImages(Arc<[String]>),
    /// All of them.
    AlwaysVerify,
}

impl Verification {
    /// Whether what is on disk can matter.
    pub fn looks_at_records(&self) -> bool {
        !matches!(self, Verification::Off | Verification::NeverVerify)
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

/// What a check came to, as the metric labels it.
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

/// Who wants to use which image.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// As the container spells it.
    pub image: &'a str,
    /// One of the kubelet's own pulls has made it, or may have.
    pub intended: bool,
    /// Its record, or why that cannot be read.
    pub record: Result<Option<&'a PulledRecord>, &'a str>,
    /// The pod's credentials for it, or why they cannot be understood.
    pub credentials: Result<&'a [Credential], &'a str>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The pod may use the image.
    Use {
        /// Why.
        why: Checked,
        /// What is worth adding to the record, so that it is found sooner or after a change.
        add: Option<PullSecret>,
    },
    /// It has to prove by a pull that it may have it.
    Prove(Checked),
    /// It cannot be told, for want of a secret that can be understood.
    Broken(String),
}

/// Judges as upstream does.
pub fn judge(verification: &Verification, question: &Question<'_>) -> Judgement {
    let Ok(record) = question.record else { return Judgement::Prove(Checked::Error) };
    let pulled_by_kubelet = record.is_some() || question.intended;
    if !verification.must_verify(question.image, pulled_by_kubelet) {
        return Judgement::Use { why: Checked::PolicyAllowed, add: None };
    }
    let known = record.and_then(|record| record.credential_mapping.get(&image::without_tag(question.image)));
    let Some(known) = known else { return Judgement::Prove(Checked::MustAuthenticate) };
    if known.node_pods_accessible {
        return Judgement::Use { why: Checked::RecordFound, add: None };
    }
    if known.kubernetes_secrets.is_empty() && known.kubernetes_service_accounts.is_empty() {
        return Judgement::Prove(Checked::MustAuthenticate);
    }
    match question.credentials {
        Ok(credentials) => by_secrets(known, credentials),
        Err(error) => Judgement::Broken(error.to_owned()),
    }
}

/// A secret counts when it holds what has proven itself, and also when it is the one that did: it was changed since,
/// by whom it belongs to.
fn by_secrets(known: &PullCredentials, credentials: &[Credential]) -> Judgement {
    let room = known.kubernetes_secrets.len() < SECRETS_ADDED_MAX;
    for own in credentials.iter().filter_map(pull_secret) {
        for other in &known.kubernetes_secrets {
            let same_secret = own.coordinates() == other.coordinates();
            let same_content =
                !other.credential_hash.is_empty() && own.credential_hash == other.credential_hash;
            if same_content {
                let add = (!same_secret && room).then_some(own);
                return Judgement::Use { why: Checked::RecordFound, add };
            }
            if same_secret && room {
                return Judgement::Use { why: Checked::RecordFound, add: Some(own) };
            }
        }
    }
    Judgement::Prove(Checked::MustAuthenticate)
}

#[cfg(test)]
mod tests;
