//! A file as it is served: its variants by language, and the content codings of each.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, VARY,
};
use http::{HeaderValue, StatusCode};

use crate::clock::wall::is_past;
use crate::compression::{self, Coding};
use crate::disk;
use crate::disk::{File, FileVersion, Source};
use crate::files::root::{Opened, Wait};
use crate::files::site::Site;
use crate::message::fields::{Field, Fields};
use crate::message::response::{Payload, Response, field_value};
use crate::proto::headers::Headers;
use crate::proto::semantics::accept;
use crate::proto::semantics::date::http_date;

/// What is served for one path.
#[derive(Debug)]
pub(super) struct Resource {
    /// The first is for whom none of the languages suits.
    variants: Vec<Variant>,
    /// The languages of the others.
    languages: Vec<String>,
    /// What it was made of, to be compared with what is there later.
    parts: Vec<Part>,
}

/// A file that a resource is made of: its path, or that of which it is a compressed neighbour. Two
/// names may stand for the same version.
type Part = (Vec<u8>, Option<Coding>, FileVersion);

#[derive(Debug)]
struct Variant {
    plain: Representation,
    /// Compressed files that lie beside it.
    neighbours: Vec<(Coding, Representation)>,
    /// What was compressed here, by coding; none if it did not get smaller.
    made: [OnceLock<Option<Representation>>; Coding::ALL.len()],
    /// Whether somebody compresses it at this moment.
    busy: AtomicBool,
    /// Whether it is of a type and size to be compressed.
    can_be_made: bool,
}

/// The bytes and the fields of a response.
#[derive(Clone, Debug)]
pub(super) struct Representation {
    file: Arc<File>,
    fields: Fields,
    /// Whether it changed only just now.
    is_young: bool,
}

/// What a request gets of a resource.
pub(super) enum Choice<'a> {
    Ready(&'a Representation),
    /// What has to be compressed first.
    ToMake(Work<'a>),
}

/// A variant that somebody compresses.
pub(super) struct Work<'a> {
    variant: &'a Variant,
    coding: Coding,
}

/// The files that a variant is made of.
struct Files {
    path: Vec<u8>,
    language: Option<String>,
    plain: Opened,
    neighbours: Vec<(Coding, Opened)>,
}

/// From this size on a file is sent from the page cache (`sendfile(2)`) rather than from our
/// memory, while there are descriptors for that. Measured, what comes from our memory costs about
/// what the further system calls do at 16 KiB, and more at 32.
const LARGE_FILE_BYTES: u64 = 24 << 10;

/// How long a file must have been as it is for its contents to be kept: far longer than the
/// kernel's clock takes from one time of change to the next.
const SETTLED: Duration = Duration::from_secs(2);

/// A look at a path, by somebody who waits for the disk or does not.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) site: &'a Site,
    pub(super) path: &'a [u8],
    pub(super) wait: Wait,
    /// Whether descriptors may be kept where contents would do.
    pub(super) may_hold: bool,
}

impl Resource {
    /// What is made of an opened file, and of those beside it. `None` if that is what is known.
    ///
    /// # Errors
    /// [`WouldBlock`](ErrorKind::WouldBlock) if it would wait and must not.
    pub(super) fn make(
        look: Look<'_>,
        opened: Opened,
        known: Option<&Resource>,
    ) -> io::Result<Option<Resource>> {
        let files = Files::of_all_languages(look, opened)?;
        let parts = files.iter().flat_map(Files::parts).collect();
        if known.is_some_and(|known| !known.is_provisional() && known.parts == parts) {
            known.into_iter().for_each(Resource::doubt);
            return Ok(None);
        }
        let languages: Vec<_> = files.iter().filter_map(|files| files.language.clone()).collect();
        let variant = |files| Variant::make(look, files, !languages.is_empty());
        let variants = files.into_iter().map(variant).collect::<io::Result<_>>()?;
        Ok(Some(Resource { variants, languages, parts }))
    }

