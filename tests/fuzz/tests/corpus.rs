//! Every target over its seeds, and over some hundred mutations of them: the same ones for the same `UNDERSTUDY_SEED`, in a number
//! that no clock bounds.

use fuzz_targets::mutate::Mutator;
use fuzz_targets::run::{many, shown};
use fuzz_targets::{TARGETS, corpus, named};

/// The mutations that each target is tried with.
const MUTATIONS: usize = 400;
/// The most bytes of one: no target works on so few for long.
const INPUT_BYTES_MAX: usize = 2048;
/// The most bytes of all seeds.
const SEEDS_BYTES_MAX: usize = 200 * 1024;

fn holds(name: &str) {
    let seed = std::env::var("UNDERSTUDY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let target = named(name).expect("it is a target");
    let seeds = corpus::seeds(name).expect("its seeds can be read");
    let mut mutator = Mutator::new(seed, INPUT_BYTES_MAX);
    if let Some((number, failure)) = many(target, &seeds, &mut mutator, MUTATIONS) {
        let input = shown(&failure.input);
        panic!("target {name}, UNDERSTUDY_SEED={seed}, input {number}: {}\n{input}", failure.panic);
    }
}

/// A test for each target, so that they run beside each other.
macro_rules! targets {
    ($($name:ident)*) => {
        /// The targets that have a test.
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                holds(stringify!($name));
            }
        )*
    };
}

targets! {
    accept_headers api_objects certificates cgroup_files checkpoint_file container_log cpu_set credential_answer
    credential_providers cri_messages csi_answers csi_notes docker_config duration env_file expansion flags flex_answer
    http_range image_name kubeconfig kubelet_configuration log_query manifest_address manifest_file manifest_url mount_table
    plugin_registration pod_security pod_status probe_results proc_files pull_records quantity request_headers resolv_conf
    selinux_contexts server_paths spdy_frames streaming_query submitted_pod texts thresholds understudy_configuration
    websocket_frames yaml
}

#[test]
fn every_target_is_tested_and_has_seeds() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(TESTED, names);
    assert!(names.is_sorted(), "{names:?}");
    let mut bytes = 0;
    for name in names {
        let seeds = corpus::seeds(name).unwrap_or_default();
        assert!(seeds.iter().any(|seed| !seed.is_empty()), "{name} has no seeds");
        bytes += seeds.iter().map(Vec::len).sum::<usize>();
    }
    assert!(bytes <= SEEDS_BYTES_MAX, "the seeds have {bytes} bytes");
    let entries = std::fs::read_dir(corpus::directory("")).expect("the seeds");
    assert_eq!(entries.count(), TARGETS.len(), "there are seeds of no target");
}
