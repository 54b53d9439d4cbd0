use super::*;
use proptest::prelude::*;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n";

fn pod_of(text: &str) -> Pod {
    decode_pod("web.yaml", text.as_bytes()).unwrap().pods.remove(0)
}

/// The fields of the text that have no effect.
fn ignored(text: &str) -> String {
    let fields = decode_pods("web.yaml", text.as_bytes()).unwrap().ignored_fields;
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn error_of(text: &str) -> String {
    decode_pod("web.yaml", text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn reads_yaml_and_json_alike() {
    let yaml = pod_of(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  creationTimestamp: null\n  labels: {any.key/at-all: x}\nspec:\n  hostNetwork: yes\n  nodeSelector: {free: key}\n  volumes:\n  - name: c\n    configMap: {name: c, defaultMode: 0644}\n  containers:\n  - name: web\n    image: nginx\n    env: [{name: A, value: 'on'}]\n    livenessProbe: {httpGet: {port: http}}\n    readinessProbe: {httpGet: {port: 80}}\n    resources: {limits: {cpu: 0.1, memory: 1Gi, example.com/gpu: 1}}\nstatus: {nonsense: true}\n",
    );
    let json = pod_of(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","creationTimestamp":null,"labels":{"any.key/at-all":"x"}},
        "spec":{"hostNetwork":true,"nodeSelector":{"free":"key"},"volumes":[{"name":"c","configMap":{"name":"c","defaultMode":420}}],
        "containers":[{"name":"web","image":"nginx","env":[{"name":"A","value":"on"}],
        "livenessProbe":{"httpGet":{"port":"http"}},"readinessProbe":{"httpGet":{"port":80}},
        "resources":{"limits":{"cpu":0.1,"memory":"1Gi","example.com/gpu":1}}}]},"status":{"phase":"Running"}}"#,
    );
    assert_eq!(yaml, json);
    assert_eq!(yaml.status, None);
    let container = &yaml.spec.unwrap().containers[0];
    assert_eq!(container.resources.as_ref().unwrap().limits.as_ref().unwrap()["cpu"].0, "0.1");
}

#[test]
fn ignores_unknown_fields_and_names_each_with_its_value() {
    let text = format!(
        "{POD}specs: {{}}\nspec:\n  containers:\n  - name: a\n    imagee: nginx\n    securityContext: {{privilegd: true}}\n    resources: {{limit: {{cpu: 1}}}}\n"
    );
    assert_eq!(
        ignored(&text),
        "specs: unknown field with the value {}; \
         spec.containers[0].imagee: unknown field with the value \"nginx\"; \
         spec.containers[0].securityContext.privilegd: unknown field with the value true; \
         spec.containers[0].resources.limit: unknown field with the value a mapping of 1 (cpu, ...)"
    );
    let container = &pod_of(&text).spec.unwrap().containers[0];
    assert_eq!((container.name.as_str(), &container.image), ("a", &None));
    let wrong = error_of(&format!("{POD}spec: {{hostnetwork: true, priority: high}}\n"));
    let expected = "web.yaml: spec.hostnetwork: unknown field with the value true; \
         spec.priority: wants an integer, not \"high\"";
    assert_eq!(wrong, expected);
}

#[test]
fn a_spec_that_nests_more_than_any_pod_needs_is_not_built() {
    let text = |volumes: usize| {
        let volumes: Vec<_> = (0..volumes).map(|number| format!(r#"{{"name":"{number}"}}"#)).collect();
        let spec = format!(r#"{{"containers":[],"volumes":[{}]}}"#, volumes.join(","));
        format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web"}},"spec":{spec}}}"#)
    };
    // The spec itself, its two lists, and thirteen for each volume.
    assert_eq!(
        pod_of(&text(5_041)).spec.and_then(|spec| spec.volumes).map(|volumes| volumes.len()),
        Some(5_041)
    );
    let why = "spec: nests 65549 objects and lists, of which a volume counts as 13, and this kubelet takes at most 65536";
    assert_eq!(error_of(&text(5_042)), format!("web.yaml: {why}"));
    let list = format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{}]}}"#, text(5_042));
    let error = decode_pods("http://x", list.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), format!("http://x: items[0].{why}"));
    let owners = vec!["{}"; 65_535].join(",");
    let metadata = format!(r#"{{"name":"web","ownerReferences":[{owners}]}}"#);
    let text = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{{}}}}"#);
    assert!(error_of(&text).starts_with("web.yaml: metadata: nests 65537 objects and lists"), "metadata");
}

