use proptest::prelude::*;
use serde_json::json;

use super::{parse, strict_value, value};

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

#[test]
fn aliases_reach_no_deeper_than_what_is_written_out() {
    let nested =
        |levels: usize, inside: &str| format!("{}{inside}{}", "[".repeat(levels), "]".repeat(levels));
    let chain = |levels: usize| {
        let mut text = format!("a0: &a0 {}\n", nested(levels, "x"));
        for link in 1..60 {
            text += &format!("a{link}: &a{link} {}\n", nested(levels, &format!("*a{}", link - 1)));
        }
        text
    };
    let error = parse(&chain(60)).unwrap_err();
    assert_eq!(error.reason, "line 2: more than 64 levels deep");
    assert_eq!(parse(&chain(2)).unwrap_err().reason, "line 32: more than 64 levels deep");
    // Scalars and collections count as they do without aliases.
    assert!(parse(&format!("a: &a {}\nb: {}\n", nested(13, "x"), nested(50, "*a"))).is_ok());
    assert!(parse(&format!("a: &a {}\nb: {}\n", nested(13, "x"), nested(51, "*a"))).is_err());
    assert!(parse(&format!("a: &a x\nb: {}\n", nested(63, "*a"))).is_ok());
    assert!(parse(&format!("a: &a {{b: {}}}\nc:\n  <<: *a\n  d: [*a]\n", nested(62, "x"))).is_err());
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "what is measured is the work of this thread: less than a second, or minutes"
)]
fn a_key_as_long_as_its_text_costs_nothing_for_each_value_below_it() {
    let text = format!("? {}\n: [{}]\n", "k".repeat(4 << 20), "1, ".repeat(190_000));
    let began = std::time::Instant::now();
    assert_eq!(parse(&text).map(|text| text.twice), Ok(Vec::new()));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[test]
fn a_long_key_is_cut_where_a_field_below_it_is_given_twice() {
    let key = "k".repeat(2 << 20);
    for text in [format!("? {key}\n: {{a: 1, a: 2}}\n"), format!("{{\"{key}\": {{\"a\": 1, \"a\": 2}}}}")] {
        let twice = parse(&text).unwrap().twice;
        assert_eq!(twice.len(), 1);
        assert_eq!(twice[0].path, format!("{}....a", "k".repeat(400)));
    }
}

/// What all readers say of a text: each that is strict, each that is not, and the tree.
fn read(text: &str) -> Result<serde_json::Value, String> {
    let tree = parse(text).map_err(|error| error.reason).and_then(|text| text.document.into_json());
    assert_eq!(strict_value(text), tree, "{text:?}");
    assert_eq!(value(text), tree, "{text:?}");
    tree
}

#[test]
fn lines_within_brackets_and_quotes_may_stand_anywhere() {
    for (text, expected) in [
        ("dns: [\n  10.96.0.10\n]\nmax: 110\n", json!({"dns": ["10.96.0.10"], "max": 110})),
        ("dns: [\r\na,\r\n\tb\r\n]\r\nmax: 110\r\n", json!({"dns": ["a", "b"], "max": 110})),
        ("hard: {\nmemory: 1Mi,\n  nodefs: 10%\n}\n", json!({"hard": {"memory": "1Mi", "nodefs": "10%"}})),
        (
            "a:\n  b:\n  - c: [d, {e: 'f\ng',\nh: i}\n] # k\n  l: m\n",
            json!({"a": {"b": [{"c": ["d", {"e": "f g", "h": "i"}]}], "l": "m"}}),
        ),
        ("a:\n  b: \"c\nd\\\n e\n\n\tf\"\n  g: 'h\n\ni'\n", json!({"a": {"b": "c de\nf", "g": "h\ni"}})),
        ("a: &x [\n1\n]\nb: !!seq [\n2\n]\nc: *x\n", json!({"a": [1], "b": [2], "c": [1]})),
        ("é: [\n\"ü\n[\"\n]\nb: |\n  [\n  ]\n", json!({"é": ["ü ["], "b": "[\n]\n"})),
    ] {
        assert_eq!(read(text), Ok(expected), "{text:?}");
    }
}

#[test]
fn a_tab_may_follow_a_colon_and_a_comment_a_bracket() {
    for (text, expected) in [
        ("maxPods:\t110\nb:\t\tc\nd: {e:\tf}\n", json!({"maxPods": 110, "b": "c", "d": {"e": "f"}})),
        ("a: |\n  b:\tc\nd:\te\n", json!({"a": "b:\tc\n", "d": "e"})),
        ("a: [b]# c\nd: \"e\"#f\n", json!({"a": ["b"], "d": "e"})),
    ] {
        assert_eq!(read(text), Ok(expected), "{text:?}");
    }
}

#[test]
fn what_go_refuses_stays_refused() {
    for (text, line) in [
        ("a:\n\tb: c\n", 2),
        ("a: 1\nb: [\n2\nc: 3\n", 3),
        ("a: \"b\nc: d\n", 1),
        ("a: [\n1\n---\n]\n", 2),
        ("a: 'b\n--- c'\n", 1),
        ("a:\t- b\n", 1),
        ("a:\n  b: 1\n c: 2\n", 3),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(&format!("line {line}: ")), "{text:?}: {error}");
    }
}

#[test]
fn a_text_is_repaired_only_so_often() {
    let lines = |count: usize| (0..count).map(|n| format!("k{n}:\tv\n")).collect::<String>();
    assert!(value(&lines(300)).is_ok());
    assert!(value(&lines(30_000)).is_err());
}

#[test]
fn a_repair_does_not_multiply_a_text() {
    let text = |columns: usize, lines: usize| format!("a:{}[{}b]\n", " ".repeat(columns), "\n".repeat(lines));
    assert_eq!(read(&text(100, 100)), Ok(json!({"a": ["b"]})));
    assert!(read(&text(20_000, 20_000)).is_err(), "40 KB would become 400 MB");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long the machine computes is what is looked at")]
fn objects_given_twice_are_merged_with_work_by_their_size() {
    let object = |name: &str| {
        let fields: Vec<String> = (0..60_000).map(|number| format!("\"{name}{number}\":0")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let begun = std::time::Instant::now();
    let text = super::parse(&format!("{{\"a\":{},\"a\":{}}}", object("x"), object("y"))).expect("JSON");
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let super::Node::Mapping(entries) = &text.document else { panic!("an object") };
    let super::Node::Mapping(fields) = &entries[0].1 else { panic!("an object") };
    assert_eq!((fields.len(), fields[0].0.as_str(), fields[60_000].0.as_str()), (120_000, "x0", "y0"));
}

proptest! {
    #[test]
    fn never_panics(text in "([-{}\\[\\]:,&*!|>'\"%@`#?~ \n\t]|a|<<|0|1e|---|\\.\\.\\.|é){0,80}") {
        let _ = strict_value(&text);
    }
}
