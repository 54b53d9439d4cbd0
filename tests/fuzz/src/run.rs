//! One run of a target, and how a failure is told.

use std::any::Any;

use crate::Target;
use crate::mutate::Mutator;

/// The most bytes of an input that are shown.
const SHOWN_BYTES_MAX: usize = 4096;

/// A target that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// The text of the panic.
    pub panic: String,
}

/// Gives a target an input; the text of its panic if it fails.
#[must_use]
pub fn one(target: &Target, input: &[u8]) -> Option<Failure> {
    let run = target.run;
    let panic = std::panic::catch_unwind(|| run(input)).err()?;
    Some(Failure { input: input.to_vec(), panic: text_of(&*panic) })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

/// Gives a target its seeds, and so many mutations of them; the first failure, with its number: seeds come first, from 0.
#[must_use]
pub fn many(
    target: &Target,
    seeds: &[Vec<u8>],
    mutator: &mut Mutator,
    mutations: usize,
) -> Option<(usize, Failure)> {
    let own = seeds.iter().enumerate().find_map(|(number, seed)| Some((number, one(target, seed)?)));
    own.or_else(|| {
        (0..mutations).find_map(|number| {
            let input = mutator.next(seeds);
            Some((seeds.len() + number, one(target, &input)?))
        })
    })
}

/// An input as it is shown: its beginning, with escapes.
#[must_use]
pub fn shown(input: &[u8]) -> String {
    let begin = &input[..input.len().min(SHOWN_BYTES_MAX)];
    let more = if begin.len() < input.len() { format!("… ({} bytes)", input.len()) } else { String::new() };
    format!("b\"{}\"{more}", begin.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_input() {
        let run: fn(&[u8]) = |input| {
            let mark = "!";
            assert!(!input.contains(&b'!'), "no {mark}");
        };
        let broken = Target { name: "broken", run };
        assert_eq!(one(&broken, b"fine"), None);
        let failure = one(&broken, b"not fine!").expect("it fails");
        assert_eq!((failure.input.as_slice(), failure.panic.as_str()), (&b"not fine!"[..], "no !"));
        let seeds = [b"fine".to_vec(), b"fi!ne".to_vec()];
        let found = many(&broken, &seeds, &mut Mutator::new(1, 64), 0).expect("a seed fails");
        assert_eq!(found.0, 1);
        let (number, _) =
            many(&broken, &seeds[..1], &mut Mutator::new(1, 64), 100_000).expect("a mutation fails");
        assert!(number > 0);
    }

    #[test]
    fn a_long_input_is_cut() {
        assert_eq!(shown(b"a\n\xff"), "b\"a\\n\\xff\"");
        assert!(shown(&[b'x'; 10_000]).ends_with("\"… (10000 bytes)"));
    }
}
