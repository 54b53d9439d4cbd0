use super::*;

fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("an object of the API")
}

fn pod() -> Pod {
    from(serde_json::json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": "one \"two\""}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m"}}}]},
    }))
}

fn volume(source: serde_json::Value) -> ObjectVolume {
    let mut volume = serde_json::json!({"name": "v"});
    volume.as_object_mut().expect("a map").extend(source.as_object().expect("a map").clone());
    of(&from(volume)).expect("a volume of objects")
}

fn a_token() -> Token {
    serde_json::from_value::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>(serde_json::json!(
        "2030-01-01T00:00:00Z"
    ))
    .map(|expires| Token { text: Arc::from("t"), expires: expires.0 })
    .expect("a time")
}

fn secret() -> Fetched {
    let data = serde_json::json!({"user": "bWU=", "password": "aHVzaA=="});
    Fetched::Secret(Ok(Arc::new(from(serde_json::json!({"metadata": {}, "data": data})))))
}

fn config_map() -> Fetched {
    let object =
        serde_json::json!({"metadata": {}, "data": {"a": "1", "b": "2"}, "binaryData": {"bin": "AAE="}});
    Fetched::ConfigMap(Ok(Arc::new(from(object))))
}

fn gone(kind: &str) -> ObjectError {
    ObjectError { not_found: true, message: format!("{kind} \"x\" not found") }
}

/// The path, content and mode of every file.
fn shown(
    volume: &ObjectVolume,
    fetched: &[Fetched],
    pod: &Pod,
) -> Result<Vec<(String, String, u32)>, String> {
    let allocatable = BTreeMap::from([("memory".to_owned(), Quantity::parse("8Gi").expect("a quantity"))]);
    let (files, _) = files(volume, fetched, pod, &allocatable, POD_BYTES_MAX)?;
    let text = |file: &ProjectedFile| String::from_utf8_lossy(file.content.expose()).into_owned();
    Ok(files.iter().map(|(path, file)| (path.clone(), text(file), file.mode)).collect())
}

fn entries(entries: &[(&str, &str, u32)]) -> Result<Vec<(String, String, u32)>, String> {
    Ok(entries.iter().map(|(path, text, mode)| ((*path).to_owned(), (*text).to_owned(), *mode)).collect())
}

#[test]
fn all_keys_or_those_that_are_chosen_are_shown() {
    let all = volume(serde_json::json!({"secret": {"secretName": "x"}}));
    assert_eq!((all.plugin, all.in_memory), ("kubernetes.io/secret", true));
    let expected = entries(&[("password", "hush", 0o644), ("user", "me", 0o644)]);
    assert_eq!(shown(&all, &[secret()], &pod()), expected);
    let some = volume(serde_json::json!({"configMap": {"name": "x", "defaultMode": 0o400, "items": [
        {"key": "a", "path": "d/first"}, {"key": "bin", "path": "bin", "mode": 0o755}
    ]}}));
    assert_eq!((some.plugin, some.in_memory), ("kubernetes.io/configmap", false));
    let expected = entries(&[("bin", "\0\u{1}", 0o755), ("d/first", "1", 0o400)]);
    assert_eq!(shown(&some, &[config_map()], &pod()), expected);
}

#[test]
fn what_is_missing_says_so_in_upstreams_words_unless_it_is_optional() {
    for optional in [false, true] {
        let secret_key = serde_json::json!([{"key": "none", "path": "p"}, {"key": "user", "path": "u"}]);
        let secret_volume = volume(
            serde_json::json!({"secret": {"secretName": "x", "optional": optional, "items": secret_key}}),
        );
        let map_volume =
            volume(serde_json::json!({"configMap": {"name": "x", "optional": optional, "items": [
                {"key": "none", "path": "p"}
            ]}}));
        let cases = [
            (&secret_volume, secret(), "references non-existent secret key: none", vec![("u", "me", 0o644)]),
            (&map_volume, config_map(), "configmap references non-existent config key: none", vec![]),
            (&secret_volume, Fetched::Secret(Err(gone("secret"))), "secret \"x\" not found", vec![]),
            (&map_volume, Fetched::ConfigMap(Err(gone("configmap"))), "configmap \"x\" not found", vec![]),
        ];
        for (volume, fetched, error, rest) in cases {
            let expected = if optional { entries(&rest) } else { Err(error.to_owned()) };
            assert_eq!(shown(volume, &[fetched], &pod()), expected);
        }
        // An error that does not say "not found" is no proof that the secret is missing.
        let unknown = ObjectError { not_found: false, message: "failed to sync".to_owned() };
        let unknown = shown(&secret_volume, &[Fetched::Secret(Err(unknown))], &pod());
        assert_eq!(unknown, Err("failed to sync".to_owned()));
    }
}

