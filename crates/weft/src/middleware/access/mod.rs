//! Access of clients and of pages of other origins.

mod address_filter; // access by the address of the client
mod auth; // authentication with passwords and bearer tokens
mod cors; // cross-origin resource sharing

pub use address_filter::AddressFilter;
pub use auth::{
    BasicAuth, BearerAuth, User, basic_credentials, bearer_token, fixed_tokens, fixed_users,
};
pub use cors::Cors;
