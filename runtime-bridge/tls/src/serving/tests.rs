//! Client certificates made by trusted and untrusted authorities, and the server's own files.

use std::os::unix::fs::PermissionsExt;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::*;

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

fn client(issuer: &Issuer<'static, KeyPair>, name: &str, organization: &str) -> Chain {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    [certificate.der().clone()].into()
}

fn now() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

#[test]
fn a_certificate_names_its_user_and_groups_if_its_authority_is_believed() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let ((pem, believed), (_, stranger)) = (authority(), authority());
    let verifier = client::verifier(pem.as_bytes(), provider).unwrap();
    let judge = |chain: &Chain| client::identify(Some(&*verifier), chain, now());
    match judge(&client(&believed, "jane", "system:masters")) {
        ClientCertificate::Valid(identity) => {
            assert_eq!(
                (&*identity.name, &identity.organizations[..]),
                ("jane", &["system:masters".to_owned()][..])
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(judge(&client(&stranger, "jane", "system:masters")), ClientCertificate::Refused(_)));
    assert_eq!(judge(&client(&believed, "", "system:masters")), ClientCertificate::Absent);
    assert_eq!(judge(&Arc::from([])), ClientCertificate::Absent);
    let unasked = client::identify(None, &client(&believed, "jane", "x"), now());
    assert_eq!(unasked, ClientCertificate::Absent);
}

#[test]
fn a_chain_that_is_longer_than_any_clients_is_not_looked_at() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (pem, believed) = authority();
    let verifier = client::verifier(pem.as_bytes(), provider).unwrap();
    let own = client(&believed, "jane", "x");
    let with = |others: usize| -> Chain {
        own.iter().chain(std::iter::repeat_n(&own[0], others)).cloned().collect()
    };
    assert!(matches!(client::identify(Some(&*verifier), &with(4), now()), ClientCertificate::Valid(_)));
    let refused = client::identify(Some(&*verifier), &with(5), now());
    let reason = "it comes with 5 others, and at most 4 are looked at";
    assert_eq!(refused, ClientCertificate::Refused(reason.to_owned()));
}

#[test]
fn a_certificate_of_our_own_is_made_once_and_private() {
    let directory = tempfile::tempdir().unwrap();
    let source = CertificateSource::SelfSigned { directory: directory.path().join("pki"), host: "n".into() };
    files::ensure(&source, now().as_second()).unwrap();
    let first = files::material(&source, None).unwrap();
    let (certificate, key) = source.files().unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    files::ensure(&source, now().as_second()).unwrap();
    assert!(first == files::material(&source, None).unwrap(), "an existing pair is kept");
    let settings = ServingSettings {
        protocol: protocol("", &[], &[]).unwrap(),
        certificate: source.clone(),
        client_ca: None,
    };
    assert!(load(&settings, &first).is_ok());
    std::fs::remove_file(&key).unwrap();
    let error = files::ensure(&source, now().as_second()).unwrap_err().to_string();
    let said = format!(
        "error reading {}, certificate and key must be supplied as a pair: there is no {}",
        certificate.display(),
        key.display()
    );
    assert_eq!(error, said);
}

#[test]
fn a_file_that_holds_something_else_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    std::fs::write(file("c"), "nonsense").unwrap();
    std::fs::write(file("k"), "nonsense").unwrap();
    let certificate = CertificateSource::Files { certificate: file("c"), key: file("k") };
    let material = files::material(&certificate, None).unwrap();
    let settings =
        ServingSettings { protocol: protocol("", &[], &[]).unwrap(), certificate, client_ca: None };
    let error = load(&settings, &material).err().unwrap().to_string();
    assert!(error.contains("/c: no certificate"), "{error}");
}
