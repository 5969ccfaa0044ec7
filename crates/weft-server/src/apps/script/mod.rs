//! The Common Gateway Interface (RFC 3875), as CGI and FastCGI have it: from the path of a request
//! to a script, from the request to meta-variables, and from the output to the head of a response.

pub(super) mod environment; // request → meta-variables
pub(super) mod head; // output → head of a response
pub(super) mod lookup; // path → script
mod variable; // configured environment variables

pub(super) use self::environment::{
    Credentials, MetaVariables, VariableRules, meta_variables, meta_variables_in,
};
pub(super) use self::head::{HeadForm, ScriptHead};
pub(super) use self::lookup::{LookupError, Root, Script, ScriptRule};
pub(crate) use self::variable::Variable;
