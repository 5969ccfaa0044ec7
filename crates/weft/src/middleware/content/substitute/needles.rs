//! Search for several texts in a stream of bytes, in one pass (Aho and Corasick, 1975). Pure.

use std::collections::VecDeque;

/// Index of a state. The root is 0.
type State = u16;

const ROOT: State = 0;

/// Texts to find, without regard to ASCII case. A deterministic automaton: one lookup per byte.
#[derive(Debug)]
pub(super) struct Needles {
    /// Class of each byte; 0 for bytes that are in no text.
    classes: Box<[u8; 256]>,
    class_count: usize,
    /// Next state by state and class.
    transitions: Vec<State>,
    nodes: Vec<Node>,
    /// True for each state in which a text ends.
    is_end: Vec<bool>,
    /// True for each byte that is the first of a text.
    is_first: Box<[bool; 256]>,
    /// The texts, shorter ones first. The position of a text here is its bit in a [`TextSet`].
    texts: Vec<Text>,
}

/// Bit of each text.
type TextSet = u64;

#[derive(Clone, Copy, Debug)]
struct Text {
    /// Index in the texts that were given.
    index: usize,
    length: usize,
}

/// A begin of a text.
#[derive(Clone, Debug, Default)]
struct Node {
    depth: u16,
    /// Length of the longest suffix that is the beginning of a longer text.
    pending: u16,
    /// State of the longest proper suffix that is the beginning of a text.
    suffix: State,
    /// The text that ends here, by its bit.
    needle: Option<u8>,
    /// The nearest state along the suffixes in which a text ends; the root if there is none.
    shorter: State,
}

/// A text, by its index, and the position behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) needle: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Maximum number of texts, the bits of a [`TextSet`].
pub(super) const MAX_NEEDLES: usize = 64;

/// Maximum length of a text in bytes, and so of what a search holds back.
pub(super) const MAX_NEEDLE_BYTES: usize = 1 << 10;

/// Maximum length of all texts together. The automaton has a state for each byte.
pub(super) const MAX_TOTAL_BYTES: usize = 8 << 10;

impl Needles {
    /// Builds the automaton.
    ///
    /// # Errors
    /// If a text is empty, given twice or too long, or if there are too many.
    pub(super) fn new(texts: &[&[u8]]) -> Result<Needles, String> {
        check(texts)?;
        let mut classes = Box::new([0; 256]);
        let mut class_count: usize = 1;
        for &byte in texts.iter().copied().flatten() {
            let (lower, upper) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
            if classes[usize::from(lower)] == 0 {
                // At most 230 of the 256 bytes are different without regard to case.
                (classes[usize::from(lower)], classes[usize::from(upper)]) =
                    (class_count as u8, class_count as u8);
                class_count += 1;
            }
        }
        let described = texts.iter().enumerate();
        let described = described.map(|(index, text)| Text { index, length: text.len() });
        let mut described: Vec<Text> = described.collect();
        described.sort_by_key(|text| text.length);
        let mut needles = Needles {
            classes,
            class_count,
            transitions: vec![ROOT; class_count],
            nodes: vec![Node::default()],
            is_end: Vec::new(),
            is_first: Box::new([false; 256]),
            texts: described,
        };
        for bit in 0..texts.len() {
            needles.insert(bit as u8, texts[needles.texts[bit].index])?;
        }
        needles.complete();
        let is_end = |node: &Node| node.needle.is_some() || node.shorter != ROOT;
        needles.is_end = needles.nodes.iter().map(is_end).collect();
        for byte in 0..=u8::MAX {
            needles.is_first[usize::from(byte)] =
                needles.transitions[needles.slot(ROOT, byte)] != ROOT;
        }
        Ok(needles)
    }

    fn slot(&self, state: State, byte: u8) -> usize {
        usize::from(state) * self.class_count + usize::from(self.classes[usize::from(byte)])
    }

    fn node(&self, state: State) -> &Node {
        &self.nodes[usize::from(state)]
    }

    /// Adds the states of a text to the tree.
    fn insert(&mut self, bit: u8, text: &[u8]) -> Result<(), String> {
        let mut state = ROOT;
        for &byte in text {
            let slot = self.slot(state, byte);
            if self.transitions[slot] == ROOT {
                // At most `MAX_TOTAL_BYTES` and the root.
                self.transitions[slot] = self.nodes.len() as State;
                let depth = self.node(state).depth + 1;
                self.nodes.push(Node { depth, ..Node::default() });
                self.transitions.resize(self.nodes.len() * self.class_count, ROOT);
            }
            state = self.transitions[slot];
        }
        match self.nodes[usize::from(state)].needle.replace(bit) {
            None => Ok(()),
            Some(_) => Err(format!("{:?} is given twice", String::from_utf8_lossy(text))),
        }
    }

