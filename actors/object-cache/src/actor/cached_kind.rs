//! The kinds of objects that ObjectCache keeps.

use std::collections::BTreeMap;

use bridge_kube::Object;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{ObjectCache, StoreOf};
use crate::object_store::Kind;

/// A kind of objects that the actor keeps.
pub(super) trait CachedKind: Object {
    const KIND: Kind;
    const FOLLOW: &'static str;
    fn object_store(actor: &mut ObjectCache) -> &mut StoreOf<Self>;
    fn never_changes(&self) -> bool;
    /// There is nothing new in `other` for pods: the metadata of an object say nothing to them.
    fn says_the_same(&self, other: &Self) -> bool;
    /// About how many bytes of memory it takes.
    fn bytes(&self) -> usize;
}

/// What an object takes beside what its author has written.
const OBJECT_BYTES: usize = 2048;
/// What an entry of a map takes beside its texts.
const ENTRY_BYTES: usize = 96;

fn bytes_of<'e>(meta: &ObjectMeta, entries: impl Iterator<Item = (&'e String, usize)>) -> usize {
    let of = |map: &Option<BTreeMap<String, String>>| -> usize {
        map.iter().flatten().map(|(key, value)| key.len() + value.len() + ENTRY_BYTES).sum()
    };
    let entries: usize = entries.map(|(key, value)| key.len() + value + ENTRY_BYTES).sum();
    OBJECT_BYTES + of(&meta.annotations) + of(&meta.labels) + entries
}

impl CachedKind for Secret {
    const KIND: Kind = Kind::Secret;
    const FOLLOW: &'static str = "follow a secret";

    fn object_store(actor: &mut ObjectCache) -> &mut StoreOf<Self> {
        &mut actor.secrets
    }

    fn never_changes(&self) -> bool {
        self.immutable == Some(true)
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.data == other.data && self.type_ == other.type_
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.metadata, self.data.iter().flatten().map(|(key, value)| (key, value.0.len())))
    }
}

impl CachedKind for ConfigMap {
    const KIND: Kind = Kind::ConfigMap;
    const FOLLOW: &'static str = "follow a config map";

    fn object_store(actor: &mut ObjectCache) -> &mut StoreOf<Self> {
        &mut actor.config_maps
    }

    fn never_changes(&self) -> bool {
        self.immutable == Some(true)
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.data == other.data && self.binary_data == other.binary_data
    }

    fn bytes(&self) -> usize {
        let texts = self.data.iter().flatten().map(|(key, value)| (key, value.len()));
        let others = self.binary_data.iter().flatten().map(|(key, value)| (key, value.0.len()));
        bytes_of(&self.metadata, texts.chain(others))
    }
}

impl CachedKind for RuntimeClass {
    const KIND: Kind = Kind::RuntimeClass;
    const FOLLOW: &'static str = "follow a runtime class";

    fn object_store(actor: &mut ObjectCache) -> &mut StoreOf<Self> {
        &mut actor.runtime_classes
    }

    /// A runtime class's handler never changes, but the class may be deleted.
    fn never_changes(&self) -> bool {
        false
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.handler == other.handler
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.metadata, std::iter::empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_new_in_the_metadata_alone_is_nothing_to_pods() {
        let map = |version: &str, value: &str| -> ConfigMap {
            let map = json!({ "metadata": { "resourceVersion": version }, "data": { "key": value } });
            serde_json::from_value(map).unwrap()
        };
        assert!(map("1", "a").says_the_same(&map("2", "a")));
        assert!(!map("1", "a").says_the_same(&map("2", "b")));
        let secret = |version: &str, value: &str| -> Secret {
            let secret = json!({ "metadata": { "resourceVersion": version }, "data": { "key": value } });
            serde_json::from_value(secret).unwrap()
        };
        assert!(secret("1", "YQ==").says_the_same(&secret("2", "YQ==")));
        assert!(!secret("1", "YQ==").says_the_same(&secret("2", "Yg==")));
    }
}
