//! The error of an invalid setting.

use std::borrow::Cow;

use weft::{Error, ErrorKind};

pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidSetting, reason)
}