    /// What a request with these fields gets.
    pub(super) fn choose(&self, headers: &Headers) -> Choice<'_> {
        let language = match self.languages.is_empty() {
            true => None,
            false => accept::language(headers, &self.languages),
        };
        let variant = &self.variants[language.map_or(0, |index| index + 1)];
        // A part of what is compressed here could not be told from a part of another make.
        let can_be_made = variant.can_be_made && headers.get_bytes("range").is_none();
        if variant.neighbours.is_empty() && !can_be_made {
            return Choice::Ready(&variant.plain);
        }
        let mut offered = Coding::ALL.to_vec();
        offered.retain(|coding| can_be_made || variant.neighbour(*coding).is_some());
        let Some(coding) = accept::coding(headers, &offered) else {
            return Choice::Ready(&variant.plain);
        };
        match (variant.neighbour(coding), variant.made[coding as usize].get()) {
            (Some(neighbour), _) => Choice::Ready(neighbour),
            (None, Some(made)) => Choice::Ready(made.as_ref().unwrap_or(&variant.plain)),
            // One is enough at a time; whoever comes meanwhile gets it as it is.
            (None, None) if variant.busy.swap(true, Relaxed) => Choice::Ready(&variant.plain),
            (None, None) => Choice::ToMake(Work { variant, coding }),
        }
    }

    /// A response with this as the page of an error.
    pub(super) fn error_page(&self, status: StatusCode) -> Response {
        let mut response = self.variants[0].plain.respond().with_status(status);
        for name in [ETAG, LAST_MODIFIED, ACCEPT_RANGES, CACHE_CONTROL] {
            response.remove_header(name);
        }
        response
    }

    /// What was in memory may have left it.
    fn doubt(&self) {
        let files = self.representations().filter_map(|it| it.file.at_hand.as_ref());
        files.for_each(|at_hand| at_hand.store(false, Relaxed));
    }

    /// Whether something changed only just now: then it is made anew in any case.
    fn is_provisional(&self) -> bool {
        self.representations().any(|representation| representation.is_young)
    }

    fn representations(&self) -> impl Iterator<Item = &Representation> {
        self.variants.iter().flat_map(|variant| {
            let neighbours = variant.neighbours.iter().map(|(_, representation)| representation);
            neighbours.chain([&variant.plain])
        })
    }

    /// Whether the open files are still what they were: who writes to one in place does so
    /// now, and neither its length nor its validators may be those of before.
    pub(super) fn is_current(&self) -> bool {
        self.representations().all(|Representation { file, .. }| match &file.source {
            Source::Memory(_) => true,
            Source::Open(open) => file.version.is_some_and(|version| version.is_of(open)),
        })
    }

    /// How many bytes it keeps in memory, without what is compressed here.
    pub(super) fn bytes(&self) -> usize {
        let kept = self.representations().filter_map(|it| it.file.in_memory());
        kept.map(|bytes| bytes.len()).sum()
    }

    /// How many descriptors it keeps open.
    pub(super) fn descriptors(&self) -> usize {
        self.representations().filter(|it| matches!(it.file.source, Source::Open(_))).count()
    }
}

impl Files {
    fn of_all_languages(look: Look<'_>, plain: Opened) -> io::Result<Vec<Files>> {
        let Look { site, path, wait, .. } = look;
        let compressible = compression::is_compressible(site.media_type(path).as_bytes());
        let neighbours = |path: &[u8], plain: &Opened| match site.settings.precompressed {
            true if compressible => neighbours(Look { path, ..look }, plain),
            _ => Ok(Vec::new()),
        };
        let (path_of_all, beside) = (path.to_vec(), neighbours(path, &plain)?);
        let mut all = vec![Files { path: path_of_all, language: None, neighbours: beside, plain }];
        let is_page = path.ends_with(b".html");
        for language in site.settings.languages.iter().filter(|_| is_page) {
            let path = [path, b".", language.as_bytes()].concat();
            if let Some(plain) = site.look_beside(&path, wait)? {
                let neighbours = neighbours(&path, &plain)?;
                all.push(Files { path, language: Some(language.clone()), neighbours, plain });
            }
        }
        Ok(all)
    }

