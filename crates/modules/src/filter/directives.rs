//! mod_filter's directives: lines go in; filters that stand for others, and chains of them, come
//! out.

use super::{ChainSettings, Filter, Protocol, Provider, When};
use crate::{
    Active, Directive, DirectiveResult, Module, OutputFilter, Scope, Where, argument, directive,
};
use evenkeel_config::{Call, Shape};
use evenkeel_message::FilterPosition;
use std::sync::Arc;

/// The most filters in the chain of one section: each is looked at for every word that takes one
/// out, and for every request.
const MOST_IN_CHAIN: usize = 1000;

#[rustfmt::skip]
const DIRECTIVES: &[Directive] = &[
    directive("FilterDeclare", Where::OPTIONS, Shape::OneOrTwo, "", "filter-name [filter-type]", filter_declare),
    directive("FilterProvider", Where::OPTIONS, Shape::Three, "", "filter-name provider-name match-expression", filter_provider),
    directive("FilterChain", Where::OPTIONS, Shape::Iterate, "", "list of filter names with optional [+-=!@]", filter_chain),
    directive("FilterTrace", Where::CONFIG, Shape::Two, "0", "filter-name debug-level", filter_trace),
    directive("AddOutputFilterByType", Where::FILE_INFO, Shape::Argv, "", "output filter name followed by one or more content-types", add_output_filter_by_type),
    directive("FilterProtocol", Where::OPTIONS, Shape::TwoOrThree, "", "filter-name [provider-name] protocol-args", filter_protocol),
];

/// mod_filter.
pub const MODULE: Module = Module {
    file: "mod_filter.c",
    identifier: "filter_module",
    active: Active::Usually,
    page: "mod_filter",
    subject: "Which output filters a response goes through, by its media type or by conditions. \
              Those of another status than 200 go through none, unless the variable \
              `filter-errordocs` is set.",
    remarks: &[],
    directives: &[DIRECTIVES],
    provides: &[],
};

/// The filter of that name in a section, to be changed.
fn known<'a>(said: &'a mut ChainSettings, name: &str) -> Option<&'a mut Filter> {
    said.filters.get_mut(name).map(Arc::make_mut)
}

/// The filter of that name. A filter that was not declared before is declared with this position.
fn declared<'a>(
    said: &'a mut ChainSettings,
    name: &str,
    position: FilterPosition,
) -> &'a mut Filter {
    let new = || Filter { name: name.into(), position, providers: Vec::new(), is_traced: false };
    Arc::make_mut(said.filters.entry(name.into()).or_insert_with(|| Arc::new(new())))
}

fn filter_declare(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let position = match call.second().unwrap_or_default().to_ascii_lowercase().as_str() {
        "content_set" => FilterPosition::CONTENT_SET,
        "protocol" => FilterPosition::PROTOCOL,
        "transcode" => FilterPosition::TRANSCODE,
        "connection" => FilterPosition::CONNECTION,
        "network" => FilterPosition::NETWORK,
        _ => FilterPosition::RESOURCE,
    };
    declared(scope.directory.filter.change(), call.first(), position).position = position;
    Ok(())
}

/// The filter that a provider's name means.
fn output(scope: &Scope, name: &str) -> Result<OutputFilter, String> {
    let output = scope.global().active.output_filter(name);
    let output = output.or_else(|| scope.external_filter(name));
    output.ok_or_else(|| format!("Unknown filter provider {name}"))
}

fn provider(name: &str, output: OutputFilter, when: When) -> Provider {
    Provider { name: name.into(), output, when, protocol: Protocol::default() }
}

fn filter_provider(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let name = argument(call, 1);
    let output = output(scope, name)?;
    let condition = scope
        .compile_condition(argument(call, 2))
        .map_err(|error| format!("Error parsing FilterProvider expression:{error}"))?;
    let position = output.position;
    let provider = provider(name, output, When::Expr(Arc::new(condition)));
    declared(scope.directory.filter.change(), call.first(), position).providers.push(provider);
    Ok(())
}

fn filter_chain(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let word = call.first();
    let said = scope.directory.filter.change();
    if said.chain.len() >= MOST_IN_CHAIN {
        return Err(format!("more than {MOST_IN_CHAIN} filters are in the chain"));
    }
    let name: Box<str> = word.get(1..).unwrap_or_default().into();
    match word.as_bytes().first() {
        Some(b'+') => said.chain.push(name),
        Some(b'@') => said.chain.insert(0, name),
        Some(b'-') => said.chain.retain(|known| !known.eq_ignore_ascii_case(&name)),
        Some(b'!') => {
            said.chain.clear();
            said.is_reset = true;
        }
        Some(b'=') => {
            said.chain = vec![name];
            said.is_reset = true;
        }
        _ => said.chain.push(word.into()),
    }
    Ok(())
}

fn filter_trace(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let (name, level) = (argument(call, 0), argument(call, 1));
    match known(scope.directory.filter.change(), name) {
        Some(filter) => {
            filter.is_traced = level.parse::<i32>().is_ok_and(|level| level > 0);
            Ok(())
        }
        None => Err(format!("Undeclared smart filter {name}")),
    }
}

/// A filter of its own for each name, in the chain from the first line on that has it.
fn add_output_filter_by_type(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let is_filled =
        |(_, types): &(&String, &[String])| types.first().is_some_and(|it| !it.is_empty());
    let Some((names, types)) = call.words.split_first().filter(is_filled) else {
        return Err(format!("{} requires at least two arguments", call.name));
    };
    for name in names.split(';').filter(|name| !name.is_empty()) {
        let output = output(scope, name)?;
        let said = scope.directory.filter.change();
        let own: Box<str> = format!("BYTYPE:{name}").into();
        if known(said, &own).is_none() {
            said.chain.push(own.clone());
        }
        let filter = declared(said, &own, output.position);
        let types = types.iter().map(|media_type| media_type.as_str().into());
        match filter.providers.first_mut().map(|provider| &mut provider.when) {
            Some(When::Types(known)) => known.extend(types),
            _ => filter.providers.push(provider(name, output, When::Types(types.collect()))),
        }
    }
    Ok(())
}

/// What a filter does to the protocol. Said of a provider it counts; said of the filter alone it is
/// read and does nothing, as in Apache.
fn filter_protocol(scope: &mut Scope, call: &Call<'_>) -> DirectiveResult {
    let said = scope.directory.filter.change();
    let Some(filter) = known(said, call.first()) else {
        return Err("FilterProtocol: No such filter".into());
    };
    let (Some(name), Some(words)) = (call.second(), call.words.get(2)) else { return Ok(()) };
    let mut named = filter.providers.iter_mut().filter(|it| it.name.eq_ignore_ascii_case(name));
    let Some(provider) = named.next() else {
        return Err("FilterProtocol: No such provider for this filter".into());
    };
    provider.protocol = protocol(words);
    Ok(())
}

/// Takes the words apart; those that are unknown are passed over, as in Apache.
fn protocol(text: &str) -> Protocol {
    let mut protocol = Protocol::default();
    for word in text.split([';', ',', ' ', '\t']) {
        match word.to_ascii_lowercase().as_str() {
            "change=yes" | "change=1:1" => protocol.changes = true,
            "cache=no" => protocol.uncached = true,
            "byteranges=no" => protocol.no_ranges = true,
            "transform=no" => protocol.no_transform = true,
            _ => {}
        }
    }
    protocol
}
