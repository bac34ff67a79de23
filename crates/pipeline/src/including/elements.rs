//! The elements of a page that wait: `include`, `exec`, `fsize` and `flastmod` (mod_include.c:
//! handle_include, find_file; cgi_common.h: cgi_handle_exec, include_cgi).

use super::{Refused, Run, is_file};
use crate::cgi::run_command;
use evenkeel_message::{Status, quoted};
use evenkeel_modules::Stat;
use evenkeel_modules::include::{
    Argument, Element, MOST_COMMAND, Wait, decode_entities, owner_name, valued,
};
use evenkeel_proto::escape_html;

/// The media type that makes a file a program (mod_cgi.c: CGI_MAGIC_TYPE).
const PROGRAM: &[u8] = b"application/x-httpd-cgi";

/// Whether an element may ask for the name of the owner, which has to be looked up.
pub(super) fn may_ask_for_owner(element: &Element) -> bool {
    const NAME: &[u8] = b"USER_NAME";
    let names = |argument: &Argument| {
        let value = argument.value.as_deref().unwrap_or_default();
        value.windows(NAME.len()).any(|window| window.eq_ignore_ascii_case(NAME))
    };
    element.name == b"printenv" || element.arguments.iter().any(names)
}

impl Run {
    /// Looks up the name of the owner of the outermost page's file.
    pub(super) async fn find_owner(&mut self) {
        if !self.shared.variables.borrow().lacks_owner() {
            return;
        }
        let Some(uid) = self.shared.owner else { return };
        let owner = self.pipeline.blocking_pool.spawn(move || owner_name(uid)).await.flatten();
        self.shared.variables.borrow_mut().facts.owner = owner;
    }

    pub(super) async fn wait_for(&mut self, wait: Wait) {
        match wait {
            Wait::Condition(text) => Box::pin(self.decide(&text)).await,
            Wait::Include(arguments) => Box::pin(self.include(arguments)).await,
            Wait::Exec(arguments) => Box::pin(self.exec(arguments)).await,
            Wait::Size(arguments) => {
                let show = |run: &Run, stat: Stat| run.page.size(stat.size).into_bytes();
                Box::pin(self.describe(arguments, "fsize", show)).await;
            }
            Wait::Modified(arguments) => {
                let show = |run: &Run, stat: Stat| run.page.time(stat.modified_ns / 1000);
                Box::pin(self.describe(arguments, "flastmod", show)).await;
            }
        }
    }

    /// Sends what each argument names, until one fails. Then `onerror` names what is sent instead.
    async fn include(&mut self, arguments: Vec<Argument>) {
        let mut has_failed = false;
        for (name, value) in valued(arguments) {
            if !matches!(&*name, b"virtual" | b"file" | b"onerror") {
                let text = format!("unknown parameter \"{}\" to tag include in", quoted(&name));
                self.complain(self.page.notice(1342, &text));
                self.fail().await;
                break;
            }
            let value = decode_entities(&value);
            let place = self.expanded(&value);
            let fetched = match &*name {
                b"file" => self.include_file(&place).await,
                b"virtual" if !has_failed => self.include_url(&place).await,
                b"onerror" if has_failed => self.include_url(&place).await,
                _ => continue,
            };
            let Err(why) = fetched else {
                has_failed = false;
                continue;
            };
            let text = format!("unable to include {why}");
            self.complain(evenkeel_message::Notice::own(
                "include",
                evenkeel_message::Level::Error,
                text.replace("{}", &quoted(&value)),
            ));
            if has_failed {
                break;
            }
            has_failed = true;
        }
        if has_failed {
            self.fail().await;
        }
    }

    async fn include_url(&mut self, place: &[u8]) -> Result<(), String> {
        match self.url(place) {
            Ok(target) => self.include_target(target).await,
            Err(refused) => Err(self.reason(refused)),
        }
    }

    async fn include_file(&mut self, place: &[u8]) -> Result<(), String> {
        match self.file(place) {
            Some(target) => self.include_target(target).await,
            None => {
                Err(format!("file \"{{}}\" in parsed file {}", quoted(&self.page.settings.file)))
            }
        }
    }

    async fn include_target(&mut self, target: super::Target) -> Result<(), String> {
        let may_exec = self.page.settings.may_exec;
        let fetched = self.fetch(target, |request, _| {
            let media_type = request.resource.content.media_type.as_deref();
            let is_text = media_type.is_none_or(|media_type| media_type.starts_with(b"text/"));
            if may_exec || is_text { Ok(()) } else { Err(Refused::MayExecute) }
        });
        match fetched.await {
            Ok(response) => {
                let mut response = response;
                self.send_body(std::mem::take(&mut response.body)).await;
                Ok(())
            }
            Err(refused) => Err(self.reason(refused)),
        }
    }

