//! The container hash of row 5.8, byte for byte as the Go kubelet writes it: each kubelet adopts containers
//! that the other has started, without a restart.

use k8s_openapi::api::core::v1::Container;
use pod_rules::go_json;

/// The most bytes of an image that are hashed. None of a longer name can be pulled, so that no kubelet adopts a container of it.
const IMAGE_BYTES_MAX: usize = 4096;

const FNV1A_32_OFFSET: u32 = 0x811c_9dc5;
const FNV1A_32_PRIME: u32 = 0x0100_0193;

/// The hash over `{image,name}`. A running container with another hash in its annotation is replaced.
pub fn container_hash(container: &Container) -> u64 {
    hash_of(&container.name, container.image.as_deref().unwrap_or_default())
}

/// The hash in the form of the annotation `io.kubernetes.container.hash`.
pub fn hash_text(hash: u64) -> String {
    format!("{hash:x}")
}

/// FNV-1a 32 over the JSON text in the form in which Go's spew prints a byte slice: `([]uint8)[123 34 …]`.
fn hash_of(name: &str, image: &str) -> u64 {
    let image = &image[..image.floor_char_boundary(IMAGE_BYTES_MAX)];
    let json = format!("{{\"image\":{},\"name\":{}}}", go_json::string(image), go_json::string(name));
    let mut hash = Fnv1a(FNV1A_32_OFFSET);
    hash.write("([]uint8)[");
    for (index, byte) in json.bytes().enumerate() {
        if index > 0 {
            hash.write(" ");
        }
        hash.write(&byte.to_string());
    }
    hash.write("]");
    u64::from(hash.0)
}

struct Fnv1a(u32);

impl Fnv1a {
    fn write(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(FNV1A_32_PRIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values computed by Go's own fnv, json and spew; upstream's test has the first one.
    #[test]
    fn hashes_equal_those_of_the_go_kubelet() {
        for (name, image, expected) in [
            ("test_container", "foo/image:v1", 0x8e45_cbd0),
            ("a", "b", 0x646f_ef1b),
            ("web", "nginx:1.27", 0x0e22_0f96),
            ("foo", "busybox", 0xfbac_95ff),
            ("", "", 0xedd6_7cc4),
            ("we\"ird", "reg.io/<x>&é\u{2028}:1", 0xe778_7491),
            ("pause", "registry.k8s.io/pause:3.10", 0x28ed_4cd7),
            ("x", "\u{1}\u{7f}\t\\", 0xa145_83a9),
        ] {
            assert_eq!(hash_of(name, image), expected, "{name} {image}");
        }
    }

    /// Annotations read from containers that kubelet v1.36.2 had created.
    #[test]
    fn hashes_are_those_that_a_go_kubelet_left_on_its_containers() {
        const DEMO: &str = "understudy.dev/demo:1";
        const DIGEST: &str = "sha256:1d4df63bf6cec5e321fbc9c60cf6c36f45706e55a3f147b1df2dc1dee1cccb37";
        for (name, image, annotation) in [
            ("main", DEMO, "a4726473"),
            ("other", DEMO, "f00d87a7"),
            ("done", DEMO, "f92e2477"),
            ("runs", DEMO, "cb7b7c59"),
            ("prepare", DEMO, "2b16e8f1"),
            ("sidecar", DEMO, "ff712195"),
            ("x-0123456789-0123456789-0123456789-0123456789-0123456789-012345", DEMO, "66b62616"),
            ("web", "registry.example:5000/team/web:v1.27.0-rc.1", "4a8b3e23"),
            ("a", "docker.io/library/busybox:latest", "a71d1be"),
            ("short", "busybox", "23de5ccf"),
            ("coredns", "registry.k8s.io/coredns/coredns:v1.12.1", "e9bf792"),
            ("kube-proxy", "registry.k8s.io/kube-proxy:v1.36.2", "5bca1b89"),
            ("etcd", "quay.io/a__b/c.d-e:3.6_7", "b1b94b5f"),
            ("main", &format!("understudy.dev/demo@{DIGEST}"), "a8c49a5d"),
            ("tag-and-digest", &format!("{DEMO}@{DIGEST}"), "dcc670cc"),
        ] {
            assert_eq!(hash_text(hash_of(name, image)), annotation, "{name} {image}");
        }
    }

    #[test]
    fn the_annotation_has_no_leading_zeros() {
        assert_eq!(hash_text(hash_of("web", "nginx:1.27")), "e220f96");
    }
}
