//! The terminal, the same on all Unix systems.

use std::io;

use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// A terminal at the standard input that does not show what is typed, until this value is dropped.
pub(crate) struct HiddenInput(Termios);

impl HiddenInput {
    /// # Errors
    /// If the standard input is no terminal.
    pub(crate) fn begin() -> io::Result<HiddenInput> {
        let former = tcgetattr(stdin())?;
        let mut hidden = former.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &hidden)?;
        Ok(HiddenInput(former))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // Ignored: the terminal may be gone.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}
