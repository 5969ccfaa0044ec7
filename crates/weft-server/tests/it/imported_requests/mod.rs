//! Imported configurations beside the servers that they were written for: the same requests are
//! sent to both, and Weft discloses nothing that the other server does not.

mod ask; // requests and their results
mod machine; // files, upstreams and scripts
mod nginx; // configurations of `tests/import`
mod caddy; // configurations of `tests/import_caddy`
