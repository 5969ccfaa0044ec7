//! The representations of a file: its variants by language, and the content codings of each.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, VARY,
};
use http::{HeaderValue, Method, StatusCode};
use smallvec::SmallVec;

use crate::clock::age::is_older_than;
use crate::clock::wall;
use crate::compression::{self, Coding};
use crate::disk;
use crate::disk::{File, FileVersion, Source};
use crate::files::coded_slot::{CodedForm, CodedSlot, SlotResponse};
use crate::files::entity_tag;
use crate::files::file_representation::Representation;
use crate::files::root::{MayBlock, Opened, RootAccess};
use crate::files::settings::DirectorySettings;
use crate::message::fields::{Field, Fields};
use crate::message::request_head::RequestHead;
use crate::message::response::{Response, field_value};
use crate::sys;
use weft_proto::semantics::date::http_date;
use weft_proto::semantics::{accept, mime};

/// The resource (RFC 9110 §3.1) at one path.
#[derive(Debug)]
pub(super) struct Resource {
    /// The first is the default, served if none of the languages is acceptable.
    variants: Vec<Variant>,
    /// The languages of the other variants.
    languages: Vec<String>,
    /// Files that the resource was built from. A later lookup compares them with the files that
    /// exist then.
    components: Box<[Component]>,
    /// Set if no other precompressed files existed at the last lookup. They are looked for at the
    /// first request that accepts a coding.
    has_all_codings: AtomicBool,
}

/// A file that a resource is built from: its path (for a precompressed file the path of the
/// original), its content coding and its version. Two names may have the same version.
type Component = (Vec<u8>, Option<Coding>, FileVersion);

#[derive(Debug)]
struct Variant {
    /// The representation without a content coding.
    identity: Representation,
    /// Representations from precompressed files beside the original.
    precompressed: Vec<(Coding, Representation)>,
    /// The forms that the server compresses, by coding; empty unless the media type and the size
    /// permit compression.
    compressed: Box<[CodedSlot]>,
}

/// The response to a request, with the representation that was selected for it.
pub(super) enum Choice {
    Ready(Response),
    /// The selected form has to be compressed first.
    Compress(CodedForm),
    /// The selected form is popular, and should be compressed with more effort.
    Improve(Response, CodedForm),
}

/// The files that a variant is built from.
struct VariantFiles {
    path: Vec<u8>,
    language: Option<String>,
    original: Opened,
    /// `None` if they were not looked for.
    precompressed: Option<Vec<(Coding, Opened)>>,
}

/// The smallest file that is sent from the page cache (`sendfile(2)`) rather than from process
/// memory, while descriptors are available for that. Measured: sending from process memory costs
/// about as much as the additional system calls of `sendfile` at 16 KiB, and more at 32 KiB.
const MIN_SENDFILE_BYTES: u64 = 24 << 10;

/// A path that is looked up, and the conditions of the lookup.
#[derive(Clone, Copy)]
pub(super) struct LookupContext<'a> {
    pub(super) settings: &'a DirectorySettings,
    pub(super) root: RootAccess<'a>,
    pub(super) path: &'a [u8],
    /// Set if a descriptor may be kept open in place of contents in memory.
    pub(super) may_keep_open: bool,
    /// Set if the request accepts a content coding.
    pub(super) accepts_coding: bool,
}

impl Resource {
    /// Builds the resource of an opened file and the files beside it. Returns `None` if `cached` is
    /// still current.
    ///
    /// # Errors
    /// [`WouldBlock`](ErrorKind::WouldBlock) if it would wait and must not.
    pub(super) fn build(
        context: LookupContext<'_>,
        opened: Opened,
        cached: Option<&Resource>,
    ) -> io::Result<Option<Resource>> {
        let needs_codings =
            context.accepts_coding || cached.is_some_and(|cached| cached.has_all_codings());
        let files = VariantFiles::open_all(context, opened, needs_codings)?;
        let has_all_codings = files.iter().all(|files| files.precompressed.is_some());
        let components: Box<[_]> = files.iter().flat_map(VariantFiles::components).collect();
        if let Some(cached) = cached
            && !cached.has_recent_changes()
            && cached.components == components
        {
            cached.has_all_codings.store(has_all_codings, Relaxed);
            cached.clear_residency();
            return Ok(None);
        }
        let languages: Vec<_> = files.iter().filter_map(|files| files.language.clone()).collect();
        let variant = |files| Variant::build(context, files, !languages.is_empty());
        let variants = files.into_iter().map(variant).collect::<io::Result<_>>()?;
        let has_all_codings = AtomicBool::new(has_all_codings);
        Ok(Some(Resource { variants, languages, components, has_all_codings }))
    }

