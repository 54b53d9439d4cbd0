//! PURE: what a driver is told of the pod that uses a volume.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_rules::go_json;

use crate::wire::TOKENS_KEY;

/// The pod that uses a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// The pod's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// The name of its service account.
    pub service_account: String,
}

/// What drivers with `podInfoOnMount` are told of the pod.
#[must_use]
pub fn pod_info(pod: &PodFacts, is_inline: bool) -> BTreeMap<String, String> {
    let of = |key: &str, value: &str| (format!("csi.storage.k8s.io/{key}"), value.to_owned());
    [
        of("pod.name", &pod.name),
        of("pod.namespace", &pod.namespace),
        of("pod.uid", &pod.uid),
        of("serviceAccount.name", &pod.service_account),
        of("ephemeral", if is_inline { "true" } else { "false" }),
    ]
    .into()
}

/// A token of the pod's service account, for one audience. Its Debug does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Its audience; empty: the API server.
    pub audience: String,
    /// The token.
    pub token: String,
    /// When it ends to hold.
    pub expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("audience", &self.audience)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The tokens as a driver reads them, under their key: JSON, as Go writes it. Empty without tokens.
#[must_use]
pub fn tokens(tokens: &[Token]) -> BTreeMap<String, String> {
    if tokens.is_empty() {
        return BTreeMap::new();
    }
    let by_audience: BTreeMap<&str, &Token> =
        tokens.iter().map(|token| (token.audience.as_str(), token)).collect();
    let entries = by_audience.into_iter().map(|(audience, token)| {
        let expires = token.expires.strftime("%Y-%m-%dT%H:%M:%SZ");
        let (audience, token) = (go_json::string(audience), go_json::string(&token.token));
        format!("{audience}:{{\"token\":{token},\"expirationTimestamp\":\"{expires}\"}}")
    });
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    [(TOKENS_KEY.to_owned(), json)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_told_of_the_pod_under_upstreams_keys() {
        let pod = PodFacts {
            name: "web".into(),
            namespace: "shop".into(),
            uid: "u-1".into(),
            service_account: "robot".into(),
        };
        let told: Vec<_> =
            pod_info(&pod, true).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            told,
            [
                "csi.storage.k8s.io/ephemeral=true",
                "csi.storage.k8s.io/pod.name=web",
                "csi.storage.k8s.io/pod.namespace=shop",
                "csi.storage.k8s.io/pod.uid=u-1",
                "csi.storage.k8s.io/serviceAccount.name=robot",
            ]
        );
        assert_eq!(pod_info(&pod, false)["csi.storage.k8s.io/ephemeral"], "false");
    }

    #[test]
    fn tokens_are_the_json_that_go_writes() {
        let token = |audience: &str, token: &str| Token {
            audience: audience.into(),
            token: token.into(),
            expires: "2030-01-02T03:04:05.678Z".parse().unwrap(),
        };
        let told = tokens(&[token("vault", "b<c"), token("", "a")]);
        assert_eq!(
            told[TOKENS_KEY],
            r#"{"":{"token":"a","expirationTimestamp":"2030-01-02T03:04:05Z"},"vault":{"token":"b\u003cc","expirationTimestamp":"2030-01-02T03:04:05Z"}}"#
        );
        assert!(tokens(&[]).is_empty());
        assert!(!format!("{:?}", token("vault", "hidden-1")).contains("hidden-1"));
    }
}
