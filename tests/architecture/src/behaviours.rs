//! `docs/behaviours.md`: a row that works is shown by tests that are where it says, and every row that the source cites is
//! in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrows;
use crate::source::{File, directories, files, root};

/// The page, relative to the workspace's root.
const PAGE: &str = "docs/behaviours.md";
/// The first line of each of its tables.
const HEADING: [&str; 4] = ["Row", "Behaviour", "State", "Shown by"];
/// The directories of sources.
const SOURCES: [&str; 5] = ["messages", "actors", "runtime-bridge", "bin", "tests"];
/// Where suites lie, a directory each.
const SUITES: &str = "tests/suites/tests";

/// A row of the page.
struct Row {
    /// Its section and its number, as `5.3`.
    id: String,
    /// `works`, `in part: …` or `not yet`.
    state: String,
    /// The tests that show it, as `suite::module::test`.
    tests: Vec<String>,
}

fn is_id(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').is_some_and(|(section, number)| is_number(section) && is_number(number))
}

/// The rows of all tables, in order.
fn rows() -> Vec<Row> {
    let path = root().join(PAGE);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells == HEADING || cells.iter().all(|cell| cell.bytes().all(|byte| byte == b'-')) {
            continue;
        }
        let &[id, _, state, shown_by] = &cells[..] else { panic!("{PAGE}: not four cells: {line}") };
        assert!(is_id(id), "{PAGE}: {id:?} is no row's ID: {line}");
        let tests = shown_by.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        rows.push(Row { id: id.to_owned(), state: state.to_owned(), tests });
    }
    assert!(!rows.is_empty(), "{PAGE} has no rows");
    rows
}

fn sources() -> Vec<File> {
    SOURCES.into_iter().flat_map(files).collect()
}

/// The name that a text begins with; empty if it begins with something else.
fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The names of functions, and all quoted texts, since the cases of a suite are named in quotes.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.split("fn ").skip(1).map(first_name);
    functions.chain(text.split('"').filter(|quoted| !quoted.is_empty() && first_name(quoted) == *quoted))
}

/// The rows that a source cites: `row 5.3`, `rows 2.2 and 2.3`, `rows 4.1–4.3, 4.7`. A comment may go on in its next line.
fn cited(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!']));
    let mut found = Vec::new();
    let mut is_citation = false;
    for word in lines.flat_map(str::split_whitespace) {
        match word.trim_matches(|c: char| !c.is_alphanumeric()).trim_end_matches("'s") {
            // A mark at the end shows that this is another word: `twice in a row: …`.
            "row" | "rows" | "Row" | "Rows" => is_citation = word.ends_with(char::is_alphanumeric),
            "and" | "to" if is_citation => {}
            plain if is_citation => {
                let ids: Vec<&str> = plain.split(['–', '-']).collect();
                let is_cited = ids.iter().all(|id| is_id(id));
                if is_cited {
                    found.extend(ids.into_iter().map(str::to_owned));
                }
                is_citation = is_cited && !word.ends_with([')', '.', ';', ':']);
            }
            _ => {}
        }
    }
    found
}

#[test]
fn every_behaviour_has_one_row_and_a_state() {
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for Row { id, state, .. } in rows() {
        let is_state = state == "works"
            || state == "not yet"
            || state.strip_prefix("in part: ").is_some_and(|missing| !missing.is_empty());
        if !is_state {
            wrong.push(format!("{id} has the state {state:?}"));
        }
        if !seen.insert(id.clone()) {
            wrong.push(format!("{id} is there twice"));
        }
    }
    assert!(wrong.is_empty(), "{PAGE}: {wrong:#?}");
}

#[test]
fn what_works_is_shown_by_a_test() {
    let unshown: Vec<String> = rows()
        .into_iter()
        .filter(|row| row.state == "works" && row.tests.is_empty())
        .map(|row| row.id)
        .collect();
    assert!(unshown.is_empty(), "{PAGE}: rows that work and name no test: {unshown:?}");
}

/// Where a crate's or a suite's tests lie. Suites lie beside each other, and one is called as the crate that it tests.
fn homes() -> BTreeMap<String, Vec<String>> {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, member) in arrows::workspace() {
        homes.entry(name).or_default().push(format!("{}/", member.directory));
    }
    for suite in directories(SUITES) {
        homes.entry(suite.clone()).or_default().push(format!("{SUITES}/{suite}/"));
    }
    homes
}

#[test]
fn the_tests_of_behaviours_are_where_the_page_says() {
    let (sources, homes) = (sources(), homes());
    let there: BTreeSet<(&str, &str)> =
        sources.iter().flat_map(|file| names(&file.text).map(|name| (name, file.path.as_str()))).collect();
    let mut missing = Vec::new();
    for row in rows() {
        for test in &row.tests {
            let (home, name) = test.split_once("::").unwrap_or_default();
            let name = name.rsplit("::").next().unwrap_or_default();
            let homes = homes.get(home).map(Vec::as_slice).unwrap_or_default();
            let mut paths = there.range((name, "")..).take_while(|(found, _)| *found == name);
            if !paths.any(|(_, path)| homes.iter().any(|home| path.starts_with(home))) {
                missing.push(format!("{}: {test}", row.id));
            }
        }
    }
    assert!(missing.is_empty(), "{PAGE}: no such crate or suite, or it has no such test: {missing:#?}");
}

#[test]
fn rows_that_the_source_cites_are_there() {
    let known: BTreeSet<String> = rows().into_iter().map(|row| row.id).collect();
    let mut unknown = Vec::new();
    let mut found = 0;
    for file in sources() {
        let ids = cited(&file.text);
        found += ids.len();
        unknown.extend(
            ids.into_iter().filter(|id| !known.contains(id)).map(|id| format!("{}: row {id}", file.path)),
        );
    }
    assert!(found > 0, "no source cites any row");
    assert!(unknown.is_empty(), "{PAGE} lacks what is cited: {unknown:#?}");
}

#[test]
fn no_source_cites_another_list_of_features() {
    // In two parts, so that this file does not cite it either.
    let other = ["FEAT", "URES"].concat();
    let citing: Vec<String> =
        sources().into_iter().filter(|file| file.text.contains(&other)).map(|file| file.path).collect();
    assert!(citing.is_empty(), "these cite no row of {PAGE}: {citing:?}");
}

#[test]
fn citations_are_found_however_they_are_written() {
    let text = "//! One (row 5.3). 10.1 is none.\n/// Some (rows 4.1–4.3, 4.7), twice in a row: 5.4 too.\n\
                //! More (rows 21.4 to 21.6,\n//! 30.6 and 2.2); row 16 is a section, row 7.1's no other.\n";
    assert_eq!(cited(text), ["5.3", "4.1", "4.3", "4.7", "21.4", "21.6", "30.6", "2.2", "7.1"]);
    assert_eq!(names("fn a_test() { case(\"a_case\") }").collect::<Vec<_>>(), ["a_test", "a_case"]);
}
