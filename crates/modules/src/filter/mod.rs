//! mod_filter: which output filters a response goes through, by its media type or by conditions.
//! What sections say of filters comes in; for a request the list of its filters goes out, and for
//! each of them what it stands for once the response is known. It changes no body: that is done
//! by whoever the filters belong to.

mod directives;

pub use crate::{NoSettings as Server, NoSettings as Global};
pub use directives::MODULE;

use crate::external::{DefinedNames, Definitions};
use crate::settings::merged;
use crate::{ActiveModules, InputFilter, Merge, OutputFilter, RequestContext};
use evenkeel_expr::Condition;
use evenkeel_message::{Fields, FilterPosition, Level, Name, Notice, Request, Response, Status};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// What a section says of filters; nothing as a rule, so that requests pay nothing for it.
#[derive(Clone, Debug, Default)]
pub struct Directory(Option<Arc<ChainSettings>>);

#[derive(Clone, Debug, Default)]
struct ChainSettings {
    filters: HashMap<Box<str>, Arc<Filter>, foldhash::fast::RandomState>,
    /// What is in the chain, in order.
    chain: Vec<Box<str>>,
    /// Whether the chain stands for those of outer sections in place of following them.
    is_reset: bool,
    /// What the chain comes to, found out when it is first asked for.
    order: OnceLock<Order>,
}

/// The filters of a chain.
#[derive(Clone, Debug, Default)]
struct Order {
    /// In the order in which responses go through them.
    steps: Vec<Step>,
    /// Names that stand for none.
    unknown: Vec<Box<str>>,
    /// The filters with work to do before the handler runs.
    preparing: Vec<OutputFilter>,
    /// The media types of the responses that a filter of the chain changes, if the media type alone
    /// decides; `None` otherwise.
    types: Option<HashSet<Box<[u8]>, foldhash::fast::RandomState>>,
}

impl Order {
    fn new(settings: &ChainSettings) -> Self {
        let mut order = Self::default();
        for name in &settings.chain {
            match settings.filters.get(name) {
                Some(filter) => order.steps.push(Step::Chosen(Arc::clone(filter))),
                None => order.unknown.push(name.clone()),
            }
        }
        order.steps.sort_by_key(Step::position);
        let outputs = order.steps.iter().flat_map(Step::outputs);
        order.preparing = outputs.filter(|output| output.begin.is_some()).collect();
        order.types = order.only_types();
        order
    }

    /// The media types of all filters, if these alone decide.
    fn only_types(&self) -> Option<HashSet<Box<[u8]>, foldhash::fast::RandomState>> {
        let mut all = HashSet::default();
        for step in &self.steps {
            let Step::Chosen(filter) = step else { return None };
            for provider in &filter.providers {
                let When::Types(types) = &provider.when else { return None };
                all.extend(types.iter().map(|known| known.as_bytes().into()));
            }
        }
        let is_told = |step: &Step| matches!(step, Step::Chosen(filter) if filter.is_traced);
        (self.unknown.is_empty() && !self.steps.iter().any(is_told)).then_some(all)
    }
}

/// A filter that stands for one of several, by what the response is (FilterDeclare).
#[derive(Clone, Debug)]
pub struct Filter {
    name: Box<str>,
    position: FilterPosition,
    providers: Vec<Provider>,
    /// Whether its use is told in the log (FilterTrace).
    is_traced: bool,
}

/// One filter that another may stand for.
#[derive(Clone, Debug)]
struct Provider {
    name: Box<str>,
    output: OutputFilter,
    when: When,
    protocol: Protocol,
}

#[derive(Clone, Debug)]
enum When {
    /// The media type is one of these (AddOutputFilterByType).
    Types(Vec<Box<str>>),
    /// The condition holds.
    Expr(Arc<Condition>),
}

/// What else a filter changes in a response (FilterProtocol). What is said of proxies is for
/// responses that are fetched from another server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Protocol {
    changes: bool,
    uncached: bool,
    no_ranges: bool,
    no_transform: bool,
}

impl Merge for Directory {
    fn merge(base: &Self, over: &Self) -> Self {
        merged(base, over)
    }

    fn add(&mut self, over: &Self) {
        match (&mut self.0, &over.0) {
            (_, None) => {}
            (None, Some(_)) => *self = over.clone(),
            (Some(base), Some(over)) => Arc::make_mut(base).add(over),
        }
    }
}

