//! Imported configurations beside the servers that they were written for: the same requests are
//! sent to both, and Weft discloses nothing that the other server does not.

mod connection; // a client that keeps its connection
mod sweep; // requests for every file of the tree
mod ask; // requests and their results
mod listeners; // addresses of the configurations
mod differences; // kinds of differences, and the list of known ones
mod machine; // files, upstreams and scripts
mod nginx; // configurations of `tests/import`
mod caddy; // configurations of `tests/import_caddy`
