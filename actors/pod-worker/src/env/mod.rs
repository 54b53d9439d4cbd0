//! Environment variables and `$(NAME)` references (rows 11.3 and 11.7).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

/// A container's final environment in the order of declaration, each name once with its last value.
///
/// A value may refer to variables declared before it. A variable without `value` is empty; `valueFrom` and
/// `envFrom` are refused before a pod gets here.
pub fn environment(container: &Container) -> Vec<(String, String)> {
    let mut order: Vec<String> = Vec::new();
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for variable in container.env.as_deref().unwrap_or_default() {
        let value = expand(variable.value.as_deref().unwrap_or_default(), |name| values.get(name).cloned());
        if values.insert(variable.name.clone(), value).is_none() {
            order.push(variable.name.clone());
        }
    }
    order
        .into_iter()
        .map(|name| {
            let value = values.remove(&name).unwrap_or_default();
            (name, value)
        })
        .collect()
}

/// Expands each text with the container's final environment.
pub fn expand_all(texts: Option<&[String]>, environment: &[(String, String)]) -> Vec<String> {
    let lookup = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    texts.unwrap_or_default().iter().map(|text| expand(text, lookup)).collect()
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a literal dollar, so `$$(NAME)` stays `$(NAME)`. What is not
/// a reference, or refers to nothing known, stays as it is.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            tail
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            tail
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EnvVar;
    use proptest::prelude::*;

    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".into()),
            "B" => Some("$(A)".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    /// Results of upstream's expansion for the same inputs.
    #[test]
    fn references_are_expanded_as_upstream_does() {
        for (text, expected) in [
            ("$(A)", "1"),
            ("---$(A)---", "---1---"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)x", "x"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(MISSING)", "$(MISSING)"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("$", "$"),
            ("$$", "$"),
            ("x$", "x$"),
            ("$(", "$("),
            ("$()", "$()"),
            ("$($(A))", "$($(A))"),
            ("$é", "$é"),
        ] {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }

    #[test]
    fn later_variables_see_earlier_ones_and_the_last_value_of_a_name_wins() {
        let variable = |name: &str, value: &str| EnvVar {
            name: name.into(),
            value: Some(value.into()),
            ..EnvVar::default()
        };
        let container = Container {
            env: Some(vec![
                variable("HOST", "db"),
                variable("URL", "http://$(HOST):$(PORT)"),
                variable("PORT", "80"),
                variable("HOST", "$(HOST)-2"),
                EnvVar { name: "NONE".into(), ..EnvVar::default() },
            ]),
            ..Container::default()
        };
        let expected = [("HOST", "db-2"), ("URL", "http://db:$(PORT)"), ("PORT", "80"), ("NONE", "")];
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(environment(&container), expected);
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_stays(text in "[^$]*") {
            prop_assert_eq!(expand(&text, lookup), text);
        }

        #[test]
        fn doubling_every_dollar_quotes_any_text(text in ".*") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), lookup), text);
        }
    }
}