impl ChainSettings {
    fn add(&mut self, over: &ChainSettings) {
        let Self { filters, chain, is_reset, order: _ } = over;
        self.order.take();
        for (name, filter) in filters {
            self.filters.insert(name.clone(), Arc::clone(filter));
        }
        if *is_reset {
            self.chain.clear();
            self.is_reset = true;
        }
        self.chain.extend_from_slice(chain);
    }

    fn order(&self) -> &Order {
        self.order.get_or_init(|| Order::new(self))
    }
}

/// One step of a response on its way out.
#[derive(Clone, Debug)]
pub enum Step {
    /// A filter by its own name.
    Plain(OutputFilter),
    /// One that is chosen by what the response is.
    Chosen(Arc<Filter>),
}

impl Step {
    /// The output filters that it may stand for.
    fn outputs(&self) -> impl Iterator<Item = OutputFilter> {
        let (plain, providers) = match self {
            Step::Plain(output) => (Some(output.clone()), &[][..]),
            Step::Chosen(filter) => (None, &*filter.providers),
        };
        plain.into_iter().chain(providers.iter().map(|provider| provider.output.clone()))
    }

    /// Where it stands among others.
    fn position(&self) -> FilterPosition {
        match self {
            Step::Plain(output) => output.position,
            Step::Chosen(filter) => filter.position,
        }
    }
}

/// Names of filters for a response, from whoever may name some.
#[derive(Clone, Debug, Default)]
pub struct Named<'a> {
    /// Those of the file's extensions, `;` between them (AddOutputFilter, AddInputFilter).
    pub by_extension: Option<Box<[u8]>>,
    /// Those of its sections (SetOutputFilter, SetInputFilter).
    pub by_section: Option<&'a [Box<str>]>,
}

/// The output filters that prepare a request before its handler runs: of those that are named, and
/// of those that the filters of the chain may stand for. External filters have nothing to prepare.
pub fn preparing<'a>(
    settings: &'a Directory,
    named: &'a Named<'_>,
    active: &'a ActiveModules,
) -> impl Iterator<Item = OutputFilter> + 'a {
    let named = named.names().filter_map(move |name| active.output_filter(&name));
    let chosen = settings.0.iter().flat_map(|said| said.order().preparing.iter().cloned());
    named.filter(|output| output.begin.is_some()).chain(chosen)
}

/// The filters of the body of a request, the one that is nearest to the handler first
/// (SetInputFilter, AddInputFilter; core.c: core_insert_filter).
#[must_use]
pub fn input_filters(
    named: &Named<'_>,
    request: &mut Request,
    active: &ActiveModules,
    (external, elsewhere): (&Definitions, &DefinedNames),
) -> Vec<InputFilter> {
    let mut filters = Vec::new();
    for name in named.names() {
        let filter = active.input_filter(&name).or_else(|| external.input_filter(&name));
        match filter.or_else(|| elsewhere.refusing_input(request, &name)) {
            Some(filter) => filters.push(filter),
            None => tell_unknown(request, &name),
        }
    }
    filters.sort_by_key(|filter| filter.position);
    filters
}

fn tell_unknown(request: &mut Request, name: &str) {
    let text = format!("an unknown filter was not added: {name}");
    request.notify(Notice::new("core", Level::Error, 82, text));
}

impl Named<'_> {
    fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let by_extension = self.by_extension.iter().flat_map(|names| names.split(|b| *b == b';'));
        let by_extension = by_extension.map(String::from_utf8_lossy);
        let by_section = self.by_section.unwrap_or_default().iter().map(|name| (&**name).into());
        by_extension.chain(by_section).filter(|name| !name.is_empty())
    }

    /// Whether there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_extension.is_none() && self.by_section.is_none()
    }
}

/// The steps of a request's allowance that a name in the chain takes, and a provider with each of
/// its media types: an .htaccess file may have tens of thousands.
const STEPS_EACH: usize = 16;

/// The filters of a response in the order in which it goes through them; none as a rule.
#[must_use]
pub fn steps<'a>(
    settings: &'a Directory,
    named: &Named<'_>,
    request: &mut Request,
    active: &ActiveModules,
    (external, elsewhere): (&Definitions, &DefinedNames),
) -> Cow<'a, [Step]> {
    let mut steps: Vec<Step> = Vec::new();
    for name in named.names() {
        let output = active.output_filter(&name).or_else(|| external.output_filter(&name));
        match output.or_else(|| elsewhere.refusing_output(request, &name)) {
            Some(output) => steps.push(Step::Plain(output)),
            None => tell_unknown(request, &name),
        }
    }
    let is_open = is_open_to(request.resource.status, request);
    let has_steps = |said: &&ChainSettings| {
        is_open && request.allowance.spend((said.chain.len() * STEPS_EACH) as u64)
    };
    if let Some(said) = settings.0.as_deref().filter(has_steps) {
        let Order { steps: chosen, unknown, preparing: _, types: _ } = said.order();
        for name in unknown {
            let text = format!("Unknown filter {name} not added");
            request.notify(Notice::new("filter", Level::Warn, 1380, text));
        }
        if steps.is_empty() {
            return Cow::Borrowed(chosen);
        }
        steps.extend_from_slice(chosen);
    }
    steps.sort_by_key(Step::position);
    Cow::Owned(steps)
}

