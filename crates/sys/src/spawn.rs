//! Orders to start programs. A serving process encodes an [`Order`] and sends it to the launcher
//! with the descriptors of the program ([`send_order`]); the launcher receives it
//! ([`receive_order`]) and starts the program ([`spawn`]). The standard library starts it by
//! posix_spawn, or by fork and exec if it has limits, for which posix_spawn has no attribute.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, Resource, Rlimit, Signal};

/// The longest order that is sent within a message. A longer one travels in a memfd.
const MOST_INLINE: usize = 32 << 10;

/// The longest order. Linux gives the arguments and the environment of a program 6 MiB at most
/// (execve(2)).
const MOST_ORDER: usize = 8 << 20;

/// The descriptors of an order: three of the program and the control socket, and a memfd.
const MOST_DESCRIPTORS: usize = 5;

/// A limit of a program: soft and hard. `None` is the largest value that the process may have.
pub type Limit = (Option<u64>, Option<u64>);

/// An order to start a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The path of the program.
    pub program: Vec<u8>,
    /// The arguments, beginning with the name of the program (argv).
    pub arguments: Vec<Vec<u8>>,
    /// The environment. There is no other variable.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// The working folder.
    pub folder: Vec<u8>,
    /// The limits of CPU time in seconds, of memory in bytes and of processes of the user.
    pub limits: [Option<Limit>; 3],
    /// For a program that answers questions one after another (RewriteMap prg): a question, and the
    /// milliseconds in which it must be answered. One process answers all questions to a program.
    pub question: Option<(Vec<u8>, u32)>,
    /// For a FastCGI program, which serves one request after another: how its processes are kept.
    /// The order asks for a connection to one of them.
    pub service: Option<Service>,
}

/// How the processes of a FastCGI program are kept. Times are in milliseconds; 0 is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The key of a class. A process serves all orders with the same key.
    pub class: Vec<u8>,
    /// The most processes of the class.
    pub most: u64,
    /// The most processes of all classes.
    pub most_of_all: u64,
    /// The number of processes that are kept even if they are idle.
    pub least: u64,
    /// The number of requests after which a process ends.
    pub most_requests: u64,
    /// The time without a request after which a process ends.
    pub idle_ms: u64,
    /// The age from which a process ends as soon as it is idle.
    pub life_ms: u64,
    /// The longest time of a request.
    pub busy_ms: u64,
    /// The longest time that the order waits for a process.
    pub patience_ms: u64,
}

/// The descriptors of a program: its standard input, output and error.
#[derive(Debug)]
pub struct Standard {
    /// Descriptor 0.
    pub input: OwnedFd,
    /// Descriptor 1.
    pub output: OwnedFd,
    /// Descriptor 2.
    pub error: OwnedFd,
}

/// The result of [`receive_order`].
#[derive(Debug)]
pub enum Arrival {
    /// An order, the descriptors of its program, and the control socket of its sender.
    Order(Box<Order>, Standard, OwnedFd),
    /// A message that is no order, or whose descriptors this process has no room for.
    Malformed,
    /// Nothing has arrived.
    Empty,
    /// All senders have closed their ends.
    Closed,
}

/// Returns the two ends of a socket for orders, or of a control socket: packets in order,
/// close-on-exec, non-blocking. Errors are the kernel's (socketpair(2)).
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

impl Order {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        for limit in self.limits {
            let (is_set, (soft, hard)) = (limit.is_some(), limit.unwrap_or_default());
            out.extend([u8::from(is_set), u8::from(soft.is_some()), u8::from(hard.is_some())]);
            out.extend(soft.unwrap_or(0).to_le_bytes());
            out.extend(hard.unwrap_or(0).to_le_bytes());
        }
        put_text(&mut out, &self.program);
        put_text(&mut out, &self.folder);
        put_number(&mut out, self.arguments.len());
        self.arguments.iter().for_each(|argument| put_text(&mut out, argument));
        put_number(&mut out, self.variables.len());
        for (name, value) in &self.variables {
            put_text(&mut out, name);
            put_text(&mut out, value);
        }
        put_number(&mut out, usize::from(self.question.is_some()));
        if let Some((question, patience_ms)) = &self.question {
            put_text(&mut out, question);
            out.extend(patience_ms.to_le_bytes());
        }
        put_number(&mut out, usize::from(self.service.is_some()));
        if let Some(service) = &self.service {
            put_text(&mut out, &service.class);
            service.numbers().iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        out
    }

