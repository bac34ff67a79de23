//! What a section says of the core's per-directory settings, and their merge (core.c:
//! merge_core_dir_configs).

use super::error_document::ErrorDocument;
use super::options::{AllowOverride, OptionChange};
use super::sections::Section;
use crate::Merge;
use crate::settings::merged;
use evenkeel_expr::Text;
use evenkeel_message::{AllowEncodedSlashes, LogLevels, Status};
use std::collections::HashSet;
use std::sync::Arc;

/// UseCanonicalName and its kin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tristate {
    #[default]
    Off,
    On,
    /// `DNS`, `double` or `email`.
    Third,
}

/// A switch that is merged like any other setting.
pub type OnOff = Option<bool>;

/// What becomes of a path behind a file (AcceptPathInfo).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptPathInfo {
    /// As the handler likes: the default handler refuses it.
    #[default]
    Default,
    /// Accepted.
    On,
    /// 404.
    Off,
}

/// What an entity tag is made of (FileETag): a set, or changes to the outer section's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtagParts {
    /// `FileETag MTime Size`: the parts; none where only changes were said.
    pub set: Option<u8>,
    /// `+INode`.
    pub add: u8,
    /// `-INode`.
    pub remove: u8,
}

impl EtagParts {
    /// The inode's number.
    pub const INODE: u8 = 1;
    /// Time of the last change.
    pub const MTIME: u8 = 2;
    /// Length.
    pub const SIZE: u8 = 4;
    /// A digest of the content.
    pub const DIGEST: u8 = 8;
    /// What holds where nothing is said.
    pub const DEFAULT: u8 = Self::MTIME | Self::SIZE;

    /// Adds parts to the set, or takes them away. A set of which nothing is left is as none
    /// (core.c: set_etag_bits).
    pub fn change(&mut self, add: bool, bits: u8) {
        let set = self.set.unwrap_or(0);
        let changed = if add { set | bits } else { set & !bits };
        self.set = Some(changed).filter(|set| *set != 0);
    }

    /// The parts that hold.
    #[must_use]
    pub const fn effective(self) -> u8 {
        match self.set {
            Some(set) => set,
            // Signs without a set change the empty one, and that stands for the default
            // (util_etag.c: ap_make_etag_ex).
            None if self.add == 0 => Self::DEFAULT,
            None => self.add,
        }
    }
}

impl Merge for EtagParts {
    /// Signs over signs make a set, which takes the place of what an outer walk says (core.c:
    /// merge_core_dir_configs). None stays; any other set of which nothing is left is as none.
    fn merge(base: &Self, over: &Self) -> Self {
        if over.set.is_some() {
            return *over;
        }
        let add = (base.add & !over.remove) | over.add;
        let remove = (base.remove & !over.add) | over.remove;
        let parts = (base.set.unwrap_or(0) & !remove) | add;
        let is_said = parts != 0 || base.set == Some(0);
        Self { set: is_said.then_some(parts), add, remove }
    }
}