    /// Returns true if precompressed files were looked for, or need not be.
    pub(super) fn has_all_codings(&self) -> bool {
        self.has_all_codings.load(Relaxed)
    }

    /// Selects the representation for a request (RFC 9110 §12.1).
    pub(super) fn choose(&self, head: &RequestHead) -> Choice {
        let headers = head.headers();
        let language = match self.languages.is_empty() {
            true => None,
            false => accept::language(headers, &self.languages),
        };
        let index = language.map_or(0, |index| index + 1);
        let variant = &self.variants[index];
        // A range of a representation that is compressed here could not be combined with a range of
        // another compression: the encoder may produce other bytes.
        let may_compress = !variant.compressed.is_empty() && headers.get_bytes("range").is_none();
        if variant.precompressed.is_empty() && !may_compress {
            return Choice::Ready(variant.identity.to_response());
        }
        let is_offered = |coding: Coding| {
            may_compress && compression::is_available(coding)
                || variant.precompressed(coding).is_some()
        };
        let offered: SmallVec<[Coding; Coding::ALL.len()]> =
            Coding::ALL.into_iter().filter(|&coding| is_offered(coding)).collect();
        let Some(coding) = accept::coding(headers, &offered) else {
            return Choice::Ready(variant.identity.to_response());
        };
        if let Some(precompressed) = variant.precompressed(coding) {
            return Choice::Ready(precompressed.to_response());
        }
        let form = CodedForm { variant: index, coding };
        match self.slot(form).respond(head.method()) {
            SlotResponse::Coded(response) => Choice::Ready(response),
            SlotResponse::Uncoded => Choice::Ready(variant.identity.to_response()),
            SlotResponse::Popular(response) => Choice::Improve(response, form),
            SlotResponse::Empty if *head.method() == Method::HEAD => {
                Choice::Ready(variant.identity.coded_head(head, coding))
            }
            SlotResponse::Empty => Choice::Compress(form),
        }
    }

    /// Returns the response to a request that has waited for the compression of a form.
    pub(super) fn after_compression(&self, form: CodedForm) -> Response {
        match self.slot(form).respond(&Method::GET) {
            SlotResponse::Coded(response) | SlotResponse::Popular(response) => response,
            SlotResponse::Empty | SlotResponse::Uncoded => self.identity(form).to_response(),
        }
    }

    /// Returns the representation that a form is compressed from.
    pub(super) fn identity(&self, form: CodedForm) -> &Representation {
        &self.variants[form.variant].identity
    }

    pub(super) fn slot(&self, form: CodedForm) -> &CodedSlot {
        &self.variants[form.variant].compressed[form.coding as usize]
    }

    /// Returns true if any form was worth more effort.
    pub(super) fn has_best_form(&self) -> bool {
        self.slots().any(CodedSlot::is_best)
    }

    fn slots(&self) -> impl Iterator<Item = &CodedSlot> {
        self.variants.iter().flat_map(|variant| &*variant.compressed)
    }

    /// Returns a response with this resource as the page of an error.
    pub(super) fn error_page(&self, status: StatusCode) -> Response {
        let mut response = self.variants[0].identity.to_response().with_status(status);
        for name in [ETAG, LAST_MODIFIED, ACCEPT_RANGES, CACHE_CONTROL] {
            response.remove_header(name);
        }
        response.is_generated_error = true;
        response
    }

    /// Clears the residency flags: the page cache may have evicted the contents.
    fn clear_residency(&self) {
        let files = self.representations().filter_map(|it| it.file.is_resident.as_ref());
        files.for_each(|is_resident| is_resident.store(false, Relaxed));
    }

    /// Returns true if a file had changed shortly before it was opened; the resource is then always
    /// rebuilt.
    fn has_recent_changes(&self) -> bool {
        self.representations().any(|representation| representation.recently_changed)
    }

    fn representations(&self) -> impl Iterator<Item = &Representation> {
        self.variants.iter().flat_map(|variant| {
            let precompressed =
                variant.precompressed.iter().map(|(_, representation)| representation);
            precompressed.chain([&variant.identity])
        })
    }

    /// Returns true if the open files are still of the version that was opened. A file that was
    /// written to in place has other contents under the same descriptor. Its former length and
    /// validators would be wrong.
    pub(super) fn is_current(&self) -> bool {
        self.representations().all(|Representation { file, .. }| match &file.source {
            Source::Memory(_) => true,
            Source::Open(open) => file.version.is_some_and(|version| version.matches(open)),
        })
    }