#[test]
fn names_a_value_of_the_wrong_type() {
    for (spec, expected) in [
        (
            "containers: [{name: a, env: [{name: A, value: yes}]}]",
            "spec.containers[0].env[0].value: wants a string, not yes, which is YAML for true, (put it in quotes)",
        ),
        ("hostNetwork: 'true'", "spec.hostNetwork: wants true or false, not \"true\""),
        ("containers: {}", "spec.containers: wants a list, not {}"),
        (
            "terminationGracePeriodSeconds: soon",
            "spec.terminationGracePeriodSeconds: wants an integer, not \"soon\"",
        ),
        ("priority: 1.5", "spec.priority: wants an integer, not 1.5"),
        (
            "containers: [{name: a, ports: [{containerPort: 99999999999}]}]",
            "spec.containers[0].ports[0].containerPort: invalid value: integer `99999999999`, expected i32",
        ),
        ("nodeSelector: {a.b: 1}", "spec.nodeSelector[a.b]: wants a string, not 1 (put it in quotes)"),
    ] {
        assert_eq!(error_of(&format!("{POD}spec: {{{spec}}}\n")), format!("web.yaml: {expected}"));
    }
    let error = error_of(&format!("{POD}spec: {{overhead: {{cpu: 1 GB}}}}\n"));
    assert!(error.starts_with("web.yaml: spec.overhead.cpu: quantities must match"), "{error}");
    assert!(error.ends_with("found \"1 GB\""), "{error}");
}

#[test]
fn null_is_the_zero_value() {
    let pod =
        pod_of(&format!("{POD}spec:\n  nodeName:\n  containers:\n  - name: ~\n    args: [~]\n    env: ~\n"));
    let container = &pod.spec.as_ref().unwrap().containers[0];
    assert_eq!((container.name.as_str(), &container.args), ("", &Some(vec![String::new()])));
    assert_eq!(container.env, None);
}

/// As in Go's decoders: in YAML the last value replaces the first; in JSON it is merged into the first.
#[test]
fn of_a_field_given_twice_the_last_value_counts() {
    let yaml = format!(
        "{POD}spec:\n  nodeSelector: {{a: x, b: why, a: z}}\n  containers:\n  - name: a\n    name: b\n"
    );
    let twice = "the field is given twice, and the last value counts";
    assert_eq!(ignored(&yaml), format!("spec.nodeSelector.a: {twice}; spec.containers[0].name: {twice}"));
    let spec = pod_of(&yaml).spec.unwrap();
    assert_eq!(spec.containers[0].name, "b");
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(spec.node_selector, Some(labels(&[("a", "z"), ("b", "why")])));
    let json = r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","image":"i"},{"name":"x"}],
        "nodeSelector":{"a":"x"}},"spec":{"containers":[{"name":"b"}],"nodeSelector":{"b":"y"}}}"#;
    assert_eq!(ignored(json), format!("spec: {twice}"));
    let spec = pod_of(json).spec.unwrap();
    assert_eq!(spec.containers.len(), 1);
    assert_eq!((spec.containers[0].name.as_str(), spec.containers[0].image.as_deref()), ("b", Some("i")));
    assert_eq!(spec.node_selector, Some(labels(&[("a", "x"), ("b", "y")])));
    // Finding each of them costs a search, so their number is limited.
    let many = vec!["\"a\": {}"; 200].join(", ");
    assert!(error_of(&format!("{{{many}}}")).contains("more than 100 fields are given twice"));
    assert!(error_of(&many.replace(", ", "\n")).contains("more than 100 fields are given twice"));
}

#[test]
fn names_kind_and_version() {
    for (text, expected) in [
        ("kind: Pod\n", "apiVersion: wants v1, found nothing"),
        ("apiVersion: v1\n", "kind: wants Pod, found nothing"),
        ("apiVersion: v1\nkind: Deployment\n", "kind: wants Pod, found \"Deployment\""),
        ("apiVersion: apps/v1\nkind: Pod\n", "apiVersion: wants v1, found \"apps/v1\""),
        ("just text", "apiVersion: wants v1, found \"just text\""),
        ("- a\n", "apiVersion: wants v1, found a list of 1"),
        ("apiVersion: v1\nkind: PodList\nitems: []\n", "kind: wants Pod, found \"PodList\""),
    ] {
        assert_eq!(error_of(text), format!("web.yaml: {expected}"));
    }
}

