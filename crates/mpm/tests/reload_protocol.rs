//! The protocol by which one generation of children takes over from another, in all orders of its
//! steps: clients on kept connections, the kernel's accept queues, children and the parent, with
//! buckets that come and go and a child that is killed. What a variant of the protocol that is
//! known to lose requests loses, the model must find: else it would prove nothing.

#![expect(clippy::indexing_slicing, reason = "the model's numbers are its own")]

use stateright::{Checker, Model, Property};
use std::collections::VecDeque;

/// How many requests each client makes, all on one connection where the server lets it.
const REQUESTS: u8 = 2;

/// How many clients there are.
const CLIENTS: usize = 2;

/// How many listening sockets there can be: one for each bucket.
const SOCKETS: usize = 2;

/// A way to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As this server does it.
    Ours,
    /// The old children leave when the new ones are forked, not when they serve.
    LeaveEarly,
    /// A child that drains closes the connections on which nothing has come so far.
    CutIdle,
    /// A bucket that is no longer configured is closed at once.
    CloseSurplus,
    /// Where new children do not come to serve, those that do already are killed.
    KillServing,
}

struct Protocol {
    way: Way,
    /// The number of buckets, at the start and after each reload.
    buckets: &'static [usize],
    /// How many children may be killed from outside.
    kills: u8,
    /// Whether a child of a new generation may fail to start.
    may_fail: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    sockets: [Listening; SOCKETS],
    children: Vec<Child>,
    /// Which reload is in force or being made.
    step: usize,
    /// The number of the configuration that was in force before, while new children start.
    changing_from: Option<usize>,
    clients: [Client; CLIENTS],
    kills: u8,
    failed_once: bool,
    lost: bool,
}

