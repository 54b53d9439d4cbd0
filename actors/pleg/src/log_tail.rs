//! PURE: a container's last output, from the end of its log (row 5.21).

use jiff::Timestamp;

/// At most so many lines at the end of the log are read.
const LINES_MAX: usize = 80;
/// At most so many bytes of the container's output become the message.
const MESSAGE_BYTES_MAX: usize = 2048;
/// More bytes than time, stream and tags of a line have, with the spaces between them.
const HEAD_BYTES_MAX: usize = 64;
/// So many bytes at the end of the log suffice for the largest message.
pub const TAIL_BYTES: u64 = (MESSAGE_BYTES_MAX + (LINES_MAX + 1) * HEAD_BYTES_MAX) as u64;

/// The container's last output in `tail`, the end of a log in CRI's format. Text that is no line of that format is left
/// out.
pub fn last_words(tail: &[u8]) -> String {
    let is_cut = tail.len() as u64 >= TAIL_BYTES;
    let mut lines: Vec<&[u8]> = tail.split_inclusive(|byte| *byte == b'\n').collect();
    let mut words: Vec<u8> = Vec::new();
    if is_cut && lines.len() <= LINES_MAX && !lines.is_empty() {
        // The first line may be cut anywhere, also in its head, which is not the container's output. Without so many
        // bytes as a head may have, there are still enough.
        words.extend(lines.remove(0).get(HEAD_BYTES_MAX..).unwrap_or_default());
    }
    let skipped = lines.len().saturating_sub(LINES_MAX);
    for line in &lines[skipped..] {
        words.extend(said(line).unwrap_or_default());
    }
    let skipped = words.len().saturating_sub(MESSAGE_BYTES_MAX);
    String::from_utf8_lossy(&words[skipped..]).into_owned()
}

/// The container's output in a line of the log: with the line's end, unless the output goes on in the next line.
fn said(line: &[u8]) -> Option<&[u8]> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    time.parse::<Timestamp>().ok()?;
    if !matches!(parts.next()?, b"stdout" | b"stderr") {
        return None;
    }
    let is_partial = parts.next()?.split(|byte| *byte == b':').next() == Some(b"P");
    let said = parts.next()?;
    Some(if is_partial { said.strip_suffix(b"\n").unwrap_or(said) } else { said })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-05-01T12:00:00.123456789+02:00";

    fn line(tag: &str, text: &str) -> String {
        format!("{AT} stderr {tag} {text}\n")
    }

    fn words(log: &str) -> String {
        let from = log.len().saturating_sub(usize::try_from(TAIL_BYTES).unwrap());
        last_words(&log.as_bytes()[from..])
    }

    #[test]
    fn whole_and_partial_lines_are_put_together() {
        let log = [line("F", "one"), line("P", "tw"), line("P:x", "o"), line("F", ""), line("F", "three")];
        assert_eq!(words(&log.concat()), "one\ntwo\nthree\n");
        assert_eq!(words(&format!("{AT} stdout F unfinished")), "unfinished");
    }

    #[test]
    fn what_is_not_a_line_of_a_log_is_left_out() {
        let log = ["nonsense\n", "\n", "now stdout F a\n", &format!("{AT} stdin F a\n"), &line("F", "b")];
        assert_eq!(words(&log.concat()), "b\n");
        assert_eq!(words(""), "");
    }

    #[test]
    fn at_most_eighty_lines_are_told() {
        let log: String = (0..200).map(|number| line("F", &number.to_string())).collect();
        let expected: String = (120..200).map(|number| format!("{number}\n")).collect();
        assert_eq!(words(&log), expected);
    }

    #[test]
    fn at_most_two_kibibytes_are_told_wherever_the_file_is_cut() {
        for length in (1..200).chain([2000, 2040, 2048, 2049, 5000, 7000, 7200, 7232, 7300, 20_000]) {
            let text: String = ('a'..='z').cycle().take(length).collect();
            let log = line("F", &text).repeat(300);
            let all = format!("{text}\n").repeat(300);
            let lines = all.lines().count();
            let eighty: String =
                all.split_inclusive('\n').skip(lines - LINES_MAX).collect::<Vec<_>>().concat();
            let expected = &eighty[eighty.len().saturating_sub(MESSAGE_BYTES_MAX)..];
            assert_eq!(words(&log), expected, "lines of {length} bytes");
        }
    }
}