#[test]
fn a_projected_volume_puts_sources_together() {
    let api_access = volume(serde_json::json!({"projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "a", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}}));
    assert_eq!((api_access.plugin, api_access.in_memory), ("kubernetes.io/projected", true));
    let token = Fetched::Token(Ok(a_token()));
    let fetched = [token, config_map(), Fetched::Nothing];
    let expected = entries(&[("ca.crt", "1", 0o644), ("namespace", "ns", 0o644), ("token", "t", 0o644)]);
    assert_eq!(shown(&api_access, &fetched, &pod()), expected);
    let refused = ObjectError { not_found: false, message: "failed to fetch token: no".to_owned() };
    let errors = [Fetched::Token(Err(refused)), Fetched::ConfigMap(Err(gone("configmap"))), Fetched::Nothing];
    assert_eq!(
        shown(&api_access, &errors, &pod()),
        Err("[failed to fetch token: no, configmap \"x\" not found]".to_owned())
    );
}

#[test]
fn a_pod_shows_itself() {
    let itself = volume(serde_json::json!({"downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "b", "mode": 0o600, "fieldRef": {"fieldPath": "metadata.labels['b']"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}},
        {"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Gi"}},
    ]}}));
    assert!(itself.is_of_pod_alone());
    let expected = entries(&[
        ("b", "2", 0o600),
        ("cpu", "1500", 0o644),
        ("labels", "a=\"one \\\"two\\\"\"\nb=\"2\"", 0o644),
        ("memory", "8", 0o644),
    ]);
    assert_eq!(shown(&itself, &[Fetched::Nothing], &pod()), expected);
    let broken = volume(serde_json::json!({"downwardAPI": {"items": [
        {"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}}
    ]}}));
    let error = shown(&broken, &[Fetched::Nothing], &pod());
    assert_eq!(error, Err("unsupported fieldPath: spec.nodeName".to_owned()));
}

#[test]
fn a_token_is_its_users_or_its_groups() {
    let token =
        volume(serde_json::json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}));
    let mode_and_owner = |pod_user: Option<i64>, users: [Option<i64>; 2], group: Option<i64>| {
        let container = |(name, user): (&str, Option<i64>)| serde_json::json!({"name": name, "securityContext": {"runAsUser": user}});
        let pod: Pod = from(serde_json::json!({"metadata": {}, "spec": {
            "securityContext": {"runAsUser": pod_user, "fsGroup": group},
            "containers": [container(("a", users[0]))], "initContainers": [container(("b", users[1]))],
        }}));
        let fetched = [Fetched::Token(Ok(a_token()))];
        let file = files(&token, &fetched, &pod, &BTreeMap::new(), POD_BYTES_MAX)
            .expect("a token")
            .0
            .remove("t")
            .expect("a file");
        (file.mode, file.owner)
    };
    assert_eq!(mode_and_owner(None, [None, None], None), (0o644, None));
    assert_eq!(mode_and_owner(Some(1), [None, None], None), (0o600, Some(1)));
    assert_eq!(mode_and_owner(Some(1), [Some(2), Some(2)], None), (0o600, Some(2)));
    assert_eq!(mode_and_owner(Some(1), [Some(2), None], None), (0o644, None));
    assert_eq!(mode_and_owner(None, [Some(1), None], None), (0o644, None));
    assert_eq!(mode_and_owner(None, [None, None], Some(3)), (0o600, None));
}

