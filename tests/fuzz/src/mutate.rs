//! Mutations of seeds: the same ones for the same number.

/// Texts that decoders are likely to take for something.
const WORDS: &[&[u8]] = &[
    b"",
    b"0",
    b"-1",
    b"1e999",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"4294967296",
    b"0x",
    b"0.5",
    b"1Ei",
    b"NaN",
    b"null",
    b"true",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[]",
    b"{}",
    b"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b"%",
    b"%00",
    b"%2e%2e",
    b"$(",
    b"$$",
    b"../",
    b"//",
    b":",
    b": ",
    b"::",
    b"=",
    b",",
    b";",
    b"-",
    b"- ",
    b"---\n",
    b"&a ",
    b"*a",
    b"<<: ",
    b"! ",
    b"|\n",
    b"#",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"  ",
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xc3\xa9",
    b"\xf0\x9f\xa6\x80",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
];
/// Bytes of binary formats that mean lengths, ends and flags.
const BYTES: &[u8] = &[0, 1, 2, 0x0a, 0x12, 0x7e, 0x7f, 0x80, 0x81, 0xfe, 0xff];
/// The most mutations of one input.
const STEPS_MAX: u64 = 6;
/// The most times that a part is repeated.
const REPEATS_MAX: u64 = 64;

/// Numbers that look drawn (SplitMix64): one seed, one sequence.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A place in a list, or just behind its end.
    fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64 + 1)).unwrap_or(0)
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(usize::try_from(self.below(list.len() as u64)).unwrap_or(0))
    }
}

/// Makes inputs of seeds.
#[derive(Clone, Debug)]
pub struct Mutator {
    random: Random,
    bytes_max: usize,
}

impl Mutator {
    /// The mutator of this number: its inputs have at most so many bytes.
    #[must_use]
    pub fn new(seed: u64, bytes_max: usize) -> Self {
        Self { random: Random(seed), bytes_max }
    }

    /// The next input.
    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.random.of(seeds).cloned().unwrap_or_default();
        for _ in 0..=self.random.below(STEPS_MAX) {
            self.step(&mut input, seeds);
        }
        input.truncate(self.bytes_max);
        input
    }

    /// A part of the input: from a place to a later one that is mostly near.
    fn part(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let from = self.random.place(input.len());
        let near = if self.random.below(4) == 0 { input.len() - from } else { (input.len() - from).min(16) };
        from..from + self.random.place(near)
    }

    fn step(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.random.place(input.len());
        match self.random.below(11) {
            0 => {
                let bit = 1_u8 << self.random.below(8);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= bit;
                }
            }
            1 => {
                let new = self.random.of(BYTES).copied().unwrap_or_default();
                match input.get_mut(at) {
                    Some(byte) => *byte = new,
                    None => input.push(new),
                }
            }
            2 | 3 => {
                let word = self.random.of(WORDS).copied().unwrap_or_default();
                drop(input.splice(at..at, word.iter().copied()));
            }
            4 => {
                let (part, word) = (self.part(input), self.random.of(WORDS).copied().unwrap_or_default());
                drop(input.splice(part, word.iter().copied()));
            }
            5 => {
                let part = self.part(input);
                drop(input.drain(part));
            }
            6 => {
                let part = self.part(input);
                let taken = input[part].to_vec();
                drop(input.splice(at..at, taken));
            }
            7 => self.repeat(input),
            8 => self.number(input),
            9 => {
                let other = self.random.of(seeds).cloned().unwrap_or_default();
                let part = self.part(&other);
                let taken = other[part].to_vec();
                drop(input.splice(at..at, taken));
            }
            _ => input.truncate(at),
        }
    }

    /// Repeats a part, as long as there is room.
    fn repeat(&mut self, input: &mut Vec<u8>) {
        let part = self.part(input);
        let (end, taken) = (part.end, input[part].to_vec());
        let room = self.bytes_max.saturating_sub(input.len()).checked_div(taken.len()).unwrap_or(0);
        let times = usize::try_from(self.random.below(REPEATS_MAX)).unwrap_or(0).min(room);
        drop(input.splice(end..end, taken.repeat(times)));
    }

    /// Puts another number in the place of one that is written in digits.
    fn number(&mut self, input: &mut Vec<u8>) {
        let from = self.random.place(input.len());
        let Some(from) = input[from..].iter().position(u8::is_ascii_digit).map(|at| from + at) else {
            return;
        };
        let digits = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = match self.random.below(4) {
            0 => self.random.below(300).to_string(),
            1 => format!("-{}", self.random.below(300)),
            2 => (u64::MAX >> self.random.below(64)).to_string(),
            _ => format!("{}{}", self.random.next(), self.random.next()),
        };
        drop(input.splice(from..from + digits, number.into_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_makes_the_same_inputs_again_and_none_is_too_long() {
        let seeds = [b"kind: Pod\nnumber: 12\n".to_vec(), b"{}".to_vec(), Vec::new()];
        let inputs = |seed: u64| {
            let mut mutator = Mutator::new(seed, 100);
            (0..2000).map(|_| mutator.next(&seeds)).collect::<Vec<_>>()
        };
        let first = inputs(7);
        assert_eq!(first, inputs(7));
        assert_ne!(first, inputs(8));
        assert!(first.iter().all(|input| input.len() <= 100));
        let different: std::collections::BTreeSet<&Vec<u8>> = first.iter().collect();
        assert!(different.len() > 1000, "{}", different.len());
        assert!(Mutator::new(1, 10).next(&[]).len() <= 10, "without seeds there are inputs, too");
    }
}
