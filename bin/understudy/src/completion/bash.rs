//! PURE: the script for bash.

use super::table::{Flag, Row, Table, Value};

const HEAD: &str = r#"# Completes the command line of understudy: source this file.

_understudy() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command='' index
    COMPREPLY=()
    # `--flag=value` comes as three words.
    if [[ $word == '=' ]]; then
        word=''
    elif [[ $before == '=' && COMP_CWORD -ge 3 ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((index = 1; index < COMP_CWORD; index++)); do
        if [[ ${COMP_WORDS[index]} != -* ]]; then
            command=${COMP_WORDS[index]}
            break
        fi
    done
"#;

const TAIL: &str = r#"}

_understudy_words() {
    local line
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(compgen -W "$1" -- "$2")
}

_understudy_files() {
    local line
    # Only while bash completes, it can be told that these are names of files.
    compopt -o filenames 2>/dev/null
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(compgen "$1" -- "$2")
}

complete -F _understudy understudy
"#;

/// The script.
pub fn script(table: &Table) -> String {
    let mut script = HEAD.to_owned();
    script.push_str("    case $command in\n");
    script.push_str(&row("''", &table.program));
    for command in &table.commands {
        script.push_str(&row(&command.name, command));
    }
    script.push_str("    esac\n");
    script.push_str(TAIL);
    script
}

fn row(pattern: &str, row: &Row) -> String {
    let mut text = format!("    {pattern})\n        case $before in\n");
    for flag in row.flags.iter().filter(|flag| flag.value != Value::Nothing) {
        let names = flag.names().join(" | ");
        text.push_str(&format!("        {names}) {}return ;;\n", values(&flag.value)));
    }
    let flags: Vec<String> = row.flags.iter().flat_map(Flag::names).collect();
    let (flags, words) = (flags.join(" "), row.words.join(" "));
    text.push_str("        esac\n");
    text.push_str(&format!(
        "        if [[ $word == -* ]]; then _understudy_words '{flags}' \"$word\"; else _understudy_words '{words}' \"$word\"; fi\n        ;;\n"
    ));
    text
}

fn values(value: &Value) -> String {
    match value {
        Value::Words(words) => format!("_understudy_words '{}' \"$word\"; ", words.join(" ")),
        Value::File => "_understudy_files -f \"$word\"; ".to_owned(),
        Value::Directory => "_understudy_files -d \"$word\"; ".to_owned(),
        Value::Nothing | Value::Other(_) => String::new(),
    }
}
