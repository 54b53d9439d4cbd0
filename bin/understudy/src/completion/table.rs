//! PURE: the command line as a table for scripts of shells, read from the definition by which it is parsed.

use clap::{Arg, Command, ValueHint};

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it does, in a line.
    pub about: String,
    /// Its flags.
    pub flags: Vec<Flag>,
    /// The words that may stand without a flag: values of an argument, or commands below this one.
    pub words: Vec<String>,
    /// What stands without a flag, for people; empty if nothing does.
    pub argument: String,
}

/// A flag of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The letter behind one dash.
    pub short: Option<char>,
    /// The name behind two dashes.
    pub long: Option<String>,
    /// What it does, in a line.
    pub about: String,
    /// What stands behind it.
    pub value: Value,
}

/// The value of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// It takes none.
    Nothing,
    /// One of these words.
    Words(Vec<String>),
    /// A file.
    File,
    /// A directory.
    Directory,
    /// Something that a shell cannot know; its name in the help.
    Other(String),
}

impl Flag {
    /// The flag as it is written, with its dashes, the letter first.
    pub fn names(&self) -> Vec<String> {
        let short = self.short.map(|letter| format!("-{letter}"));
        short.into_iter().chain(self.long.as_ref().map(|name| format!("--{name}"))).collect()
    }
}

/// The program itself, and its commands in the order of the help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The program without a command; its words are those of the commands.
    pub program: Row,
    /// The commands.
    pub commands: Vec<Row>,
}

/// The table of a definition.
pub fn table(mut definition: Command) -> Table {
    // Adds what every command has: help and version.
    definition.build();
    let commands = definition.get_subcommands().filter(|command| !command.is_hide_set());
    Table { program: row(&definition), commands: commands.map(row).collect() }
}

fn row(command: &Command) -> Row {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    let mut words: Vec<String> = below.map(|below| below.get_name().to_owned()).collect();
    words.extend(command.get_positionals().flat_map(possible));
    let arguments = command.get_positionals().map(value_name);
    Row {
        name: command.get_name().to_owned(),
        about: line(command.get_about().map(ToString::to_string)),
        flags: command.get_arguments().filter(|arg| !arg.is_positional()).map(flag).collect(),
        words,
        argument: arguments.collect::<Vec<_>>().join(" "),
    }
}

fn flag(arg: &Arg) -> Flag {
    Flag {
        short: arg.get_short(),
        long: arg.get_long().map(str::to_owned),
        about: line(arg.get_help().map(ToString::to_string)),
        value: value(arg),
    }
}

fn value(arg: &Arg) -> Value {
    if !arg.get_action().takes_values() {
        return Value::Nothing;
    }
    let words = possible(arg);
    match arg.get_value_hint() {
        _ if !words.is_empty() => Value::Words(words),
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::ExecutablePath => Value::File,
        ValueHint::DirPath => Value::Directory,
        _ => Value::Other(value_name(arg)),
    }
}

fn possible(arg: &Arg) -> Vec<String> {
    let values = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    values.map(|value| value.get_name().to_owned()).collect()
}

fn value_name(arg: &Arg) -> String {
    let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    name.unwrap_or_else(|| "VALUE".to_owned())
}

/// The first line of a help text.
fn line(text: Option<String>) -> String {
    text.unwrap_or_default().lines().next().unwrap_or_default().trim().to_owned()
}