impl Directory {
    /// Whether nothing is in the chain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_deref().is_none_or(|said| said.chain.is_empty())
    }

    /// Whether the chain leaves responses of this media type as they are. With
    /// AddOutputFilterByType, one look-up decides this, however many types are named.
    #[must_use]
    pub fn passes_by(&self, media_type: Option<&[u8]>) -> bool {
        let Some(said) = self.0.as_deref() else { return true };
        let Some(types) = &said.order().types else { return false };
        media_type.is_none_or(|media_type| !types.contains(bare(media_type)))
    }

    /// Whether a filter of the chain has the position RESOURCE, whatever responses it changes.
    #[must_use]
    pub fn has_resource_filter(&self) -> bool {
        let is_first = |step: &Step| step.position() == FilterPosition::RESOURCE;
        self.0.as_deref().is_some_and(|said| said.order().steps.iter().any(is_first))
    }

    /// Whether no filter of the chain has work to do before the handler runs.
    #[must_use]
    pub fn prepares_none(&self) -> bool {
        self.0.as_deref().is_none_or(|said| said.order().preparing.is_empty())
    }

    /// What was said, to add to it.
    fn change(&mut self) -> &mut ChainSettings {
        let said = Arc::make_mut(self.0.get_or_insert_default());
        said.order.take();
        said
    }
}

impl Filter {
    /// What the filter stands for with this response (mod_filter.c: filter_lookup); none where
    /// no provider wants it. What FilterProtocol says of the one that does is done.
    pub fn choose(
        &self,
        context: RequestContext<'_>,
        response: &mut Response,
        notices: &mut Vec<Notice>,
    ) -> Option<OutputFilter> {
        if self.is_traced {
            notices.push(Notice::new("filter", Level::Debug, 1375, self.name.to_string()));
        }
        if !is_open_to(response.status, context.request) {
            return None;
        }
        let mut vary = Fields::new();
        let provider = self.providers.iter().find(|provider| {
            let wants = match &provider.when {
                When::Types(types) => {
                    let steps = (1 + types.len()) * STEPS_EACH;
                    context.request.allowance.spend(steps as u64)
                        && is_among(types, response.fields.first(Name::ContentType))
                }
                When::Expr(condition) => {
                    let context = context.with_response(response);
                    context.holds(condition, &mut vary).unwrap_or_else(|error| {
                        let text = format!("Error evaluating filter dispatch condition: {error}");
                        notices.push(Notice::new("filter", Level::Error, 1379, text));
                        false
                    })
                }
            };
            wants && provider.protocol.lets_through(response)
        });
        crate::core::merge_vary(&mut response.fields, &vary);
        let provider = provider?;
        provider.protocol.act(response);
        Some(provider.output.clone())
    }
}

/// Whether a response of that status may go through a filter that is chosen: an error's only
/// where a variable says so.
fn is_open_to(status: Status, request: &Request) -> bool {
    status == Status::OK || request.resource.env.contains("filter-errordocs")
}

impl Protocol {
    fn lets_through(self, response: &Response) -> bool {
        let mut tokens = response.fields.tokens(Name::CacheControl);
        !(self.no_transform && tokens.any(|token| token.eq_ignore_ascii_case(b"no-transform")))
    }

    fn act(self, response: &mut Response) {
        if self.changes {
            response.fields.remove("ETag");
            response.fields.remove("Content-MD5");
        }
        if self.uncached {
            response.fields.remove("Last-Modified");
            response.fields.add("Cache-Control", "no-cache");
        }
        if self.no_ranges {
            response.fields.set("Accept-Ranges", "none");
        }
    }
}

/// Whether a media type, without its parameters, is one of these; case counts, as in Apache.
fn is_among(types: &[Box<str>], media_type: Option<&[u8]>) -> bool {
    let Some(media_type) = media_type else { return false };
    let bare = bare(media_type);
    types.iter().any(|known| known.as_bytes() == bare)
}

