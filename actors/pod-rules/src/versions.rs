//! How new the state of an object is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The number of this state of an object: of two at one server the later one has the higher number (KEP-5504). `None` where the server
/// gives none, or no number.
pub fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_state_has_the_higher_number() {
        let of = |text: Option<&str>| {
            version(&ObjectMeta { resource_version: text.map(str::to_owned), ..ObjectMeta::default() })
        };
        assert!(of(Some("10")) > of(Some("9")));
        assert_eq!([of(None), of(Some("")), of(Some("a"))], [None; 3]);
    }
}