    fn parts(&self) -> impl Iterator<Item = Part> {
        let neighbours = self.neighbours.iter().map(|(coding, file)| (Some(*coding), file));
        let all = neighbours.chain([(None, &self.plain)]);
        all.map(|(coding, file)| (self.path.clone(), coding, file.version()))
    }
}

/// The compressed files beside a file.
fn neighbours(look: Look<'_>, plain: &Opened) -> io::Result<Vec<(Coding, Opened)>> {
    let Look { site, path, wait, .. } = look;
    let mut neighbours = Vec::new();
    // `index.html.br` may be one in Breton.
    let is_language = |coding: &Coding| {
        path.ends_with(b".html")
            && site.settings.languages.iter().any(|it| it == coding.extension())
    };
    for coding in Coding::ALL.into_iter().filter(|coding| !is_language(coding)) {
        let path = [path, b".", coding.extension().as_bytes()].concat();
        if let Some(file) = site.look_beside(&path, wait)?
            && !file.version().is_older_than(&plain.version())
        {
            neighbours.push((coding, file));
        }
    }
    Ok(neighbours)
}

impl Variant {
    /// `speaks`: whether there are variants in languages.
    fn make(look: Look<'_>, files: Files, speaks: bool) -> io::Result<Variant> {
        let Look { site, path, wait, .. } = look;
        let (settings, content_type) = (&site.settings, site.media_type(path));
        let sizes = settings.min_compressed_bytes..=settings.max_compressed_bytes;
        let can_be_made = settings.compress
            && compression::is_compressible(content_type.as_bytes())
            && sizes.contains(&files.plain.file.length);
        let varies = match (can_be_made || !files.neighbours.is_empty(), speaks) {
            (true, false) => Some("accept-encoding"),
            (true, true) => Some("accept-encoding, accept-language"),
            (false, true) => Some("accept-language"),
            (false, false) => None,
        };
        let mut fields = vec![(CONTENT_TYPE, content_type)];
        fields.extend(varies.map(|names| (VARY, HeaderValue::from_static(names))));
        fields.extend(files.language.map(|tag| (CONTENT_LANGUAGE, field_value(tag.as_bytes()))));
        site.add_rules(path, &mut fields);
        let most = settings.max_kept_file_bytes.min(settings.max_kept_bytes as u64);
        let most = if look.may_hold { most.min(LARGE_FILE_BYTES) } else { most };
        let mut neighbours = Vec::new();
        for (coding, opened) in files.neighbours {
            let encoding = (CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
            let fields = fields.iter().cloned().chain([encoding]).collect();
            neighbours.push((coding, opened.represent(fields, most, wait)?));
        }
        let plain = files.plain.represent(fields, most, wait)?;
        let (made, busy) = (Default::default(), AtomicBool::new(false));
        Ok(Variant { plain, neighbours, made, busy, can_be_made })
    }

    fn neighbour(&self, coding: Coding) -> Option<&Representation> {
        let found = self.neighbours.iter().find(|(other, _)| *other == coding);
        found.map(|(_, representation)| representation)
    }
}

impl<'a> Work<'a> {
    /// What is served if it is not done.
    pub(super) fn plain(&self) -> &'a Representation {
        &self.variant.plain
    }

    /// What has to be done, by a thread that may wait.
    pub(super) fn job(&self) -> impl FnOnce() -> Option<Bytes> + Send + 'static {
        let (coding, file) = (self.coding, self.variant.plain.file.clone());
        move || {
            let bytes = file.read().ok()?;
            let compressed = compression::compress(coding, &bytes).ok()?;
            (compressed.len() < bytes.len()).then(|| compressed.into())
        }
    }

    /// Takes the result of that, and keeps it if there is room.
    pub(super) fn done(
        self,
        compressed: Option<Bytes>,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Representation {
        let plain = &self.variant.plain;
        let made = compressed.map(|bytes| plain.coded(self.coding, bytes));
        if has_room(made.as_ref().map_or(0, |made| made.file.length as usize)) {
            let _ = self.variant.made[self.coding as usize].set(made.clone());
        }
        made.unwrap_or_else(|| plain.clone())
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.variant.busy.store(false, Relaxed);
    }
}

