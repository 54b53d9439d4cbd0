//! The seccomp and AppArmor profiles of containers (rows 17.3 and 17.4).

use bridge_cri::wire::{SecurityProfile, security_profile::ProfileType};
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, SeccompProfile};
// Older runtimes take profiles in the form of the annotation.
use pod_rules::annotations::{
    APPARMOR_PREFIX, PROFILE_LOCALHOST_PREFIX, PROFILE_RUNTIME_DEFAULT, PROFILE_UNCONFINED,
};

use super::ConfigError;
use crate::node_rules::NodeRules;

const RUNTIME_DEFAULT: &str = "RuntimeDefault";
const UNCONFINED: &str = "Unconfined";
const LOCALHOST: &str = "Localhost";

fn profile(kind: ProfileType, localhost: impl Into<String>) -> SecurityProfile {
    SecurityProfile { profile_type: kind.into(), localhost_ref: localhost.into() }
}

/// The container's seccomp profile, else the pod's, else the node's default.
pub(super) fn seccomp(
    pod: &Pod,
    container: &Container,
    rules: &NodeRules,
) -> Result<SecurityProfile, ConfigError> {
    let own = container.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
    let of_pod = || pod.spec.as_ref()?.security_context.as_ref()?.seccomp_profile.as_ref();
    match own.or_else(of_pod) {
        Some(asked) => asked_seccomp(asked, rules),
        None if rules.seccomp_default => Ok(profile(ProfileType::RuntimeDefault, "")),
        None => Ok(profile(ProfileType::Unconfined, "")),
    }
}

fn asked_seccomp(asked: &SeccompProfile, rules: &NodeRules) -> Result<SecurityProfile, ConfigError> {
    match asked.type_.as_str() {
        RUNTIME_DEFAULT => Ok(profile(ProfileType::RuntimeDefault, "")),
        LOCALHOST => {
            let file = asked.localhost_profile.as_deref().filter(|file| !file.is_empty());
            let file = file.ok_or(ConfigError::SeccompFileMissing)?;
            // Validation in PodSources has made sure that the path stays below the root.
            let path = rules.seccomp_root.join(file.trim_start_matches('/'));
            Ok(profile(ProfileType::Localhost, path.to_string_lossy()))
        }
        _ => Ok(profile(ProfileType::Unconfined, "")),
    }
}

/// The container's AppArmor profile in the present form and in that of older runtimes; `None` if neither
/// container nor pod sets one.
pub(super) fn apparmor(
    pod: &Pod,
    container: &Container,
) -> Result<Option<(SecurityProfile, String)>, ConfigError> {
    let Some(asked) = asked_apparmor(pod, container) else { return Ok(None) };
    match asked.type_.as_str() {
        RUNTIME_DEFAULT => {
            Ok(Some((profile(ProfileType::RuntimeDefault, ""), PROFILE_RUNTIME_DEFAULT.to_owned())))
        }
        UNCONFINED => Ok(Some((profile(ProfileType::Unconfined, ""), PROFILE_UNCONFINED.to_owned()))),
        LOCALHOST => {
            let name = asked.localhost_profile.ok_or(ConfigError::AppArmorNameMissing)?;
            let old = format!("{PROFILE_LOCALHOST_PREFIX}{name}");
            Ok(Some((profile(ProfileType::Localhost, name), old)))
        }
        other => Err(ConfigError::UnknownAppArmorType(other.to_owned())),
    }
}

/// The container's field; else its annotation, since no API server has turned that into a field for a static
/// pod; else the pod's field.
fn asked_apparmor(pod: &Pod, container: &Container) -> Option<AppArmorProfile> {
    let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.clone());
    let of_pod = || pod.spec.as_ref()?.security_context.as_ref()?.app_armor_profile.clone();
    own.or_else(|| annotated(pod, &container.name)).or_else(of_pod)
}