    /// The words of Apache about an include that fails; `{}` stands for what the page names.
    fn reason(&self, refused: Refused) -> String {
        let file = quoted(&self.page.settings.file);
        match refused {
            Refused::Setup(status) => {
                let code = status.code();
                format!("\"{{}}\" in parsed file {file}, subrequest setup returned {code}")
            }
            Refused::Handler(status, _) => {
                format!("\"{{}}\" in parsed file {file}, subrequest returned {}", status.code())
            }
            Refused::MayExecute => {
                format!("potential exec \"{{}}\" in parsed file {file}, content type not text/*")
            }
        }
    }

    /// Sends the output of commands and of CGI programs.
    async fn exec(&mut self, arguments: Vec<Argument>) {
        for (name, value) in valued(arguments) {
            let value = decode_entities(&value);
            match &*name {
                b"cmd" => {
                    let command = self.command(&value);
                    if !self.run_shell(&command).await {
                        let text = "execution failure for parameter \"cmd\" to tag exec in file";
                        self.complain(self.page.notice(1229, text));
                        return self.fail().await;
                    }
                }
                b"cgi" => {
                    let place = self.command(&value);
                    if !self.run_cgi(&place).await {
                        let text = format!("invalid CGI ref \"{}\" in", quoted(&value));
                        self.complain(self.page.notice(1230, &text));
                        return self.fail().await;
                    }
                }
                name => {
                    let text = format!("unknown parameter \"{}\" to tag exec in", quoted(name));
                    self.complain(self.page.notice(1231, &text));
                    return self.fail().await;
                }
            }
        }
    }

    /// The text of a command, in which unknown variables stay.
    fn command(&mut self, text: &[u8]) -> Vec<u8> {
        let mut notices = Vec::new();
        let command = {
            let variables = &mut self.shared.variables.borrow_mut();
            self.page.expanded_to(text, true, MOST_COMMAND, variables, &mut notices)
        };
        self.tell(notices);
        command
    }

    async fn run_shell(&mut self, command: &[u8]) -> bool {
        let variables = self.shared.variables.borrow().exported().clone();
        let body =
            run_command(&self.pipeline, &mut self.request, &self.plan, variables, command).await;
        match body {
            Ok(body) => {
                self.send_body(body).await;
                true
            }
            Err(_) => false,
        }
    }

    /// Runs a program that a URL names, with the query and PATH_INFO of the page.
    async fn run_cgi(&mut self, place: &[u8]) -> bool {
        let Ok(target) = self.url(place) else { return false };
        let (path_info, query) =
            (self.request.resource.path_info.clone(), self.request.resource.query.clone());
        let mut location = None;
        let fetched = self.fetch(target, |request, looked| {
            let resource = &mut request.resource;
            if !resource.path_info.is_empty() || resource.query.is_some() || !is_file(looked) {
                return Err(Refused::Setup(Status::NOT_FOUND));
            }
            (resource.path_info, resource.query) = (path_info, query);
            resource.content.media_type = Some(PROGRAM.into());
            Ok(())
        });
        match fetched.await {
            Ok(mut response) => {
                if response.status.is_redirect() {
                    location = response.fields.first("Location").map(<[u8]>::to_vec);
                }
                self.send_body(std::mem::take(&mut response.body)).await;
            }
            Err(Refused::Handler(status, to)) if status.is_redirect() => location = to,
            Err(Refused::Handler(..)) => {}
            Err(Refused::Setup(_) | Refused::MayExecute) => return false,
        }
        if let Some(location) = location {
            let mut shown = Vec::new();
            escape_html(&mut shown, &location);
            let link = [&b"<a href=\""[..], &shown, b"\">", &shown, b"</a>"].concat();
            self.outbox.send(link.into()).await;
        }
        true
    }

    /// Sends the size or the time of each file that is named.
    async fn describe(
        &mut self,
        arguments: Vec<Argument>,
        element: &str,
        show: impl Fn(&Run, Stat) -> Vec<u8>,
    ) {
        for (name, value) in valued(arguments) {
            let place = self.expanded(&decode_entities(&value));
            let stat = match &*name {
                b"file" => match self.file(&place) {
                    Some(target) => {
                        let text = "unable to lookup information about \"{}\" in parsed file";
                        self.look(target).await.ok_or((2670, text))
                    }
                    None => Err((2668, "unable to access file \"{}\" in parsed file")),
                },
                b"virtual" => {
                    let text = "unable to get information about \"{}\" in parsed file";
                    match self.url(&place) {
                        Ok(target) => self.look(target).await.ok_or((1339, text)),
                        Err(_) => Err((1339, text)),
                    }
                }
                name => {
                    let text =
                        format!("unknown parameter \"{}\" to tag {element} in", quoted(name));
                    self.complain(self.page.notice(1340, &text));
                    return self.fail().await;
                }
            };
            match stat {
                Ok(stat) => {
                    let shown = show(self, stat);
                    self.outbox.send(shown.into()).await;
                }
                Err((number, text)) => {
                    let text = text.replace("{}", &quoted(&place));
                    self.complain(self.page.notice(number, &text));
                    return self.fail().await;
                }
            }
        }
    }
}