impl Representation {
    pub(super) fn respond(&self) -> Response {
        Response::success(self.fields.clone(), Payload::File(self.file.clone()))
    }

    /// The same in a content coding, made here. The validator is weak, for another version
    /// of the encoder may make other bytes (RFC 9110 §8.8.1).
    fn coded(&self, coding: Coding, bytes: Bytes) -> Representation {
        let mut response = self.respond();
        if let Some(version) = &self.file.version {
            response.set_header(ETAG, format!("W/{}", version.etag()));
        }
        response.set_header(CONTENT_ENCODING, coding.token());
        let length = bytes.len() as u64;
        let source = Source::Memory(bytes);
        let file = Arc::new(File { source, start: 0, length, ..File::clone(&self.file) });
        // The rest is added to those of a file that is too young to be kept with each response.
        let fields = match &self.fields {
            Fields::Kept(_) => response.headers.keep(),
            Fields::Own(_) | Fields::Common(_) | Fields::Passed(_) => response.headers,
        };
        Representation { file, fields, is_young: self.is_young }
    }
}

impl Opened {
    fn version(&self) -> FileVersion {
        self.file.version.expect("whole files have versions")
    }

    /// What is served of this file: its contents, if they are few and did not change just
    /// now, otherwise the open file.
    fn represent(
        self,
        mut fields: Vec<Field>,
        most: u64,
        wait: Wait,
    ) -> io::Result<Representation> {
        let version = self.version();
        let modified = version.modified();
        let unsettled = |file, fields, is_young| {
            let (file, fields) = (Arc::new(file), Fields::Own(fields));
            Ok(Representation { file, fields, is_young })
        };
        let file = match &self.file.source {
            Source::Memory(_) => self.file,
            // What changed just now may change again without a change of its version.
            Source::Open(_) if !is_past(version.changed(), SETTLED) => {
                return unsettled(self.file, fields, true);
            }
            // A date to come is not to be told, but kept fields do not age.
            Source::Open(_)
                if modified.is_some_and(|modified| !is_past(modified, Duration::ZERO)) =>
            {
                return unsettled(self.file, fields, false);
            }
            Source::Open(_) if self.file.length > most => {
                File { at_hand: Some(Arc::default()), ..self.file }
            }
            Source::Open(open) => match contents(open, self.file.length, wait)? {
                Some(bytes) if FileVersion::new(&open.metadata()?) == version => {
                    self.file.clone().with_bytes(bytes)
                }
                // It changes while we look.
                _ => return unsettled(self.file, fields, true),
            },
        };
        let etag = (ETAG, field_value(version.etag().as_bytes()));
        let modified =
            modified.map(|time| (LAST_MODIFIED, field_value(http_date(time).as_bytes())));
        let ranges = (ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        for (name, value) in [Some(etag), modified, Some(ranges)].into_iter().flatten() {
            // A rule may have said something else.
            if !fields.iter().any(|(other, _)| *other == name) {
                fields.push((name, value));
            }
        }
        let fields = Fields::Own(fields).keep();
        Ok(Representation { file: Arc::new(file), fields, is_young: false })
    }
}

/// The contents of a file; `None` if it is shorter than it was said to be.
///
/// # Errors
/// [`WouldBlock`](ErrorKind::WouldBlock) if that would wait and must not.
fn contents(file: &fs::File, length: u64, wait: Wait) -> io::Result<Option<Bytes>> {
    let length = length as usize;
    let read = match wait {
        Wait::Never => disk::read_whole_now(file, 0, length)
            .and_then(|bytes| bytes.ok_or_else(|| ErrorKind::WouldBlock.into())),
        Wait::Gladly => {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, 0).map(|()| bytes.into())
        }
    };
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
