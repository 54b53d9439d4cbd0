//! PURE: the script for zsh.

use super::table::{Flag, Row, Table, Value};

/// The script.
pub fn script(table: &Table) -> String {
    let mut script = String::from(
        "#compdef understudy\n\
         # Completes the command line of understudy: a file _understudy in a directory of $fpath, or source this file.\n\n\
         _understudy() {\n    local curcontext=$curcontext state line ret=1\n    typeset -A opt_args\n    _arguments -C",
    );
    for flag in &table.program.flags {
        script.push_str(&format!(" \\\n        {}", argument(flag)));
    }
    script.push_str(
        " \\\n        '1:command:->command' \\\n        '*::argument:->argument' && ret=0\n    case $state in\n    command)\n        \
         local -a commands=(\n",
    );
    for command in &table.commands {
        let (name, about) = (&command.name, quoted(&command.about));
        script.push_str(&format!("            '{name}:{about}'\n"));
    }
    script.push_str(
        "        )\n        _describe command commands && ret=0\n        ;;\n    argument)\n        case $words[1] in\n",
    );
    for command in &table.commands {
        script.push_str(&row(command));
    }
    script.push_str(
        "        esac\n        ;;\n    esac\n    return ret\n}\n\n\
         if [[ $funcstack[1] == _understudy ]]; then\n    _understudy \"$@\"\nelse\n    compdef _understudy understudy\nfi\n",
    );
    script
}

fn row(row: &Row) -> String {
    let flags = row.flags.iter().map(argument);
    let words = match (row.argument.as_str(), row.words.as_slice()) {
        ("", []) => None,
        (name, []) => Some(format!("'1:{}:'", quoted(name))),
        ("", words) => Some(format!("'1:command:({})'", words.join(" "))),
        (name, words) => Some(format!("'1:{}:({})'", quoted(name), words.join(" "))),
    };
    let each: Vec<String> = flags.chain(words).map(|one| format!(" \\\n                {one}")).collect();
    format!("        {})\n            _arguments{} && ret=0\n            ;;\n", row.name, each.concat())
}

/// A flag as `_arguments` wants it.
fn argument(flag: &Flag) -> String {
    let names = flag.names();
    let about = quoted(&flag.about);
    let value = match &flag.value {
        Value::Nothing => String::new(),
        Value::Words(words) => format!(":value:({})", words.join(" ")),
        Value::File => ":file:_files".to_owned(),
        Value::Directory => ":directory:_files -/".to_owned(),
        Value::Other(name) => format!(":{}:", quoted(name)),
    };
    // `--flag=value` will do as well as two words.
    let written: Vec<String> = names
        .iter()
        .map(
            |name| {
                if value.is_empty() || !name.starts_with("--") { name.clone() } else { format!("{name}=") }
            },
        )
        .collect();
    match written.as_slice() {
        [only] => format!("'{only}[{about}]{value}'"),
        several => format!("'({})'{{{}}}'[{about}]{value}'", names.join(" "), several.join(",")),
    }
}

/// A text within single quotes, in which brackets and colons have no meaning.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for char in text.chars() {
        match char {
            '\'' => quoted.push_str("'\\''"),
            '[' | ']' | ':' | '\\' => quoted.extend(['\\', char]),
            _ => quoted.push(char),
        }
    }
    quoted
}
