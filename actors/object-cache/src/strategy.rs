//! PURE: how secrets and config maps are kept current (row 11.2).

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

/// How long what was read holds under [`Strategy::Cache`] when the Node does not say.
pub const TTL_DEFAULT: Duration = Duration::from_secs(60);
/// The Node's annotation that says how many seconds it holds; the cluster writes it by its size.
const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// `configMapAndSecretChangeDetectionStrategy`: how secrets and config maps are kept current.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Each is watched while pods need it.
    #[default]
    Watch,
    /// Each is read again when an actor asks for it after a time.
    Cache,
    /// Each is read whenever an actor asks for it. One read answers all asks that wait for it.
    Get,
}

/// How long what was read holds on this node. A negative time is none; a text that is no number counts as no annotation.
pub fn ttl(node: Option<&Node>) -> Duration {
    let text = node.and_then(|node| node.metadata.annotations.as_ref()?.get(TTL));
    let seconds = text.and_then(|text| text.parse::<i64>().ok());
    seconds.map_or(TTL_DEFAULT, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_says_how_long_what_was_read_holds() {
        let of = |text: &str| {
            let mut node = Node::default();
            node.metadata.annotations = Some([(TTL.to_owned(), text.to_owned())].into());
            ttl(Some(&node)).as_secs()
        };
        assert_eq!((of("0"), of("15"), of("300"), of("-3")), (0, 15, 300, 0));
        assert_eq!((of(""), of("1m"), of("99999999999999999999")), (60, 60, 60));
        assert_eq!((ttl(Some(&Node::default())), ttl(None)), (TTL_DEFAULT, TTL_DEFAULT));
    }
}
