//! The terminal: its size, raw mode and the alternate screen, and giving it back whatever happens.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

/// Keys that may wait; more are dropped.
const KEYS_MAX: usize = 16;
/// Alternate screen, no cursor, no wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// What terminals have that do not tell.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// The terminal's columns and lines; none if standard output is no terminal.
pub fn size() -> Option<(usize, usize)> {
    let output = rustix::stdio::stdout();
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let size = tcgetwinsize(output).ok().map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    // A serial line says 0×0.
    Some(size.filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(SIZE_DEFAULT))
}

/// The terminal can be drawn on in place.
pub fn can_redraw() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Colours are welcome.
pub fn likes_colour() -> bool {
    can_redraw() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The terminal while it is ours. Dropping it gives it back as it was; so does a panic.
#[derive(Debug)]
pub struct Screen {
    restore: Arc<Restore>,
    drawn: Vec<String>,
    size: (usize, usize),
}

#[derive(Debug)]
struct Restore {
    ours: AtomicBool,
    /// None without a keyboard.
    modes: Option<Termios>,
}

impl Restore {
    fn now(&self) {
        if !self.ours.swap(false, Ordering::AcqRel) {
            return;
        }
        // Nobody is left to tell when this fails.
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(LEAVE.as_bytes()).and_then(|()| output.flush());
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, modes);
        }
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The operating system's, if it cannot be written to or set.
    pub fn take() -> std::io::Result<Self> {
        let input = rustix::stdio::stdin();
        let modes = if std::io::stdin().is_terminal() { Some(tcgetattr(input)?) } else { None };
        let restore = Arc::new(Restore { ours: AtomicBool::new(true), modes });
        let screen = Self { restore: restore.clone(), drawn: Vec::new(), size: (0, 0) };
        // Before the message of a panic is printed, or it would vanish with the screen.
        let previous = std::panic::take_hook();
        let hooked = restore.clone();
        std::panic::set_hook(Box::new(move |info| {
            hooked.now();
            previous(info);
        }));
        if let Some(modes) = &restore.modes {
            let mut raw = modes.clone();
            // Ctrl-C comes as a key, so that nothing ends before the terminal is back; Ctrl-Z would leave it raw.
            raw.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
            raw.special_codes[SpecialCodeIndex::VMIN] = 1;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(input, OptionalActions::Flush, &raw)?;
        }
        let mut output = std::io::stdout().lock();
        output.write_all(ENTER.as_bytes())?;
        output.flush()?;
        Ok(screen)
    }

    /// Draws what has changed since the last time.
    ///
    /// # Errors
    /// The operating system's: the terminal has gone.
    pub fn draw(&mut self, lines: Vec<String>, size: (usize, usize)) -> std::io::Result<()> {
        let frame = frame(&self.drawn, &lines, self.size != size);
        self.drawn = lines;
        self.size = size;
        let mut output = std::io::stdout().lock();
        output.write_all(frame.as_bytes())?;
        output.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore.now();
    }
}

/// What turns one screen into the next.
fn frame(drawn: &[String], lines: &[String], afresh: bool) -> String {
    let drawn = if afresh { &[] } else { drawn };
    let mut frame = if afresh { "\x1b[2J".to_owned() } else { String::new() };
    for row in 0..lines.len().max(drawn.len()) {
        let (old, new) = (drawn.get(row), lines.get(row));
        if old != new {
            let text = new.map_or("", String::as_str);
            frame.push_str(&format!("\x1b[{};1H\x1b[2K{text}", row + 1));
        }
    }
    frame
}

/// The keys that are pressed, from a thread of its own: reading a terminal blocks. Ends with the keyboard.
pub fn keys() -> mpsc::Receiver<u8> {
    let (pressed, keys) = mpsc::channel(KEYS_MAX);
    if std::io::stdin().is_terminal() {
        std::thread::spawn(move || {
            let mut key = [0];
            while let Ok(1) = rustix::io::read(rustix::stdio::stdin(), &mut key) {
                if let Err(mpsc::error::TrySendError::Closed(_)) = pressed.try_send(key[0]) {
                    return;
                }
            }
        });
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_are_drawn() {
        let lines = |text: &[&str]| text.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let old = lines(&["a", "b", "c"]);
        assert_eq!(frame(&old, &lines(&["a", "x"]), false), "\x1b[2;1H\x1b[2Kx\x1b[3;1H\x1b[2K");
        assert_eq!(frame(&old, &old, false), "");
        assert_eq!(frame(&old, &lines(&["a"]), true), "\x1b[2J\x1b[1;1H\x1b[2Ka");
    }
}
