//! The Common Gateway Interface (RFC 3875), as CGI, FastCGI, SCGI and uwsgi have it: from the
//! request to meta-variables, and from the output to the head of a response.

mod meta_variables;
pub(crate) mod protocol;
mod script_file;
mod script_head;
pub mod stderr;

pub use crate::settings::variable::ScriptVariable;
pub use meta_variables::{
    Credentials, MetaVariables, VariableRules, meta_variables, meta_variables_in,
};
pub use protocol::ScriptCall;
pub use script_file::Script;
pub use script_head::{HeadForm, ScriptHead, ScriptHeadParser};
