//! Small parts that import nothing else of the program.

pub(crate) mod auth_url; // resources that the server requests itself
pub(crate) mod descriptors; // the limit on open file descriptors
pub(crate) mod engine_fields; // fields that the engine sets itself
pub(crate) mod host_name; // names of hosts in their normal form
pub(crate) mod listen_end; // ends of connections, to which hosts are bound
pub(crate) mod interpreter; // reasons that a script cannot be run
pub(crate) mod log_format; // formats of access logs
pub(crate) mod log_target; // destinations of logs
pub(crate) mod network_set; // networks, and sets of networks in files
pub(crate) mod verifications; // verifications of credentials
pub(crate) mod password_file; // users and hashed passwords
pub(crate) mod rate; // numbers of requests per period
pub(crate) mod request_notes; // notes about a request for its line in the access log
pub(crate) mod script_files; // files whose text is never sent
pub(crate) mod sync; // locks of cells that threads share
pub(crate) mod sys; // calls that differ between systems
pub(crate) mod unix_address; // Unix sockets to listen on
pub(crate) mod trace_context; // identity of a request in distributed traces
pub(crate) mod watched_file; // files that are read again when they change
pub(crate) mod process_group; // a process and its children
pub(crate) mod share; // shares of requests
