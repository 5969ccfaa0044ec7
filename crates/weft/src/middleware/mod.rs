//! What stands before an application: [`Middleware`](crate::Middleware) that comes with the
//! engine, one file each.

mod compress; // which responses are compressed, and what that does to their fields
mod encoded; // a body that is compressed as it is pulled

pub use crate::coding::Coding;
pub use compress::Compress;
