//! Writes a page of the server's state from a snapshot, in the requested form.

use crate::application::Application;
use crate::listener::Listener;
use crate::snapshot::Snapshot;
use crate::view::{Form, View};
use crate::{auto, html, words};

/// What the page says about the server at its head and foot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Letterhead<'a> {
    /// The name under which the server answers (Apache: ap_get_server_name).
    pub name: &'a str,
    /// The server's address on this connection.
    pub via: &'a str,
    /// The signature at the foot of HTML pages, by ServerSignature; may be empty.
    pub signature: &'a str,
}

/// Writes the page.
#[must_use]
pub fn render(snapshot: &Snapshot, view: View, letterhead: &Letterhead<'_>) -> String {
    match view.form {
        Form::Table | Form::Paragraphs => html::render(snapshot, letterhead, view),
        Form::Auto => auto::render(snapshot, letterhead),
        Form::Json => json(snapshot, letterhead, view),
    }
}

/// Everything in the snapshot, with the sums that the other forms show; or only the sums and the
/// pool.
fn json(snapshot: &Snapshot, letterhead: &Letterhead<'_>, view: View) -> String {
    let pool = snapshot.pool.clone().unwrap_or_default();
    let pool = pool.with_last(view.last_s.unwrap_or(usize::MAX));
    let mut pool_words = words::lines(&pool);
    pool_words.extend(snapshot.applications.iter().map(Application::sentence));
    pool_words.extend(snapshot.listeners.iter().map(Listener::sentence));
    let mut page = serde_json::json!({
        "server": letterhead.name,
        "via": letterhead.via,
        "now_us": snapshot.now_us,
        "uptime_s": snapshot.uptime_s(),
        "workers": snapshot.counts(),
        "processes": snapshot.children.len(),
        "stopping": snapshot.stopping(),
        "connections": snapshot.connections(),
        "scoreboard": snapshot.slot_letters(),
        "pool_words": pool_words,
        "applications": snapshot.applications,
        "listeners": snapshot.listeners,
        "pool": pool,
    });
    if !view.pool_alone
        && let Some(page) = page.as_object_mut()
    {
        let _none = page.insert("snapshot".to_owned(), serde_json::json!(snapshot));
    }
    let mut text = page.to_string();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::sample;

    #[test]
    fn json_holds_what_the_snapshot_holds() {
        let letterhead = Letterhead { name: "example.org", ..Letterhead::default() };
        let view = View::parse(Some(b"json"));
        let page: serde_json::Value =
            serde_json::from_str(&render(&sample(), view, &letterhead)).unwrap();
        assert_eq!(page["workers"]["busy"], 1);
        assert_eq!(page["connections"]["keep_alive"], 4);
        assert_eq!(page["snapshot"]["children"][0]["workers"][0]["state"], "W");
        assert_eq!(page["snapshot"]["facts"]["mpm"], "event");
        assert_eq!(page["scoreboard"], "W__G....");
        let view = View::parse(Some(b"json&pool"));
        let pool: serde_json::Value =
            serde_json::from_str(&render(&sample(), view, &letterhead)).unwrap();
        assert_eq!((&pool["scoreboard"], &pool["now_us"]), (&page["scoreboard"], &page["now_us"]));
        assert_eq!((pool.get("snapshot"), pool["pool"].is_object()), (None, true));
        // What was not measured is shown as unknown.
        assert_eq!((&page["pool"]["limit"], &page["pool"]["rps"]), (&"unknown".into(), &().into()));
    }
}
