//! A request for a name that its folder does not have (mod_speling): the folder is read beside the
//! serving thread, and the client is led to a similar name.

use crate::serve::Pipeline;
use crate::site::Plan;
use evenkeel_message::{Answer, Request, quoted};
use evenkeel_modules::negotiation::LIST_NOTE;
use evenkeel_modules::speling::Misspelled;

/// The answer that leads to a similar name; none if there is none.
pub(crate) async fn correct(
    pipeline: &Pipeline,
    request: &mut Request,
    plan: &Plan,
    misspelled: Misspelled,
) -> Option<Answer> {
    let may_wait = pipeline.before_wait(request, plan).await;
    let beside = pipeline.beside(request, &may_wait);
    let what = format!("reading the folder {} for a similar name", quoted(&misspelled.folder));
    let wanted = misspelled.clone();
    let read = beside.perform(what, move |_| Some(wanted.candidates())).await;
    // A folder that cannot be read corrects nothing.
    let candidates = read?.ok().flatten()?;
    let core = pipeline.site.server(request.server).core(plan);
    let (answer, choices) = misspelled.answer(request, &candidates, core);
    if let Some(choices) = choices {
        request.resource.notes.set(LIST_NOTE, choices.list);
        request.resource.env.set("VARIANTS", choices.variants);
    }
    Some(answer)
}
