//! PURE: answers that a kubelet may have made large on purpose: a few bytes of text become kilobytes in a list of pods. What is in them is
//! counted before it is built.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The most pods of an answer: no node has as many.
const PODS_MAX: usize = 4096;
/// The most objects and lists that an answer nests.
const ANSWER_NESTED_MAX: usize = 1 << 19;

/// The answer of `/pods`: a v1 PodList.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodList {
    /// `None` (`null`) on a node without pods, as Go encodes an empty list.
    #[serde(default, deserialize_with = "one_by_one")]
    pub items: Option<Vec<Pod>>,
}

fn one_by_one<'de, D: Deserializer<'de>>(items: D) -> Result<Option<Vec<Pod>>, D::Error> {
    Option::<Items>::deserialize(items).map(|items| items.map(|items| items.0))
}

struct Items(Vec<Pod>);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(OneByOne)
    }
}

struct OneByOne;

impl<'de> Visitor<'de> for OneByOne {
    type Value = Items;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of pods")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items, A::Error> {
        let mut pods = Vec::new();
        while let Some(item) = list.next_element::<Box<RawValue>>()? {
            if pods.len() >= PODS_MAX {
                return Err(A::Error::custom(format_args!("it lists more than {PODS_MAX} pods")));
            }
            pods.push(bridge_kube::decode::<Pod>(item.get().as_bytes()).map_err(A::Error::custom)?);
        }
        Ok(Items(pods))
    }
}

/// Says what is wrong with an answer that nests more objects and lists than any needs; `None` if it does not.
pub(super) fn excess(answer: &[u8]) -> Option<String> {
    let (mut nested, mut in_text, mut is_escaped) = (0_usize, false, false);
    for &byte in answer {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => nested += 1,
            _ => {}
        }
    }
    (nested > ANSWER_NESTED_MAX)
        .then(|| format!("it nests {nested} objects and lists, and at most {ANSWER_NESTED_MAX} are taken"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(items: &serde_json::Value) -> Result<usize, String> {
        let text = json!({ "kind": "PodList", "items": items }).to_string();
        let list = serde_json::from_str::<PodList>(&text).map_err(|error| error.to_string())?;
        Ok(list.items.map_or(0, |items| items.len()))
    }

    #[test]
    fn pods_are_built_one_by_one_and_no_more_than_a_node_has() {
        assert_eq!((read(&json!(null)), read(&json!([]))), (Ok(0), Ok(0)));
        assert_eq!(read(&json!(vec![json!({}); PODS_MAX])), Ok(PODS_MAX));
        let many = read(&json!(vec![json!({}); PODS_MAX + 1]));
        assert!(many.is_err_and(|why| why.starts_with("it lists more than 4096 pods")));
        let nested = json!({ "spec": { "containers": [], "tolerations": vec![json!({}); 1 << 16] } });
        assert!(read(&json!([nested])).is_err_and(|why| why.starts_with("its spec nests")));
        assert!(read(&json!([1])).is_err());
    }

    #[test]
    fn what_nests_in_an_answer_is_counted_but_for_its_texts() {
        let answer = |count: usize| format!(r#"["[{{[\"[{}",{{}}{}]"#, "[".repeat(20), ",[]".repeat(count));
        assert_eq!(excess(answer(ANSWER_NESTED_MAX - 2).as_bytes()), None);
        let why = excess(answer(ANSWER_NESTED_MAX - 1).as_bytes());
        assert_eq!(why.as_deref(), Some("it nests 524289 objects and lists, and at most 524288 are taken"));
    }
}
