//! PURE: the answers of `/healthz` (row 21.11).

use std::collections::BTreeSet;
use std::fmt::Write;

/// One check of `/healthz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The check's name below `/healthz/` and in `exclude`.
    pub name: &'static str,
    /// What has failed; `None` if all is well.
    pub failed: Option<String>,
}

/// The names that the query excludes.
fn excluded(query: &[(String, String)]) -> BTreeSet<&str> {
    query.iter().filter(|(key, _)| key == "exclude").map(|(_, name)| name.as_str()).collect()
}

/// The checks that are counted: those that are not excluded.
pub fn counted<'a>(checks: &'a [Check], query: &[(String, String)]) -> impl Iterator<Item = &'a Check> {
    let excluded = excluded(query);
    checks.iter().filter(move |check| !excluded.contains(check.name))
}

/// Whether all checks that are not excluded pass, and the text of the answer: `ok`, or with `verbose` or after a
/// failure a line for each check. The reason of a failure is told only below `/healthz/<check>`.
pub fn told(checks: &[Check], query: &[(String, String)]) -> (bool, String) {
    let mut excluded = excluded(query);
    let (mut lines, mut well) = (String::new(), true);
    for Check { name, failed } in checks {
        let line = match (excluded.remove(name), failed) {
            (true, _) => writeln!(lines, "[+]{name} excluded: ok"),
            (false, None) => writeln!(lines, "[+]{name} ok"),
            (false, Some(_)) => {
                well = false;
                writeln!(lines, "[-]{name} failed: reason withheld")
            }
        };
        line.expect("a string takes everything");
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.into_iter().map(|name| format!("{name:?}")).collect();
        lines += "warn: some health checks cannot be excluded: no matches for ";
        lines += &unknown.join(",");
        lines += "\n";
    }
    if well && !query.iter().any(|(key, _)| key == "verbose") {
        return (true, "ok".to_owned());
    }
    lines += if well { "healthz check passed\n" } else { "healthz check failed\n" };
    (well, lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::query_pairs;

    fn of(failed: Option<&str>, query: &str) -> (bool, String) {
        let check = |name, failed: Option<&str>| Check { name, failed: failed.map(str::to_owned) };
        told(&[check("ping", None), check("syncloop", failed)], &query_pairs(query))
    }

    #[test]
    fn it_is_short_unless_it_is_asked_to_be_long() {
        assert_eq!(of(None, ""), (true, "ok".to_owned()));
        assert_eq!(of(None, "exclude=syncloop"), (true, "ok".to_owned()));
        let all = "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n";
        assert_eq!(of(None, "verbose"), (true, all.to_owned()));
        let some = "[+]ping excluded: ok\n[+]syncloop ok\n\
            warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nhealthz check passed\n";
        assert_eq!(of(None, "verbose=1&exclude=ping&exclude=b&exclude=a"), (true, some.to_owned()));
    }

    #[test]
    fn what_is_excluded_is_not_counted() {
        let checks = [Check { name: "ping", failed: None }, Check { name: "syncloop", failed: None }];
        let names = |query| counted(&checks, &query_pairs(query)).map(|check| check.name).collect::<Vec<_>>();
        assert_eq!(names("exclude=syncloop&exclude=none"), ["ping"]);
        assert_eq!(names("verbose"), ["ping", "syncloop"]);
    }

    #[test]
    fn a_failure_says_which_and_not_why() {
        let failed = "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
        assert_eq!(of(Some("secret"), ""), (false, failed.to_owned()));
        assert_eq!(of(Some("secret"), "exclude=syncloop"), (true, "ok".to_owned()));
    }
}