/// A media type without its parameters.
fn bare(media_type: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b';' | b' ' | b'\t');
    let end = media_type.iter().position(is_end).unwrap_or(media_type.len());
    media_type.get(..end).unwrap_or(media_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deflate::{DEFLATE, INFLATE};
    use crate::testing::{apply, core_settings};
    use evenkeel_message::{Peer, RequestHead};

    fn said(text: &str) -> Directory {
        apply(MODULE, text).unwrap().directory.into_settings().filter
    }

    fn request() -> Request {
        let address = "127.0.0.1:80".parse().unwrap();
        let peer = Peer { client: address, local: address };
        Request::new(RequestHead::default(), peer, 0)
    }

    /// What a response of that type goes through, and how many notices there are.
    fn outputs(
        settings: &Directory,
        named: &Named<'_>,
        media_type: &str,
    ) -> (Vec<OutputFilter>, usize) {
        let mut request = request();
        let steps = steps(
            settings,
            named,
            &mut request,
            &ActiveModules::default(),
            (&Definitions::default(), &DefinedNames::default()),
        );
        let mut response = Response::new(Status::OK);
        response.fields.set("Content-Type", media_type);
        let mut notices = Vec::new();
        let chosen = steps.iter().filter_map(|step| match step {
            Step::Plain(output) => Some(output.clone()),
            Step::Chosen(filter) => {
                let context = RequestContext::new(&request, core_settings());
                filter.choose(context, &mut response, &mut notices)
            }
        });
        let chosen = chosen.collect();
        (chosen, notices.len() + request.notices.len())
    }

    #[test]
    fn media_types_choose() {
        let settings =
            said("AddOutputFilterByType INFLATE;DEFLATE a/b\nAddOutputFilterByType DEFLATE c/d");
        let through = |media_type: &str| outputs(&settings, &Named::default(), media_type).0;
        assert_eq!(through("a/b; charset=x"), [INFLATE, DEFLATE]);
        assert_eq!(through("c/d"), [DEFLATE]);
        assert_eq!(through("C/D"), []);
        assert_eq!(through("a/bc"), []);
    }

    #[test]
    fn a_chain_passes_by_what_no_filter_of_it_can_want() {
        let passes_by = |text: &str, media_type: &str| {
            let settings = said(text);
            let passes_by = settings.passes_by(Some(media_type.as_bytes()));
            let (chosen, notices) = outputs(&settings, &Named::default(), media_type);
            assert!(!passes_by || chosen.is_empty() && notices == 0, "{text}: {media_type}");
            passes_by
        };
        let types = "AddOutputFilterByType INFLATE;DEFLATE a/b\nAddOutputFilterByType DEFLATE c/d";
        for media_type in ["a/b", "a/b; charset=x", "c/d"] {
            assert!(!passes_by(types, media_type), "{media_type}");
        }
        for media_type in ["a/bc", "C/D", "", "x/y; a/b"] {
            assert!(passes_by(types, media_type), "{media_type}");
        }
        assert!(said(types).passes_by(None) && Directory::default().passes_by(None));
        // A filter with an expression, a filter that is traced, and an unknown name concern
        // responses of every media type.
        assert!(!passes_by("FilterProvider x DEFLATE true\nFilterChain x", "x/y"));
        assert!(!passes_by("FilterDeclare x\nFilterTrace x 1\nFilterChain x", "x/y"));
        assert!(!passes_by("FilterChain z", "x/y"));
        let inner = said("FilterProvider x DEFLATE true\nFilterChain x");
        assert!(!Directory::merge(&said(types), &inner).passes_by(Some(b"x/y")));
    }

    #[test]
    fn only_filters_that_prepare_requests_are_called_for_it() {
        let preparing = |text: &str| {
            let (settings, named) = (said(text), Named::default());
            let active = ActiveModules::default();
            let names: Vec<_> =
                super::preparing(&settings, &named, &active).map(|output| output.name).collect();
            assert_eq!(settings.prepares_none(), names.is_empty());
            names
        };
        assert_eq!(preparing("AddOutputFilterByType DEFLATE a/b"), [""; 0]);
        assert_eq!(preparing("AddOutputFilterByType INCLUDES;DEFLATE a/b"), ["INCLUDES"]);
    }

    #[test]
    fn a_request_pays_for_what_it_is_compared_with() {
        let types: String = (0..1000).map(|number| format!(" a/{number}")).collect();
        let settings = said(&format!("AddOutputFilterByType DEFLATE{types} c/d"));
        let mut request = request();
        let whole = u64::from(request.allowance.left());
        let chosen = |request: &mut Request| {
            let mut response = Response::new(Status::OK);
            response.fields.set("Content-Type", "c/d");
            let steps = steps(
                &settings,
                &Named::default(),
                request,
                &ActiveModules::default(),
                (&Definitions::default(), &DefinedNames::default()),
            );
            let context = RequestContext::new(request, core_settings());
            steps.iter().any(|step| match step {
                Step::Plain(_) => true,
                Step::Chosen(filter) => {
                    filter.choose(context, &mut response, &mut Vec::new()).is_some()
                }
            })
        };
        let _chain = steps(
            &settings,
            &Named::default(),
            &mut request,
            &ActiveModules::default(),
            (&Definitions::default(), &DefinedNames::default()),
        );
        assert!(u64::from(request.allowance.left()) < whole, "the names of a chain cost too");
        assert!(chosen(&mut request));
        let paid = whole - u64::from(request.allowance.left());
        assert!(paid >= 1000, "{paid}");
        assert!(request.allowance.spend(whole - paid - paid / 2) && !chosen(&mut request));
        assert!(request.allowance.is_spent());
    }

    #[test]
    fn chains_are_added_or_replaced() {
        let provided = "FilterProvider x DEFLATE true\nFilterProvider y INFLATE true\n";
        let declared = &["FilterDeclare x\nFilterDeclare y\n", provided].concat();
        let through = |outer: &str, inner: &str| {
            let outer = said(&format!("{declared}{outer}"));
            outputs(&Directory::merge(&outer, &said(inner)), &Named::default(), "a/b")
        };
        assert_eq!(through("FilterChain x", "FilterChain y").0, [DEFLATE, INFLATE]);
        assert_eq!(through("FilterChain x @y", "FilterChain -x").0, [INFLATE, DEFLATE]);
        assert_eq!(through("FilterChain x +y -X", "").0, [INFLATE]);
        assert_eq!(through("FilterChain x", "FilterChain ! y").0, [INFLATE]);
        assert_eq!(through("FilterChain x", "FilterChain =y").0, [INFLATE]);
        assert_eq!(through("FilterChain x", "FilterChain !").0, []);
        assert_eq!(through("", "FilterChain z").1, 1);
        // A filter that is not declared has the position of the first that it stands for.
        let undeclared = said(&[provided, "FilterChain x y"].concat());
        assert_eq!(outputs(&undeclared, &Named::default(), "a/b").0, [INFLATE, DEFLATE]);
        assert!(said(declared).is_empty() && !said("FilterChain x").is_empty());
    }

    #[test]
    fn a_chain_has_an_end() {
        let chain = |length| apply(MODULE, &format!("FilterChain{}", " x".repeat(length)));
        assert!(chain(1000).is_ok());
        let refused = chain(1001).map(|_| ()).unwrap_err();
        assert_eq!(refused, "more than 1000 filters are in the chain");
    }

    #[test]
    fn unpacking_comes_before_compressing_whoever_names_them() {
        let names: [Box<str>; 2] = ["deflate".into(), "nosuch".into()];
        let by_extension = Some(b"INFLATE"[..].into());
        let named = Named { by_extension, by_section: Some(&names) };
        let (through, notices) = outputs(&Directory::default(), &named, "a/b");
        assert_eq!((through, notices), (vec![INFLATE, DEFLATE], 1));
        let active = ActiveModules::new(|module| module.file != "mod_deflate.c");
        assert_eq!(active.output_filter("DEFLATE"), None);
    }

    #[test]
    fn a_protocol_changes_fields_and_may_refuse() {
        let text = "FilterProvider x DEFLATE true\nFilterProtocol x DEFLATE \
                    change=yes;cache=no,byteranges=no;transform=no\nFilterChain x";
        let filter = said(text).0.unwrap().filters["x"].clone();
        let request = request();
        let context = RequestContext::new(&request, core_settings());
        let mut response = Response::new(Status::OK);
        response.fields.add("ETag", "\"e\"");
        response.fields.add("Last-Modified", "then");
        assert_eq!(filter.choose(context, &mut response, &mut Vec::new()), Some(DEFLATE));
        let fields: Vec<_> = response.fields.iter().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(fields, [b"Cache-Control".to_vec(), b"Accept-Ranges".to_vec()]);
        response.fields.set("Cache-Control", "private, no-transform");
        assert_eq!(filter.choose(context, &mut response, &mut Vec::new()), None);
    }
}
