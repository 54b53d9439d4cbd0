//! The terminal: its size, raw mode and the alternate screen, and giving it back whatever happens.

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

/// Keys that may wait; more are dropped.
const KEYS_MAX: usize = 16;
/// What terminals have that do not tell.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// The terminal's columns and lines; none if standard output is no terminal.
pub fn size() -> Option<(usize, usize)> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let size = crossterm::terminal::size().ok();
    let size = size.map(|(columns, lines)| (usize::from(columns), usize::from(lines)));
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
    /// Keys come one by one, unseen: none do without a keyboard.
    raw: bool,
}

impl Restore {
    fn now(&self) {
        if !self.ours.swap(false, Ordering::AcqRel) {
            return;
        }
        // Nobody is left to tell when this fails.
        let _ = execute!(std::io::stdout().lock(), EnableLineWrap, Show, LeaveAlternateScreen);
        if self.raw {
            let _ = disable_raw_mode();
        }
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The operating system's, if it cannot be written to or set.
    pub fn take() -> std::io::Result<Self> {
        let raw = std::io::stdin().is_terminal();
        let restore = Arc::new(Restore { ours: AtomicBool::new(true), raw });
        let screen = Self { restore: restore.clone(), drawn: Vec::new(), size: (0, 0) };
        // Before the message of a panic is printed, or it would vanish with the screen.
        let previous = std::panic::take_hook();
        let hooked = restore.clone();
        std::panic::set_hook(Box::new(move |info| {
            hooked.now();
            previous(info);
        }));
        if raw {
            // Ctrl-C comes as a key, so that nothing ends before the terminal is back; Ctrl-Z would leave it raw.
            enable_raw_mode()?;
        }
        let output = std::io::stdout();
        execute!(output.lock(), EnterAlternateScreen, Hide, DisableLineWrap, Clear(ClearType::All))?;
        Ok(screen)
    }

    /// Draws what has changed since the last time.
    ///
    /// # Errors
    /// The operating system's: the terminal has gone.
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

/// What turns one screen into the next.
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

/// The keys that are pressed, from a thread of its own: reading a terminal blocks. Ends with the keyboard.
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

/// Whether this key ends what is shown: `q`, Ctrl-C, Ctrl-D.
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
