use bridge_node::host::SecretContent;

use super::*;

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";
const MINUTE: Duration = Duration::from_secs(60);

fn provider(tokens: Option<TokenCache>) -> CredentialProvider {
    let tokens = tokens.map(|cache| TokenAttributes {
        audience: "registry".into(),
        cache,
        required: true,
        required_keys: vec!["need".to_owned()],
        optional_keys: vec!["like".to_owned()],
    });
    CredentialProvider {
        name: "one".to_owned(),
        program: PathBuf::from("/plugins/one"),
        match_images: vec!["*.io".to_owned()],
        default_cache: MINUTE,
        api_version: V1.to_owned(),
        args: Arc::default(),
        env: Arc::default(),
        tokens,
    }
}

fn account(uid: &str, token: &str) -> Account {
    let source =
        AccountSource { uid: uid.to_owned(), namespace: "team".to_owned(), name: "robot".to_owned() };
    let annotations = BTreeMap::from([("need".to_owned(), "this".to_owned())]);
    Account { source: Arc::new(source), annotations, token: Arc::from(token) }
}

fn read(provider: &CredentialProvider, account: Option<&Account>, output: &str) -> Result<Answer, String> {
    answer(provider, account, &SecretContent::new(output.as_bytes()))
}

fn response(more: &str) -> String {
    format!(
        "{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"{V1}\",\"cacheKeyType\":\"Image\"{more}}}"
    )
}

#[test]
fn requests_are_upstreams() {
    let text = |content: SecretContent| String::from_utf8(content.expose().to_vec()).unwrap();
    let plain = "{\"kind\":\"CredentialProviderRequest\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\
                 \"image\":\"r.io/app\"";
    assert_eq!(text(request(&provider(None), "r.io/app", None)), format!("{plain}}}\n"));
    let with_token = text(request(&provider(None), "r.io/app", Some(&account("1", "t"))));
    let more = ",\"serviceAccountToken\":\"t\",\"serviceAccountAnnotations\":{\"need\":\"this\"}}\n";
    assert_eq!(with_token, format!("{plain}{more}"));
}

#[test]
fn answers_say_what_they_give_and_how_long_it_holds() {
    let auth = ",\"auth\":{\"r.io\":{\"username\":\"me\",\"password\":\"hush\"},\"q.io\":{}}";
    for (more, holds) in [
        (String::new(), Some(MINUTE)),
        (",\"cacheDuration\":null".to_owned(), Some(MINUTE)),
        (",\"cacheDuration\":\"1h30m\"".to_owned(), Some(90 * MINUTE)),
        (",\"cacheDuration\":\"0s\"".to_owned(), None),
        (",\"cacheDuration\":\"-1s\"".to_owned(), None),
    ] {
        let answer = read(&provider(None), None, &response(&format!("{auth}{more}"))).unwrap();
        let registries: Vec<&str> = answer.given.iter().map(|(registry, _)| registry.as_str()).collect();
        assert_eq!((registries, answer.kind, answer.holds), (vec!["q.io", "r.io"], CacheKind::Image, holds));
        assert_eq!(answer.given[1].1.to_wire().password, "hush");
        assert!(!format!("{answer:?}").contains("hush"));
    }
    let uncached = CredentialProvider { default_cache: Duration::ZERO, ..provider(None) };
    let empty = read(&uncached, None, &response(",\"auth\":null")).unwrap();
    assert_eq!((empty.given.len(), empty.holds), (0, None));
    for (word, kind) in [("Registry", CacheKind::Registry), ("Global", CacheKind::Global)] {
        let answer = read(&provider(None), None, &response("").replace("Image", word)).unwrap();
        assert_eq!(answer.kind, kind);
    }
}