    /// Bytes of contents in memory, with those compressed by the server and those reserved for
    /// compressions in progress.
    pub(super) fn bytes_in_memory(&self) -> usize {
        let contents = self.representations().filter_map(|it| it.file.as_slice());
        contents.map(<[u8]>::len).sum::<usize>() + self.slots().map(CodedSlot::bytes).sum::<usize>()
    }

    /// Number of descriptors that the resource keeps open.
    pub(super) fn open_descriptors(&self) -> usize {
        self.representations().filter(|it| matches!(it.file.source, Source::Open(_))).count()
    }
}

impl VariantFiles {
    /// Opens the files of all variants: the default and one for each language. Precompressed files
    /// are opened if the request needs them, or if they decide whether the response varies by
    /// `Accept-Encoding`.
    fn open_all(
        context: LookupContext<'_>,
        original: Opened,
        needs_codings: bool,
    ) -> io::Result<Vec<VariantFiles>> {
        let LookupContext { settings, root, path, .. } = context;
        let may_exist = settings.precompressed && settings.is_compressible(path);
        let open_precompressed = |path: &[u8], original: &Opened| {
            let is_needed = needs_codings || !settings.may_compress(original.file.length);
            match (may_exist, is_needed) {
                (false, _) => Ok(Some(Vec::new())),
                (true, false) => Ok(None),
                (true, true) => {
                    open_precompressed(LookupContext { path, ..context }, original).map(Some)
                }
            }
        };
        let (default_path, precompressed) = (path.to_vec(), open_precompressed(path, &original)?);
        let mut all =
            vec![VariantFiles { path: default_path, language: None, precompressed, original }];
        let is_page = path.ends_with(b".html");
        for language in settings.languages.iter().filter(|_| is_page) {
            let path = [path, b".", language.as_bytes()].concat();
            if let Some(original) = root.open_alternative(&path)? {
                let precompressed = open_precompressed(&path, &original)?;
                let language = Some(language.clone());
                all.push(VariantFiles { path, language, precompressed, original });
            }
        }
        Ok(all)
    }

    fn components(&self) -> impl Iterator<Item = Component> {
        let precompressed = self.precompressed.iter().flatten();
        let precompressed = precompressed.map(|(coding, file)| (Some(*coding), file));
        let all = precompressed.chain([(None, &self.original)]);
        all.map(|(coding, file)| (self.path.clone(), coding, file.version()))
    }
}

/// Opens the precompressed files beside a file. Files older than the original are ignored.
fn open_precompressed(
    context: LookupContext<'_>,
    original: &Opened,
) -> io::Result<Vec<(Coding, Opened)>> {
    let LookupContext { settings, root, path, .. } = context;
    let mut precompressed = Vec::new();
    // `index.html.br` may be a page in Breton.
    let is_language = |coding: &Coding| {
        path.ends_with(b".html") && settings.languages.iter().any(|it| it == coding.extension())
    };
    for coding in Coding::ALL.into_iter().filter(|coding| !is_language(coding)) {
        let path = [path, b".", coding.extension().as_bytes()].concat();
        if let Some(file) = root.open_alternative(&path)?
            && !file.version().is_older_than(&original.version())
        {
            precompressed.push((coding, file));
        }
    }
    Ok(precompressed)
}

impl Variant {
    /// Builds a variant. `has_languages` is true if the resource has variants by language, so that
    /// the response varies by `Accept-Language`.
    fn build(
        context: LookupContext<'_>,
        files: VariantFiles,
        has_languages: bool,
    ) -> io::Result<Variant> {
        let LookupContext { settings, root, path, .. } = context;
        let is_compressible =
            settings.may_compress(files.original.file.length) && settings.is_compressible(path);
        let has_codings =
            is_compressible || files.precompressed.iter().any(|files| !files.is_empty());
        let vary = match (has_codings, has_languages) {
            (true, false) => Some("accept-encoding"),
            (true, true) => Some("accept-encoding, accept-language"),
            (false, true) => Some("accept-language"),
            (false, false) => None,
        };
        let mut fields = vec![(CONTENT_TYPE, settings.media_type(path))];
        let coding = mime::coding_of_file_name(path);
        fields.extend(coding.map(|coding| (CONTENT_ENCODING, HeaderValue::from_static(coding))));
        fields.extend(vary.map(|names| (VARY, HeaderValue::from_static(names))));
        fields.extend(files.language.map(|tag| (CONTENT_LANGUAGE, field_value(tag.as_bytes()))));
        settings.apply_header_rules(path, &mut fields);
        let max_bytes = settings.max_cached_file_bytes.min(settings.max_cached_bytes as u64);
        let max_bytes =
            if context.may_keep_open { max_bytes.min(MIN_SENDFILE_BYTES) } else { max_bytes };
        let mut precompressed = Vec::new();
        for (coding, opened) in files.precompressed.into_iter().flatten() {
            let encoding = (CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
            let fields = fields.iter().cloned().chain([encoding]).collect();
            let representation = opened.into_representation(fields, max_bytes, root.may_block)?;
            precompressed.push((coding, representation));
        }
        let identity = files.original.into_representation(fields, max_bytes, root.may_block)?;
        let slots = if is_compressible { Coding::ALL.len() } else { 0 };
        let compressed = (0..slots).map(|_| CodedSlot::default()).collect();
        Ok(Variant { identity, precompressed, compressed })
    }

    fn precompressed(&self, coding: Coding) -> Option<&Representation> {
        let found = self.precompressed.iter().find(|(other, _)| *other == coding);
        found.map(|(_, representation)| representation)
    }
}

impl Opened {
    fn version(&self) -> FileVersion {
        self.file.version.expect("whole files have versions")
    }

