//! The directives that apply to a location: its own directives, and directives of the blocks around
//! it.

use super::outcomes::Outcomes;
use super::tree::Directive;

/// Blocks from the outermost (`http`) to the innermost one. Reading a directive marks it as carried
/// over; the reader reports values that it cannot carry over.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    levels: Vec<&'a [Directive]>,
    /// The innermost block is an `if`, which adds directives to the block around it.
    has_case: bool,
    pub(super) outcomes: &'a Outcomes,
}

impl<'a> Scope<'a> {
    pub(super) fn new(outcomes: &'a Outcomes) -> Scope<'a> {
        Scope { levels: Vec::new(), has_case: false, outcomes }
    }

    /// Returns the scope of a block in this one.
    pub(super) fn inside(&self, block: &'a [Directive]) -> Scope<'a> {
        let mut inner = self.clone();
        inner.levels.push(block);
        inner.has_case = false;
        inner
    }

    /// Returns the scope of an `if` block, whose directives are added to the block around it.
    pub(super) fn inside_case(&self, block: &'a [Directive]) -> Scope<'a> {
        Scope { has_case: true, ..self.inside(block) }
    }

    /// Returns the scope of the server around a location.
    pub(super) fn of_server(&self) -> Scope<'a> {
        let mut outer = self.clone();
        outer.levels.truncate(2);
        outer.has_case = false;
        outer
    }

    /// Returns the scope without the innermost block.
    pub(super) fn outside(&self) -> Scope<'a> {
        let mut outer = self.clone();
        for _ in 0..=usize::from(self.has_case) {
            outer.levels.pop();
        }
        outer.has_case = false;
        outer
    }

    /// Returns the directive of the innermost block that has it.
    pub(super) fn one(&self, name: &str) -> Option<&'a Directive> {
        self.all(&[name]).pop()
    }

    /// Returns the directives with these names of the innermost block that has any of them.
    /// Directives of outer blocks are not inherited then.
    pub(super) fn all(&self, names: &[&str]) -> Vec<&'a Directive> {
        let levels = self.levels.iter().rev();
        let mut found = levels.map(|level| self.of_level(level, names));
        found.find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns the directives with this name of the innermost block only.
    pub(super) fn own(&self, name: &str) -> Vec<&'a Directive> {
        let levels = self.levels.iter().rev().take(1 + usize::from(self.has_case));
        let mut found = levels.map(|level| self.of_level(level, &[name]));
        found.find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns all directives of the innermost block that is no `if`, without marking them.
    pub(super) fn innermost(&self) -> &'a [Directive] {
        let mut levels = self.levels.iter().rev().skip(usize::from(self.has_case));
        levels.next().copied().unwrap_or_default()
    }

    /// Returns all blocks, the outermost first.
    pub(super) fn levels(&self) -> &[&'a [Directive]] {
        &self.levels
    }

    /// Returns true if a switch is `on`; without the directive it is neither `on` nor `off`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.one(name).is_some_and(|directive| directive.arg(0) == "on")
    }

    pub(super) fn is_off(&self, name: &str) -> bool {
        self.one(name).is_some_and(|directive| directive.arg(0) == "off")
    }

    /// Returns the time of a directive; `None` for an invalid one, which is reported.
    pub(super) fn time(&self, name: &str) -> Option<String> {
        self.one(name).and_then(|it| self.outcomes.time(it, it.arg(0)))
    }

    /// Returns the size of a directive; `None` for an invalid one, which is reported.
    pub(super) fn size(&self, name: &str) -> Option<String> {
        self.one(name).and_then(|it| self.outcomes.size(it, it.arg(0)))
    }

    fn of_level(&self, level: &'a [Directive], names: &[&str]) -> Vec<&'a Directive> {
        let found = level.iter().filter(|directive| names.contains(&&*directive.name));
        found.inspect(|directive| self.outcomes.carried(directive)).collect()
    }
}