    /// `None` if the bytes are no order. The counts are not trusted: no memory is reserved for
    /// them.
    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes;
        let mut order = Self::default();
        for limit in &mut order.limits {
            let flags = take(rest, 3)?.to_vec();
            let mut number = || take(rest, 8)?.try_into().ok().map(u64::from_le_bytes);
            let (soft, hard) = (number()?, number()?);
            let given = |at: usize| flags.get(at) == Some(&1);
            let values = (given(1).then_some(soft), given(2).then_some(hard));
            *limit = given(0).then_some(values);
        }
        order.program = take_text(rest)?;
        order.folder = take_text(rest)?;
        for _ in 0..take_number(rest)? {
            order.arguments.push(take_text(rest)?);
        }
        for _ in 0..take_number(rest)? {
            order.variables.push((take_text(rest)?, take_text(rest)?));
        }
        if take_number(rest)? == 1 {
            let question = take_text(rest)?;
            let patience_ms = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
            order.question = Some((question, patience_ms));
        }
        if take_number(rest)? == 1 {
            let class = take_text(rest)?;
            let mut number = || take(rest, 8)?.try_into().ok().map(u64::from_le_bytes);
            order.service = Some(Service {
                class,
                most: number()?,
                most_of_all: number()?,
                least: number()?,
                most_requests: number()?,
                idle_ms: number()?,
                life_ms: number()?,
                busy_ms: number()?,
                patience_ms: number()?,
            });
        }
        rest.is_empty().then_some(order)
    }
}

impl Service {
    /// All numbers, in the order of the fields.
    fn numbers(&self) -> [u64; 8] {
        let Self { class: _, most, most_of_all, least, most_requests, .. } = *self;
        let Self { idle_ms, life_ms, busy_ms, patience_ms, .. } = *self;
        [most, most_of_all, least, most_requests, idle_ms, life_ms, busy_ms, patience_ms]
    }
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len());
    out.extend_from_slice(text);
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let bytes = take(rest, 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

fn take_text(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = take_number(rest)?;
    take(rest, length).map(<[u8]>::to_vec)
}

/// Sends an order to the launcher, with the descriptors of the program and one end of a control
/// socket.
///
/// # Errors
/// `WouldBlock` if the launcher does not keep up, `InvalidInput` for an order that no kernel could
/// execute, and those of sendmsg(2) and memfd_create(2).
pub fn send_order(
    socket: BorrowedFd<'_>,
    order: &Order,
    standard: &Standard,
    control: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut bytes = order.encode();
    let mut descriptors =
        vec![standard.input.as_fd(), standard.output.as_fd(), standard.error.as_fd(), control];
    let memory;
    if bytes.len() > MOST_ORDER {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if bytes.len() > MOST_INLINE {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::memfd_create("order", flags)?);
        file.write_all(&bytes)?;
        memory = file;
        descriptors.push(memory.as_fd());
        bytes = vec![0];
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&bytes)];
    rustix::net::sendmsg(socket, &parts, &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives an order, if one has arrived.
///
/// # Errors
/// The kernel's (recvmsg(2)).
pub fn receive_order(socket: BorrowedFd<'_>) -> io::Result<Arrival> {
    let mut bytes = vec![0_u8; MOST_INLINE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(Arrival::Empty),
            received => break received?,
        }
    };
    let mut descriptors = Vec::with_capacity(MOST_DESCRIPTORS);
    for part in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = part {
            descriptors.extend(some);
        }
    }
    if message.bytes == 0 {
        return Ok(Arrival::Closed);
    }
    if message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Ok(Arrival::Malformed);
    }
    bytes.truncate(message.bytes);
    Ok(sort(&bytes, descriptors).unwrap_or(Arrival::Malformed))
}

