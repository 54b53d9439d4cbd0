//! Reading Rust source without a compiler: enough for rules about words.

use std::path::{Path, PathBuf};

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies two levels below the root").to_owned()
}

/// A source file.
pub struct File {
    /// Its path from the root.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Whether its module is declared `#[cfg(test)]`.
    pub is_test: bool,
}

/// The modules that a file declares for tests alone, as paths without the ending.
fn test_modules(file: &File) -> Vec<String> {
    let (directory, name) = file.path.rsplit_once('/').expect("a source file lies in a directory");
    let directory = match name {
        "lib.rs" | "main.rs" | "mod.rs" => directory.to_owned(),
        other => format!("{directory}/{}", other.trim_end_matches(".rs")),
    };
    let code = plain_code(&file.text);
    let declared = code.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let item = rest.split_once(';')?.0.trim();
        let module = item.strip_prefix("pub ").unwrap_or(item).strip_prefix("mod ")?;
        (!module.contains('{')).then(|| format!("{directory}/{module}"))
    });
    declared.collect()
}

impl File {
    /// Whether the whole file exists for tests alone.
    fn is_of_tests(&self) -> bool {
        let names = ["/tests.rs", "_tests.rs"];
        self.is_test || self.path.contains("/tests/") || names.iter().any(|name| self.path.ends_with(name))
    }

    /// The file's code without comments, without the contents of strings, and without its tests.
    pub fn code(&self) -> String {
        if self.is_of_tests() {
            return String::new();
        }
        without_tests(&plain_code(&self.text))
    }

    /// The string literals of the file's code, without its tests, by line; escapes stay as they are written.
    pub fn strings(&self) -> Vec<(usize, String)> {
        let (marked, strings) = self.marked();
        let marks = marked
            .lines()
            .enumerate()
            .flat_map(|(number, line)| marks(line).map(move |mark| (number + 1, mark)));
        marks.map(|(line, mark)| (line, strings[mark].clone())).collect()
    }

    /// The string literals in the file's constants.
    pub fn constants(&self) -> Vec<String> {
        let (marked, strings) = self.marked();
        let values = marked.split("const ").skip(1).filter_map(|item| {
            let (head, value) = item.split_once('=')?;
            head.contains("&str").then(|| value.split_once(";\n").map_or(value, |(value, _)| value))
        });
        values.flat_map(marks).map(|mark| strings[mark].clone()).collect()
    }

    /// The code as [`File::code`] returns it, but with the number of each literal between quotes, and the literals.
    fn marked(&self) -> (String, Vec<String>) {
        let mut strings = Vec::new();
        if self.is_of_tests() {
            return (String::new(), strings);
        }
        let marked = stripped(&self.text, |literal| {
            strings.push(literal);
            format!("\"{}\"", strings.len() - 1)
        });
        (without_tests(&marked), strings)
    }
}

/// Every Rust file under a directory of the workspace, sorted.
pub fn files(under: &str) -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut open = vec![root.join(under)];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{directory:?}: {e}")) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                found.push(File { path, text, is_test: false });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let tests: Vec<String> = found.iter().flat_map(test_modules).collect();
    for file in &mut found {
        let is = |module: &String| {
            file.path == format!("{module}.rs") || file.path.starts_with(&format!("{module}/"))
        };
        file.is_test = tests.iter().any(is);
    }
    assert!(!found.is_empty(), "no Rust files under {under}");
    found
}

/// The directories below a directory of the workspace, sorted.
pub fn directories(under: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(under)).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The text without comments and the contents of strings and characters; lines keep their numbers.
pub fn plain_code(text: &str) -> String {
    stripped(text, |_| String::new())
}

/// The numbers between the quotes of marked code.
fn marks(marked: &str) -> impl Iterator<Item = usize> {
    marked.split('"').skip(1).step_by(2).map(|mark| mark.parse().expect("a number stands there"))
}

