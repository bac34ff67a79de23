//! Facts of files and clocks that expressions name: the last change, the owner, the local time.

use evenkeel_expr::Variable;
use jiff::Zoned;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// LAST_MODIFIED, SCRIPT_USER or SCRIPT_GROUP of a file. What is no file was last changed when time
/// began (Apache: r->mtime), and is nobody's.
#[must_use]
pub fn file_fact(variable: Variable, file: &Path) -> Option<Vec<u8>> {
    let facts = std::fs::metadata(file);
    if variable == Variable::LastModified {
        let changed = facts.ok().filter(Metadata::is_file).map_or(0, |facts| facts.mtime());
        let time = jiff::Timestamp::from_second(changed).ok()?;
        let local = time.to_zoned(jiff::tz::TimeZone::system());
        return Some(local.strftime("%Y%m%d%H%M%S").to_string().into_bytes());
    }
    let facts = facts.ok()?;
    match variable {
        Variable::ScriptUser => {
            let user = evenkeel_sys::identity::user_numbered(facts.uid()).ok()??;
            Some(user.name.into_bytes())
        }
        Variable::ScriptGroup => {
            let group = evenkeel_sys::identity::group_numbered(facts.gid()).ok()??;
            Some(group.into_bytes())
        }
        _ => None,
    }
}

/// A part of the local time of a request that came `time_us` microseconds after 1970.
#[must_use]
pub fn time_fact(variable: Variable, time_us: u64) -> Option<Vec<u8>> {
    let time = jiff::Timestamp::from_microsecond(i64::try_from(time_us).ok()?).ok()?;
    let local: Zoned = time.to_zoned(jiff::tz::TimeZone::system());
    let form = match variable {
        Variable::Time => "%Y%m%d%H%M%S",
        Variable::TimeYear => "%Y",
        Variable::TimeMon => "%m",
        Variable::TimeDay => "%d",
        Variable::TimeHour => "%H",
        Variable::TimeMin => "%M",
        Variable::TimeSec => "%S",
        Variable::TimeWday => "%w",
        _ => return None,
    };
    Some(local.strftime(form).to_string().into_bytes())
}
