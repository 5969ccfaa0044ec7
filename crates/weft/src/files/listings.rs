//! The texts of folder listings: made within limits, and cached for as long as other lookups.
//!
//! A listing costs one `stat` for each entry and a sort, so one request for the largest folder may
//! take 50 ms of a thread. The cache bounds that cost: a folder is read at most six times for each
//! format (the orders) in the time after which other lookups are revalidated, however often it is
//! requested. All workers share it.
//!
//! A compressed form is cached as a listing of its own, as old as the text that it was made of.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::client_limit::Client;
use crate::clock::deadline::Stopwatch;
use crate::compression::budget::Budget;
use crate::compression::{self, Coding, Effort};
use crate::disk;
use crate::files::listing_cache::{ListingKey, ListingText};
use crate::files::lookup::Site;
use crate::files::root::Root;

impl Site {
    /// Returns the text of a listing from the cache, or reads the folder beneath `root` on a thread
    /// of the blocking pool.
    ///
    /// # Errors
    /// Errors of the system, `EBUSY` if too many lookups wait for the disk, and `ENOMEM` if
    /// listings that wait to be sent use all of the memory for listings.
    pub(super) async fn listing_text(
        self: &Arc<Site>,
        root: Arc<Root>,
        key: ListingKey,
        client: Option<Client>,
    ) -> io::Result<ListingText> {
        let listings = &self.listings;
        let max_age = self.settings.revalidate_after;
        if let Some(text) = listings.get(&key, max_age) {
            return Ok(text);
        }
        // Before the turn, so that a client without a permit does not delay others.
        let permit = self.lookups.permit(client).await?;
        let turn = listings.lock_of(&key, &listings.reads).lock_owned().await;
        if let Some(text) = listings.get(&key, max_age) {
            return Ok(text);
        }
        let site = self.clone();
        let read = move || {
            let made = Stopwatch::start();
            let mut listing = site.list(&root, &key.path)?;
            listing.mount.clone_from(&key.mount);
            let text = match key.as_json {
                true => listing.json(key.order),
                false => listing.html(key.order, site.settings.listing_title.as_deref()),
            };
            let text = ListingText { bytes: site.listings.hold(text)?, made };
            site.cache_listing(key, text.clone());
            // Held until here even if the client has disconnected.
            drop(turn);
            Ok(text)
        };
        permit.run(read).await
    }

    /// Returns a compressed form of a listing from the cache, or compresses its text. Returns
    /// `None` if the text is to be sent as it is: it does not become smaller, or the budget for
    /// compression or the memory for listings is used up.
    pub(super) async fn coded_listing(
        self: &Arc<Site>,
        key: ListingKey,
        coding: Coding,
        text: &ListingText,
    ) -> Option<Bytes> {
        let listings = &self.listings;
        let max_age = self.settings.revalidate_after;
        let key = ListingKey { coding: Some(coding), ..key };
        let _turn = match listings.get(&key, max_age) {
            Some(coded) => return Some(coded.bytes),
            None => listings.lock_of(&key, &listings.compressions).lock_owned().await,
        };
        if let Some(coded) = listings.get(&key, max_age) {
            return Some(coded.bytes);
        }
        let permit = Budget::process().admit(text.bytes.len() as u64)?.thread().await;
        let (source, waiting) = (text.bytes.clone(), Arc::new(()));
        let is_wanted = Arc::downgrade(&waiting);
        let coded = disk::blocking(move || {
            let _permit = permit;
            let is_wanted = || is_wanted.strong_count() > 0;
            let (length, steps) = (source.len(), compression::steps(source));
            compression::compress(coding, Effort::Fast, length, steps, is_wanted)
        });
        let coded = coded.await.ok().flatten()?;
        drop(waiting);
        if coded.len() >= text.bytes.len() {
            return None;
        }
        let bytes = listings.hold(coded).ok()?;
        self.cache_listing(key, ListingText { bytes: bytes.clone(), made: text.made });
        Some(bytes)
    }

    /// Caches a listing, and removes it when it is too old.
    fn cache_listing(self: &Arc<Site>, key: ListingKey, text: ListingText) {
        let max_age = self.settings.revalidate_after;
        if max_age.is_zero() {
            return;
        }
        let is_first = self.listings.insert(key, text, max_age);
        if is_first {
            let site = Arc::downgrade(self);
            Handle::current().spawn(async move {
                loop {
                    tokio::time::sleep(max_age).await;
                    let Some(site) = site.upgrade() else { return };
                    if site.listings.remove_older_than(max_age) {
                        return;
                    }
                }
            });
        }
    }
}