fn sort(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<Arrival> {
    let mut descriptors = descriptors.into_iter();
    let standard = Standard {
        input: descriptors.next()?,
        output: descriptors.next()?,
        error: descriptors.next()?,
    };
    let control = descriptors.next()?;
    let order = match descriptors.next() {
        None => Order::decode(bytes)?,
        Some(memory) => {
            let (mut file, mut long) = (File::from(memory), Vec::new());
            file.rewind().ok()?;
            file.take(MOST_ORDER as u64).read_to_end(&mut long).ok()?;
            Order::decode(&long)?
        }
    };
    Some(Arrival::Order(Box::new(order), standard, control))
}

/// Starts the program of an order, as the leader of a process group of its own, with the three
/// descriptors and no others. The caller reaps it.
///
/// # Errors
/// Those of execve(2), chdir(2) and setrlimit(2). They are known when the call returns.
pub fn spawn(order: &Order, standard: Standard) -> io::Result<Pid> {
    let text = |bytes| OsStr::from_bytes(bytes);
    let mut command = Command::new(text(&order.program));
    if let Some((name, arguments)) = order.arguments.split_first() {
        command.arg0(text(name)).args(arguments.iter().map(|argument| text(argument)));
    }
    command
        .env_clear()
        .envs(order.variables.iter().map(|(name, value)| (text(name), text(value))))
        .current_dir(text(&order.folder))
        .stdin(Stdio::from(standard.input))
        .stdout(Stdio::from(standard.output))
        .stderr(Stdio::from(standard.error))
        .process_group(0);
    if order.limits.iter().any(Option::is_some) {
        let limits = order.limits;
        // SAFETY: between fork and exec only getrlimit(2) and setrlimit(2) are called, which
        // allocate nothing and take no lock.
        unsafe { command.pre_exec(move || set_limits(limits)) };
    }
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn set_limits(limits: [Option<Limit>; 3]) -> io::Result<()> {
    for (limit, resource) in limits.into_iter().zip([Resource::Cpu, Resource::As, Resource::Nproc])
    {
        let Some((soft, hard)) = limit else { continue };
        let own = rustix::process::getrlimit(resource).maximum;
        let within = |value: Option<u64>, bound: Option<u64>| match (value, bound) {
            (Some(value), Some(bound)) => Some(value.min(bound)),
            (value, bound) => value.or(bound),
        };
        let maximum = within(hard, own);
        rustix::process::setrlimit(resource, Rlimit { current: within(soft, maximum), maximum })?;
    }
    Ok(())
}

/// Checks that this process may execute the program at a path. Errors are those of access(2).
pub fn may_execute(program: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::access(program, rustix::fs::Access::EXEC_OK)?)
}

/// Whether a program belongs to root, has the set-user-id bit and may be executed by this process;
/// `None` if it is not there.
#[must_use]
pub fn is_executable_as_root(program: &[u8]) -> Option<bool> {
    let stat = rustix::fs::stat(program).ok()?;
    let has_bit = rustix::fs::Mode::from_raw_mode(stat.st_mode).contains(rustix::fs::Mode::SUID);
    Some(has_bit && stat.st_uid == 0 && may_execute(program).is_ok())
}

/// A descriptor that becomes readable when this child process ends. Errors are pidfd_open(2)'s.
pub fn end_of_process(pid: Pid) -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// Asks the process group of a program to end (SIGTERM). The caller has not reaped its leader, so
/// that no other group has its number. A group that is gone is no error.
pub fn terminate_group(leader: Pid) {
    let _gone = rustix::process::kill_process_group(leader, Signal::TERM);
}

/// Ends the process group of a program (SIGKILL), under the same condition.
pub fn kill_group(leader: Pid) {
    let _gone = rustix::process::kill_process_group(leader, Signal::KILL);
}

/// Sends a control message of up to 8 bytes. A full or closed socket is no error: nobody waits.
pub fn send_control(control: BorrowedFd<'_>, message: &[u8]) {
    let _unread = rustix::net::send(control, message, SendFlags::NOSIGNAL);
}

/// Passes a connection to the other end of a control socket. Errors are sendmsg(2)'s.
pub fn send_connection(control: BorrowedFd<'_>, connection: impl AsFd) -> io::Result<()> {
    let descriptors = [connection.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(b"lent")];
    rustix::net::sendmsg(control, &parts, &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a connection that was passed on a control socket.
///
/// # Errors
/// `WouldBlock` if nothing has arrived, the error that the launcher reports, `UnexpectedEof` if it
/// has gone, and those of recvmsg(2).
pub fn receive_connection(control: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut bytes = [0_u8; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(control, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut connection = None;
    for part in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = part {
            connection = some.last();
        }
    }
    if let Some(connection) = connection {
        return Ok(connection);
    }
    let number = bytes.get(..message.bytes).and_then(|bytes| bytes.try_into().ok());
    Err(match number.map(i32::from_le_bytes) {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::ErrorKind::UnexpectedEof.into(),
    })
}

/// Receives a control message; `None` if there is none, empty if the other end is closed.
pub fn receive_control(control: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let mut bytes = [0_u8; 8];
    loop {
        match rustix::net::recv(control, &mut bytes, RecvFlags::empty()) {
            Ok((count, _)) => return Some(bytes.get(..count).unwrap_or_default().to_vec()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return None,
            Err(_) => return Some(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::wait_readable;
    use crate::process::{End, wait};
    use std::os::fd::AsRawFd;

    fn order(script: &str) -> Order {
        Order {
            program: b"/bin/sh".into(),
            arguments: vec![b"name".into(), b"-c".into(), script.into(), b"zero".into()],
            variables: vec![(b"A".into(), b"b c".into())],
            folder: b"/tmp".into(),
            limits: [None; 3],
            question: Some((b"key".to_vec(), 500)),
            service: Some(Service {
                class: b"class".to_vec(),
                most: 1,
                most_of_all: 2,
                least: 3,
                most_requests: 4,
                idle_ms: 5,
                life_ms: 6,
                busy_ms: 7,
                patience_ms: 8,
            }),
        }
    }

    /// Sends an order through a socket, starts its program, and returns its output and its end.
    fn run(order: &Order) -> (String, End) {
        let (sender, receiver) = packet_pair().unwrap();
        let (control, _) = packet_pair().unwrap();
        let (mut output, written) = io::pipe().unwrap();
        let null = || File::open("/dev/null").unwrap().into();
        let standard = Standard { input: null(), output: written.into(), error: null() };
        send_order(sender.as_fd(), order, &standard, control.as_fd()).unwrap();
        drop((standard, sender));
        let Arrival::Order(received, standard, _) = receive_order(receiver.as_fd()).unwrap() else {
            panic!("an order was sent")
        };
        assert_eq!(&*received, order);
        // A process that another test is starting holds a copy of the sender until execve(2).
        wait_readable(&[receiver.as_fd()], None).unwrap();
        assert!(matches!(receive_order(receiver.as_fd()).unwrap(), Arrival::Closed));
        let pid = spawn(&received, standard).unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        (text, wait(pid).unwrap())
    }

    #[test]
    fn a_program_gets_what_its_order_says_and_three_descriptors() {
        let (text, end) = run(&order("echo $0 $PWD; /usr/bin/env | sort | grep -v _=; exit 3"));
        assert_eq!((&*text, end), ("zero /tmp\nA=b c\nPWD=/tmp\n", End::Exited(3)));
        // Beside those that this process has inherited from a careless caller, it has none.
        let (text, _) = run(&order("exec /bin/ls /proc/self/fd"));
        let plain = Command::new("/bin/ls").arg("/proc/self/fd").output().unwrap();
        assert_eq!(text.as_bytes(), plain.stdout);
        let (text, _) = run(&order("/usr/bin/awk '{ print ($1 == $5) }' /proc/$$/stat"));
        assert_eq!(text, "1\n", "it leads its process group");
    }

    #[test]
    fn a_long_order_travels_in_memory() {
        let mut long = order("echo ${#LONG}");
        long.variables.push((b"LONG".into(), vec![b'x'; 100_000]));
        assert_eq!(run(&long).0, "100000\n");
    }

    #[test]
    fn limits_hold_for_the_program() {
        let mut limited = order("ulimit -S -t; ulimit -H -t");
        limited.limits[0] = Some((Some(7), Some(9)));
        assert_eq!(run(&limited).0, "7\n9\n");
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_an_error() {
        let null = || File::open("/dev/null").unwrap().into();
        let standard = Standard { input: null(), output: null(), error: null() };
        let mut bad = order("");
        bad.program = b"/no/such/program".into();
        assert_eq!(spawn(&bad, standard).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_order_is_malformed() {
        let (sender, receiver) = packet_pair().unwrap();
        rustix::net::send(&sender, b"hello", SendFlags::empty()).unwrap();
        assert!(matches!(receive_order(receiver.as_fd()).unwrap(), Arrival::Malformed));
        assert!(matches!(receive_order(receiver.as_fd()).unwrap(), Arrival::Empty));
        let bytes = order("x").encode();
        assert_eq!(Order::decode(&bytes), Some(order("x")));
        assert!((0..bytes.len()).all(|end| Order::decode(&bytes[..end]).is_none()));
        assert!(receiver.as_raw_fd() > 2);
    }
}