#[test]
fn names_empty_and_half_written_files() {
    for text in ["", " \n\t\n", "# only a comment\n", "---\n", "\u{feff}"] {
        assert_eq!(error_of(text), "web.yaml: the manifest is empty", "{text:?}");
    }
    for text in [
        "{\"apiVersion\":\"v1\",",
        "{\"apiVersion\":\"v",
        "apiVersion: \"v1",
        "apiVersion: v1\nspec: {a: [",
        "a\0\0\0",
    ] {
        let error = decode_pod("web.yaml", text.as_bytes()).unwrap_err();
        assert!(matches!(error, DecodeError::Unfinished { .. }), "{text:?}: {error:?}");
    }
    let cut = decode_pod("web.yaml", &"apiVersion: é".as_bytes()[..13]).unwrap_err();
    assert!(matches!(cut, DecodeError::Unfinished { .. }), "{cut:?}");
    let binary = decode_pod("web.yaml", b"a\xff\xfeb").unwrap_err();
    assert_eq!(binary.to_string(), "web.yaml: the manifest cannot be parsed: byte 1 is not UTF-8");
    assert!(matches!(
        decode_pod("web.yaml", &vec![b' '; MANIFEST_BYTES_MAX + 1]).unwrap_err(),
        DecodeError::TooLarge { .. }
    ));
}

#[test]
fn the_first_document_counts() {
    let two = decode_pod("web.yaml", format!("---\n{POD}---\n{POD}---\n").as_bytes()).unwrap();
    assert_eq!((two.pods.len(), two.ignored_documents), (1, 1));
    let broken = decode_pod("web.yaml", format!("{POD}---\n}}{{ :\n").as_bytes()).unwrap();
    assert_eq!((broken.pods.len(), broken.ignored_documents), (1, 1));
    assert_eq!(decode_pod("web.yaml", format!("{POD}...\n").as_bytes()).unwrap().ignored_documents, 0);
}

#[test]
fn reads_anchors_and_merge_keys() {
    let pod = pod_of(&format!(
        "{POD}spec:\n  containers:\n  - &base\n    name: a\n    image: nginx\n    command: [x]\n  - <<: *base\n    name: b\n"
    ));
    let containers = pod.spec.unwrap().containers;
    assert_eq!(containers[1].name, "b");
    assert_eq!(
        (&containers[1].image, &containers[1].command),
        (&containers[0].image, &containers[0].command)
    );
}

#[test]
fn bounds_what_aliases_expand_to() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..40 {
        let previous = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![previous; 10].join(", ")));
    }
    let error = error_of(&text);
    assert!(
        error.contains("expand beyond all bounds") || error.contains("more than 200000 values"),
        "{error}"
    );
    let long = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 100].join(", "));
    assert!(error_of(&long).contains("expand beyond all bounds"), "long text");
    assert!(error_of("a: &a [*a]").contains("alias"), "recursion");
    let brackets = error_of(&"[".repeat(100_000));
    assert!(brackets.contains("recursion limit"), "{brackets}");
    assert!(error_of(&"{\"a\":".repeat(100_000)).contains("deep"));
    assert!(error_of(&"- ".repeat(100_000)).contains("more than 64 levels deep"));
}

#[test]
fn reads_a_pod_list_from_a_url_only() {
    let text = "{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"metadata\":{},\"items\":[{\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"},\"spec\":{\"containers\":null}}]}";
    assert_eq!(decode_pods("http://x", text.as_bytes()).unwrap().pods.len(), 2);
    assert_eq!(decode_pods("http://x", POD.as_bytes()).unwrap().pods.len(), 1);
    let odd = "apiVersion: v1\nkind: PodList\nitem: 1\nitems:\n- spec: {hostnetwork: true}\n";
    assert_eq!(
        ignored(odd),
        "item: unknown field with the value 1; items[0].spec.hostnetwork: unknown field with the value true"
    );
    let wrong = "apiVersion: v1\nkind: PodList\nitems:\n- spec: {priority: high}\n";
    assert_eq!(
        decode_pods("http://x", wrong.as_bytes()).unwrap_err().to_string(),
        "http://x: items[0].spec.priority: wants an integer, not \"high\""
    );
}

proptest! {
    #[test]
    fn never_panics_on_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_pods("x", &bytes);
    }

    #[test]
    fn never_panics_on_yaml_like_text(text in "([-{}\\[\\]:,&*!|>'\"%@`#?~ \n\t]|a|<<|0|1e|---|\\.\\.\\.|é){0,80}") {
        let _ = decode_pods("x", text.as_bytes());
        let _ = decode_pods("x", format!("{POD}spec: {text}").as_bytes());
    }

    #[test]
    fn what_is_written_is_read_again(name in "[a-z]{1,9}", value in "\\PC{0,20}", grace in any::<i64>(), port in any::<i32>()) {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {value.clone(): value.clone()}},
            "spec": {"terminationGracePeriodSeconds": grace, "containers": [
                {"name": name, "env": [{"name": "A", "value": value}], "ports": [{"containerPort": port}]}]}
        })).unwrap();
        let text = serde_json::to_vec(&pod).unwrap();
        prop_assert_eq!(&decode_pod("x", &text).unwrap().pods[0], &pod);
    }
}