    /// Makes a representation of this file: its contents in memory if it has at most `max_bytes`
    /// and did not change recently, otherwise the open file.
    fn into_representation(
        self,
        mut fields: Vec<Field>,
        max_bytes: u64,
        may_block: MayBlock,
    ) -> io::Result<Representation> {
        let version = self.version();
        let modified = version.modified();
        let file = match &self.file.source {
            Source::Memory(_) => self.file,
            // A file that changed recently may change again without a change of its version.
            Source::Open(_) if !version.is_settled(wall::now()) => {
                return Ok(self.into_changing(fields));
            }
            // A Last-Modified in the future must not be sent (RFC 9110 §8.8.2.1), and prepared
            // fields do not follow the clock.
            Source::Open(_)
                if modified.is_some_and(|modified| !is_older_than(modified, Duration::ZERO)) =>
            {
                let tag = entity_tag::strong(&version, None, &fields);
                push_unless_set(&mut fields, (ETAG, tag));
                return Ok(Representation {
                    file: Arc::new(self.file),
                    fields: Fields::Owned(fields),
                    recently_changed: false,
                });
            }
            Source::Open(_) if self.file.length > max_bytes => {
                File { is_resident: Some(Arc::default()), ..self.file }
            }
            Source::Open(open) => match read_contents(open, self.file.length, may_block)? {
                Some(bytes) if FileVersion::new(&sys::fstat(&**open)?) == version => {
                    self.file.clone().with_bytes(bytes)
                }
                // The file changed while it was read.
                _ => return Ok(self.into_changing(fields)),
            },
        };
        // Larger files are in memory or not, depending on the free descriptors.
        let contents = file.as_slice().filter(|_| file.length <= MIN_SENDFILE_BYTES);
        let etag = (ETAG, entity_tag::strong(&version, contents, &fields));
        let modified =
            modified.map(|time| (LAST_MODIFIED, field_value(http_date(time).as_bytes())));
        let ranges = (ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        for field in [Some(etag), modified, Some(ranges)].into_iter().flatten() {
            push_unless_set(&mut fields, field);
        }
        let fields = Fields::Owned(fields).preserialize();
        Ok(Representation { file: Arc::new(file), fields, recently_changed: false })
    }

    /// Makes a representation of this file, which changed recently or is being changed.
    fn into_changing(self, mut fields: Vec<Field>) -> Representation {
        let tag = entity_tag::strong(&self.version(), None, &fields);
        push_unless_set(&mut fields, (ETAG, entity_tag::weak(&tag)));
        let (file, fields) = (Arc::new(self.file), Fields::Owned(fields));
        Representation { file, fields, recently_changed: true }
    }
}

/// Adds a field, unless a header rule has set it.
fn push_unless_set(fields: &mut Vec<Field>, field: Field) {
    if !fields.iter().any(|(name, _)| *name == field.0) {
        fields.push(field);
    }
}

/// Reads the contents of a file. Returns `None` if the file is shorter than `length`.
///
/// # Errors
/// [`WouldBlock`](ErrorKind::WouldBlock) if the read would wait and must not.
fn read_contents(file: &fs::File, length: u64, may_block: MayBlock) -> io::Result<Option<Bytes>> {
    let length = length as usize;
    let read = match may_block {
        MayBlock::No => disk::read_exact_nowait(file, 0, length)
            .and_then(|bytes| bytes.ok_or_else(|| ErrorKind::WouldBlock.into())),
        MayBlock::Yes => {
            let mut bytes = vec![0; length];
            sys::read_exact_at(file, &mut bytes, 0).map(|()| bytes.into())
        }
    };
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
