//! The terminal: its size, raw mode and the alternate screen, which are restored however the program ends.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use tokio::sync::mpsc;

/// The most keys that wait to be handled; more are dropped.
const KEYS_MAX: usize = 16;
/// The size of a terminal that does not state its own.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// The terminal's columns and lines; `None` if standard output is no terminal.
pub fn size() -> Option<(usize, usize)> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let size = crossterm::terminal::size().ok();
    let size = size.map(|(columns, lines)| (usize::from(columns), usize::from(lines)));
    // A serial line states 0×0.
    Some(size.filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(SIZE_DEFAULT))
}

/// Whether the terminal can be redrawn in place.
pub fn can_redraw() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether to use colours.
pub fn likes_colour() -> bool {
    can_redraw() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The terminal while this program draws on it. Dropping this restores it; so does a panic.
#[derive(Debug)]
pub struct Screen {
    restore: Arc<Restore>,
    drawn: Vec<String>,
    size: (usize, usize),
}

#[derive(Debug)]
struct Restore {
    ours: AtomicBool,
    /// Whether raw mode is on, in which keys are read one by one without echo; off without a keyboard.
    raw: bool,
}

impl Restore {
    fn now(&self) {
        if !self.ours.swap(false, Ordering::AcqRel) {
            return;
        }
        // A failure here cannot be reported any more.
        let _ = execute!(std::io::stdout().lock(), EnableLineWrap, Show, LeaveAlternateScreen);
        if self.raw {
            let _ = disable_raw_mode();
        }
    }
}

impl Screen {
    /// Switches to the alternate screen and, with a keyboard, to raw mode.
    ///
    /// # Errors
    /// The operating system's error, if the terminal cannot be written to or set.
    pub fn take() -> std::io::Result<Self> {
        let raw = std::io::stdin().is_terminal();
        let restore = Arc::new(Restore { ours: AtomicBool::new(true), raw });
        let screen = Self { restore: restore.clone(), drawn: Vec::new(), size: (0, 0) };
        // Restores the terminal before the message of a panic is printed, which would else vanish with the alternate
        // screen.
        let previous = std::panic::take_hook();
        let hooked = restore.clone();
        std::panic::set_hook(Box::new(move |info| {
            hooked.now();
            previous(info);
        }));
        if raw {
            // In raw mode Ctrl-C and Ctrl-Z are keys: the terminal is restored before the program ends, and a stop
            // would leave it raw.
            enable_raw_mode()?;
        }
        let output = std::io::stdout();
        execute!(output.lock(), EnterAlternateScreen, Hide, DisableLineWrap, Clear(ClearType::All))?;
        Ok(screen)
    }

    /// Draws the lines that have changed since the last time.
    ///
    /// # Errors
    /// The operating system's error, if the terminal is gone.
    pub fn draw(&mut self, lines: Vec<String>, size: (usize, usize)) -> std::io::Result<()> {
        let frame = frame(&self.drawn, &lines, self.size != size)?;
        self.drawn = lines;
        self.size = size;
        let mut output = std::io::stdout().lock();
        output.write_all(&frame)?;
        output.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore.now();
    }
}

/// The bytes that turn one screen into the next.
fn frame(drawn: &[String], lines: &[String], afresh: bool) -> std::io::Result<Vec<u8>> {
    let drawn = if afresh { &[] } else { drawn };
    let mut frame = Vec::new();
    if afresh {
        queue!(frame, Clear(ClearType::All))?;
    }
    for row in 0..lines.len().max(drawn.len()) {
        let (old, new) = (drawn.get(row), lines.get(row));
        if old != new {
            let text = new.map_or("", String::as_str);
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            queue!(frame, MoveTo(0, row), Clear(ClearType::CurrentLine), Print(text))?;
        }
    }
    Ok(frame)
}

/// The keys that are pressed, read on a thread of its own, since reading a terminal blocks. Ends when the keyboard is
/// gone.
pub fn keys() -> mpsc::Receiver<KeyEvent> {
    let (pressed, keys) = mpsc::channel(KEYS_MAX);
    if std::io::stdin().is_terminal() {
        std::thread::spawn(move || {
            while let Ok(event) = crossterm::event::read() {
                let Event::Key(key) = event else { continue };
                if let Err(mpsc::error::TrySendError::Closed(_)) = pressed.try_send(key) {
                    return;
                }
            }
        });
    }
    keys
}

/// Whether this key ends the program: `q`, Ctrl-C, Ctrl-D.
pub fn is_quit(key: &KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q' | 'Q') => true,
        KeyCode::Char('c' | 'd') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_end_it() {
        let key = |char: char, modifiers| KeyEvent::new(KeyCode::Char(char), modifiers);
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        assert!(is_quit(&key('q', none)) && is_quit(&key('Q', KeyModifiers::SHIFT)));
        assert!(is_quit(&key('c', control)) && is_quit(&key('d', control)));
        assert!(!is_quit(&key('c', none)) && !is_quit(&key('x', control)));
    }

    #[test]
    fn only_changed_lines_are_drawn() {
        let lines = |text: &[&str]| text.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let frame = |old: &[String], new: &[String], afresh| {
            String::from_utf8(super::frame(old, new, afresh).unwrap()).unwrap()
        };
        let old = lines(&["a", "b", "c"]);
        assert_eq!(frame(&old, &lines(&["a", "x"]), false), "\x1b[2;1H\x1b[2Kx\x1b[3;1H\x1b[2K");
        assert_eq!(frame(&old, &old, false), "");
        assert_eq!(frame(&old, &lines(&["a"]), true), "\x1b[2J\x1b[1;1H\x1b[2Ka");
    }
}
