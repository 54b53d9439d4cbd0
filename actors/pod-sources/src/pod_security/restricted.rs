//! The checks that the level restricted adds.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Volume;

use super::baseline::{forbidden_seccomp, seccomp as baseline_seccomp};
use super::subject::{Subject, Violation, named, plural, quoted, setters};

pub(super) fn escalation(subject: &Subject<'_>) -> Option<Violation> {
    let containers = subject.containers_that(|one| {
        one.context.and_then(|context| context.allow_privilege_escalation) != Some(false)
    });
    if containers.is_empty() {
        return None;
    }
    Violation::new(
        "allowPrivilegeEscalation != false",
        format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&containers)),
    )
}

pub(super) fn escalation_but_on_windows(subject: &Subject<'_>) -> Option<Violation> {
    if subject.is_for_windows() { None } else { escalation(subject) }
}

pub(super) fn capabilities(subject: &Subject<'_>) -> Option<Violation> {
    let without_drop = subject.containers_that(|one| {
        let dropped = one.context.and_then(|context| context.capabilities.as_ref());
        let mut dropped = dropped.into_iter().flat_map(|capabilities| capabilities.drop.iter().flatten());
        !dropped.any(|one| one == "ALL")
    });
    let mut values: BTreeSet<&str> = BTreeSet::new();
    let adding = subject.containers_that(|one| {
        let added = one.context.and_then(|context| context.capabilities.as_ref());
        let added = added.into_iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        let forbidden = added.map(String::as_str).filter(|one| *one != "NET_BIND_SERVICE");
        let forbidden: Vec<&str> = forbidden.collect();
        values.extend(&forbidden);
        !forbidden.is_empty()
    });
    let mut details = Vec::new();
    if !without_drop.is_empty() {
        let containers = named(&without_drop);
        details.push(format!("{containers} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if !adding.is_empty() {
        let (containers, values) = (named(&adding), quoted(values));
        details.push(format!("{containers} must not include {values} in securityContext.capabilities.add"));
    }
    if details.is_empty() { None } else { Violation::new("unrestricted capabilities", details.join("; ")) }
}

pub(super) fn capabilities_but_on_windows(subject: &Subject<'_>) -> Option<Violation> {
    if subject.is_for_windows() { None } else { capabilities(subject) }
}

/// The kind of a volume that is not allowed; `None` for one that is.
fn restricted_kind(volume: &Volume) -> Option<&'static str> {
    let is_allowed = volume.config_map.is_some()
        || volume.csi.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.ephemeral.is_some()
        || volume.image.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.projected.is_some()
        || volume.secret.is_some();
    let kinds = [
        ("hostPath", volume.host_path.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("fc", volume.fc.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.is_some()),
    ];
    let kind = kinds.into_iter().find(|(_, is_it)| *is_it).map_or("unknown", |(kind, _)| kind);
    (!is_allowed).then_some(kind)
}

pub(super) fn volumes(subject: &Subject<'_>) -> Option<Violation> {
    let restricted = subject.spec.volumes.iter().flatten();
    let restricted = restricted.filter_map(|volume| Some((volume.name.as_str(), restricted_kind(volume)?)));
    let (names, kinds): (Vec<&str>, BTreeSet<&str>) = restricted.unzip();
    if names.is_empty() {
        return None;
    }
    let (word, uses) = (plural("volume", "volumes", names.len()), plural("uses", "use", names.len()));
    let kind = plural("restricted volume type", "restricted volume types", kinds.len());
    Violation::new(
        "restricted volume types",
        format!("{word} {} {uses} {kind} {}", quoted(names), quoted(kinds)),
    )
}

pub(super) fn non_root(subject: &Subject<'_>) -> Option<Violation> {
    let of_pod = subject.context().and_then(|context| context.run_as_non_root);
    let explicit =
        subject.containers_that(|one| one.context.and_then(|context| context.run_as_non_root) == Some(false));
    let implicit = subject.containers_that(|one| {
        one.context.and_then(|context| context.run_as_non_root).is_none() && of_pod != Some(true)
    });
    let detail = match setters(of_pod == Some(false), &explicit) {
        Some(setters) => format!("{setters} must not set securityContext.runAsNonRoot=false"),
        None if implicit.is_empty() => return None,
        None => format!("pod or {} must set securityContext.runAsNonRoot=true", named(&implicit)),
    };
    Violation::new("runAsNonRoot != true", detail)
}

pub(super) fn non_root_without_user_namespace(subject: &Subject<'_>) -> Option<Violation> {
    if subject.has_user_namespace() { None } else { non_root(subject) }
}

pub(super) fn user(subject: &Subject<'_>) -> Option<Violation> {
    let pod = subject.context().is_some_and(|context| context.run_as_user == Some(0));
    let containers =
        subject.containers_that(|one| one.context.is_some_and(|context| context.run_as_user == Some(0)));
    let setters = setters(pod, &containers)?;
    Violation::new("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}

pub(super) fn user_without_user_namespace(subject: &Subject<'_>) -> Option<Violation> {
    if subject.has_user_namespace() { None } else { user(subject) }
}

pub(super) fn seccomp(subject: &Subject<'_>) -> Option<Violation> {
    if let Some(explicit) = baseline_seccomp(subject) {
        return Some(explicit);
    }
    let of_pod = subject.context().and_then(|context| context.seccomp_profile.as_ref());
    if of_pod.is_some() && forbidden_seccomp(of_pod).is_none() {
        return None;
    }
    let implicit = subject
        .containers_that(|one| one.context.and_then(|context| context.seccomp_profile.as_ref()).is_none());
    if implicit.is_empty() {
        return None;
    }
    let containers = named(&implicit);
    Violation::new(
        "seccompProfile",
        format!(
            "pod or {containers} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        ),
    )
}

pub(super) fn seccomp_but_on_windows(subject: &Subject<'_>) -> Option<Violation> {
    if subject.is_for_windows() { None } else { seccomp(subject) }
}