fn annotated(pod: &Pod, container: &str) -> Option<AppArmorProfile> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let value = annotations.get(&format!("{APPARMOR_PREFIX}{container}"))?;
    let of = |kind: &str, name: Option<&str>| AppArmorProfile {
        type_: kind.to_owned(),
        localhost_profile: name.map(str::to_owned),
    };
    match value.as_str() {
        PROFILE_RUNTIME_DEFAULT => Some(of(RUNTIME_DEFAULT, None)),
        PROFILE_UNCONFINED => Some(of(UNCONFINED, None)),
        // Any other value means no profile.
        other => Some(of(LOCALHOST, Some(other.strip_prefix(PROFILE_LOCALHOST_PREFIX)?))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};

    use super::*;
    use crate::fixtures::{container as plain, pod};

    fn seccomp_field(text: &str) -> Option<SeccompProfile> {
        let (kind, file) = text.split_once(':').map_or((text, None), |(kind, file)| (kind, Some(file)));
        (!kind.is_empty())
            .then(|| SeccompProfile { type_: kind.into(), localhost_profile: file.map(str::to_owned) })
    }

    fn apparmor_field(text: &str) -> Option<AppArmorProfile> {
        seccomp_field(text)
            .map(|field| AppArmorProfile { type_: field.type_, localhost_profile: field.localhost_profile })
    }

    /// The profile's type and reference. The fields are written as `Localhost:name`, or empty for none.
    fn seccomp_of(of_pod: &str, own: &str, default: bool) -> Result<(ProfileType, String), String> {
        let context = SecurityContext { seccomp_profile: seccomp_field(own), ..SecurityContext::default() };
        let container = Container { security_context: Some(context), ..plain("c") };
        let mut pod = pod("Always", vec![], vec![]);
        pod.spec.as_mut().expect("spec").security_context = Some(PodSecurityContext {
            seccomp_profile: seccomp_field(of_pod),
            ..PodSecurityContext::default()
        });
        let rules = NodeRules {
            seccomp_root: PathBuf::from("/k/seccomp"),
            seccomp_default: default,
            ..NodeRules::default()
        };
        let made = seccomp(&pod, &container, &rules).map_err(|error| error.to_string())?;
        Ok((made.profile_type(), made.localhost_ref))
    }

    #[test]
    fn seccomp_is_the_containers_else_the_pods_else_the_nodes() {
        use ProfileType::{Localhost, RuntimeDefault, Unconfined};
        for (of_pod, own, default, kind, file) in [
            ("", "", false, Unconfined, ""),
            ("", "", true, RuntimeDefault, ""),
            ("RuntimeDefault", "", false, RuntimeDefault, ""),
            ("Unconfined", "", true, Unconfined, ""),
            ("RuntimeDefault", "Unconfined", true, Unconfined, ""),
            ("Unconfined", "RuntimeDefault", false, RuntimeDefault, ""),
            ("", "Localhost:a.json", true, Localhost, "/k/seccomp/a.json"),
            ("Localhost:profiles/b.json", "", false, Localhost, "/k/seccomp/profiles/b.json"),
            ("", "Localhost:/etc/passwd", false, Localhost, "/k/seccomp/etc/passwd"),
        ] {
            let made = seccomp_of(of_pod, own, default);
            assert_eq!(made, Ok((kind, file.to_owned())), "{of_pod} {own} {default}");
        }
        for broken in ["Localhost", "Localhost:"] {
            let expected = "localhostProfile must be set if seccompProfile type is Localhost.";
            assert_eq!(seccomp_of("", broken, false), Err(expected.to_owned()));
        }
    }

    fn apparmor_of(of_pod: &str, annotation: &str, own: &str) -> Result<String, String> {
        let context =
            SecurityContext { app_armor_profile: apparmor_field(own), ..SecurityContext::default() };
        let container = Container { security_context: Some(context), ..plain("c") };
        let mut pod = pod("Always", vec![], vec![]);
        if !annotation.is_empty() {
            let key = "container.apparmor.security.beta.kubernetes.io/c".to_owned();
            pod.metadata.annotations = Some([(key, annotation.to_owned())].into());
        }
        pod.spec.as_mut().expect("spec").security_context = Some(PodSecurityContext {
            app_armor_profile: apparmor_field(of_pod),
            ..PodSecurityContext::default()
        });
        match apparmor(&pod, &container).map_err(|error| error.to_string())? {
            None => Ok("none".to_owned()),
            Some((new, old)) => Ok(format!("{:?} {:?} {old}", new.profile_type(), new.localhost_ref)),
        }
    }

    #[test]
    fn apparmor_is_the_containers_field_else_its_annotation_else_the_pods_field() {
        for (of_pod, annotation, own, expected) in [
            ("", "", "", "none"),
            ("RuntimeDefault", "", "", "RuntimeDefault \"\" runtime/default"),
            ("Unconfined", "", "", "Unconfined \"\" unconfined"),
            ("Localhost:p", "", "", "Localhost \"p\" localhost/p"),
            ("Localhost:p", "runtime/default", "", "RuntimeDefault \"\" runtime/default"),
            ("", "localhost/a/b", "", "Localhost \"a/b\" localhost/a/b"),
            ("Unconfined", "unconfined", "RuntimeDefault", "RuntimeDefault \"\" runtime/default"),
            ("Unconfined", "who knows", "", "Unconfined \"\" unconfined"),
            ("", "who knows", "", "none"),
        ] {
            assert_eq!(
                apparmor_of(of_pod, annotation, own),
                Ok(expected.to_owned()),
                "{of_pod} {annotation} {own}"
            );
        }
        let missing = Err("missing localhost apparmor profile name".to_owned());
        assert_eq!(apparmor_of("", "", "Localhost"), missing);
        assert_eq!(apparmor_of("", "", "x"), Err("unknown apparmor profile type: \"x\"".to_owned()));
    }
}