    /// Adds the transitions of bytes that continue no text. They are the transitions of the longest
    /// suffix that is the beginning of a text. States of lesser depth are completed first.
    fn complete(&mut self) {
        let mut queue = vec![ROOT];
        let mut at = 0;
        while let Some(&state) = queue.get(at) {
            at += 1;
            let (row, suffix) = (usize::from(state) * self.class_count, self.node(state).suffix);
            let suffix_row = usize::from(suffix) * self.class_count;
            let mut is_leaf = true;
            for class in 0..self.class_count {
                let next = self.transitions[row + class];
                let of_suffix =
                    if state == ROOT { ROOT } else { self.transitions[suffix_row + class] };
                if next == ROOT {
                    self.transitions[row + class] = of_suffix;
                    continue;
                }
                is_leaf = false;
                let ends_there = self.node(of_suffix).needle.is_some();
                let shorter = self.node(of_suffix).shorter;
                let node = &mut self.nodes[usize::from(next)];
                (node.suffix, node.shorter) =
                    (of_suffix, if ends_there { of_suffix } else { shorter });
                queue.push(next);
            }
            let pending = if is_leaf { self.node(suffix).pending } else { self.node(state).depth };
            self.nodes[usize::from(state)].pending = pending;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

fn check(texts: &[&[u8]]) -> Result<(), String> {
    if texts.len() > MAX_NEEDLES {
        return Err(format!("more than {MAX_NEEDLES} texts"));
    }
    for text in texts {
        let shown = || String::from_utf8_lossy(&text[..text.len().min(64)]).into_owned();
        match text.len() {
            0 => return Err("an empty text cannot be found".to_owned()),
            length if length > MAX_NEEDLE_BYTES => {
                return Err(format!("{:?}… has more than {MAX_NEEDLE_BYTES} bytes", shown()));
            }
            _ => {}
        }
    }
    match texts.iter().map(|text| text.len()).sum::<usize>() > MAX_TOTAL_BYTES {
        true => Err(format!("the texts have more than {MAX_TOTAL_BYTES} bytes together")),
        false => Ok(()),
    }
}

/// The state of a search between two chunks.
///
/// The automaton reads each byte once. A new search behind each text that was found would read up
/// to [`MAX_NEEDLE_BYTES`] bytes again for each byte: `a` is found only after the search for
/// `aaa…b` has failed.
#[derive(Debug)]
pub(super) struct Search {
    state: State,
    /// The texts that begin at each byte that is held back, from the first such byte. Bytes at the
    /// end at which none begins are missing.
    beginnings: VecDeque<TextSet>,
    /// Texts that are not searched for any more.
    used: TextSet,
    /// Each text is found only once.
    is_once: bool,
}

impl Search {
    pub(super) fn new(is_once: bool) -> Search {
        Search { state: ROOT, beginnings: VecDeque::new(), used: 0, is_once }
    }

    /// Returns true if nothing can be found any more.
    pub(super) fn is_over(&self, needles: &Needles) -> bool {
        self.used.count_ones() as usize == needles.len()
    }

    /// Searches the bytes from `from`. The bytes before were held back by the last call. Appends
    /// what is found, and returns the position from which bytes are held back: their meaning
    /// depends on the following ones. Positions of the next call count from there. `cost` increases
    /// with the number of steps.
    pub(super) fn advance(
        &mut self,
        needles: &Needles,
        bytes: &[u8],
        from: usize,
        is_last: bool,
        found: &mut Vec<Found>,
        cost: &mut usize,
    ) -> usize {
        let mut held = Held { start: 0, end: from };
        *cost += bytes.len() - from;
        let (mut state, mut has_beginnings) = (self.state, !self.beginnings.is_empty());
        let mut at = from;
        while at < bytes.len() {
            if state == ROOT && !has_beginnings {
                // Most bytes of a page are in no beginning of a text.
                let is_first = |&byte: &u8| needles.is_first[usize::from(byte)];
                let Some(skipped) = bytes[at..].iter().position(is_first) else { break };
                at += skipped;
            }
            state = needles.transitions[needles.slot(state, bytes[at])];
            at += 1;
            if !has_beginnings && !needles.is_end[usize::from(state)] {
                continue;
            }
            (self.state, held.end) = (state, at);
            self.note(needles, &mut held, cost);
            self.decide(needles, &mut held, false, found, cost);
            (state, has_beginnings) = (self.state, !self.beginnings.is_empty());
        }
        self.state = state;
        held.end = bytes.len();
        self.decide(needles, &mut held, is_last, found, cost);
        held.start
    }

    /// Notes the beginnings of the texts that end with the last byte.
    fn note(&mut self, needles: &Needles, held: &mut Held, cost: &mut usize) {
        let mut node = needles.node(self.state);
        if self.beginnings.is_empty() {
            held.start = held.start.max(held.end - usize::from(node.depth));
        }
        loop {
            if let Some(bit) = node.needle {
                let start = held.end - needles.texts[usize::from(bit)].length;
                let place = start - held.start;
                if self.beginnings.len() <= place {
                    self.beginnings.resize(place + 1, 0);
                }
                self.beginnings[place] |= 1 << bit;
            }
            if node.shorter == ROOT {
                return;
            }
            node = needles.node(node.shorter);
            *cost += 1;
        }
    }

    /// Appends the texts at the bytes whose meaning does not depend on the following ones.
    fn decide(
        &mut self,
        needles: &Needles,
        held: &mut Held,
        is_last: bool,
        found: &mut Vec<Found>,
        cost: &mut usize,
    ) {
        loop {
            let pending = if is_last { 0 } else { needles.node(self.state).pending };
            let decided = held.end - usize::from(pending);
            if held.start >= decided {
                return;
            }
            let Some(texts) = self.beginnings.pop_front() else {
                held.start = decided;
                return;
            };
            *cost += 1;
            let Some(longest) = (texts & !self.used).checked_ilog2() else {
                held.start += 1;
                continue;
            };
            let Text { index, length } = needles.texts[longest as usize];
            let end = held.start + length;
            found.push(Found { needle: index, start: held.start, end });
            if self.is_once {
                self.used |= 1 << longest;
            }
            self.beginnings.drain(..self.beginnings.len().min(length - 1));
            held.start = end;
            // Texts that begin before the end of the text do not count.
            while usize::from(needles.node(self.state).depth) > held.end - end {
                self.state = needles.node(self.state).suffix;
                *cost += 1;
            }
        }
    }
}

/// Positions of the bytes that are held back.
struct Held {
    start: usize,
    end: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces the texts by their upper-cased index in brackets, with chunks of a size.
    fn replaced(texts: &[&str], input: &str, chunk: usize, is_once: bool) -> String {
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let needles = Needles::new(&texts).unwrap();
        let mut search = Search::new(is_once);
        let (mut out, mut held, mut cost) = (String::new(), Vec::new(), 0);
        let chunks: Vec<&[u8]> = input.as_bytes().chunks(chunk).collect();
        for (number, chunk) in chunks.iter().enumerate() {
            let from = held.len();
            held.extend_from_slice(chunk);
            let (is_last, mut found) = (number + 1 == chunks.len(), Vec::new());
            let begin = search.advance(&needles, &held, from, is_last, &mut found, &mut cost);
            let mut at = 0;
            for Found { needle, start, end } in found {
                out.push_str(std::str::from_utf8(&held[at..start]).unwrap());
                out.push_str(&format!("[{needle}]"));
                at = end;
            }
            out.push_str(std::str::from_utf8(&held[at..begin]).unwrap());
            held.drain(..begin);
            assert!(held.len() <= MAX_NEEDLE_BYTES);
        }
        out
    }

    #[test]
    fn finds_the_longest_text_at_the_leftmost_position() {
        for (texts, input, expected) in [
            (&["abc"][..], "xxabcxxABCx", "xx[0]xx[0]x"),
            (&["ab", "abcd"], "ab abc abcd", "[0] [0]c [1]"),
            (&["abcd", "bc"], "abcd abcx bc", "[0] a[1]x [1]"),
            (&["bc", "abcd", "cx"], "abcx", "a[0]x"),
            (&["aa"], "aaaaa", "[0][0]a"),
            (&["aab"], "aaaab", "aa[0]"),
            (&["a", "aaab"], "aaaaab", "[0][0][1]"),
            (&["he", "she", "his", "hers"], "ushers his", "u[1]rs [2]"),
            (&["</head>"], "<head></HEAD></head", "<head>[0]</head"),
            (&["x"], "", ""),
        ] {
            for chunk in 1..=input.len().max(1) {
                assert_eq!(replaced(texts, input, chunk, false), expected, "{input} {chunk}");
            }
        }
    }

    /// The number of steps is linear however the texts nest. Each row: the texts, the repeated
    /// input, and the maximum number of steps per byte.
    #[test]
    fn steps_are_linear_in_the_input() {
        let long = |end: &str| format!("{}{end}", "a".repeat(MAX_NEEDLE_BYTES - 1));
        let nested: Vec<String> = (1..=MAX_NEEDLES).map(|length| "a".repeat(length)).collect();
        for (texts, input, max) in [
            (vec!["a".to_owned(), long("b")], "a", 4),
            (vec!["aa".to_owned(), long("b"), long("c")], "aa", 4),
            (vec![long("b")], "a", 3),
            (vec!["xyz".to_owned()], "a xy xyz ", 2),
            (nested, "a", MAX_NEEDLES + 2),
        ] {
            let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            let (needles, input) = (Needles::new(&texts).unwrap(), input.repeat(16 << 10));
            for is_once in [false, true] {
                let (mut found, mut steps) = (Vec::new(), 0);
                let mut search = Search::new(is_once);
                search.advance(&needles, input.as_bytes(), 0, true, &mut found, &mut steps);
                assert!(steps <= max * input.len(), "{} {steps}", texts.len());
                assert_eq!(found.is_empty(), texts.len() == 1 && texts[0].len() > 3);
            }
        }
    }

    #[test]
    fn finds_each_text_once() {
        for (texts, input, expected) in
            [(&["a", "b"][..], "abab", "[0][1]ab"), (&["ab", "abc"], "abcabcabc", "[1][0]cabc")]
        {
            for chunk in 1..=input.len() {
                assert_eq!(replaced(texts, input, chunk, true), expected, "{input} {chunk}");
            }
        }
    }

    #[test]
    fn agrees_with_a_search_without_an_automaton() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        for _ in 0..2_000 {
            let mut text = |length: u64| {
                (0..length).map(|_| char::from(b'a' + below(2) as u8)).collect::<String>()
            };
            let input = text(40);
            let mut texts: Vec<String> = (1..=4).map(text).collect();
            texts.sort();
            texts.dedup();
            let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
            for is_once in [false, true] {
                let (mut expected, mut rest) = (String::new(), &*input);
                let mut searched: Vec<usize> = (0..texts.len()).collect();
                while let Some(c) = rest.chars().next() {
                    let fitting = searched.iter().filter(|i| rest.starts_with(texts[**i]));
                    match fitting.copied().max_by_key(|i| texts[*i].len()) {
                        Some(i) => {
                            expected.push_str(&format!("[{i}]"));
                            rest = &rest[texts[i].len()..];
                            searched.retain(|it| !is_once || *it != i);
                        }
                        None => {
                            expected.push(c);
                            rest = &rest[1..];
                        }
                    }
                }
                for chunk in [1, 3, 40] {
                    let found = replaced(&texts, &input, chunk, is_once);
                    assert_eq!(found, expected, "{texts:?} {input} {is_once}");
                }
            }
        }
    }

    #[test]
    fn limits_the_texts() {
        let long = [b'a'; MAX_NEEDLE_BYTES + 1];
        let distinct: Vec<Vec<u8>> =
            (0..9).map(|digit| [&[b'0' + digit][..], &long[..1_000]].concat()).collect();
        let distinct: Vec<&[u8]> = distinct.iter().map(|text| &**text).collect();
        let many: Vec<String> = (0..=MAX_NEEDLES).map(|number| number.to_string()).collect();
        let many: Vec<&[u8]> = many.iter().map(|text| text.as_bytes()).collect();
        for (texts, expected) in [
            (&[&b""[..]][..], "empty"),
            (&[&long[..]], "more than 1024 bytes"),
            (&[&b"a"[..], b"A"], "\"A\" is given twice"),
            (&distinct, "more than 8192 bytes together"),
            (&many, "more than 64 texts"),
        ] {
            let error = Needles::new(texts).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Needles::new(&many[..MAX_NEEDLES]).is_ok());
    }
}
