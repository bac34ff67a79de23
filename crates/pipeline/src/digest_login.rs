//! Digest authentication: asks the providers of a section for the hash of a user, which
//! `auth_digest` compares with the response of the client.

use crate::login::{auth_name, consult, load_users, place, why};
use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_message::{Answer, Level, Notice, Request, Status, quoted, quoted_path};
use evenkeel_modules::passwords::is_digest;
use evenkeel_modules::{Credential, Credentials, Verdict, auth_digest};

/// Authenticates with a hash of the password (mod_auth_digest.c: authenticate_digest_user).
pub(crate) async fn log_in(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
) -> Result<(), Answer> {
    let Some(realm) = auth_name(pipeline, request, plan) else {
        let text = format!("need AuthName: {}", quoted(&request.resource.path));
        request.notify(Notice::new("auth_digest", Level::Error, 1780, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    };
    let settings = &plan.auth_digest;
    let core = pipeline.site.server(request.server).core(plan);
    let proof = match auth_digest::begin(request, &realm, core) {
        Ok(proof) => proof,
        Err(denial) => return Err(denied(request, plan, &realm, denial)),
    };
    let stored = stored_digest(pipeline, request, plan, &proof).await?;
    let found = match &stored.hash {
        StoredHash::Known(hash) => auth_digest::Found::Hash(hash),
        StoredHash::Unknown => auth_digest::Found::Nobody,
        StoredHash::Denied => auth_digest::Found::Denied,
    };
    let why = || why(plan, &stored.places);
    let concluded = auth_digest::conclude(request, settings, &proof, found, &why);
    concluded.map_err(|denial| denied(request, plan, &realm, denial))
}

fn denied(request: &Request, plan: &Plan, realm: &[u8], denial: auth_digest::Denial) -> Answer {
    match denial {
        auth_digest::Denial::Status(status) => status.into(),
        auth_digest::Denial::Challenge { is_stale } => {
            let fields = auth_digest::challenge(request, &plan.auth_digest, realm, is_stale);
            Answer::with_fields(Status::UNAUTHORIZED, fields)
        }
    }
}

/// The result of the providers for Digest authentication.
struct Stored {
    hash: StoredHash,
    /// The places that have decided, for the error log.
    places: Vec<String>,
}

/// The hash of a user.
enum StoredHash {
    Known(Box<[u8]>),
    /// No provider knows the user in the realm.
    Unknown,
    /// A provider denies the user.
    Denied,
}

/// Asks the providers for the hash of a user, in order (mod_auth_digest.c: get_hash).
///
/// # Errors
/// 500 if a provider fails.
async fn stored_digest(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    proof: &auth_digest::Proof,
) -> Result<Stored, Answer> {
    let mut sources = plan.auth_digest.providers();
    let default;
    if sources.is_empty() {
        default = pipeline.site.global.active.authn_source(auth_digest::DEFAULT_PROVIDER);
        sources = default.as_slice();
    }
    if sources.is_empty() {
        let text = "No Authn provider configured";
        request.notify(Notice::new("auth_digest", Level::Error, 1770, text));
        return Err(Status::INTERNAL_SERVER_ERROR.into());
    }
    let failed = || Err(Status::INTERNAL_SERVER_ERROR.into());
    let mut places = Vec::new();
    for source in sources {
        let Some(check) = source.provider.check_realm else { return failed() };
        let credentials = Credentials { user: proof.user(), password: b"" };
        let file = match consult(pipeline, request, plan, source, check, credentials) {
            Credential::InFile(file) => file,
            Credential::Decided(Verdict::NotFound) => {
                places.push(format!("the provider {}", source.name));
                continue;
            }
            Credential::Decided(Verdict::Denied) => {
                let places = vec![format!("the provider {}", source.name)];
                return Ok(Stored { hash: StoredHash::Denied, places });
            }
            // The provider has seen no password, so it cannot have checked one.
            Credential::Decided(Verdict::Granted | Verdict::Failed) => return failed(),
        };
        let Some(users) = load_users(pipeline, request, plan, &file, 1622).await? else {
            return failed();
        };
        let entry = users.user_of_realm(proof.user(), proof.realm());
        let place = place(&file, entry);
        let Some(entry) = entry else {
            places.push(place);
            continue;
        };
        let places = vec![place];
        if is_digest(&entry.hash) {
            return Ok(Stored { hash: StoredHash::Known(entry.hash.clone()), places });
        }
        let text = format!(
            "{}: line {}: the password is not hashed as htdigest does it: nobody can log in with it",
            quoted_path(&file),
            entry.line
        );
        request.notify(Notice::own("authn_file", Level::Error, text));
        return Ok(Stored { hash: StoredHash::Denied, places });
    }
    Ok(Stored { hash: StoredHash::Unknown, places })
}
