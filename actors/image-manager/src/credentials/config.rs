//! The two layouts of Docker's files. Errors name the place in the file and never quote it, because it holds
//! secrets.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bridge_node::host::DockerConfigFormat;
use serde_json::{Map, Value};

use super::Credential;

/// Takes padding or none, as the Go kubelet does.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The registries of a file with their credentials.
///
/// # Errors
/// The place where the file is broken. One broken entry makes the whole file invalid, as upstream has it.
pub(super) fn parse(format: DockerConfigFormat, content: &[u8]) -> Result<Vec<(String, Credential)>, String> {
    let (line_of, column_of) = (serde_json::Error::line, serde_json::Error::column);
    // Only the place is taken from the parser's error: its text may quote the secret.
    let whole: Value = serde_json::from_slice(content).map_err(|error| {
        format!("not valid JSON at line {}, column {}", line_of(&error), column_of(&error))
    })?;
    let (at, auths) = match format {
        DockerConfigFormat::Dockercfg => ("", object("the file", &whole)?),
        DockerConfigFormat::ConfigJson => {
            let whole = object("the file", &whole)?;
            match whole.get("auths") {
                None | Some(Value::Null) => return Ok(Vec::new()),
                Some(auths) => ("auths", object("auths", auths)?),
            }
        }
    };
    auths
        .iter()
        .map(|(registry, entry)| {
            let place = format!("{at}[{:?}]", without_user(registry));
            Ok((registry.clone(), credential(&place, entry)?))
        })
        .collect()
}

fn object<'a>(place: &str, value: &'a Value) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{place}: not an object"))
}

fn credential(place: &str, entry: &Value) -> Result<Credential, String> {
    if entry.is_null() {
        return Ok(Credential::default());
    }
    let fields = object(place, entry)?;
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{place}.{name}: not a string")),
    };
    let mut credential = Credential {
        username: text("username")?,
        password: text("password")?,
        email: text("email")?,
        identity_token: text("identitytoken")?,
        registry_token: text("registrytoken")?,
        source: None,
        account: None,
    };
    let auth = text("auth")?;
    if !auth.is_empty() {
        let decoded = BASE64.decode(auth).map_err(|_| format!("{place}.auth: not base64"))?;
        let decoded = String::from_utf8(decoded).map_err(|_| format!("{place}.auth: not text"))?;
        let (username, password) =
            decoded.split_once(':').ok_or_else(|| format!("{place}.auth: not base64(username:password)"))?;
        (credential.username, credential.password) = (username.to_owned(), password.to_owned());
    }
    Ok(credential)
}

/// A registry as it may be shown: without the user and password that its URL may have.
pub(super) fn without_user(registry: &str) -> &str {
    let start = registry.find("://").map_or(0, |at| at + 3);
    let authority_end = registry[start..].find('/').map_or(registry.len(), |at| start + at);
    match registry[start..authority_end].rfind('@') {
        Some(at) => &registry[start + at + 1..],
        None => registry,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use DockerConfigFormat::{ConfigJson, Dockercfg};

    fn one(json: &str) -> Credential {
        let mut all = parse(ConfigJson, format!("{{\"auths\": {{\"r.io\": {json}}}}}").as_bytes()).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0).1
    }

    fn error(format: DockerConfigFormat, content: &str) -> String {
        parse(format, content.as_bytes()).unwrap_err()
    }

    #[test]
    fn every_way_of_writing_a_credential_is_understood() {
        let plain = one(r#"{"username": "me", "password": "p:w"}"#);
        assert_eq!((&*plain.username, &*plain.password), ("me", "p:w"));
        // base64("me:p:w"), with padding and without; it wins over the plain fields.
        for auth in ["bWU6cDp3", "bWU6cDp3dw==", "bWU6cDp3dw"] {
            let coded = one(&format!("{{\"username\": \"other\", \"auth\": \"{auth}\"}}"));
            assert_eq!(coded.username, "me");
            assert!(coded.password.starts_with("p:w"));
        }
        let token = one(r#"{"auth": "PHRva2VuPjo=", "identitytoken": "t", "registrytoken": "r"}"#);
        assert_eq!((&*token.username, &*token.password), ("<token>", ""));
        assert_eq!((&*token.identity_token, &*token.registry_token), ("t", "r"));
        // Docker's credential helpers leave such entries.
        assert_eq!(one("{}"), Credential::default());
    }

    #[test]
    fn both_layouts_are_understood() {
        let old =
            parse(Dockercfg, br#"{"a": {"username": "1"}, "b": {"username": "2", "email": "x"}}"#).unwrap();
        assert_eq!(old.iter().map(|(registry, _)| registry.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        for empty in ["{}", r#"{"auths": null, "HttpHeaders": {"a": "b"}}"#, r#"{"credsStore": "pass"}"#] {
            assert_eq!(parse(ConfigJson, empty.as_bytes()).unwrap(), [], "{empty}");
        }
    }

    #[test]
    fn errors_say_where_and_never_what() {
        for (format, content, said) in [
            (ConfigJson, "", "not valid JSON at line 1, column 0"),
            (ConfigJson, "{\"auths\":\n hush}", "not valid JSON at line 2, column 2"),
            (ConfigJson, "[]", "the file: not an object"),
            (ConfigJson, r#"{"auths": "hush"}"#, "auths: not an object"),
            (ConfigJson, r#"{"auths": {"a": "hush"}}"#, "auths[\"a\"]: not an object"),
            (ConfigJson, r#"{"auths": {"a": {"password": 1}}}"#, "auths[\"a\"].password: not a string"),
            (ConfigJson, r#"{"auths": {"a": {"auth": "hush!"}}}"#, "auths[\"a\"].auth: not base64"),
            (
                ConfigJson,
                r#"{"auths": {"a": {"auth": "aHVzaA=="}}}"#,
                "auths[\"a\"].auth: not base64(username:password)",
            ),
            (Dockercfg, r#"{"https://me:hush@a/": {"auth": "/w=="}}"#, "[\"a/\"].auth: not text"),
        ] {
            assert_eq!(error(format, content), said);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(ConfigJson, &bytes);
            let _ = parse(Dockercfg, &bytes);
        }
    }
}
