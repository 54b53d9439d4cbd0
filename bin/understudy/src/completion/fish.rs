//! PURE: the script for fish.

use super::table::{Flag, Row, Table, Value};

/// The script.
pub fn script(table: &Table) -> String {
    let mut script =
        "# Completes the command line of understudy: a file understudy.fish in ~/.config/fish/completions, or source this file.\n\n\
         complete -c understudy -f\n"
            .to_owned();
    for command in &table.commands {
        let (name, about) = (&command.name, quoted(&command.about));
        script.push_str(&format!("complete -c understudy -n __fish_use_subcommand -a {name} -d {about}\n"));
    }
    for flag in &table.program.flags {
        script.push_str(&line("__fish_use_subcommand", flag));
    }
    for command in &table.commands {
        script.push_str(&row(command));
    }
    script
}

fn row(row: &Row) -> String {
    let seen = format!("'__fish_seen_subcommand_from {}'", row.name);
    let mut text: String = row.flags.iter().map(|flag| line(&seen, flag)).collect();
    if !row.words.is_empty() {
        text.push_str(&format!("complete -c understudy -n {seen} -a {}\n", quoted(&row.words.join(" "))));
    }
    text
}

fn line(condition: &str, flag: &Flag) -> String {
    let short = flag.short.map(|letter| format!(" -s {letter}")).unwrap_or_default();
    let long = flag.long.as_ref().map(|name| format!(" -l {name}")).unwrap_or_default();
    let value = match &flag.value {
        Value::Nothing => String::new(),
        Value::Words(words) => format!(" -x -a {}", quoted(&words.join(" "))),
        Value::File => " -r -F".to_owned(),
        Value::Directory => " -x -a '(__fish_complete_directories)'".to_owned(),
        Value::Other(_) => " -x".to_owned(),
    };
    format!("complete -c understudy -n {condition}{short}{long}{value} -d {}\n", quoted(&flag.about))
}

/// A text within single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