/// As [`plain_code`], with `shown` applied to each string's contents.
fn stripped(text: &str, mut shown: impl FnMut(String) -> String) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let is = |at: usize, word: &str| word.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    while at < chars.len() {
        let end = match chars[at] {
            '/' if is(at, "//") => (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len()),
            '/' if is(at, "/*") => {
                (at + 2..chars.len()).find(|&i| is(i, "*/")).map_or(chars.len(), |i| i + 2)
            }
            'r' if raw_string(&chars, at).is_some() => raw_string(&chars, at).expect("just matched"),
            '"' => {
                let mut i = at + 1;
                while i < chars.len() && chars[i] != '"' {
                    i += if chars[i] == '\\' { 2 } else { 1 };
                }
                i + 1
            }
            '\'' if chars.get(at + 2) == Some(&'\'') => at + 3,
            '\'' if chars.get(at + 1) == Some(&'\\') => {
                (at + 3..chars.len()).find(|&i| chars[i] == '\'').map_or(chars.len(), |i| i + 1)
            }
            other => {
                out.push(other);
                at += 1;
                continue;
            }
        };
        let end = end.min(chars.len());
        if matches!(chars[at], '"' | 'r') {
            let literal: String = chars[at..end].iter().collect();
            out.push_str(&shown(
                literal.trim_start_matches('r').trim_matches('#').trim_matches('"').to_owned(),
            ));
        }
        out.extend(chars[at..end].iter().filter(|c| **c == '\n'));
        at = end;
    }
    out
}

/// The end of a raw string that begins here.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    if at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then(|| {
        let close: String = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
        let from = at + 2 + hashes;
        let ends = |i: usize| close.chars().enumerate().all(|(n, c)| chars.get(i + n) == Some(&c));
        (from..chars.len()).find(|&i| ends(i)).map_or(chars.len(), |i| i + close.len())
    })
}

/// Plain code without `#[cfg(test)] mod … { … }`.
fn without_tests(code: &str) -> String {
    let mut rest = code;
    let mut out = String::new();
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        // The item ends with its block, or with the semicolon of `mod tests;`.
        let open = item.find('{').unwrap_or(item.len());
        let end = match item.find(';') {
            Some(semicolon) if semicolon < open => semicolon + 1,
            _ => block_end(item, open),
        };
        out.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    out.push_str(rest);
    out
}

fn block_end(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return open + at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Whether the text has this word, not as a part of a longer one.
pub fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(part)
            && !line[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// The words of a text that look like names of types: at least two humps.
pub fn type_names(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    let humps = |word: &str| word.chars().filter(|c| c.is_uppercase()).count();
    let camel = |word: &&str| {
        word.starts_with(|c: char| c.is_uppercase())
            && humps(word) > 1
            && word.chars().any(char::is_lowercase)
    };
    words.filter(camel).map(str::to_owned).collect()
}

/// The contents of the string literals of a text, in order.
pub fn literals(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn comments_strings_and_tests_are_not_code() {
    let file = File {
        path: "x.rs".to_owned(),
        text: "let a = \"HashMap\"; // HashMap\n/* HashMap\n */ let c = '\"'; let r = r#\"HashMap\"#;\n\
               #[cfg(test)]\nmod tests {\n fn f() { HashMap }\n}\nfn after() {}\n"
            .to_owned(),
        is_test: false,
    };
    let code = file.code();
    assert!(!code.contains("HashMap"), "{code}");
    assert!(code.contains("fn after"), "{code}");
    assert_eq!(code.lines().count(), file.text.lines().count());
    let a: Vec<_> = file.strings().into_iter().map(|(_, string)| string).collect();
    assert_eq!(a, ["HashMap", "HashMap"], "of code alone, in order");
    let text = "pub const A: &str =\n \"a\";\nconst L: [&str; 2] = [A, \"b\"];\nfn f() { \"c\"; }\nconst N: u8 = 1;\n";
    let constants = File { path: "x.rs".to_owned(), text: text.to_owned(), is_test: false }.constants();
    assert_eq!(constants, ["a", "b"]);
    assert!(has_word("use x::HashMap;", "HashMap") && !has_word("MyHashMaps", "HashMap"));
    assert_eq!(type_names("Pool: `EnsureImage`, and Worker: GetPods."), ["EnsureImage", "GetPods"]);
}
