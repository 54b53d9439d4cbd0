//! Reads a command line by pflag's rules.

use std::collections::BTreeSet;

use super::{FlagRow, Settings, Target, defaults, rows};
use crate::config::ConfigError;
use crate::config::validation::quoted;

/// A parsed command line.
pub struct Parsed {
    /// The flags' values over the defaults of a kubelet without a configuration file.
    pub settings: Settings,
    /// Words that are no flags.
    pub positional: Vec<String>,
    uses: Vec<(&'static FlagRow, String)>,
}

/// Parses `args`, which do not include the program's name.
///
/// # Errors
/// The first word that does not parse, in pflag's words.
pub fn parse(args: &[String]) -> Result<Parsed, ConfigError> {
    let mut reader = Reader { rows: rows(), rest: args.iter(), uses: Vec::new(), positional: Vec::new() };
    reader.read().map_err(ConfigError::Flag)?;
    let mut settings = defaults();
    apply(&reader.uses, &mut settings)?;
    Ok(Parsed { settings, positional: reader.positional, uses: reader.uses })
}

fn apply(uses: &[(&'static FlagRow, String)], settings: &mut Settings) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for (row, text) in uses {
        let first = seen.insert(row.name);
        (row.set)(settings, text, first).map_err(|error| {
            let shown = match row.shorthand {
                Some(letter) => format!("-{letter}, --{}", row.name),
                None => format!("--{}", row.name),
            };
            ConfigError::Flag(format!(
                "invalid argument {} for {} flag: {error}",
                quoted(text),
                quoted(&shown)
            ))
        })?;
    }
    Ok(())
}

impl Parsed {
    /// Applies the flags again, over `settings` that were read from files.
    ///
    /// # Errors
    /// A flag's value does not parse. It did before, so this does not happen.
    pub fn apply(&self, settings: &mut Settings) -> Result<(), ConfigError> {
        apply(&self.uses, settings)
    }

    /// A line for every use of a deprecated flag.
    pub fn deprecations(&self) -> impl Iterator<Item = String> + '_ {
        self.uses.iter().filter_map(|(row, _)| {
            row.deprecated.map(|note| format!("Flag --{} has been deprecated, {note}", row.name))
        })
    }

    /// The top-level fields of the configuration that were set by flags.
    pub fn fields_set(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.uses.iter().filter_map(|(row, _)| match row.target {
            Target::Config(field) => Some(field),
            Target::Process(_) => None,
        })
    }

    /// The flags that were given, have no effect yet and set no top-level field; each once.
    pub fn flags_without_effect(&self) -> impl Iterator<Item = &'static str> + '_ {
        let beside_fields = |target| matches!(target, Target::Process(_) | Target::Config("logging.options"));
        let given = self.uses.iter().map(|(row, _)| row);
        let missing = given.filter(|row| beside_fields(row.target) && row.effect().is_missing());
        missing.map(|row| row.name).collect::<BTreeSet<_>>().into_iter()
    }
}

struct Reader<'a> {
    rows: Vec<&'static FlagRow>,
    rest: std::slice::Iter<'a, String>,
    uses: Vec<(&'static FlagRow, String)>,
    positional: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(word) = self.rest.next() {
            if word == "--" {
                self.positional.extend(self.rest.by_ref().cloned());
            } else if let Some(long) = word.strip_prefix("--") {
                self.read_long(word, long)?;
            } else if word.len() > 1 && word.starts_with('-') {
                self.read_short(&word[1..])?;
            } else {
                self.positional.push(word.clone());
            }
        }
        Ok(())
    }

    fn read_long(&mut self, word: &str, long: &str) -> Result<(), String> {
        if long.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {word}"));
        }
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let normalised = name.replace('_', "-");
        let row = *self
            .rows
            .iter()
            .find(|row| row.name == normalised)
            .ok_or_else(|| format!("unknown flag: --{name}"))?;
        let value = value
            .or_else(|| row.without_value.map(str::to_owned))
            .or_else(|| self.rest.next().cloned())
            .ok_or_else(|| format!("flag needs an argument: --{name}"))?;
        self.uses.push((row, value));
        Ok(())
    }

    /// Parses one or more letters after a single dash; the last one may have a value.
    fn read_short(&mut self, letters: &str) -> Result<(), String> {
        let mut letters = letters;
        while let Some(letter) = letters.chars().next() {
            let after = &letters[letter.len_utf8()..];
            let row = *self
                .rows
                .iter()
                .find(|row| row.shorthand == Some(letter))
                .ok_or_else(|| format!("unknown shorthand flag: {letter:?} in -{letters}"))?;
            let (value, rest) = match (after.strip_prefix('='), row.without_value) {
                (Some(value), _) if !value.is_empty() => (value.to_owned(), ""),
                (_, Some(value)) => (value.to_owned(), after),
                (_, None) if !after.is_empty() => (after.to_owned(), ""),
                (_, None) => {
                    let next = self.rest.next().cloned();
                    (next.ok_or_else(|| format!("flag needs an argument: {letter:?} in -{letters}"))?, "")
                }
            };
            self.uses.push((row, value));
            letters = rest;
        }
        Ok(())
    }
}
