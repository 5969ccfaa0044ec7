//! Accounts and certificates in a store.

pub(crate) mod certificate_store; // the trait of stores
pub(crate) mod file_store; // a store of files
pub(crate) mod renewal; // times of renewals and of attempts
pub(crate) mod store_entries; // accounts and certificates as entries
pub(crate) mod stored_certificate; // a certificate, and when it is due