#[test]
fn mount_points_within_a_volume_are_made() {
    let nested = |mounts: &[(&str, &str)]| {
        let mount = |(name, path): &(&str, &str)| serde_json::json!({"name": name, "mountPath": path});
        let mounts: Vec<_> = mounts.iter().map(mount).collect();
        let spec: PodSpec = from(serde_json::json!({"containers": [{"name": "c", "volumeMounts": mounts}]}));
        let nested = nested_mount_points("v", &spec);
        nested.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let all = [
        ("v", "/dir"),
        ("w", "/dir/nested"),
        ("x", "/dir/nested/other"),
        ("y", "/dir/nested-vol"),
        ("z", "/dirs"),
    ];
    assert_eq!(nested(&all), ["nested", "nested-vol"]);
    assert!(nested(&[("v", "/dir"), ("w", "/dir/../etc"), ("x", "/other")]).is_empty());
    assert_eq!(
        nested(&[("v", "/a"), ("v", "/a/"), ("w", "/a/b"), ("v", "/a/b/c"), ("x", "/a/b/c/d")]),
        ["b", "d"]
    );
}

#[test]
fn mount_points_by_the_thousand_are_not_compared_with_one_another() {
    let path = |n: usize| format!("/a/{n}");
    let mount = |name: &str, path: String| serde_json::json!({"name": name, "mountPath": path});
    let own = (0..500).map(|n| mount("v", format!("/a{}", "/".repeat(n))));
    let mounts: Vec<_> = own.chain((0..50_000).map(|n| mount("w", path(n)))).collect();
    let spec: PodSpec = from(serde_json::json!({"containers": [{"name": "c", "volumeMounts": mounts}]}));
    assert_eq!(nested_mount_points("v", &spec).len(), 50_000);
}

#[test]
fn a_volume_of_very_many_empty_files_has_a_bound() {
    let keys: std::collections::BTreeMap<_, _> = (0..5_000).map(|n| (format!("k{n}"), "")).collect();
    let object = serde_json::json!({"metadata": {}, "data": keys});
    let map: Arc<ConfigMap> = Arc::new(from(object));
    let source = from::<VolumeProjection>(serde_json::json!({"configMap": {"name": "m"}}));
    let volume =
        ObjectVolume { sources: vec![source; 5_000], default_mode: 0o644, plugin: "p", in_memory: true };
    let fetched = vec![Fetched::ConfigMap(Ok(map)); 5_000];
    let error = files(&volume, &fetched, &Pod::default(), &Default::default(), POD_BYTES_MAX).unwrap_err();
    assert!(error.contains("more than 67108864 bytes"), "{error}");
}

#[test]
fn files_in_memory_count_as_what_the_kernel_keeps_of_them() {
    let of = |paths: &[String], in_memory: bool| {
        let object = serde_json::json!({"metadata": {}, "data": {"k": "v"}});
        let map: Arc<ConfigMap> = Arc::new(from(object));
        let items: Vec<_> = paths.iter().map(|path| serde_json::json!({"key": "k", "path": path})).collect();
        let source = from(serde_json::json!({"configMap": {"name": "m", "items": items}}));
        let volume = ObjectVolume { sources: vec![source], default_mode: 0o644, plugin: "p", in_memory };
        let fetched = [Fetched::ConfigMap(Ok(map))];
        let made = files(&volume, &fetched, &Pod::default(), &Default::default(), POD_BYTES_MAX);
        made.map(|(files, left)| (files.len(), POD_BYTES_MAX - left))
    };
    let flat = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(of(&flat(10_000), true), Ok((10_000, 10_000 * 6144)));
    assert!(of(&flat(11_000), true).is_err());
    assert!(of(&flat(60_000), false).is_ok(), "on the disk the kernel may forget them");
    // Each file in a thousand directories of its own.
    let deep: Vec<_> = flat(100).into_iter().map(|name| format!("{name}{}", "/a".repeat(999))).collect();
    assert!(of(&deep, true).is_err());
}

#[test]
fn a_volume_that_shows_one_key_very_often_has_a_bound() {
    let items: Vec<_> = (0..200).map(|n| serde_json::json!({"key": "a", "path": format!("a/{n}")})).collect();
    let object = serde_json::json!({"metadata": {}, "data": {"a": "x".repeat(1 << 20)}});
    let map = Fetched::ConfigMap(Ok(Arc::new(from(object))));
    let of_items = |count| volume(serde_json::json!({"configMap": {"name": "x", "items": &items[..count]}}));
    let error = shown(&of_items(64), std::slice::from_ref(&map), &pod())
        .expect_err("64 MiB, and what each file counts beside");
    assert_eq!(error, "the files of the pod's volumes would have more than 67108864 bytes");
    assert_eq!(shown(&of_items(63), &[map], &pod()).expect("63 MiB").len(), 63);
}
