//! The behaviour of the pods' containers: that of the sample image's commands, as far as it is visible from outside.

use std::time::Duration;

use bridge_cri::fake::{Behaviour, FakeRuntime, Match, RegistryImage};
use k8s_openapi::api::core::v1::{Container, Pod};

/// The time of a pull, long enough to be seen.
const PULL: Duration = Duration::from_millis(800);
/// The time that an ordinary init container works.
const INIT: Duration = Duration::from_secs(1);

/// Scripts the runtime for the containers of these pods.
pub fn script(runtime: &FakeRuntime, pods: &[Pod]) {
    let mut scripts = Vec::new();
    for spec in pods.iter().filter_map(|pod| pod.spec.as_ref()) {
        let inits = spec
            .init_containers
            .iter()
            .flatten()
            .map(|container| (container, container.restart_policy.as_deref() != Some("Always")));
        for (container, ends) in inits.chain(spec.containers.iter().map(|container| (container, false))) {
            scripts.push((which(container), behaviour(&words(container), ends)));
            if let Some(image) = &container.image {
                runtime.publish(image, RegistryImage { takes: PULL, ..RegistryImage::default() });
            }
        }
    }
    // Of several scripts that match, the last one is played, so the most specific one goes last.
    scripts.sort_by_key(|(which, _)| match which {
        Match::Command(words) => words.len() + 1,
        _ => 0,
    });
    for (which, behaviour) in scripts {
        runtime.behave(which, vec![behaviour]);
    }
}

fn words(container: &Container) -> Vec<&str> {
    container.command.iter().chain(&container.args).flatten().map(String::as_str).collect()
}

/// Matches a container by its command, since names recur in several pods.
fn which(container: &Container) -> Match {
    match words(container).join(" ") {
        words if words.is_empty() => Match::Container(container.name.clone()),
        words => Match::Command(words),
    }
}

fn behaviour(words: &[&str], is_init: bool) -> Behaviour {
    let seconds = |index: usize| {
        let given = words.get(index).and_then(|word| word.trim_end_matches('s').parse::<f64>().ok());
        given.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    };
    let program = words.first().map(|program| program.rsplit('/').next().unwrap_or(program));
    let code = || words.get(2).and_then(|word| word.parse().ok()).unwrap_or(1);
    let mut behaviour = match (program, seconds(1)) {
        (Some("crash"), span) => Behaviour::exits(span.unwrap_or(INIT), code()),
        (Some("job" | "sleep"), Some(span)) => Behaviour::exits(span, 0),
        (Some("true"), _) => Behaviour::exits(Duration::ZERO, 0),
        (Some("false"), _) => Behaviour::exits(Duration::ZERO, 1),
        _ if is_init => Behaviour::exits(INIT, 0),
        _ => Behaviour::forever(),
    };
    behaviour.log = vec![format!("played by the fake runtime: {}", words.join(" "))];
    behaviour
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasts(words: &[&str], is_init: bool) -> Option<(u64, i32)> {
        let behaviour = behaviour(words, is_init);
        Some((behaviour.runs_for?.as_secs(), behaviour.exit_code))
    }

    #[test]
    fn commands_behave_as_on_a_real_node() {
        assert_eq!(lasts(&["crash", "3", "1"], false), Some((3, 1)));
        assert_eq!(lasts(&["crash"], false), Some((1, 1)));
        assert_eq!(lasts(&["job", "10"], false), Some((10, 0)));
        assert_eq!(lasts(&["/bin/sleep", "5s"], false), Some((5, 0)));
        assert_eq!(lasts(&["sh", "-c", "echo"], true), Some((1, 0)));
        assert_eq!(lasts(&["serve", "8080", "/www"], false), None);
        assert_eq!(lasts(&["sleep", "infinity"], false), None);
        assert_eq!(lasts(&["sleep", "1e300"], false), None);
    }
}