/// The core's settings of one section.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Options.
    pub options: OptionChange,
    /// AllowOverride.
    pub allow_override: Option<AllowOverride>,
    /// AllowOverrideList, in lower case.
    pub allow_override_list: Option<Arc<HashSet<Box<str>>>>,
    /// SetHandler; the inner none is `SetHandler None`.
    pub handler: Option<Option<Arc<Text>>>,
    /// ForceType; the inner none is `ForceType None`.
    pub force_type: Option<Option<Box<str>>>,
    /// AddDefaultCharset; the inner none is `Off`.
    pub default_charset: Option<Option<Box<str>>>,
    /// ErrorDocument by status.
    pub error_documents: ErrorDocuments,
    /// AcceptPathInfo.
    pub accept_path_info: Option<AcceptPathInfo>,
    /// AllowEncodedSlashes.
    pub encoded_slashes: Option<AllowEncodedSlashes>,
    /// UseCanonicalName.
    pub canonical_name: Option<Tristate>,
    /// UseCanonicalPhysicalPort.
    pub canonical_port: OnOff,
    /// HostnameLookups.
    pub hostname_lookups: Option<Tristate>,
    /// ServerSignature: Off, On, EMail.
    pub signature: Option<Tristate>,
    /// ContentDigest.
    pub content_digest: OnOff,
    /// EnableMMAP; accepted, small files are kept in memory whatever it says.
    pub mmap: OnOff,
    /// EnableSendfile.
    pub sendfile: OnOff,
    /// FileETag.
    pub etag: EtagParts,
    /// LimitRequestBody in bytes; 0 is no limit.
    pub limit_request_body: Option<u64>,
    /// LimitXMLRequestBody in bytes; 0 is no limit.
    pub limit_xml_body: Option<u64>,
    /// MaxRanges; the inner none is `unlimited`, 0 is `none`.
    pub max_ranges: Option<Option<u32>>,
    /// MaxRangeOverlaps.
    pub max_range_overlaps: Option<Option<u32>>,
    /// MaxRangeReversals.
    pub max_range_reversals: Option<Option<u32>>,
    /// QualifyRedirectURL.
    pub qualify_redirects: OnOff,
    /// ReadBufferSize in bytes.
    pub read_buffer: Option<usize>,
    /// SetOutputFilter names.
    pub output_filters: Option<Arc<[Box<str>]>>,
    /// SetInputFilter names.
    pub input_filters: Option<Arc<[Box<str>]>>,
    /// CGIPassAuth.
    pub cgi_pass_auth: OnOff,
    /// CGIVar: variable and rule.
    pub cgi_variables: Vec<(Box<str>, Box<str>)>,
    /// RLimitCPU, RLimitMEM, RLimitNPROC: soft and hard limit; none is `max`.
    pub process_limits: [Option<(Option<u64>, Option<u64>)>; 3],
    /// LogLevel in this section.
    pub log_level: LogLevels,
    /// `<Files>` sections, in order.
    pub files: Vec<Arc<Section>>,
    /// `<If>`, `<ElseIf>` and `<Else>` sections, in order.
    pub conditions: Vec<Arc<Section>>,
}

/// ErrorDocument of each status; a later one of the same status replaces it.
#[derive(Clone, Debug, Default)]
pub struct ErrorDocuments(Vec<(Status, ErrorDocument)>);

impl ErrorDocuments {
    /// Sets the document of a status.
    pub fn set(&mut self, status: Status, document: ErrorDocument) {
        self.0.retain(|(known, _)| *known != status);
        self.0.push((status, document));
    }

    /// The document of a status, unless it is the standard one.
    #[must_use]
    pub fn of(&self, status: Status) -> Option<&ErrorDocument> {
        let (_, document) = self.0.iter().find(|(known, _)| *known == status)?;
        (!matches!(document, ErrorDocument::Standard)).then_some(document)
    }
}

impl Merge for ErrorDocuments {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        for (status, document) in &over.0 {
            self.set(*status, document.clone());
        }
    }
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        // Lists of an outer section are continued by an inner one's; the others are inherited one
        // by one. Every field is named, so that a new one is not forgotten.
        macro_rules! each {
            ($($field:ident),+ $(,)?) => {
                let Self {
                    encoded_slashes, process_limits, cgi_variables, files, conditions,
                    $($field),+
                } = over;
                // A virtual host does not inherit it (core.c: merge_core_dir_configs).
                self.encoded_slashes = *encoded_slashes;
                for (own, said) in self.process_limits.iter_mut().zip(process_limits) {
                    own.add(said);
                }
                self.cgi_variables.extend_from_slice(cgi_variables);
                self.files.extend_from_slice(files);
                self.conditions.extend_from_slice(conditions);
                $(self.$field.add($field);)+
            };
        }
        each!(
            options,
            allow_override,
            allow_override_list,
            handler,
            force_type,
            default_charset,
            error_documents,
            accept_path_info,
            canonical_name,
            canonical_port,
            hostname_lookups,
            signature,
            content_digest,
            mmap,
            sendfile,
            etag,
            limit_request_body,
            limit_xml_body,
            max_ranges,
            max_range_overlaps,
            max_range_reversals,
            qualify_redirects,
            read_buffer,
            output_filters,
            input_filters,
            cgi_pass_auth,
            log_level,
        );
    }
}
