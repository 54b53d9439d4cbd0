//! A manifest's author chooses how many of everything there are: twice as many take twice the work.

use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, EnvVarSource, FileKeySelector, Pod, PodAffinity, PodAffinityTerm, PodSpec,
    ResourceClaim, ResourceRequirements, TopologySpreadConstraint, Volume, VolumeDevice, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::validate_pod;

const MANY: usize = 20_000;

fn many<T>(one: impl Fn(usize) -> T) -> Option<Vec<T>> {
    Some((0..MANY).map(one).collect())
}

/// How many of the errors that are found in time end so.
fn found(spec: PodSpec, ends: &[&str]) -> Vec<usize> {
    let pod = Pod { spec: Some(spec), ..Pod::default() };
    let begun = tokio::time::Instant::now();
    let errors = validate_pod(&pod);
    let took = begun.elapsed();
    assert!(took.as_secs() < 5, "{took:?}");
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    ends.iter().map(|end| texts.iter().filter(|text| text.ends_with(end)).count()).collect()
}

fn of_container(container: Container) -> PodSpec {
    PodSpec { containers: vec![container], ..PodSpec::default() }
}

#[test]
fn mounts_and_devices() {
    let spec = of_container(Container {
        volume_mounts: many(|number| VolumeMount {
            name: format!("m{number:05}"),
            mount_path: format!("/m{number:05}"),
            ..VolumeMount::default()
        }),
        // Every other one is among the mounts.
        volume_devices: many(|number| VolumeDevice {
            name: format!("m{:05}", 2 * number),
            device_path: format!("/m{:05}", 2 * number),
        }),
        ..Container::default()
    });
    let ends = [
        "must not already exist in volumeDevices",
        "must not already exist as a path in volumeDevices",
        "must not already exist in volumeMounts",
        "must not already exist as a path in volumeMounts",
    ];
    assert_eq!(found(spec, &ends), [MANY / 2; 4]);
}

#[test]
fn topology_and_affinity() {
    let term = PodAffinityTerm {
        topology_key: "zone".to_owned(),
        label_selector: Some(LabelSelector::default()),
        match_label_keys: many(|number| format!("k{number:05}")),
        mismatch_label_keys: many(|number| format!("k{:05}", 2 * number)),
        ..PodAffinityTerm::default()
    };
    let spec = PodSpec {
        affinity: Some(Affinity {
            pod_affinity: Some(PodAffinity {
                required_during_scheduling_ignored_during_execution: Some(vec![term]),
                ..PodAffinity::default()
            }),
            ..Affinity::default()
        }),
        topology_spread_constraints: many(|number| TopologySpreadConstraint {
            max_skew: 1,
            // The last one is the first one again.
            topology_key: format!("k{:05}", number % (MANY - 1)),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            ..TopologySpreadConstraint::default()
        }),
        ..PodSpec::default()
    };
    let ends = [
        "exists in both matchLabelKeys and mismatchLabelKeys",
        "Duplicate value: \"{k00000, DoNotSchedule}\"",
    ];
    assert_eq!(found(spec, &ends), [MANY / 2, 1]);
}

#[test]
fn variables_from_files_of_volumes() {
    let variable = |number: usize| EnvVar {
        name: format!("V{number}"),
        value_from: Some(EnvVarSource {
            file_key_ref: Some(FileKeySelector {
                volume_name: format!("v{:05}", 2 * number),
                ..FileKeySelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let spec = PodSpec {
        volumes: many(|number| Volume { name: format!("v{number:05}"), ..Volume::default() }),
        ..of_container(Container { env: many(variable), ..Container::default() })
    };
    let ends = ["referenced volume must be of type emptyDir", "Not found: \"v39998\""];
    assert_eq!(found(spec, &ends), [MANY / 2, 1]);
}

#[test]
fn claims_of_a_container() {
    let claim = |number: usize| ResourceClaim { name: format!("c{number:05}"), request: None };
    let claims = (0..MANY).map(claim).chain([ResourceClaim { request: Some("part".to_owned()), ..claim(1) }]);
    let spec = of_container(Container {
        resources: Some(ResourceRequirements {
            claims: Some(claims.collect()),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    });
    assert_eq!(found(spec, &["Duplicate value: \"c00001/part\""]), [1]);
}
