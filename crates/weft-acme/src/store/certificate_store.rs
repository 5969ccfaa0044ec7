//! The trait of stores for accounts and certificates.

use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

/// A store of accounts and certificates, such as [`FileStore`](crate::FileStore). Several processes
/// may share it. Entries are small (up to some 20 KiB) and have a path as their key:
///
/// ```text
/// accounts/AUTHORITY/key.pem         private key of the account
/// accounts/AUTHORITY/account.json    the account, once the authority has confirmed it
/// certificates/NAME/certificate.pem  private key and certificate chain
/// certificates/NAME/state.json       failures, and the time of the next attempt
/// certificates/NAME/order.json       URL and private key of the last order
/// ```
///
/// The functions may block: the thread of the orders and [`Acme::load`](crate::Acme::load) call
/// them. Entries contain private keys. Protect them from other users.
pub trait CertificateStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the contents of an entry; `None` if there is no such entry.
    ///
    /// # Errors
    /// If the entry cannot be read. Then the certificate in memory stays in use.
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// Returns the version of an entry; `None` if there is no such entry. Called every 10 s for
    /// both entries of each name, to find changes by other processes.
    ///
    /// # Errors
    /// If the version cannot be determined.
    fn version(&self, key: &str) -> io::Result<Option<Version>>;

    /// Creates or replaces an entry as a whole. A reader gets the former contents or the new
    /// contents, also after a crash.
    ///
    /// # Errors
    /// If the entry cannot be written.
    fn put(&self, key: &str, contents: &[u8]) -> io::Result<()>;

    /// Creates an entry if there is none (`None`), or replaces it if it has this version. Returns
    /// false if the entry is another. Two processes without a lease thus agree on one entry.
    ///
    /// # Errors
    /// If the entry cannot be written.
    fn put_if(&self, key: &str, contents: &[u8], version: Option<Version>) -> io::Result<bool>;

    /// Returns the names directly beneath a folder. Beneath `certificates`, these are the names of
    /// all certificates.
    ///
    /// # Errors
    /// If the names cannot be listed.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Removes all entries beneath a folder.
    ///
    /// # Errors
    /// If the entries cannot be removed.
    fn remove(&self, folder: &str) -> io::Result<()>;

    /// Acquires the lease of a folder: the exclusive right to change the entries beneath it.
    /// Returns `None` if another process or another task has the lease. A lease must end with its
    /// process, and should last for
    /// [`AcmeSettings::order_timeout`](crate::AcmeSettings::order_timeout).
    ///
    /// # Errors
    /// If the lease cannot be acquired for another reason.
    fn lease(&self, folder: &str) -> io::Result<Option<Lease>>;
}

/// Version of an entry of a [`CertificateStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// Creates a version from a value that differs after each change, such as an entity tag.
    pub fn new(value: impl Hash) -> Version {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Version(hasher.finish())
    }
}

/// The exclusive right to change some entries of a [`CertificateStore`], until it is dropped.
pub struct Lease(#[expect(dead_code, reason = "its drop ends the lease")] Box<dyn Any + Send>);

impl Lease {
    /// Creates a lease that ends when `guard` is dropped.
    pub fn new(guard: impl Send + 'static) -> Lease {
        Lease(Box::new(guard))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}
