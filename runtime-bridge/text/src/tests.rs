use proptest::prelude::*;
use serde_json::json;

use super::{strict_value, value};

#[test]
fn yaml_and_json_give_the_same_value() {
    let expected = json!({"a": {"b": [1, true, null, "x", 0.5]}});
    assert_eq!(strict_value("a:\n  b: [1, true, null, x, 0.5]\n"), Ok(expected.clone()));
    assert_eq!(strict_value(&expected.to_string()), Ok(expected));
}

#[test]
fn yaml_is_read_as_kubernetes_reads_it() {
    let text = "swap: no\nquoted: 'no'\nmode: 0644\nbig: 1_000\nnone: ~\ndate: 2001-01-01\n\
        base: &base {a: 1, b: 2}\nmerged: {<<: *base, b: yes}\n";
    let expected = json!({"swap": false, "quoted": "no", "mode": 420, "big": 1000, "none": null, "date": "2001-01-01",
        "base": {"a": 1, "b": 2}, "merged": {"a": 1, "b": true}});
    assert_eq!(strict_value(text), Ok(expected));
}

#[test]
fn a_text_that_opens_with_a_brace_may_be_yaml_where_go_reads_it_so() {
    let text = r#"{a: {b: no}, "c": "d\/e", f: [1, x]}"#;
    assert_eq!(value(text), Ok(json!({"a": {"b": false}, "c": "d/e", "f": [1, "x"]})));
    assert!(strict_value(text).is_err(), "a configuration file is JSON then");
}

#[test]
fn a_key_set_twice_is_named_with_its_path_and_value() {
    let yaml = "authentication:\n  webhook:\n    enabled: true\n    enabled: false\n";
    let said = "field \"authentication.webhook.enabled\" is set twice (second value false)";
    assert_eq!(strict_value(yaml), Err(said.to_owned()));
    assert_eq!(value(yaml), Ok(json!({"authentication": {"webhook": {"enabled": false}}})));
    let said = "field \"port\" is set twice (second value 2)";
    assert_eq!(strict_value(r#"{"port": 1, "port": 2}"#), Err(said.to_owned()));
}

#[test]
fn a_second_document_is_refused_where_it_is_strict() {
    assert!(strict_value("a: 1\n---\nb: 2\n").is_err());
    assert_eq!(value("a: 1\n---\nb: 2\n"), Ok(json!({"a": 1})));
}

#[test]
fn what_json_does_not_have_is_named() {
    let error = value("a: [{b: 1e999}]").unwrap_err();
    assert_eq!(error, "field \"a[0].b\": 1e999 is not a number in JSON");
}

proptest! {
    #[test]
    fn never_panics(text in "([-{}\\[\\]:,&*!|>'\"%@`#?~ \n\t]|a|<<|0|1e|---|\\.\\.\\.|é){0,80}") {
        let _ = strict_value(&text);
    }
}
