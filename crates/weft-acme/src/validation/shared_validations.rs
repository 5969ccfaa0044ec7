//! The trait of validations that several servers share, so that each of them answers an authority.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// Pending validations of several servers, such as entries of a store that they share. An authority
/// that validates a name may reach any of them.
///
/// A validation has a key, `http-01/TOKEN` or `tls-alpn-01/SERVER-NAME`, and a value that an
/// authority may see.
pub trait SharedValidations: fmt::Debug + Send + Sync + 'static {
    /// Publishes a validation. When the future has ended, [`pending`](SharedValidations::pending)
    /// of each server has it, until it is withdrawn or `lifetime` has passed. Errors are the
    /// reason.
    fn publish<'a>(
        &'a self,
        key: &'a str,
        value: &'a str,
        lifetime: Duration,
    ) -> ValidationFuture<'a, ()>;

    /// Withdraws a validation. Called by a thread that must not block.
    fn withdraw(&self, key: &str);

    /// Returns all pending validations. Called at most 20 times a second, whatever clients request.
    /// Errors are the reason.
    fn pending(&self) -> ValidationFuture<'_, Vec<(String, String)>>;
}

/// Future of a function of [`SharedValidations`].
pub type ValidationFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;
