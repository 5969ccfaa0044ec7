//! A QPACK encoder (RFC 9204) for tests and the fuzz target: choices from outside determine the
//! representation of each field, so that all of them occur.

use std::collections::VecDeque;

/// An encoder with a dynamic table.
pub struct ReferenceEncoder {
    /// Oldest entry first.
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    size: usize,
    capacity: usize,
    max_capacity: usize,
    inserted: u64,
    /// Sections that the decoder has not acknowledged: stream, and lowest index of a reference.
    unacknowledged: Vec<(u64, u64)>,
}

/// A representation of a field.
enum Line {
    Indexed(u64),
    NamedBy(u64, Vec<u8>),
    Literal(Vec<u8>, Vec<u8>),
}

impl ReferenceEncoder {
    /// Creates an encoder whose table can have this capacity. Returns it with its first
    /// instruction.
    pub fn new(max_capacity: usize, capacity: usize) -> (ReferenceEncoder, Vec<u8>) {
        let mut instructions = Vec::new();
        integer(&mut instructions, 5, 0x20, capacity as u64);
        let encoder = ReferenceEncoder {
            entries: VecDeque::new(),
            size: 0,
            capacity,
            max_capacity,
            inserted: 0,
            unacknowledged: Vec::new(),
        };
        (encoder, instructions)
    }

    /// Encodes a section. Returns instructions for the encoder stream, and the section.
    pub fn encode(
        &mut self,
        stream: u64,
        fields: &[(Vec<u8>, Vec<u8>)],
        mut choose: impl FnMut() -> u8,
    ) -> (Vec<u8>, Vec<u8>) {
        let (mut instructions, before) = (Vec::new(), self.inserted);
        let position = self.unacknowledged.len();
        let mut lines = Vec::new();
        for (name, value) in fields {
            let line = self.line(name, value, choose(), &mut instructions);
            if let Line::Indexed(index) | Line::NamedBy(index, _) = line {
                match self.unacknowledged.get_mut(position) {
                    Some((_, lowest)) => *lowest = index.min(*lowest),
                    None => self.unacknowledged.push((stream, index)),
                }
            }
            lines.push(line);
        }
        let base = if choose() & 1 == 0 { before } else { self.inserted };
        (instructions, self.section(&lines, base))
    }

    /// Ends the references of the oldest section of a stream.
    pub fn on_acknowledged(&mut self, stream: u64) {
        if let Some(at) = self.unacknowledged.iter().position(|(other, _)| *other == stream) {
            self.unacknowledged.remove(at);
        }
    }

    fn line(&mut self, name: &[u8], value: &[u8], choice: u8, out: &mut Vec<u8>) -> Line {
        let same = |entry: &(Vec<u8>, Vec<u8>)| entry.0 == name && entry.1 == value;
        if let Some(at) = self.entries.iter().position(same)
            && choice & 3 == 1
        {
            let relative = (self.entries.len() - 1 - at) as u64;
            if self.insert(name, value) {
                integer(out, 5, 0, relative);
                return Line::Indexed(self.inserted - 1);
            }
        }
        if let Some(at) = self.entries.iter().rposition(same)
            && choice & 1 == 0
        {
            return Line::Indexed(self.first() + at as u64);
        }
        let named = self.entries.iter().rposition(|entry| entry.0 == name);
        match (named.map(|at| self.first() + at as u64), choice & 7) {
            (Some(index), 3) => Line::NamedBy(index, value.to_vec()),
            (Some(index), 4 | 5) => {
                let relative = self.inserted - 1 - index;
                if !self.insert(name, value) {
                    return Line::Literal(name.to_vec(), value.to_vec());
                }
                integer(out, 6, 0x80, relative);
                string(out, 7, 0, value);
                Line::Indexed(self.inserted - 1)
            }
            (_, 0..=5) if self.insert(name, value) => {
                string(out, 5, 0x40, name);
                string(out, 7, 0, value);
                Line::Indexed(self.inserted - 1)
            }
            _ => Line::Literal(name.to_vec(), value.to_vec()),
        }
    }

    /// Absolute index of the oldest entry.
    fn first(&self) -> u64 {
        self.inserted - self.entries.len() as u64
    }

    /// Inserts an entry, if all entries that it evicts are free of references. Returns false
    /// otherwise.
    fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        let size = |entry: &(Vec<u8>, Vec<u8>)| entry.0.len() + entry.1.len() + 32;
        let entry = (name.to_vec(), value.to_vec());
        let lowest = self.unacknowledged.iter().map(|(_, lowest)| *lowest).min();
        let (mut free, mut evicted) = (self.capacity - self.size, 0);
        while free < size(&entry) {
            let is_free = lowest.is_none_or(|lowest| self.first() + evicted < lowest);
            let Some(oldest) = self.entries.get(evicted as usize).filter(|_| is_free) else {
                return false;
            };
            free += size(oldest);
            evicted += 1;
        }
        for oldest in self.entries.drain(..evicted as usize) {
            self.size -= size(&oldest);
        }
        self.size += size(&entry);
        self.entries.push_back(entry);
        self.inserted += 1;
        true
    }

    fn section(&self, lines: &[Line], base: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let required = lines.iter().fold(0, |required, line| match line {
            Line::Indexed(index) | Line::NamedBy(index, _) => required.max(index + 1),
            Line::Literal(..) => required,
        });
        if required == 0 {
            out.extend_from_slice(&[0, 0]);
        } else {
            let full_range = 2 * (self.max_capacity as u64 / 32);
            integer(&mut out, 8, 0, required % full_range + 1);
            match base.checked_sub(required) {
                Some(delta) => integer(&mut out, 7, 0, delta),
                None => integer(&mut out, 7, 0x80, required - base - 1),
            }
        }
        for line in lines {
            match line {
                Line::Indexed(index) if *index < base => {
                    integer(&mut out, 6, 0x80, base - 1 - index);
                }
                Line::Indexed(index) => integer(&mut out, 4, 0x10, index - base),
                Line::NamedBy(index, value) => {
                    match index.checked_sub(base) {
                        None => integer(&mut out, 4, 0x40, base - 1 - index),
                        Some(behind) => integer(&mut out, 3, 0, behind),
                    }
                    string(&mut out, 7, 0, value);
                }
                Line::Literal(name, value) => {
                    string(&mut out, 3, 0x20, name);
                    string(&mut out, 7, 0, value);
                }
            }
        }
        out
    }
}

/// Appends an integer (§4.1.1).
pub fn integer(out: &mut Vec<u8>, bits: u32, first: u8, value: u64) {
    let max = (1 << bits) - 1;
    if value < max {
        return out.push(first | value as u8);
    }
    out.push(first | max as u8);
    let mut rest = value - max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn string(out: &mut Vec<u8>, bits: u32, first: u8, text: &[u8]) {
    integer(out, bits, first, text.len() as u64);
    out.extend_from_slice(text);
}
