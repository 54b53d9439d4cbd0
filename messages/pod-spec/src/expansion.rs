//! Fills in `$(NAME)` (rows 7.4 and 11.7), within a bound on bytes: a chain of variables that each refer twice to the
//! one before doubles with every link, and a command may refer to a long value as often as it likes.

/// The most bytes of a container's environment, command and arguments together. Linux starts no program with more than
/// 6 MiB of them, so no container that can run comes near this bound.
pub const CONTAINER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The most bytes of an expanded probe command. Linux allows one argument half of this; many probes of a pod may run at
/// once.
pub const PROBE_BYTES_MAX: usize = 256 * 1024;

/// The error of an expansion that would write more than this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment, command and arguments would have more than {0} bytes")]
pub struct TooLong(usize);

/// The number of bytes that expansions may still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: usize,
    max: usize,
}

impl Budget {
    /// A budget of `max` bytes.
    pub fn of(max: usize) -> Self {
        Self { left: max, max }
    }

    /// The budget of one container: [`CONTAINER_BYTES_MAX`].
    pub fn of_container() -> Self {
        Self::of(CONTAINER_BYTES_MAX)
    }

    /// The budget of one probe: [`PROBE_BYTES_MAX`].
    pub fn of_probe() -> Self {
        Self::of(PROBE_BYTES_MAX)
    }

    /// Takes `bytes` from the budget.
    ///
    /// # Errors
    /// [`TooLong`] when fewer bytes are left.
    pub fn take(&mut self, bytes: usize) -> Result<(), TooLong> {
        self.left = self.left.checked_sub(bytes).ok_or(TooLong(self.max))?;
        Ok(())
    }

    /// Gives `bytes` back to the budget, for text that has since been replaced.
    pub fn give_back(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes).min(self.max);
    }
}

/// Replaces `$(NAME)` by the variable's value. `$$` is a literal dollar, so `$$(NAME)` becomes `$(NAME)`. Text that is
/// no reference, or refers to an unknown variable, is kept.
///
/// # Errors
/// [`TooLong`] when the result does not fit the budget; no more is written than the budget has.
pub fn expand<'a>(
    text: &str,
    lookup: impl Fn(&str) -> Option<&'a str>,
    budget: &mut Budget,
) -> Result<String, TooLong> {
    let mut out = String::new();
    let mut write = |text: &str| {
        budget.take(text.len())?;
        out.push_str(text);
        Ok(())
    };
    let mut rest = text;
    // The text is walked once: no reference closes behind the last parenthesis, so the search for a closing one ends
    // there.
    let last_close = text.rfind(')').map_or(0, |at| text.len() - at);
    while let Some(at) = rest.find('$') {
        write(&rest[..at])?;
        let after = &rest[at + 1..];
        let reference = after.strip_prefix('(').filter(|inner| last_close > 0 && inner.len() >= last_close);
        rest = if let Some(tail) = after.strip_prefix('$') {
            write("$")?;
            tail
        } else if let Some((name, tail)) = reference.and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => write(value)?,
                None => ["$(", name, ")"].into_iter().try_for_each(&mut write)?,
            }
            tail
        } else {
            write("$")?;
            after
        };
    }
    write(rest)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(name: &str) -> Option<&'static str> {
        match name {
            "A" => Some("1"),
            "B" => Some("$(A)"),
            "EMPTY" => Some(""),
            _ => None,
        }
    }

    /// The results of upstream's expansion for the same inputs.
    #[test]
    fn references_are_expanded_as_upstream_does() {
        for (text, expected) in [
            ("$(A)", "1"),
            ("---$(A)---", "---1---"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)x", "x"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(MISSING)", "$(MISSING)"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("$", "$"),
            ("$$", "$"),
            ("x$", "x$"),
            ("$(", "$("),
            ("$()", "$()"),
            ("$($(A))", "$($(A))"),
            ("$é", "$é"),
        ] {
            assert_eq!(expand(text, lookup, &mut Budget::of_container()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nothing_is_written_beyond_the_budget() {
        let mut budget = Budget::of(10);
        assert_eq!(expand("$(V)$(V)", |_| Some("12345"), &mut budget).as_deref(), Ok("1234512345"));
        assert_eq!((budget, budget.take(1)), (Budget { left: 0, max: 10 }, Err(TooLong(10))));
        budget.give_back(4);
        assert_eq!(expand("$(V)", |_| Some("12345"), &mut budget), Err(TooLong(10)));
        let long = "v".repeat(1 << 20);
        let many = "$(V)".repeat(1 << 18);
        assert_eq!(
            expand(&many, |_| Some(&long), &mut Budget::of_container()),
            Err(TooLong(CONTAINER_BYTES_MAX))
        );
    }

    #[test]
    fn references_that_never_close_cost_one_walk() {
        // Takes minutes if every `$(` searched for its own end, so a regression shows in the suite's time.
        for text in ["$(".repeat(1 << 20), format!("){}", "$(".repeat(1 << 20))] {
            assert_eq!(expand(&text, lookup, &mut Budget::of_container()).as_deref(), Ok(&*text));
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much_and_dollars_double(text in "[a$()A ]{0,60}") {
            let back = expand(&text.replace('$', "$$"), lookup, &mut Budget::of_container());
            prop_assert_eq!(back, Ok(text.clone()));
            let expanded = expand(&text, lookup, &mut Budget::of_container()).expect("it is short");
            prop_assert!(expanded.len() <= text.len());
        }
    }
}
