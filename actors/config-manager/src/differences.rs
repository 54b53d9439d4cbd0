//! PURE: the fields in which two configurations differ.

use std::collections::BTreeSet;

use serde_json::Value;

/// The deepest nesting that is looked into; what differs below it is named by the field at this depth.
const DEPTH_MAX: usize = 8;
/// The most fields that are named.
const FIELDS_MAX: usize = 512;

/// The paths of the fields that differ, sorted, as `logging.verbosity`; of lists only the whole is named.
pub fn differences(before: &Value, after: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    compare(Some(before), Some(after), "", 0, &mut found);
    found.into_iter().collect()
}

fn compare(
    before: Option<&Value>,
    after: Option<&Value>,
    path: &str,
    depth: usize,
    found: &mut BTreeSet<String>,
) {
    if before == after || found.len() >= FIELDS_MAX {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) if depth < DEPTH_MAX => {
            for name in before.keys().chain(after.keys()) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(before.get(name), after.get(name), &path, depth + 1, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_that_differs_is_named_once_with_its_path() {
        let before = json!({"a": 1, "b": {"c": [1], "d": "x"}, "e": {"f": 1}, "same": {"g": 1}});
        let after = json!({"a": 2, "b": {"c": [1, 2], "d": "x"}, "h": {"i": 1}, "same": {"g": 1}});
        assert_eq!(differences(&before, &after), ["a", "b.c", "e", "h"]);
        assert_eq!(differences(&before, &before), Vec::<String>::new());
        assert_eq!(differences(&json!(1), &json!(2)), [""]);
    }

    #[test]
    fn what_is_named_is_bounded() {
        let many = |value: u32| {
            let fields = (0..2000).map(|number| (format!("f{number}"), json!(value)));
            Value::Object(fields.collect())
        };
        assert_eq!(differences(&many(1), &many(2)).len(), FIELDS_MAX);
        let deep = |value: u32| (0..100).fold(json!(value), |inner, _| json!({ "x": inner }));
        assert_eq!(differences(&deep(1), &deep(2)), [["x"; DEPTH_MAX].join(".")]);
    }
}