/// A listening socket: it lives as long as somebody holds it, the parent or a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Listening {
    held_by_parent: bool,
    queue: VecDeque<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Child {
    step: usize,
    bucket: usize,
    /// The sockets that it accepts from, by number.
    polls: [bool; SOCKETS],
    serves: bool,
    told_to_drain: bool,
    drains: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Client {
    at: At,
    /// A request is on its way or being answered.
    asked: bool,
    answered: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum At {
    #[default]
    Home,
    Queue(usize),
    /// With the child of this identity: its configuration's step and its bucket.
    Child(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Connect(usize, usize),
    Ask(usize),
    Accept(usize, usize),
    Answer(usize),
    Reload,
    Serve(usize),
    FailToStart(usize),
    Complete,
    Hear(usize),
    CutIdle(usize),
    Exit(usize),
    Kill(usize),
    Replace,
}

impl Protocol {
    fn configured(&self, step: usize) -> usize {
        self.buckets[step]
    }

    /// Forks the child of a bucket in a configuration. It polls its own socket, and the first
    /// child the surplus ones, which nobody else does.
    fn fork(&self, state: &mut State, step: usize, bucket: usize) {
        let mut polls = [false; SOCKETS];
        polls[bucket] = true;
        for (number, polled) in polls.iter_mut().enumerate().skip(self.configured(step)) {
            *polled = bucket == 0 && state.sockets[number].held_by_parent;
        }
        let child =
            Child { step, bucket, polls, serves: false, told_to_drain: false, drains: false };
        state.children.push(child);
    }

    /// The buckets of the configuration in force that have no child.
    fn missing(&self, state: &State) -> Vec<usize> {
        let has = |bucket| {
            let mine = |child: &&Child| child.step == state.step && !child.told_to_drain;
            state.children.iter().filter(mine).any(|child| child.bucket == bucket)
        };
        (0..self.configured(state.step)).filter(|&bucket| !has(bucket)).collect()
    }

    fn drain(state: &mut State, which: impl Fn(&Child) -> bool) {
        for child in state.children.iter_mut().filter(|child| which(child)) {
            child.told_to_drain = true;
        }
    }

    /// Back to the configuration that was in force before.
    fn roll_back(&self, state: &mut State, from: usize) {
        let failed = state.step;
        if self.way == Way::KillServing {
            for at in (0..state.children.len()).rev() {
                if state.children[at].step == failed {
                    state.end_child(at, false);
                }
            }
        } else {
            state.children.retain(|child| child.step != failed || child.serves);
            Self::drain(state, |child| child.step == failed);
        }
        (state.step, state.changing_from) = (from, None);
    }
}

impl State {
    fn holders(&self, socket: usize) -> bool {
        self.sockets[socket].held_by_parent || self.children.iter().any(|child| child.polls[socket])
    }

    /// Resets what waits at sockets that nobody holds any more.
    fn close_abandoned(&mut self) {
        for socket in 0..SOCKETS {
            if self.holders(socket) {
                continue;
            }
            for client in std::mem::take(&mut self.sockets[socket].queue) {
                self.lost = true;
                self.clients[client] =
                    Client { at: At::Home, asked: false, ..self.clients[client] };
            }
        }
    }

    /// Ends a child with its connections. The clients of one that was killed from outside know
    /// that they have lost, and try again; in no other case may that happen.
    fn end_child(&mut self, at: usize, is_forgiven: bool) {
        let child = self.children.remove(at);
        for client in &mut self.clients {
            if client.at == At::Child(child.step, child.bucket) {
                self.lost |= client.asked && !is_forgiven;
                (client.at, client.asked) = (At::Home, false);
            }
        }
        self.close_abandoned();
    }

    fn is_with(&self, client: usize, child: &Child) -> bool {
        self.clients[client].at == At::Child(child.step, child.bucket)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            sockets: Default::default(),
            children: Vec::new(),
            step: 0,
            changing_from: None,
            clients: Default::default(),
            kills: 0,
            failed_once: false,
            lost: false,
        };
        for bucket in 0..self.configured(0) {
            state.sockets[bucket].held_by_parent = true;
        }
        for bucket in 0..self.configured(0) {
            self.fork(&mut state, 0, bucket);
        }
        state.children.iter_mut().for_each(|child| child.serves = true);
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (number, client) in state.clients.iter().enumerate() {
            match client.at {
                At::Home if client.answered < REQUESTS => {
                    let open = (0..SOCKETS).filter(|&socket| state.holders(socket));
                    steps.extend(open.map(|socket| Step::Connect(number, socket)));
                }
                At::Child(..) if client.asked => steps.push(Step::Answer(number)),
                At::Child(..) if client.answered < REQUESTS => steps.push(Step::Ask(number)),
                At::Home | At::Queue(_) | At::Child(..) => {}
            }
        }
        for (number, child) in state.children.iter().enumerate() {
            let polled = (0..SOCKETS).filter(|&socket| child.polls[socket] && child.serves);
            let waited = polled.filter(|&socket| !state.sockets[socket].queue.is_empty());
            steps.extend(waited.map(|socket| Step::Accept(number, socket)));
            if !child.serves {
                steps.push(Step::Serve(number));
                let is_new = state.changing_from.is_some() && child.step == state.step;
                if self.may_fail && is_new && !state.failed_once {
                    steps.push(Step::FailToStart(number));
                }
            }
            if child.told_to_drain && !child.drains && child.serves {
                steps.push(Step::Hear(number));
            }
            let idle = |client: &usize| state.is_with(*client, child);
            if child.drains && self.way == Way::CutIdle {
                steps.extend((0..CLIENTS).filter(idle).map(Step::CutIdle));
            }
            if child.drains && !(0..CLIENTS).any(|client| idle(&client)) {
                steps.push(Step::Exit(number));
            }
            if state.kills < self.kills {
                steps.push(Step::Kill(number));
            }
        }
        if state.changing_from.is_none() && state.step + 1 < self.buckets.len() {
            steps.push(Step::Reload);
        }
        let missing = self.missing(state);
        let new = state.children.iter().filter(|child| child.step == state.step);
        if state.changing_from.is_some() && missing.is_empty() && new.clone().all(|c| c.serves) {
            steps.push(Step::Complete);
        }
        if !missing.is_empty() {
            steps.push(Step::Replace);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Connect(client, socket) => {
                state.sockets[socket].queue.push_back(client);
                (state.clients[client].at, state.clients[client].asked) = (At::Queue(socket), true);
            }
            Step::Ask(client) => state.clients[client].asked = true,
            Step::Accept(child, socket) => {
                let client = state.sockets[socket].queue.pop_front()?;
                let child = &state.children[child];
                state.clients[client].at = At::Child(child.step, child.bucket);
            }
            Step::Answer(client) => {
                let closes = state.children.iter().any(|c| c.drains && state.is_with(client, c));
                let client = &mut state.clients[client];
                (client.asked, client.answered) = (false, client.answered + 1);
                if closes || client.answered == REQUESTS {
                    client.at = At::Home;
                }
            }
            Step::Reload => self.reload(&mut state),
            Step::Serve(child) => state.children[child].serves = true,
            Step::FailToStart(child) => {
                let from = state.changing_from?;
                state.children.remove(child);
                state.failed_once = true;
                self.roll_back(&mut state, from);
                state.close_abandoned();
            }
            Step::Complete => {
                let step = state.step;
                Self::drain(&mut state, |child| child.step != step);
                state.changing_from = None;
            }
            Step::Hear(child) => {
                (state.children[child].drains, state.children[child].polls) = (true, [false; 2]);
                state.close_abandoned();
            }
            Step::CutIdle(client) => {
                // What the client has just sent was on its way when the server looked.
                state.lost |= state.clients[client].asked;
                (state.clients[client].at, state.clients[client].asked) = (At::Home, false);
            }
            Step::Exit(child) => state.end_child(child, false),
            Step::Kill(child) => {
                state.kills += 1;
                state.end_child(child, true);
            }
            Step::Replace => {
                for bucket in self.missing(last) {
                    self.fork(&mut state, last.step, bucket);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no request is lost", |_, state: &State| !state.lost),
            Property::always("somebody serves", |_, state: &State| {
                state.kills > 0 || state.children.iter().any(|child| child.serves && !child.drains)
            }),
            Property::eventually("every request is answered", |_, state: &State| {
                state.clients.iter().all(|client| client.answered == REQUESTS)
            }),
            Property::sometimes("the last configuration serves alone", |model, state: &State| {
                let last = model.buckets.len() - 1;
                !state.children.is_empty() && state.children.iter().all(|c| c.step == last)
            }),
        ]
    }
}

impl Protocol {
    fn reload(&self, state: &mut State) {
        let from = state.step;
        (state.step, state.changing_from) = (from + 1, Some(from));
        let buckets = self.configured(state.step);
        for socket in &mut state.sockets[..buckets] {
            socket.held_by_parent = true;
        }
        if self.way == Way::CloseSurplus {
            state.sockets[buckets..].iter_mut().for_each(|socket| socket.held_by_parent = false);
        }
        for bucket in 0..buckets {
            self.fork(state, state.step, bucket);
        }
        if self.way == Way::LeaveEarly {
            Self::drain(state, |child| child.step == from);
        }
    }
}

fn check(protocol: Protocol) -> impl Checker<Protocol> {
    protocol.checker().spawn_bfs().join()
}

#[test]
fn no_order_of_steps_loses_a_request() {
    let numbers: [&'static [usize]; 3] = [&[1, 1, 1], &[1, 2, 1], &[2, 1, 2]];
    for buckets in numbers {
        let checked = check(Protocol { way: Way::Ours, buckets, kills: 1, may_fail: true });
        checked.assert_properties();
    }
}

#[test]
fn ways_that_are_known_to_fail_are_found_out() {
    let (lost, alone) = ("no request is lost", "somebody serves");
    let ways: [(Way, &'static [usize], &str); 4] = [
        (Way::LeaveEarly, &[1, 1], alone),
        (Way::CutIdle, &[1, 1], lost),
        (Way::CloseSurplus, &[2, 1], lost),
        (Way::KillServing, &[1, 2], lost),
    ];
    for (way, buckets, broken) in ways {
        let checked = check(Protocol { way, buckets, kills: 0, may_fail: true });
        assert!(checked.discovery(broken).is_some(), "{way:?} is as good as ours");
    }
}
