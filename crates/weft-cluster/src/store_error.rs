//! Failures of a store.

use std::fmt;

/// Failure of a call to a store. Its text has no secret and no address of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no connection, or the store has not answered in time.
    Away(String),
    /// The store has refused the call, such as for a missing permission.
    Refused(String),
    /// The answer is too large, or has another form than expected.
    Invalid(String),
}

/// Maximum length of a text of the store in a message, in characters.
const MAX_REASON: usize = 200;

impl StoreError {
    /// Shortens a text that the store has chosen, and removes its control characters.
    pub(crate) fn reason(text: impl fmt::Display) -> String {
        let text = text.to_string();
        text.chars().take(MAX_REASON).map(|it| if it.is_control() { ' ' } else { it }).collect()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Away(reason) => f.write_str(reason),
            StoreError::Refused(reason) => write!(f, "the store refuses a call: {reason}"),
            StoreError::Invalid(reason) => write!(f, "the store answers nonsense: {reason}"),
        }
    }
}

impl std::error::Error for StoreError {}
