//! Rules on label keys and label values, in upstream's words.

const NAME_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
const NAME_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn name_is_well_formed(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        [bytes.first(), bytes.last()].iter().all(|end| end.is_some_and(plain))
            && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
    })
}

/// The errors of a label key or taint key, in upstream's words; empty when it is valid.
pub fn qualified_name_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain_errors(prefix));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_WORDS} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_BYTES_MAX {
        errors.push(format!("name part must be no more than {NAME_BYTES_MAX} bytes"));
    }
    if !name_is_well_formed(name) {
        errors.push(format!("name part {NAME_WORDS}"));
    }
    errors
}

fn subdomain_errors(prefix: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if prefix.len() > SUBDOMAIN_BYTES_MAX {
        errors.push(format!("prefix part must be no more than {SUBDOMAIN_BYTES_MAX} bytes"));
    }
    if !is_subdomain(prefix) {
        errors.push(
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
             '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    errors
}

/// The errors of a label value or taint value, in upstream's words; empty when it is valid.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > NAME_BYTES_MAX {
        errors.push(format!("must be no more than {NAME_BYTES_MAX} bytes"));
    }
    if !value.is_empty() && !name_is_well_formed(value) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::{label_value_errors, qualified_name_errors};

    #[test]
    fn keys_and_values_follow_the_rules_of_labels() {
        for key in ["a", "example.com/zone", "A_b.c-9"] {
            assert_eq!(qualified_name_errors(key), Vec::<String>::new(), "{key}");
        }
        for key in ["", "/a", "a/", "a/b/c", "Example.com/a", "-a", &"x".repeat(64)] {
            assert!(!qualified_name_errors(key).is_empty(), "{key}");
        }
        assert!(label_value_errors("").is_empty());
        assert!(!label_value_errors("a b").is_empty());
    }
}