#[test]
fn what_is_no_answer_is_refused_without_its_secrets() {
    for (output, why) in [
        ("hush".to_owned(), "its answer is no CredentialProviderResponse in JSON (line 1, column 1)"),
        (
            response("").replace("/v1", "/v1beta1"),
            "its answer has the apiVersion \"credentialprovider.kubelet.k8s.io/v1beta1\", expected \
             \"credentialprovider.kubelet.k8s.io/v1\"",
        ),
        (
            response("").replace("CredentialProviderResponse", "Pod"),
            "its answer has the kind \"Pod\", expected \"CredentialProviderResponse\"",
        ),
        (
            response("").replace("Image", "Hour"),
            "its answer has the cacheKeyType \"Hour\", expected \"Image\", \"Registry\" or \"Global\"",
        ),
        (response(",\"cacheDuration\":\"hush\""), "the cacheDuration of its answer is no duration"),
    ] {
        assert_eq!(read(&provider(None), None, &output).unwrap_err(), why);
    }
    for more in [
        ",\"auth\":\"hush\"",
        ",\"hush\":1",
        ",\"auth\":{\"r.io\":\"hush\"}",
        ",\"auth\":{\"r.io\":{\"hush\":1}}",
    ] {
        let why = read(&provider(None), None, &response(more)).unwrap_err();
        assert!(why.starts_with("its answer is no Cred") && !why.contains("hush"), "{why}");
    }
    let long = response("").replace("Image", &"x".repeat(100_000));
    assert!(read(&provider(None), None, &long).unwrap_err().len() < 400);
}

#[test]
fn a_token_is_no_password_for_other_pods() {
    let (robot, echo) = (account("1", "t"), response(",\"auth\":{\"r.io\":{\"password\":\"t\"}}"));
    assert!(read(&provider(Some(TokenCache::Token)), Some(&robot), &echo).is_ok());
    let why = read(&provider(Some(TokenCache::ServiceAccount)), Some(&robot), &echo).unwrap_err();
    assert!(why.contains("cacheType \"Token\""), "{why}");
    assert!(read(&provider(Some(TokenCache::ServiceAccount)), None, &echo).is_ok());
}

#[test]
fn required_annotations_decide_and_optional_ones_are_told() {
    let tokens = provider(Some(TokenCache::Token)).tokens.unwrap();
    let map = |keys: &[&str]| -> BTreeMap<String, String> {
        keys.iter().map(|key| ((*key).to_owned(), "value".to_owned())).collect()
    };
    assert_eq!(tokens.annotations(None), None);
    assert_eq!(tokens.annotations(Some(&map(&["like"]))), None);
    assert_eq!(tokens.annotations(Some(&map(&["need", "secret"]))), Some(map(&["need"])));
    assert_eq!(tokens.annotations(Some(&map(&["need", "like"]))), Some(map(&["need", "like"])));
}

#[test]
fn accounts_are_told_apart_and_tokens_where_they_count() {
    let of = |uid: &str, token: &str, cache| account(uid, token).fingerprint(cache);
    assert_eq!(of("1", "a", TokenCache::ServiceAccount), of("1", "b", TokenCache::ServiceAccount));
    assert_ne!(of("1", "a", TokenCache::Token), of("1", "b", TokenCache::Token));
    assert_ne!(of("1", "a", TokenCache::ServiceAccount), of("2", "a", TokenCache::ServiceAccount));
    let mut changed = account("1", "a");
    changed.annotations.insert("need".to_owned(), "that".to_owned());
    assert_ne!(changed.fingerprint(TokenCache::ServiceAccount), of("1", "a", TokenCache::ServiceAccount));
    assert!(!format!("{:?}", account("1", "hush")).contains("hush"));
}

#[test]
fn what_several_providers_give_is_tried_in_their_order_the_more_specific_first() {
    let given = |all: &[(&str, &str)]| -> Given {
        let one = |(registry, user): &(&str, &str)| {
            ((*registry).to_owned(), Credential::for_tests(user, "hush", None))
        };
        all.iter().map(one).collect()
    };
    let robot = account("1", "t").source;
    let all = [
        (given(&[("r.io", "first"), ("q.io", "never"), ("r.io:x", "broken")]), None),
        (given(&[("r.io", "second"), ("r.io/team", "specific")]), Some(robot.clone())),
    ];
    let (found, wrong) = merged(&all, "r.io/team/app");
    let users: Vec<&str> = found.iter().map(|credential| credential.username.as_str()).collect();
    assert_eq!(users, ["specific", "first", "second"]);
    assert_eq!((found[0].account(), found[1].account()), (Some(&*robot), None));
    assert_eq!(wrong, ["\"r.io:x\": the port is not a number"]);
}

#[test]
fn the_hash_of_the_configuration_counts_lengths() {
    let hash = |files: &[&str]| {
        let files: Vec<Vec<u8>> = files.iter().map(|file| file.as_bytes().to_vec()).collect();
        CredentialProviders::new(&files, Vec::new()).hash.unwrap()
    };
    assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    // sha256 of eight bytes of zero and nothing.
    assert_eq!(hash(&[""]), "sha256:af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc");
    assert_eq!(CredentialProviders::default().hash, None);
}
