//! The two ways to write a kernel parameter's name.

/// The name with dots between its segments. A name whose first separator is a slash has slashes between segments and dots
/// inside them, and the two are exchanged: `net/ipv4/conf/eth0.1/forwarding` is `net.ipv4.conf.eth0/1.forwarding`.
pub fn with_dots(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name[first..].starts_with('/') => {
            let exchanged = |letter| match letter {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(exchanged).collect()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_separator_decides() {
        for (written, meant) in [
            ("plain", "plain"),
            ("net/ipv4/conf/eth0.1/forwarding", "net.ipv4.conf.eth0/1.forwarding"),
            ("net.ipv4.conf.eth0/2.forwarding", "net.ipv4.conf.eth0/2.forwarding"),
        ] {
            assert_eq!(with_dots(written), meant);
        }
    }
}
