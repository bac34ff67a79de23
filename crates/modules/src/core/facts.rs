//! Facts of files and clocks that expressions name: the last change, the owner, the local time.

use evenkeel_expr::Variable;
use jiff::Zoned;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// LAST_MODIFIED, SCRIPT_USER or SCRIPT_GROUP of a file; none where it does not exist.
#[must_use]
pub fn file_fact(variable: Variable, file: &Path) -> Option<Vec<u8>> {
    let facts = std::fs::metadata(file).ok()?;
    match variable {
        Variable::LastModified => {
            let time = jiff::Timestamp::from_second(facts.mtime()).ok()?;
            let local = time.to_zoned(jiff::tz::TimeZone::system());
            Some(local.strftime("%Y%m%d%H%M%S").to_string().into_bytes())
        }
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
