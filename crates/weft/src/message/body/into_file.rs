//! The way back from a body to a file, which can be sent by `sendfile(2)`.

use crate::disk::File;
use crate::message::body::{Body, Kind};

impl Body {
    /// Returns the unread rest of a file, unless a read is in progress or the body is no file.
    pub(crate) fn into_file(self) -> Result<File, Body> {
        match self.0 {
            Kind::File(reader) if reader.reading.is_none() => Ok(reader.file),
            _ => Err(self),
        }
    }
}
