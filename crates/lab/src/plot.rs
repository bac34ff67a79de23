//! Plots as SVG texts: lines, bars and heat maps. They are small, need no scripts and no network,
//! and follow the reader's light or dark scheme. They are written here because plotting libraries
//! fix their colours, which then suit one scheme only, and repeat the style of every element, which
//! takes ten times as many bytes.

mod axis;
mod bars;
mod heat;
mod lines;

pub use axis::{Axis, Unit};
pub use bars::{Bar, Bars};
pub use heat::Heat;
pub use lines::{Chart, Line};

/// The colours and sizes of all plots. A page contains it once.
pub const STYLE: &str = "\
:root{--ground:#fff;--ink:#1c2230;--soft:#5d6675;--grid:#e3e6eb;--c0:#2563eb;--c1:#d9480f;\
--c2:#0b8457;--c3:#8b2fc9;--c4:#a87900;--c5:#cf2e66;--c6:#0e7490;--c7:#667085}\
@media(prefers-color-scheme:dark){:root{--ground:#14171d;--ink:#e6e9ef;--soft:#9aa4b2;\
--grid:#2c323c;--c0:#7aa8ff;--c1:#ff9657;--c2:#4fd1a0;--c3:#c89bff;--c4:#e5c063;--c5:#ff8ab0;\
--c6:#56c8de;--c7:#a3adba}}\
.plot{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}\
.plot text{fill:var(--ink)}.plot .b{fill:var(--ground)}.plot .t{font-size:14px;font-weight:600}\
.plot .k text,.plot text.k{fill:var(--soft);font-size:11px}\
.plot .g{fill:none;stroke:var(--grid)}.plot .l{fill:none;stroke-width:1.8;stroke-linejoin:round}";

/// The number of colours. Further lines begin again with the first.
const COLOURS: usize = 8;

fn colour(index: usize) -> String {
    format!("var(--c{})", index % COLOURS)
}

/// The whole SVG, with its own style if it is a file of its own.
fn frame(title: &str, width: f64, height: f64, inner: &str, alone: bool) -> String {
    let style = if alone { format!("<style>{STYLE}</style>") } else { String::new() };
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         class=\"plot\" role=\"img\" aria-label=\"{title}\">{style}\
         <rect class=\"b\" width=\"100%\" height=\"100%\"/>\
         <text class=\"t\" x=\"8\" y=\"18\">{title}</text>{inner}</svg>\n"
    )
}

/// Escapes text for XML and HTML, in elements and in attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML 1.0 cannot represent control characters.
            other if other.is_control() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// The approximate width of a text at 12 pixels.
fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * 6.6
}

/// A text, cut to at most `most` characters.
fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_chose_is_text() {
        assert_eq!(escape("<a href='x'>&\"\u{1}"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}");
        let svg = Chart::new("<script>", Axis::new("x", Unit::Count), Axis::new("y", Unit::Count));
        assert!(!svg.svg().contains("<script>"));
    }

    #[test]
    fn a_text_is_cut_with_a_sign() {
        assert_eq!((shorten("abc", 3).as_str(), shorten("äbcd", 3).as_str()), ("abc", "äb…"));
    }
}
