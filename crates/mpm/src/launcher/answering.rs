//! Programs that answer questions one after another (RewriteMap prg): a line of input for a line of
//! output. One process answers all questions to a program, in their order. A process that does
//! not answer in time is ended. The next question starts a new process.

use evenkeel_sys::pipe::{input_pipe, output_pipe, read};
use evenkeel_sys::process::{self, Pid};
use evenkeel_sys::spawn::{Order, Standard, kill_group, send_control, spawn};
use evenkeel_sys::watch::{Watch, WatchedWriter};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The longest answer, in bytes: it fits into the pipe to the one who asks.
const MOST_ANSWER: usize = 60 << 10;

/// ETIMEDOUT and EPIPE of Linux, by which the one who asks learns why there is no answer.
const TIMED_OUT: i32 = 110;
const BROKEN_PIPE: i32 = 32;

/// The process of a program, if one is running. Questions wait for their turn.
type Place = Rc<Mutex<Option<Answerer>>>;

/// The programs that were asked, by their arguments. The configuration bounds their number.
#[derive(Default)]
pub(super) struct Answering(RefCell<HashMap<Vec<Vec<u8>>, Place>>);

impl Answering {
    /// Has a program answer the question of an order, and sends the answer.
    pub(super) async fn answer(&self, order: Order, standard: Standard, control: OwnedFd) {
        let Some((question, patience_ms)) = &order.question else { return };
        let place = {
            let mut places = self.0.borrow_mut();
            Rc::clone(places.entry(order.arguments.clone()).or_default())
        };
        let patience = Duration::from_millis(u64::from(*patience_ms));
        let answered = timeout(patience, async {
            let mut process = place.lock().await;
            ask(&mut process, &order, question).await
        });
        let answered = answered.await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        match answered {
            Ok(answer) => {
                // The pipe is empty, so that the answer fits into it.
                let _asker_has_gone = File::from(standard.output).write_all(&answer);
            }
            Err(error) => {
                let number = match error.kind() {
                    ErrorKind::TimedOut => TIMED_OUT,
                    _ => error.raw_os_error().unwrap_or(BROKEN_PIPE),
                };
                send_control(control.as_fd(), &number.to_le_bytes());
            }
        }
    }
}

/// Asks the running process, or a new one. A process that was running and has ended in the meantime
/// is replaced once.
async fn ask(place: &mut Option<Answerer>, order: &Order, question: &[u8]) -> io::Result<Vec<u8>> {
    if let Some(process) = place.take() {
        match exchange(process, place, question).await {
            Err(error) if error.kind() != ErrorKind::InvalidData => {}
            answered => return answered,
        }
    }
    exchange(Answerer::start(order)?, place, question).await
}

/// Asks a process, which is kept if it answers. If this is dropped half-way, so is the process: its
/// answer would be taken for that to the next question.
async fn exchange(
    process: Answerer,
    place: &mut Option<Answerer>,
    question: &[u8],
) -> io::Result<Vec<u8>> {
    let mut line = [question, b"\n"].concat();
    while !line.is_empty() {
        let written = poll_fn(|context| process.input.poll_write(context, &line)).await?;
        line.drain(..written);
    }
    let mut answer = Vec::new();
    loop {
        let mut buffer = [0_u8; 4096];
        let next =
            poll_fn(|context| process.output.poll_read(context, |pipe| read(pipe, &mut buffer)));
        let bytes = match next.await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => buffer.get(..count).unwrap_or_default(),
        };
        answer.extend_from_slice(bytes);
        if let Some(end) = answer.iter().position(|byte| *byte == b'\n') {
            // What follows the line belongs to no question: such a process is not kept.
            if end + 1 == answer.len() {
                *place = Some(process);
            }
            answer.truncate(end);
            return Ok(answer);
        }
        if answer.len() > MOST_ANSWER {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

/// A process that answers questions. Dropping it ends it.
struct Answerer {
    pid: Pid,
    input: WatchedWriter,
    output: Watch,
}

impl Answerer {
    fn start(order: &Order) -> io::Result<Self> {
        let (program_input, input) = input_pipe()?;
        let (output, program_output) = output_pipe()?;
        // Standard error of the launcher is the error log.
        let error = io::stderr().as_fd().try_clone_to_owned()?;
        let standard = Standard { input: program_input, output: program_output, error };
        let (input, output) = (WatchedWriter::new(input)?, Watch::owned(output)?);
        Ok(Self { pid: spawn(order, standard)?, input, output })
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        kill_group(self.pid);
        let _end = process::wait(self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use tokio::runtime::{Builder, LocalOptions};

    /// The answers of a shell script to questions, each with the number of the error if there is
    /// none.
    fn answers(script: &str, questions: &[&str], patience_ms: u32) -> Vec<Result<String, i32>> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap();
        runtime.block_on(async {
            let answering = Answering::default();
            let mut answers = Vec::new();
            for question in questions {
                let (input, _unused) = input_pipe().unwrap();
                // The reading end blocks: a child of another test may hold a copy of the other end
                // until it executes its program.
                let (mut output, to) = io::pipe().unwrap();
                let to = OwnedFd::from(to);
                let error = io::stderr().as_fd().try_clone_to_owned().unwrap();
                let (control, far) = evenkeel_sys::spawn::packet_pair().unwrap();
                let order = Order {
                    program: b"/bin/sh".to_vec(),
                    arguments: ["sh", "-c", script].map(|it| it.as_bytes().to_vec()).to_vec(),
                    folder: b"/".to_vec(),
                    question: Some((question.as_bytes().to_vec(), patience_ms)),
                    ..Order::default()
                };
                answering.answer(order, Standard { input, output: to, error }, far).await;
                let number = evenkeel_sys::spawn::receive_control(control.as_fd());
                let number = number.filter(|number| !number.is_empty());
                answers.push(match number {
                    Some(number) => Err(i32::from_le_bytes(number.try_into().unwrap())),
                    None => {
                        let mut text = String::new();
                        output.read_to_string(&mut text).unwrap();
                        Ok(text)
                    }
                });
            }
            answers
        })
    }

    #[test]
    fn one_process_answers_all_questions() {
        let script = "n=0; while read q; do n=$((n+1)); echo \"$n $q\"; done";
        let answers = answers(script, &["a", "b c", ""], 10_000);
        assert_eq!(answers, ["1 a", "2 b c", "3 "].map(|it| Ok(it.to_owned())));
    }

    #[test]
    fn a_process_that_ends_is_started_again() {
        let answers = answers("read q; echo \"$$ $q\"", &["a", "b"], 10_000);
        let pids: Vec<_> = answers.iter().map(|it| it.clone().unwrap()).collect();
        assert!(pids[0].ends_with(" a") && pids[1].ends_with(" b") && pids[0] != pids[1]);
    }

    #[test]
    fn a_process_that_does_not_answer_is_given_up() {
        let script = "while read q; do test \"$q\" = slow || echo \"$q\"; done";
        let answers = answers(script, &["a", "slow", "b"], 300);
        assert_eq!(answers, [Ok("a".to_owned()), Err(TIMED_OUT), Ok("b".to_owned())]);
        assert_eq!(answers_of_nothing(), [Err(BROKEN_PIPE)]);
    }

    fn answers_of_nothing() -> Vec<Result<String, i32>> {
        answers("exit 0", &["a"], 10_000)
    }
}
