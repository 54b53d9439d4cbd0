//! JSON merge patch (RFC 7396), by which drop-in files change what is already configured.

use serde_json::{Map, Value as Json};

/// Applies `patch` to `target`: objects merge key by key, `null` removes, anything else replaces.
pub(crate) fn merge_patch(target: &mut Map<String, Json>, patch: Map<String, Json>) {
    for (name, change) in patch {
        match change {
            Json::Null => {
                target.remove(&name);
            }
            Json::Object(inner) => {
                let slot = target.entry(name).or_insert(Json::Null);
                if !slot.is_object() {
                    *slot = Json::Object(Map::new());
                }
                if let Json::Object(nested) = slot {
                    merge_patch(nested, inner);
                }
            }
            other => {
                target.insert(name, other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::merge_patch;

    fn merged(target: Json, patch: Json) -> Json {
        let (Json::Object(mut target), Json::Object(patch)) = (target, patch) else {
            panic!("both are objects");
        };
        merge_patch(&mut target, patch);
        Json::Object(target)
    }

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (target, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":[1]}), json!({"a":{"b":{"c":null}}}), json!({"a":{"b":{}}})),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
        ] {
            assert_eq!(merged(target, patch), result);
        }
    }
}
