/*
 * evenkeel-php: runs PHP scripts for Evenkeel. One binary per minor version of PHP, linked to the
 * library that Debian's libphp8.2-embed provides.
 *
 * The process that the server starts is the zygote of a pool. It starts PHP once (php.ini,
 * extensions, opcache, preloading) and never runs a script. At the server's command it forks
 * workers. A worker accepts one connection at a time from the pool's listening socket and serves
 * one FastCGI request on it. It keeps a few of its connections: a thread of the server that has
 * claimed the worker sends its next request on one of them. Scripts see the interface
 * `apache2handler`.
 *
 * Descriptors at the start: 0 the listening socket, 1 the channel to the server, 2 the error log.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <SAPI.h>
#include <php.h>
#include <php_ini.h>
#include <php_main.h>
#include <php_variables.h>
#include <rfc1867.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/head.h>
#include <ext/standard/info.h>
#include <zend_highlight.h>
#include <zend_signal.h>
#include <zend_smart_str.h>

#define STRING(x) #x
#define TEXT(x) STRING(x)

/* ---- Bounds ---- */

/* The maximum size of the parameters of a request in bytes. With Apache's default limits a request
 * head is far shorter. */
#define MOST_PARAMS (16 << 20)
/* The memory for parameters that a worker keeps for its next request. */
#define KEPT_PARAMS (256 << 10)
/* Output that is held back until it is flushed or the script ends. */
#define OUTPUT 65528
/* The longest message to the error log, and to the slow log with so many frames. */
#define MOST_MESSAGE 8192
#define MOST_FRAMES 20
/* Workers of a zygote. */
#define MOST_SEATS 4096
/* Notes and variables that a script may hand back to the server, in bytes. */
#define MOST_REPORT 16384
/* Seconds in which the server must send a whole head, and the next part of a body. Any process of
 * the server's user can connect. It cannot keep a worker longer by sending single bytes. */
#define HEAD_SECONDS 10
#define BODY_SECONDS 60
/* Milliseconds in which a thread that has claimed the worker must begin to send. It has the request
 * ready, so only one that was stopped takes as long. */
#define CLAIM_MS 1000
/* Microseconds. A worker does not check whether the client of a younger request has left. */
#define SOON_US 50000
/* Connections that a worker keeps. A worker with MOST_KEPT of them replaces the one that has been
 * unused the longest, if that is DISUSED_US microseconds or more, and closes a new one otherwise. */
#define MOST_KEPT 32
#define DISUSED_US 10000000
/* Milliseconds that workers have to finish once the server is gone. */
#define ORPHAN_MS 8000

/* ---- FastCGI (specification 1.0, section 8) ---- */

enum {
    FCGI_BEGIN = 1, FCGI_ABORT = 2, FCGI_END = 3, FCGI_PARAMS = 4, FCGI_STDIN = 5,
    FCGI_STDOUT = 6, FCGI_STDERR = 7,
    /* Evenkeel's own: what the request has cost, and the script's notes and variables. */
    EVENKEEL_REPORT = 100
};
enum { FCGI_RESPONDER = 1, FCGI_KEEP = 1, FCGI_HEADER = 8 };

/* ---- The worker's page, which the server maps too ---- */

enum { STARTING = 0, IDLE = 1, BUSY = 2, DRAINING = 3 };

/* crates/sys/src/application.rs reads it: the order and the widths are a contract. Only the worker
 * writes, but for the last field. */
struct page {
    _Atomic uint32_t state;
    _Atomic uint32_t sequence; /* odd while `script` changes */
    _Atomic uint64_t began_us; /* CLOCK_MONOTONIC at the accept of the request in progress */
    _Atomic uint64_t requests;
    _Atomic uint64_t cpu_us;   /* sums over all requests */
    _Atomic uint64_t ready_us; /* ready to run, but without a core */
    _Atomic uint64_t wait_us;  /* waiting for something else */
    _Atomic uint64_t memory;   /* bytes of its own at the end of the last request */
    _Atomic uint32_t script_length;
    uint32_t unused;
    char script[448];
    /* The server's: the `began_us` of the request whose backtrace it wants. */
    _Atomic uint64_t traced_us;
};

/* ---- Claims of idle workers, in memory that the pool's workers share with the server ---- */

/* crates/sys/src/claims.rs has the other side: the order and the widths are a contract. The first
 * word is not zero when requests may wait at the listening socket. The words of the workers follow,
 * each in a cache line of its own: from the lowest bit on a state of 2 bits, the number of the
 * connection by which the worker is claimed (30), and the process (32). A thread of the server
 * turns FREE into CLAIMED, and may turn it back. Everything else is the worker's. */
enum { TAKEN = 0, FREE = 1, CLAIMED = 2 };
#define CLAIM_STRIDE 8
#define CLAIM_WORDS (CLAIM_STRIDE * (1 + MOST_SEATS))
#define CLAIM_NUMBER 0x3fffffff

static _Atomic uint64_t *claims; /* all words; NULL without a server that claims */
static _Atomic uint64_t *own_claim; /* the worker's; NULL if nobody can claim it */
static uint32_t own_place, own_pid;

/* ---- State ---- */

struct pair {
    char *name, *value;
    uint32_t name_length, value_length;
};

static struct {
    const char *name, *modules;
    uint32_t peer;
    uint64_t most_requests, most_memory;
    bool no_new_privileges, traces;
    struct rlimit processes; /* RLimitNPROC */
    rlim_t files; /* RLIMIT_NOFILE of a new worker */
    int nice; /* AppNice; -1 is the server's own */
    uint8_t secret[16];
} options = { .name = "php", .modules = "", .peer = UINT32_MAX,
    .processes = { RLIM_INFINITY, RLIM_INFINITY }, .nice = -1 };

static int listener = -1, channel = -1, slow_log = -1;
static int events = -1; /* what a worker waits for */
static int nudge = -1; /* an eventfd by which one worker wakes another */
static struct page private_page;
static struct page *page = &private_page;

/* A connection that the worker has kept. */
static struct kept {
    int socket;
    uint32_t number;
    uint64_t used_us;
} kept[MOST_KEPT];
static size_t kept_count;
static uint32_t last_number;

/* The connection in progress. `socket` is -1 when there is none. */
static struct {
    volatile int socket;
    bool broken;     /* the server has gone */
    bool input_done; /* the end of STDIN was read */
    volatile bool head_sent;
    struct kept *kept; /* NULL if it is new */
    bool is_last;      /* whether it carries no further request */
    int patience, patience_set; /* seconds that a receive may wait; those that the socket knows */
    uint64_t deadline_us; /* for the whole head; 0 once it was read */
    uint32_t left, padding; /* of the record of STDIN that is being read */
    size_t start, end;      /* of `input` */
    uint8_t input[65536];
    size_t held; /* bytes of content in `output`, behind room for the header of its record */
    uint8_t output[FCGI_HEADER + OUTPUT + 2 * FCGI_HEADER + FCGI_HEADER + MOST_REPORT + 16];
} connection = { .socket = -1 };

/* The request in progress. */
static struct {
    struct pair *pairs;
    size_t count, pair_room;
    char *text; /* the texts of the pairs, each ended by a NUL */
    size_t text_room;
    uint8_t *raw; /* the parameters as received */
    size_t raw_room, raw_length;
    const char *method, *uri, *script, *headers, *settings, *user;
    uint32_t headers_length, settings_length;
    bool reports, shows_source;
    bool keeps; /* whether the server keeps the connection if the worker does */
    bool is_last; /* whether the worker ends after it */
    bool has_tables; /* whether `notes` and `variables` are those of a request in progress */
    HashTable notes, variables;
    uint64_t began_us;
    uint64_t cpu_us, ready_us; /* the worker's totals at the end of the request before */
    uint64_t cpu_now_us, ready_now_us; /* the totals when they were last read */
    bool is_measured; /* whether end_request has read them for this request */
    bool is_traced; /* whether its backtrace is in the slow log */
} request;

static uint64_t now_us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- Output of the connection ---- */

static void put_header(uint8_t *at, uint8_t kind, size_t length) {
    const uint8_t high = (uint8_t)(length >> 8), low = (uint8_t)length;
    const uint8_t header[FCGI_HEADER] = { 1, kind, 0, 1, high, low, 0, 0 };
    memcpy(at, header, FCGI_HEADER);
}

/* Sends everything, or notes that the server has gone. */
static void transmit(const uint8_t *bytes, size_t length) {
    while (length > 0 && !connection.broken) {
        ssize_t sent = send(connection.socket, bytes, length, MSG_NOSIGNAL);
        if (sent > 0) {
            bytes += sent;
            length -= (size_t)sent;
        } else if (errno != EINTR) {
            connection.broken = true;
        }
    }
}

static void flush_output(void) {
    if (connection.held == 0 || connection.socket < 0) return;
    put_header(connection.output, FCGI_STDOUT, connection.held);
    connection.head_sent = true;
    transmit(connection.output, FCGI_HEADER + connection.held);
    connection.held = 0;
}

static void put_output(const char *bytes, size_t length) {
    while (length > 0) {
        size_t room = OUTPUT - connection.held, part = length < room ? length : room;
        memcpy(connection.output + FCGI_HEADER + connection.held, bytes, part);
        connection.held += part;
        bytes += part;
        length -= part;
        if (connection.held == OUTPUT) flush_output();
    }
}

static uint8_t *put_number(uint8_t *at, uint64_t number) {
    for (int byte = 0; byte < 8; byte++) *at++ = (uint8_t)(number >> (8 * byte));
    return at;
}

/* Appends a pair of a report: a letter for its kind, two lengths, name and value. */
static uint8_t *put_pair(uint8_t *at, const uint8_t *end, char kind, zend_string *name,
    zval *value) {
    size_t name_length = ZSTR_LEN(name), value_length = Z_STRLEN_P(value);
    if (name_length > 0xffff || value_length > 0xffff) return at;
    if ((size_t)(end - at) < 5 + name_length + value_length) return at;
    *at++ = (uint8_t)kind;
    *at++ = (uint8_t)(name_length >> 8), *at++ = (uint8_t)name_length;
    *at++ = (uint8_t)(value_length >> 8), *at++ = (uint8_t)value_length;
    memcpy(at, ZSTR_VAL(name), name_length);
    at += name_length;
    memcpy(at, Z_STRVAL_P(value), value_length);
    return at + value_length;
}

/* The worker's files in /proc, which it opens when it starts. */
static struct {
    int schedstat, statm;
} accounts = { -1, -1 };

/* Ready without a core: the second number of schedstat, in nanoseconds (sched-stats.rst). */
static uint64_t ready_us(void) {
    char text[96];
    ssize_t length = pread(accounts.schedstat, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    char *space = strchr(text, ' ');
    return space ? strtoull(space, NULL, 10) / 1000 : 0;
}

/* ---- Kept connections ---- */

static struct kept *kept_of(uint32_t number) {
    for (size_t at = 0; at < kept_count; at++) {
        if (kept[at].number == number) return &kept[at];
    }
    return NULL;
}

static void close_kept(struct kept *one) {
    /* What a script has forked may have the connection too, which would then stay in the set. */
    epoll_ctl(events, EPOLL_CTL_DEL, one->socket, NULL);
    close(one->socket);
    *one = kept[--kept_count];
}

/* Closes the connection in progress. */
static void hang_up(void) {
    int socket = connection.socket;
    connection.socket = -1;
    if (connection.kept) close_kept(connection.kept);
    else close(socket);
    connection.kept = NULL;
}

/* Skips the received part of the body. Returns whether the input ends exactly with the body. */
static bool is_input_done(void) {
    size_t at = connection.start, skipped = connection.left + connection.padding;
    while (!connection.input_done) {
        if (connection.end - at < skipped + FCGI_HEADER) return false;
        const uint8_t *header = connection.input + at + skipped;
        if (header[0] != 1 || header[1] != FCGI_STDIN) return false;
        size_t length = (size_t)header[4] << 8 | header[5];
        at += skipped + FCGI_HEADER;
        skipped = length + header[6];
        connection.input_done = length == 0;
    }
    return at + skipped == connection.end;
}

/* Keeps the connection in progress if it can carry another request. */
static bool keep_connection(void) {
    if (!own_claim || !request.keeps || !request.reports || request.is_last) return false;
    if (connection.is_last || connection.broken || !is_input_done()) return false;
    uint64_t now = now_us(CLOCK_MONOTONIC);
    if (!connection.kept) {
        struct kept *oldest = &kept[0];
        for (size_t at = 1; at < kept_count; at++) {
            if (kept[at].used_us < oldest->used_us) oldest = &kept[at];
        }
        if (kept_count == MOST_KEPT) {
            if (now - oldest->used_us < DISUSED_US) return false;
            close_kept(oldest);
        }
        last_number = last_number % CLAIM_NUMBER + 1;
        struct epoll_event event = { .events = EPOLLIN,
            .data.u64 = (uint64_t)last_number << 32 };
        if (epoll_ctl(events, EPOLL_CTL_ADD, connection.socket, &event) != 0) return false;
        kept[kept_count] = (struct kept){ connection.socket, last_number, now };
        connection.kept = &kept[kept_count++];
    }
    connection.kept->used_us = now;
    return true;
}

/* Appends a pair of a report: how the server claims the worker by this connection. */
static uint8_t *put_link(uint8_t *at) {
    const uint32_t numbers[3] = { own_place, own_pid, connection.kept->number };
    memcpy(at, "k\0\0\0\x0c", 5);
    at += 5;
    for (int byte = 0; byte < 12; byte++) *at++ = (uint8_t)(numbers[byte / 4] >> (8 * (byte % 4)));
    return at;
}

/* Lets threads of the server claim the worker. */
static void offer(void) {
    if (!own_claim) return;
    uint64_t taken = (uint64_t)own_pid << 32 | TAKEN, free = (uint64_t)own_pid << 32 | FREE;
    if (!atomic_compare_exchange_strong(own_claim, &taken, free)) own_claim = NULL;
}

/* Withdraws the offer. Returns the connection of the thread that has claimed the worker, or NULL. A
 * thread cannot revoke its claim after this call. */
static struct kept *withdraw(void) {
    const uint64_t taken = (uint64_t)own_pid << 32 | TAKEN;
    uint64_t word = own_claim ? atomic_load(own_claim) : 0;
    while (own_claim) {
        /* A worker whose server takes it for dead has lost its place. It works on without one. */
        if (word >> 32 != own_pid) own_claim = NULL;
        else if (atomic_compare_exchange_strong(own_claim, &word, taken)) {
            return (word & 3) == CLAIMED ? kept_of((uint32_t)(word >> 2) & CLAIM_NUMBER) : NULL;
        }
    }
    return NULL;
}

/* Reads the worker's CPU time, and its time ready without a core. */
static void measure(void) {
    request.cpu_now_us = now_us(CLOCK_PROCESS_CPUTIME_ID);
    request.ready_now_us = ready_us();
}

/* Sends what is held, the end of the output, the report and the end of the request with one call,
 * and closes the connection, or keeps it. */
static void end_request(void) {
    if (connection.socket < 0) return;
    measure();
    request.is_measured = true;
    uint64_t cpu = request.cpu_now_us - request.cpu_us;
    uint64_t ready = request.ready_now_us - request.ready_us;
    uint64_t wall = now_us(CLOCK_MONOTONIC) - request.began_us;
    bool keeps = keep_connection();
    uint8_t *at = connection.output;
    if (connection.held > 0) {
        put_header(at, FCGI_STDOUT, connection.held);
        at += FCGI_HEADER + connection.held;
    }
    put_header(at, FCGI_STDOUT, 0);
    at += FCGI_HEADER;
    if (request.reports) {
        uint8_t *content = at + FCGI_HEADER, *end = content + MOST_REPORT, *last = content;
        last = put_number(last, cpu);
        last = put_number(last, ready);
        last = put_number(last, wall);
        last = put_number(last, zend_memory_peak_usage(true));
        if (keeps) last = put_link(last);
        zend_string *name;
        zval *value;
        ZEND_HASH_FOREACH_STR_KEY_VAL(&request.notes, name, value) {
            last = put_pair(last, end, 'n', name, value);
        } ZEND_HASH_FOREACH_END();
        ZEND_HASH_FOREACH_STR_KEY_VAL(&request.variables, name, value) {
            last = put_pair(last, end, 'e', name, value);
        } ZEND_HASH_FOREACH_END();
        put_header(at, EVENKEEL_REPORT, (size_t)(last - content));
        at = last;
    }
    put_header(at, FCGI_END, 8);
    memset(at + FCGI_HEADER, 0, 8);
    at += FCGI_HEADER + 8;
    connection.head_sent = true;
    transmit(connection.output, (size_t)(at - connection.output));
    connection.held = 0;
    if (!keeps || connection.broken) hang_up();
    connection.socket = -1;
    connection.kept = NULL;
}

/* Copies a text for a log, with control characters, backslashes and bytes beyond ASCII as Apache
 * escapes them (ap_escape_errorlog_item), so that a script cannot write lines of its own. The copy
 * ends with a NUL. */
static const char *escaped(char *to, size_t room, const char *text, size_t length) {
    char *at = to;
    for (size_t next = 0; next < length && room - (size_t)(at - to) > 4; next++) {
        unsigned char byte = (unsigned char)text[next];
        if (byte >= 0x20 && byte < 0x7f && byte != '\\') *at++ = (char)byte;
        else if (byte == '\n' || byte == '\\') *at++ = '\\', *at++ = byte == '\n' ? 'n' : '\\';
        else at += sprintf(at, "\\x%02x", byte);
    }
    *at = 0;
    return to;
}

/* Writes a message to the error log, at a level of syslog(3). During a request, the message goes to
 * the server as a record of STDERR. Otherwise the worker writes the line itself. */
static void log_line(int level, const char *text) {
    size_t length = strlen(text);
    if (length > MOST_MESSAGE) length = MOST_MESSAGE;
    uint8_t record[FCGI_HEADER + 3 + MOST_MESSAGE];
    if (connection.socket >= 0 && !connection.broken) {
        put_header(record, FCGI_STDERR, 3 + length);
        record[FCGI_HEADER] = '<';
        record[FCGI_HEADER + 1] = (uint8_t)('0' + (level & 7));
        record[FCGI_HEADER + 2] = '>';
        memcpy(record + FCGI_HEADER + 3, text, length);
        transmit(record, FCGI_HEADER + 3 + length);
        return;
    }
    static const char *const levels[8] = { "emerg", "alert", "crit", "error", "warn", "notice",
        "info", "debug" };
    char date[64], safe[MOST_MESSAGE], line[MOST_MESSAGE + 256];
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(date, sizeof date, "%a %b %d %H:%M:%S %Y", &parts);
    int written = snprintf(line, sizeof line, "[%s] [php:%s] [pid %d] pool %s: %s\n", date,
        levels[level & 7], getpid(), options.name, escaped(safe, sizeof safe, text, length));
    if (written > 0) {
        size_t size = (size_t)written < sizeof line ? (size_t)written : sizeof line - 1;
        /* A log that cannot be written has nobody to be told of. */
        if (write(2, line, size) < 0) return;
    }
}

/* ---- Input of the connection ---- */

/* How long the socket lets a receive wait for now. */
static void be_patient(void) {
    if (connection.patience_set == connection.patience) return;
    struct timeval patience = { .tv_sec = connection.patience };
    setsockopt(connection.socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connection.patience_set = connection.patience;
}

/* Receives more input behind what is left. False at the end or after too long. */
static bool receive(void) {
    if (connection.start == connection.end) connection.start = connection.end = 0;
    if (connection.end == sizeof connection.input) {
        memmove(connection.input, connection.input + connection.start,
            connection.end - connection.start);
        connection.end -= connection.start;
        connection.start = 0;
    }
    if (connection.end == sizeof connection.input) return false;
    /* A request has usually arrived whole, so that the socket needs no timeout. */
    for (int flags = MSG_DONTWAIT;;) {
        ssize_t count = recv(connection.socket, connection.input + connection.end,
            sizeof connection.input - connection.end, flags);
        if (count > 0) {
            connection.end += (size_t)count;
            return true;
        }
        bool is_empty = count < 0 && errno == EAGAIN && flags == MSG_DONTWAIT;
        if (!is_empty && (count == 0 || errno != EINTR)) return false;
        if (connection.deadline_us && now_us(CLOCK_MONOTONIC) >= connection.deadline_us) {
            return false;
        }
        if (is_empty) be_patient(), flags = 0;
    }
}

static bool need(size_t bytes) {
    while (connection.end - connection.start < bytes) {
        if (!receive()) return false;
    }
    return true;
}

/* Reads one header of a record. */
static bool read_header(uint8_t *kind, uint32_t *length, uint32_t *padding) {
    if (!need(FCGI_HEADER)) return false;
    const uint8_t *at = connection.input + connection.start;
    *kind = at[1];
    *length = (uint32_t)at[4] << 8 | at[5];
    *padding = at[6];
    bool is_ours = at[0] == 1 && at[2] == 0 && at[3] == 1;
    connection.start += FCGI_HEADER;
    return is_ours;
}

/* Copies bytes of content out of the input, however many receives that takes. */
static bool take(uint8_t *to, size_t length) {
    while (length > 0) {
        if (!need(1)) return false;
        size_t there = connection.end - connection.start, part = there < length ? there : length;
        if (to) {
            memcpy(to, connection.input + connection.start, part);
            to += part;
        }
        connection.start += part;
        length -= part;
    }
    return true;
}

static bool read_length(const uint8_t **at, const uint8_t *end, uint32_t *length) {
    if (*at == end) return false;
    if ((**at & 0x80) == 0) {
        *length = *(*at)++;
        return true;
    }
    if (end - *at < 4) return false;
    uint32_t high = (uint32_t)((*at)[0] & 0x7f) << 24 | (uint32_t)(*at)[1] << 16;
    *length = high | (uint32_t)(*at)[2] << 8 | (*at)[3];
    *at += 4;
    return true;
}

/* Frees the memory of a request with very many parameters. */
static void free_large_params(void) {
    if (request.raw_room <= KEPT_PARAMS) return;
    free(request.raw), free(request.text), free(request.pairs);
    request.raw = NULL, request.text = NULL, request.pairs = NULL;
    request.raw_room = request.text_room = request.pair_room = request.count = 0;
}

/* Splits the parameters into pairs. */
static bool split_pairs(void) {
    /* Each pair has two lengths of at least one byte: room for the NULs of its texts. */
    size_t room = request.raw_length + 1;
    if (room > request.text_room) {
        char *larger = realloc(request.text, room);
        if (!larger) return false;
        request.text = larger, request.text_room = room;
    }
    const uint8_t *at = request.raw, *end = at + request.raw_length;
    char *to = request.text;
    request.count = 0;
    while (at < end) {
        uint32_t name, value;
        if (!read_length(&at, end, &name) || !read_length(&at, end, &value)) return false;
        if ((size_t)(end - at) < (size_t)name + value) return false;
        if (request.count == request.pair_room) {
            size_t pairs = request.pair_room ? 2 * request.pair_room : 128;
            struct pair *larger = realloc(request.pairs, pairs * sizeof *larger);
            if (!larger) return false;
            request.pairs = larger, request.pair_room = pairs;
        }
        struct pair *pair = &request.pairs[request.count++];
        *pair = (struct pair){ to, to + name + 1, name, value };
        memcpy(pair->name, at, name);
        pair->name[name] = 0;
        memcpy(pair->value, at + name, value);
        pair->value[value] = 0;
        at += name + value;
        to += (size_t)name + value + 2;
    }
    return true;
}

/* Reads BEGIN_REQUEST and PARAMS. */
static bool read_params(void) {
    uint8_t kind, begin[8];
    uint32_t length, padding;
    if (!read_header(&kind, &length, &padding) || kind != FCGI_BEGIN || length != 8) return false;
    if (!take(begin, 8) || !take(NULL, padding) || begin[1] != FCGI_RESPONDER) return false;
    request.keeps = (begin[2] & FCGI_KEEP) != 0;
    request.raw_length = 0;
    for (;;) {
        if (!read_header(&kind, &length, &padding) || kind != FCGI_PARAMS) return false;
        if (length == 0) break;
        size_t wanted = request.raw_length + length;
        if (wanted > MOST_PARAMS) {
            log_line(3, "a request has more than 16 MiB of parameters");
            return false;
        }
        if (wanted > request.raw_room) {
            size_t room = wanted < 16384 ? 16384 : 2 * wanted;
            uint8_t *larger = realloc(request.raw, room);
            if (!larger) return false;
            request.raw = larger, request.raw_room = room;
        }
        if (!take(request.raw + request.raw_length, length) || !take(NULL, padding)) return false;
        request.raw_length = wanted;
    }
    return take(NULL, padding) && split_pairs();
}

static const struct pair *find(const char *name) {
    size_t length = strlen(name);
    for (size_t at = 0; at < request.count; at++) {
        const struct pair *pair = &request.pairs[at];
        if (pair->name_length == length && memcmp(pair->name, name, length) == 0) return pair;
    }
    return NULL;
}

static const char *value_of(const char *name) {
    const struct pair *pair = find(name);
    return pair ? pair->value : NULL;
}

/* Scripts must not see what only passes between the server and this program. */
static bool is_private(const struct pair *pair) {
    return pair->name_length > 9 && memcmp(pair->name, "EVENKEEL_", 9) == 0;
}

/* The secret keeps other programs of the server's user from running code here. */
static bool is_trusted(void) {
    const struct pair *pair = find("EVENKEEL_SECRET");
    uint8_t difference = !pair || pair->value_length != sizeof options.secret;
    for (size_t at = 0; !difference && at < sizeof options.secret; at++) {
        difference |= (uint8_t)pair->value[at] ^ options.secret[at];
    }
    return !difference;
}

/* The next bytes of the body. The server sends it whole, with its length. */
static size_t read_body(char *to, size_t most) {
    size_t taken = 0;
    while (taken < most && !connection.input_done && !connection.broken) {
        if (connection.left == 0) {
            uint8_t kind = 0;
            uint32_t length = 0;
            bool is_read = take(NULL, connection.padding)
                && read_header(&kind, &length, &connection.padding) && kind == FCGI_STDIN;
            if (!is_read || length == 0) {
                connection.input_done = true;
                connection.broken |= !is_read;
                break;
            }
            connection.left = length;
        }
        size_t part = most - taken < connection.left ? most - taken : connection.left;
        if (!take((uint8_t *)to + taken, part)) {
            connection.broken = connection.input_done = true;
            break;
        }
        taken += part;
        connection.left -= (uint32_t)part;
    }
    return taken;
}

/* ---- PHP's interface to the server ---- */

static int module_startup(sapi_module_struct *module);

static size_t on_write(const char *text, size_t length) {
    if (connection.socket < 0) return length; /* after fastcgi_finish_request */
    put_output(text, length);
    if (connection.broken) php_handle_aborted_connection();
    return length;
}

static void on_flush(void *context) {
    (void)context;
    if (connection.socket < 0) return;
    sapi_send_headers();
    SG(headers_sent) = 1;
    flush_output();
    if (connection.broken) php_handle_aborted_connection();
}

/* Tells the server the variables that the script has set, because filters of the response read
 * some: `no-gzip`, which MediaWiki sets, keeps mod_deflate from compressing it. */
static void tell_variables(void) {
    static uint8_t record[FCGI_HEADER + MOST_REPORT];
    if (!request.reports || !request.has_tables) return;
    if (zend_hash_num_elements(&request.variables) == 0) return;
    uint8_t *last = record + FCGI_HEADER;
    zend_string *name;
    zval *value;
    ZEND_HASH_FOREACH_STR_KEY_VAL(&request.variables, name, value) {
        last = put_pair(last, record + sizeof record, 'e', name, value);
    } ZEND_HASH_FOREACH_END();
    put_header(record, EVENKEEL_REPORT, (size_t)(last - record) - FCGI_HEADER);
    transmit(record, (size_t)(last - record));
}

static int on_send_headers(sapi_headers_struct *headers) {
    if (connection.socket < 0) return SAPI_HEADER_SENT_SUCCESSFULLY;
    tell_variables();
    int code = SG(sapi_headers).http_response_code;
    const char *line = SG(sapi_headers).http_status_line;
    char status[16];
    const char *text = line ? strchr(line, ' ') : NULL;
    put_output("Status: ", 8);
    if (text && strncasecmp(line, "HTTP/1.", 7) == 0) {
        put_output(text + 1, strcspn(text + 1, "\r\n"));
    } else {
        int length = snprintf(status, sizeof status, "%d", code ? code : 200);
        put_output(status, (size_t)length);
    }
    put_output("\r\n", 2);
    zend_llist_position position;
    sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &position);
    for (; header; header = zend_llist_get_next_ex(&headers->headers, &position)) {
        if (header->header_len == 0) continue;
        put_output(header->header, header->header_len);
        put_output("\r\n", 2);
    }
    put_output("\r\n", 2);
    return SAPI_HEADER_SENT_SUCCESSFULLY;
}

static size_t on_read_body(char *buffer, size_t most) {
    if (connection.socket < 0) return 0;
    return read_body(buffer, most);
}

/* The value of a field of the request as the client has sent it, in PHP's memory. */
static char *field(const char *wanted) {
    size_t length = strlen(wanted);
    const char *at = request.headers, *end = at + request.headers_length;
    smart_str all = { 0 };
    while (at && at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        bool is_long = (size_t)(line_end - at) > length;
        if (is_long && at[length] == ':' && strncasecmp(at, wanted, length) == 0) {
            if (all.s) smart_str_appends(&all, strcasecmp(wanted, "cookie") == 0 ? "; " : ", ");
            smart_str_appendl(&all, at + length + 1, (size_t)(line_end - at) - length - 1);
        }
        at = line_end + 1;
    }
    if (!all.s) return NULL;
    smart_str_0(&all);
    char *copy = estrndup(ZSTR_VAL(all.s), ZSTR_LEN(all.s));
    smart_str_free(&all);
    return copy;
}

static char *on_read_cookies(void) {
    return field("Cookie");
}

static char *on_getenv(const char *name, size_t length) {
    /* What apache_setenv has set comes first. */
    zval *set = request.has_tables ? zend_hash_str_find(&request.variables, name, length) : NULL;
    if (set) return Z_STRVAL_P(set);
    for (size_t at = 0; at < request.count; at++) {
        const struct pair *pair = &request.pairs[at];
        if (pair->name_length != length || is_private(pair)) continue;
        if (memcmp(pair->name, name, length) == 0) return pair->value;
    }
    return NULL;
}

static void register_variable(const char *name, char *value, size_t length, zval *variables) {
    size_t new_length = length;
    if (sapi_module.input_filter(PARSE_SERVER, name, &value, length, &new_length)) {
        php_register_variable_safe(name, value, new_length, variables);
    }
}

static void on_register_variables(zval *variables) {
    for (size_t at = 0; at < request.count; at++) {
        const struct pair *pair = &request.pairs[at];
        if (is_private(pair)) continue;
        char *value = estrndup(pair->value, pair->value_length);
        register_variable(pair->name, value, pair->value_length, variables);
        efree(value);
    }
    char *self = estrdup(request.uri);
    register_variable("PHP_SELF", self, strlen(self), variables);
    efree(self);
}

static void on_log(const char *message, int level) {
    log_line(level, message);
}

static zend_result on_request_time(double *time) {
    const char *began = value_of("EVENKEEL_TIME_US");
    if (!began) return FAILURE;
    *time = (double)strtoull(began, NULL, 10) / 1e6;
    return SUCCESS;
}

/* The last step of a request that still has its memory: all output is there. */
static int on_deactivate(void) {
    end_request();
    request.has_tables = false;
    return SUCCESS;
}

static int on_get_fd(int *fd) {
    *fd = connection.socket;
    return connection.socket < 0 ? FAILURE : SUCCESS;
}

static int on_force_http_10(void) {
    SG(request_info).proto_num = 1000;
    return SUCCESS;
}

static int on_target_uid(uid_t *uid) {
    *uid = getuid();
    return SUCCESS;
}

static int on_target_gid(gid_t *gid) {
    *gid = getgid();
    return SUCCESS;
}

/* ---- The slow log ---- */

/* Where a frame is: its own line, or for a function of PHP's that of its caller. */
static const zend_execute_data *place_of(const zend_execute_data *frame) {
    while (frame && !(frame->func && ZEND_USER_CODE(frame->func->type))) {
        frame = frame->prev_execute_data;
    }
    return frame;
}

/* Writes the backtrace of a request that takes long, once, in the form of php-fpm's slow log. */
static void trace_if_asked(void) {
    uint64_t wanted = atomic_load_explicit(&page->traced_us, memory_order_relaxed);
    if (wanted != request.began_us || request.is_traced || slow_log < 0) return;
    request.is_traced = true;
    char text[MOST_MESSAGE], name_of_file[1024];
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    size_t length = strftime(text, sizeof text, "\n[%d-%b-%Y %H:%M:%S]", &parts);
    length += (size_t)snprintf(text + length, sizeof text - length,
        "  [pool %.64s] pid %d\nscript_filename = %s\n", options.name, getpid(),
        escaped(name_of_file, sizeof name_of_file, request.script, strlen(request.script)));
    const zend_execute_data *frame = EG(current_execute_data);
    for (int depth = 0; frame && depth < MOST_FRAMES; frame = frame->prev_execute_data) {
        const zend_execute_data *place = place_of(frame);
        if (!frame->func || !place || sizeof text - length < 1024) continue;
        const zend_string *name = frame->func->common.function_name;
        const zend_class_entry *class = frame->func->common.scope;
        length += (size_t)snprintf(text + length, sizeof text - length,
            "[0x%016jx] %.128s%s%.128s() %.512s:%u\n", (uintmax_t)(uintptr_t)frame,
            name && class ? ZSTR_VAL(class->name) : "", name && class ? "::" : "",
            name ? ZSTR_VAL(name) : "{main}",
            escaped(name_of_file, 512, ZSTR_VAL(place->func->op_array.filename),
                ZSTR_LEN(place->func->op_array.filename)),
            place->opline->lineno);
        depth++;
    }
    /* A log that cannot be written has nobody to be told of. */
    if (write(slow_log, text, length) < 0) return;
}

static void (*inner_internal)(zend_execute_data *call, zval *result);
static void (*inner_interrupt)(zend_execute_data *frame);

/* A function of PHP's that has taken long is in the backtrace when it returns: interrupting what it
 * waits for would change what the script sees. */
static void on_internal(zend_execute_data *call, zval *result) {
    if (inner_internal) inner_internal(call, result);
    else execute_internal(call, result);
    trace_if_asked();
}

static void on_interrupt(zend_execute_data *frame) {
    trace_if_asked();
    if (inner_interrupt) inner_interrupt(frame);
}

/* SIGRTMIN + 3: code of the script itself is interrupted at its next jump or call. */
static void on_trace(int signal) {
    (void)signal;
#if PHP_VERSION_ID >= 80200
    zend_atomic_bool_store_ex(&EG(vm_interrupt), true);
#else
    EG(vm_interrupt) = 1;
#endif
}

/* Before anything is compiled: scripts that are compiled without it do not call it. */
static void prepare_traces(void) {
    inner_internal = zend_execute_internal;
    zend_execute_internal = on_internal;
}

/* ---- Functions and settings of the extension `apache2handler` ---- */

/* Adds the fields of the request, in the names of the client. */
PHP_FUNCTION(apache_request_headers) {
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    const char *at = request.headers, *end = at + request.headers_length;
    while (at && at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        const char *colon = memchr(at, ':', (size_t)(line_end - at));
        if (colon) {
            zval value;
            ZVAL_STRINGL(&value, colon + 1, (size_t)(line_end - colon) - 1);
            zend_symtable_str_update(Z_ARRVAL_P(return_value), at, (size_t)(colon - at), &value);
        }
        at = line_end + 1;
    }
}

PHP_FUNCTION(apache_response_headers) {
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    zend_llist_position position;
    sapi_header_struct *header = zend_llist_get_first_ex(&SG(sapi_headers).headers, &position);
    for (; header; header = zend_llist_get_next_ex(&SG(sapi_headers).headers, &position)) {
        const char *end = header->header + header->header_len;
        const char *colon = memchr(header->header, ':', header->header_len);
        /* The media type is no field before the response is sent. */
        if (!colon) continue;
        size_t name_length = (size_t)(colon - header->header);
        if (name_length == 12 && strncasecmp(header->header, "Content-Type", 12) == 0) continue;
        do colon++; while (colon < end && *colon == ' ');
        add_assoc_stringl_ex(return_value, header->header, name_length, colon,
            (size_t)(end - colon));
    }
}

PHP_FUNCTION(apache_note) {
    zend_string *name, *value = NULL;
    ZEND_PARSE_PARAMETERS_START(1, 2)
        Z_PARAM_STR(name)
        Z_PARAM_OPTIONAL
        Z_PARAM_STR_OR_NULL(value)
    ZEND_PARSE_PARAMETERS_END();
    zval *old = zend_hash_find(&request.notes, name);
    if (old) {
        ZVAL_COPY(return_value, old);
    } else {
        ZVAL_FALSE(return_value);
    }
    if (value) {
        zval new_value;
        ZVAL_STR_COPY(&new_value, value);
        zend_hash_update(&request.notes, name, &new_value);
    }
}

/* The variables of the server's environment that the script has set, or the server. */
PHP_FUNCTION(apache_setenv) {
    zend_string *name, *value;
    bool walk_to_top = false;
    ZEND_PARSE_PARAMETERS_START(2, 3)
        Z_PARAM_STR(name)
        Z_PARAM_STR(value)
        Z_PARAM_OPTIONAL
        Z_PARAM_BOOL(walk_to_top)
    ZEND_PARSE_PARAMETERS_END();
    zval new_value;
    ZVAL_STR_COPY(&new_value, value);
    zend_hash_update(&request.variables, name, &new_value);
    RETURN_TRUE;
}

PHP_FUNCTION(apache_getenv) {
    zend_string *name;
    bool walk_to_top = false;
    ZEND_PARSE_PARAMETERS_START(1, 2)
        Z_PARAM_STR(name)
        Z_PARAM_OPTIONAL
        Z_PARAM_BOOL(walk_to_top)
    ZEND_PARSE_PARAMETERS_END();
    zval *set = zend_hash_find(&request.variables, name);
    if (set) RETURN_COPY(set);
    const char *value = on_getenv(ZSTR_VAL(name), ZSTR_LEN(name));
    if (!value) RETURN_FALSE;
    RETURN_STRING(value);
}

PHP_FUNCTION(apache_get_version) {
    ZEND_PARSE_PARAMETERS_NONE();
    const char *version = value_of("SERVER_SOFTWARE");
    if (!version) RETURN_FALSE;
    RETURN_STRING(version);
}

PHP_FUNCTION(apache_get_modules) {
    ZEND_PARSE_PARAMETERS_NONE();
    array_init(return_value);
    const char *at = options.modules;
    while (*at) {
        size_t length = strcspn(at, " ");
        add_next_index_stringl(return_value, at, length);
        at += length + (at[length] == ' ');
    }
}

static void cannot(const char *function) {
    php_error_docref(NULL, E_WARNING, "%s() would ask the server for another request, which this "
        "server does not do for scripts", function);
}

PHP_FUNCTION(virtual) {
    zend_string *uri;
    ZEND_PARSE_PARAMETERS_START(1, 1)
        Z_PARAM_STR(uri)
    ZEND_PARSE_PARAMETERS_END();
    cannot("virtual");
    RETURN_FALSE;
}

PHP_FUNCTION(apache_lookup_uri) {
    zend_string *uri;
    ZEND_PARSE_PARAMETERS_START(1, 1)
        Z_PARAM_STR(uri)
    ZEND_PARSE_PARAMETERS_END();
    cannot("apache_lookup_uri");
    RETURN_FALSE;
}

/* Ends the response, so that the client has it, while the script goes on (as php-fpm). */
PHP_FUNCTION(fastcgi_finish_request) {
    ZEND_PARSE_PARAMETERS_NONE();
    if (connection.socket < 0) RETURN_FALSE;
    php_output_end_all();
    php_header();
    end_request();
    request.is_measured = false;
    RETURN_TRUE;
}

ZEND_BEGIN_ARG_INFO_EX(arguments_none, 0, 0, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arguments_uri, 0, 0, 1)
    ZEND_ARG_TYPE_INFO(0, uri, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arguments_note, 0, 0, 1)
    ZEND_ARG_TYPE_INFO(0, note_name, IS_STRING, 0)
    ZEND_ARG_TYPE_INFO(0, note_value, IS_STRING, 1)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arguments_setenv, 0, 0, 2)
    ZEND_ARG_TYPE_INFO(0, variable, IS_STRING, 0)
    ZEND_ARG_TYPE_INFO(0, value, IS_STRING, 0)
    ZEND_ARG_TYPE_INFO(0, walk_to_top, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_INFO_EX(arguments_getenv, 0, 0, 1)
    ZEND_ARG_TYPE_INFO(0, variable, IS_STRING, 0)
    ZEND_ARG_TYPE_INFO(0, walk_to_top, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
    PHP_FE(apache_request_headers, arguments_none)
    PHP_FALIAS(getallheaders, apache_request_headers, arguments_none)
    PHP_FE(apache_response_headers, arguments_none)
    PHP_FE(apache_note, arguments_note)
    PHP_FE(apache_setenv, arguments_setenv)
    PHP_FE(apache_getenv, arguments_getenv)
    PHP_FE(apache_get_version, arguments_none)
    PHP_FE(apache_get_modules, arguments_none)
    PHP_FE(apache_lookup_uri, arguments_uri)
    PHP_FE(virtual, arguments_uri)
    PHP_FE(fastcgi_finish_request, arguments_none)
    PHP_FE_END
};

PHP_INI_BEGIN()
    PHP_INI_ENTRY("xbithack", "0", PHP_INI_ALL, NULL)
    PHP_INI_ENTRY("engine", "1", PHP_INI_ALL, NULL)
    PHP_INI_ENTRY("last_modified", "0", PHP_INI_ALL, NULL)
PHP_INI_END()

static PHP_MINIT_FUNCTION(apache2handler) {
    (void)type;
    REGISTER_INI_ENTRIES();
    if (options.traces) prepare_traces();
    return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(apache2handler) {
    (void)type;
    UNREGISTER_INI_ENTRIES();
    return SUCCESS;
}

static PHP_MINFO_FUNCTION(apache2handler) {
    const char *software = value_of("SERVER_SOFTWARE");
    php_info_print_table_start();
    php_info_print_table_row(2, "Server", software ? software : "Evenkeel");
    php_info_print_table_row(2, "Pool", options.name);
    php_info_print_table_end();
    DISPLAY_INI_ENTRIES();
    (void)zend_module;
}

static zend_module_entry extension = {
    STANDARD_MODULE_HEADER,
    "apache2handler",
    functions,
    PHP_MINIT(apache2handler),
    PHP_MSHUTDOWN(apache2handler),
    NULL,
    NULL,
    PHP_MINFO(apache2handler),
    PHP_VERSION,
    STANDARD_MODULE_PROPERTIES
};

static int (*inner_extensions)(void);

/* Registers PHP's built-in extensions except pcntl, which libphp contains and mod_php does not. If
 * a script forked, the copy of the worker would serve requests too. */
static int register_extensions(void) {
    int result = inner_extensions();
    zend_module_entry *pcntl = zend_hash_str_find_ptr(&module_registry, "pcntl", 5);
    if (pcntl) {
        if (pcntl->functions) zend_unregister_functions(pcntl->functions, -1, NULL);
        zend_hash_str_del(&module_registry, "pcntl", 5);
    }
    return result;
}

static int module_startup(sapi_module_struct *module) {
    if (!inner_extensions) {
        inner_extensions = php_register_internal_extensions_func;
        php_register_internal_extensions_func = register_extensions;
    }
#if PHP_VERSION_ID >= 80200
    return php_module_startup(module, &extension);
#else
    return php_module_startup(module, &extension, 1);
#endif
}

/* opcache starts only under names that it knows (ZendAccelerator.c: accel_find_sapi), and scripts
 * ask for this one. */
static sapi_module_struct sapi = {
    .name = "apache2handler",
    .pretty_name = "Apache 2.0 Handler",
    .startup = module_startup,
    .deactivate = on_deactivate,
    .shutdown = php_module_shutdown_wrapper,
    .ub_write = on_write,
    .flush = on_flush,
    .getenv = on_getenv,
    .sapi_error = php_error,
    .send_headers = on_send_headers,
    .read_post = on_read_body,
    .read_cookies = on_read_cookies,
    .register_server_variables = on_register_variables,
    .log_message = on_log,
    .get_request_time = on_request_time,
    .get_fd = on_get_fd,
    .force_http_10 = on_force_http_10,
    .get_target_uid = on_target_uid,
    .get_target_gid = on_target_gid,
};

/* ---- A request ---- */

/* Applies php_value and its kin: entries of three texts, each ended by a NUL: flags, name and
 * value. `a` among the flags is an admin value; `h` comes from an .htaccess file. */
static void apply_settings(void) {
    const char *at = request.settings, *end = at + request.settings_length;
    while (at && at < end) {
        const char *flags = at, *name = flags + strlen(flags) + 1;
        if (name >= end) break;
        const char *value = name + strlen(name) + 1;
        if (value > end) break;
        zend_string *key = zend_string_init(name, strlen(name), 0);
        zend_alter_ini_entry_chars(key, value, strlen(value),
            strchr(flags, 'a') ? PHP_INI_SYSTEM : PHP_INI_PERDIR,
            strchr(flags, 'h') ? PHP_INI_STAGE_HTACCESS : PHP_INI_STAGE_ACTIVATE);
        zend_string_release(key);
        at = value + strlen(value) + 1;
    }
}

/* Gives PHP what it asks of a request. */
static void describe_request(void) {
    const char *length = value_of("CONTENT_LENGTH"), *protocol = value_of("SERVER_PROTOCOL");
    sapi_request_info *info = &SG(request_info);
    memset(info, 0, sizeof *info);
    info->request_method = request.method;
    info->query_string = (char *)value_of("QUERY_STRING");
    info->request_uri = (char *)request.uri;
    info->path_translated = (char *)request.script;
    info->content_type = value_of("CONTENT_TYPE");
    info->content_length = length ? strtoll(length, NULL, 10) : 0;
    info->headers_only = strcmp(request.method, "HEAD") == 0;
    info->proto_num = protocol && strcmp(protocol, "HTTP/1.0") == 0 ? 1000 : 1001;
    info->no_headers = 0;
    const char *status = value_of("EVENKEEL_STATUS");
    SG(sapi_headers).http_response_code = status ? atoi(status) : 200;
    char *authorization = field("Authorization");
    php_handle_auth_data(authorization);
    if (authorization) efree(authorization);
    if (!info->auth_user && request.user) info->auth_user = estrdup(request.user);
}

static void set_script_on_page(const char *script) {
    size_t length = strlen(script);
    if (length > sizeof page->script) length = sizeof page->script;
    uint32_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy(page->script, script, length);
    atomic_store_explicit(&page->script_length, (uint32_t)length, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 2, memory_order_release);
}

static void run_script(void) {
    SG(server_context) = &request;
    zend_first_try {
        describe_request();
        apply_settings();
        if (php_request_startup() == FAILURE) {
            log_line(3, "PHP could not begin the request");
            connection.held = 0;
            put_output("Status: 500\r\n\r\n", 15);
        } else if (!zend_ini_long("engine", 6, 0)) {
            SG(headers_sent) = 1;
            SG(request_info).no_headers = 1;
            put_output("Status: 403\r\n\r\n", 15);
        } else if (request.shows_source) {
            zend_syntax_highlighter_ini colors;
            php_get_highlight_struct(&colors);
            highlight_file((char *)request.script, &colors);
        } else {
            zend_file_handle file;
            zend_stream_init_filename(&file, request.script);
            file.primary_script = 1;
            php_execute_script(&file);
            zend_destroy_file_handle(&file);
        }
        char usage[24];
        int length = snprintf(usage, sizeof usage, "%zu", zend_memory_peak_usage(true));
        zval value;
        ZVAL_STRINGL(&value, usage, (size_t)length);
        zend_hash_str_update(&request.notes, "mod_php_memory_usage", 20, &value);
    } zend_end_try();
    php_request_shutdown(NULL);
}

/* Adds the cost of the request to the page. The next request is charged with what the worker uses
 * after the measurement: it frees memory, waits, and accepts. */
static void note_cost(uint64_t memory) {
    if (!request.is_measured) measure();
    uint64_t cpu = request.cpu_now_us - request.cpu_us;
    uint64_t ready = request.ready_now_us - request.ready_us;
    uint64_t wall = now_us(CLOCK_MONOTONIC) - request.began_us;
    request.cpu_us = request.cpu_now_us, request.ready_us = request.ready_now_us;
    uint64_t waited = wall > cpu + ready ? wall - cpu - ready : 0;
    atomic_fetch_add_explicit(&page->cpu_us, cpu, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->ready_us, ready, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->wait_us, waited, memory_order_relaxed);
    if (memory) atomic_store_explicit(&page->memory, memory, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->requests, 1, memory_order_relaxed);
}

/* The memory of this process that no other shares, in bytes (proc(5), statm: resident, shared). */
static uint64_t own_memory(void) {
    char text[128];
    ssize_t length = pread(accounts.statm, text, sizeof text - 1, 0);
    unsigned long long size, resident, shared;
    if (length <= 0) return 0;
    text[length] = 0;
    if (sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3) return 0;
    return resident < shared ? 0 : (resident - shared) * 4096;
}

/* Whether the server has closed the connection. Data that it has sent before may still be unread,
 * at least the record that ends the request, so the end of the stream is not in sight yet. A request
 * that has just arrived has hardly been given up. */
static bool is_gone(void) {
    const char *arrived = value_of("EVENKEEL_TIME_US");
    uint64_t waited_us = now_us(CLOCK_REALTIME) - (arrived ? strtoull(arrived, NULL, 10) : 0);
    if (waited_us < SOON_US) return false;
    struct pollfd one = { connection.socket, 0, 0 };
    return poll(&one, 1, 0) == 1 && (one.revents & POLLHUP) != 0;
}

/* Serves the request of the connection. Returns whether a script has run. */
static bool serve(void) {
    request.began_us = now_us(CLOCK_MONOTONIC);
    connection.broken = connection.input_done = connection.head_sent = false;
    connection.left = connection.padding = 0;
    connection.patience_set = 0;
    connection.start = connection.end = connection.held = 0;
    connection.patience = HEAD_SECONDS;
    connection.deadline_us = request.began_us + HEAD_SECONDS * 1000000;
    bool is_read = read_params();
    connection.deadline_us = 0;
    if (is_read && !is_trusted()) {
        hang_up();
        log_line(4, "a connection without this pool's secret was closed");
        return false;
    }
    if (!is_read || is_gone()) {
        /* The server has given the request up while it was in the queue, or closes a connection
         * that was kept. */
        hang_up();
        return false;
    }
    connection.patience = BODY_SECONDS;
    const struct pair *headers = find("EVENKEEL_HEADERS"), *settings = find("EVENKEEL_INI");
    const char *method = value_of("REQUEST_METHOD"), *uri = value_of("EVENKEEL_SELF");
    const char *script = value_of("SCRIPT_FILENAME");
    request.method = method ? method : "GET";
    request.uri = uri ? uri : "";
    request.script = script ? script : "";
    request.headers = headers ? headers->value : NULL;
    request.headers_length = headers ? headers->value_length : 0;
    request.settings = settings ? settings->value : NULL;
    request.settings_length = settings ? settings->value_length : 0;
    request.user = value_of("EVENKEEL_USER");
    request.is_traced = request.is_measured = false;
    request.reports = find("EVENKEEL_REPORT") != NULL;
    request.shows_source = find("EVENKEEL_SOURCE") != NULL;
    zend_hash_init(&request.notes, 8, NULL, ZVAL_PTR_DTOR, 0);
    zend_hash_init(&request.variables, 8, NULL, ZVAL_PTR_DTOR, 0);
    request.has_tables = true;
    set_script_on_page(request.script);
    atomic_store_explicit(&page->began_us, request.began_us, memory_order_relaxed);
    atomic_store_explicit(&page->state, BUSY, memory_order_release);
    run_script();
    return true;
}

/* ---- A worker ---- */

/* SIGTERM during a request: it has exceeded its time. Only calls that signal-safety(7) allows. */
static void on_terminate(int signal) {
    (void)signal;
    int socket = connection.socket;
    if (socket >= 0 && !connection.head_sent) {
        static const uint8_t late[] = {
            1, FCGI_STDOUT, 0, 1, 0, 15, 1, 0,
            'S', 't', 'a', 't', 'u', 's', ':', ' ', '5', '0', '4', '\r', '\n', '\r', '\n', 0,
            1, FCGI_STDOUT, 0, 1, 0, 0, 0, 0,
            1, FCGI_END, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        };
        send(socket, late, sizeof late, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    _exit(124);
}

static void raise_oom_score(void) {
    int file = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = { 0 };
    if (file < 0) return;
    if (read(file, text, sizeof text - 1) > 0) {
        int score = atoi(text) + 200, length;
        length = snprintf(text, sizeof text, "%d", score > 1000 ? 1000 : score);
        /* A kernel that refuses leaves the score as it is. */
        if (pwrite(file, text, (size_t)length, 0) < 0) (void)0;
    }
    close(file);
}

/* Bounds what scripts start. A worker that exists already is not affected (setrlimit(2)). */
static void bound_processes(void) {
    struct rlimit bound;
    if (getrlimit(RLIMIT_NPROC, &bound) != 0) return;
    if (options.processes.rlim_max < bound.rlim_max) bound.rlim_max = options.processes.rlim_max;
    if (options.processes.rlim_cur < bound.rlim_cur) bound.rlim_cur = options.processes.rlim_cur;
    if (bound.rlim_cur > bound.rlim_max) bound.rlim_cur = bound.rlim_max;
    if (setrlimit(RLIMIT_NPROC, &bound) != 0) log_line(4, "the limit of processes is not set");
}

/* The zygote keeps its own value, because requests wait for the workers that it forks. */
static void set_nice(void) {
    if (options.nice < 0 || setpriority(PRIO_PROCESS, 0, options.nice) == 0) return;
    log_line(4, "the nice value of AppNice is not set: it is below the server's");
}

/* Whether a script has lowered the limit of open files, so that the next script would fail. */
static bool has_fewer_files(void) {
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < options.files;
}

static bool peer_may(int socket) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (options.peer == UINT32_MAX) return true;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == options.peer || peer.uid == 0;
}

/* Whether the worker can open no more files, for example after a script called posix_setrlimit. It
 * ends then, and a new worker takes its place. */
static bool is_spent;

/* Accepts a connection of the server's user; -1 if there is none. */
static int accept_request(void) {
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0 && errno == EMFILE) {
        log_line(4, "a worker that may open no more files ends");
        is_spent = true;
    }
    if (socket >= 0 && !peer_may(socket)) {
        close(socket);
        log_line(4, "a connection of a user who is not the server's was closed");
        return -1;
    }
    return socket;
}

/* Accepts a waiting connection, if there is one. The worker serves the queue of its socket before it
 * lets threads claim it. */
static int accept_waiting(void) {
    connection.is_last = false;
    if (!claims || atomic_load(&claims[0]) == 0) return -1;
    atomic_store(&claims[0], 0);
    int socket = accept_request();
    if (socket >= 0) atomic_store(&claims[0], 1);
    return socket;
}

/* Has another idle worker accept what has woken this one alone (EPOLLEXCLUSIVE). */
static void wake_another(void) {
    const uint64_t once = 1;
    /* Only a full counter is an error, and then one is woken already. */
    if (nudge >= 0 && write(nudge, &once, sizeof once) < 0) return;
}

/* Whether the thread that has claimed the worker begins to send its request. Otherwise the connection
 * is shut, so that a request cannot come any more: the server learns that when it sends one, and
 * sends it anew. What has come in the last moment is served. */
static bool has_begun(int socket) {
    struct pollfd one = { socket, POLLIN, 0 };
    int count;
    do count = poll(&one, 1, CLAIM_MS);
    while (count < 0 && errno == EINTR);
    if (count > 0) return true;
    uint8_t byte;
    shutdown(socket, SHUT_RD);
    connection.is_last = true;
    return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Waits for a request, and makes its connection the one in progress, if there is one. False once
 * the worker is to end; there may be a last request then. */
static bool await_request(int line) {
    struct epoll_event ready[MOST_KEPT + 3];
    offer();
    int count = epoll_wait(events, ready, MOST_KEPT + 3, -1);
    bool is_asked = false, is_ending = count < 0 && errno != EINTR, had_claim = own_claim != NULL;
    struct kept *claimed = withdraw();
    bool is_lost = had_claim && !own_claim, has_come = false;
    for (int at = 0; at < count; at++) {
        uint32_t number = (uint32_t)(ready[at].data.u64 >> 32);
        int fd = (int)(uint32_t)ready[at].data.u64;
        if (number == 0) {
            uint64_t times;
            is_asked |= fd == listener || (fd == nudge && read(nudge, &times, sizeof times) > 0);
            is_ending |= fd == line;
            continue;
        }
        struct kept *one = kept_of(number);
        has_come |= one && one == claimed;
        if (!one || one == claimed) continue;
        /* The worker has lost its place, so that withdraw() returned nothing. A readable connection
         * may still carry the request of a claim that was made before. */
        if (is_lost && !claimed) claimed = one, has_come = true;
        else {
            /* The server has closed it. The last connection takes its seat. */
            if (claimed == &kept[kept_count - 1]) claimed = one;
            close_kept(one);
        }
    }
    if (is_asked && (claimed || is_ending)) wake_another();
    connection.is_last = false;
    if (claimed && !has_come && !has_begun(claimed->socket)) {
        close_kept(claimed);
        return !is_ending;
    }
    connection.kept = claimed;
    if (claimed) connection.socket = claimed->socket;
    else if (is_asked && !is_ending) connection.socket = accept_request();
    return !is_ending;
}

/* Serves until the zygote closes the worker's line, or until a bound is reached. */
static int work(int line, uint32_t place) {
    own_pid = (uint32_t)getpid(), own_place = place;
    if (claims && place < MOST_SEATS) {
        own_claim = &claims[CLAIM_STRIDE * (1 + place)];
        atomic_store(own_claim, (uint64_t)own_pid << 32 | TAKEN);
    }
    struct sigaction late = { .sa_handler = on_terminate };
    sigaction(SIGTERM, &late, NULL);
    struct sigaction trace = { .sa_handler = on_trace, .sa_flags = SA_RESTART };
    sigaction(SIGRTMIN + 3, &trace, NULL);
    struct rlimit files;
    options.files = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 0;
    setpgid(0, 0);
    prctl(PR_SET_NAME, "php worker");
    raise_oom_score();
    accounts.schedstat = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    accounts.statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (options.no_new_privileges) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    bound_processes();
    set_nice();
    events = epoll_create1(EPOLL_CLOEXEC);
    /* Without EPOLLEXCLUSIVE every connection would wake every worker. */
    const uint32_t alone = EPOLLIN | EPOLLEXCLUSIVE;
    struct epoll_event on_listener = { .events = alone, .data.u64 = (uint32_t)listener };
    struct epoll_event on_nudge = { .events = alone, .data.u64 = (uint32_t)nudge };
    struct epoll_event on_line = { .events = EPOLLIN, .data.u64 = (uint32_t)line };
    if (events < 0 || epoll_ctl(events, EPOLL_CTL_ADD, listener, &on_listener) != 0
        || (nudge >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, nudge, &on_nudge) != 0)
        || epoll_ctl(events, EPOLL_CTL_ADD, line, &on_line) != 0) {
        log_line(3, "a worker cannot wait for connections");
        return 1;
    }
    uint64_t served = 0;
    bool is_ending = false;
    measure();
    request.cpu_us = request.cpu_now_us, request.ready_us = request.ready_now_us;
    while (!is_ending) {
        atomic_store_explicit(&page->state, IDLE, memory_order_release);
        connection.socket = accept_waiting();
        if (connection.socket < 0 && !is_spent) is_ending = !await_request(line);
        is_ending |= is_spent;
        if (connection.socket < 0) continue;
        request.count = 0;
        request.is_last = is_ending
            || (options.most_requests && served + 1 >= options.most_requests);
        bool has_run = serve();
        free_large_params();
        if (!has_run) continue;
        served++;
        uint64_t memory = served % 16 == 1 || options.most_memory ? own_memory() : 0;
        note_cost(memory);
        is_ending |= (options.most_requests && served >= options.most_requests)
            || (options.most_memory && memory > options.most_memory) || has_fewer_files();
    }
    atomic_store_explicit(&page->state, DRAINING, memory_order_release);
    return 0;
}

/* ---- The zygote ---- */

static struct seat {
    pid_t pid;
    int line; /* closing it lets the worker end after its request */
} seats[MOST_SEATS];

static void tell(char what, uint32_t seat, const uint64_t *numbers, size_t count) {
    uint8_t message[64] = { (uint8_t)what, 0, 0, 0 };
    memcpy(message + 4, &seat, 4);
    for (size_t at = 0; at < count; at++) put_number(message + 8 + 8 * at, numbers[at]);
    /* A server that does not read has died, and the channel tells so by its end. */
    if (send(channel, message, 8 + 8 * count, MSG_NOSIGNAL) < 0) return;
}

static bool has_threads(void) {
    struct stat tasks;
    /* The links of the folder are its subfolders and two more (proc(5)). */
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 3;
}

static void fork_worker(uint32_t seat, uint32_t place, int shared) {
    int line[2];
    if (seat >= MOST_SEATS || seats[seat].pid != 0) return;
    if (has_threads()) {
        log_line(3, "an extension of PHP runs threads, so this pool cannot fork workers");
        return tell('N', seat, NULL, 0);
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) != 0) {
        return tell('N', seat, NULL, 0);
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(line[0]);
        close(channel);
        for (size_t at = 0; at < MOST_SEATS; at++) {
            if (seats[at].pid) close(seats[at].line);
        }
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (shared >= 0) {
            void *mapped = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
            if (mapped != MAP_FAILED) page = mapped;
            close(shared);
        }
        /* Without PHP's end: what the zygote has opened is the zygote's. */
        _exit(work(line[1], place));
    }
    close(line[1]);
    if (pid < 0) {
        close(line[0]);
        return tell('N', seat, NULL, 0);
    }
    seats[seat] = (struct seat){ pid, line[0] };
    uint64_t number = (uint64_t)pid;
    tell('B', seat, &number, 1);
}

static void reap(void) {
    int status;
    struct rusage usage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        for (uint32_t seat = 0; seat < MOST_SEATS; seat++) {
            if (seats[seat].pid != pid) continue;
            close(seats[seat].line);
            seats[seat].pid = 0;
            uint64_t cpu = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000
                + (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
            const uint64_t peak = (uint64_t)usage.ru_maxrss * 1024;
            const uint64_t numbers[] = { (uint64_t)pid, (uint32_t)status, peak, cpu };
            tell('X', seat, numbers, 4);
        }
    }
}

static void drain(uint32_t seat) {
    if (seat < MOST_SEATS && seats[seat].pid) shutdown(seats[seat].line, SHUT_RDWR);
}

static void kill_worker(uint32_t seat, int signal) {
    if (seat >= MOST_SEATS || !seats[seat].pid) return;
    /* The group contains what the script has started. */
    if (kill(-seats[seat].pid, signal) != 0) kill(seats[seat].pid, signal);
}

/* Interrupts a worker that uses a core. One that waits is left alone, because most system calls
 * would end (signal(7)); its functions look at the page when they return. */
static void trace_worker(uint32_t seat) {
    if (seat >= MOST_SEATS || !seats[seat].pid) return;
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", seats[seat].pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    const char *name_end = strrchr(text, ')');
    if (name_end && name_end[1] == ' ' && name_end[2] == 'R') kill(seats[seat].pid, SIGRTMIN + 3);
}

static size_t living(void) {
    size_t count = 0;
    for (size_t seat = 0; seat < MOST_SEATS; seat++) count += seats[seat].pid != 0;
    return count;
}

/* Maps the words by which workers are claimed. Without them nobody claims any. */
static void map_claims(int shared) {
    struct stat file;
    const size_t size = CLAIM_WORDS * sizeof *claims;
    if (claims || shared < 0 || fstat(shared, &file) != 0 || (size_t)file.st_size != size) return;
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (mapped != MAP_FAILED) claims = mapped;
}

/* One message of the server, with the descriptor that came with it. False at the channel's end. */
static bool receive_command(void) {
    uint8_t message[64];
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } rights;
    struct iovec part = { message, sizeof message };
    struct msghdr parts = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights,
        .msg_controllen = sizeof rights };
    ssize_t length = recvmsg(channel, &parts, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (length < 0) return errno == EAGAIN || errno == EINTR;
    if (length == 0) return false;
    int shared = -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&parts);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&shared, CMSG_DATA(header), sizeof shared);
    }
    uint32_t seat = 0, number = UINT32_MAX;
    if (length >= 8) memcpy(&seat, message + 4, 4);
    if (length >= 12) memcpy(&number, message + 8, 4);
    switch (message[0]) {
        case 'F': fork_worker(seat, number, shared); break;
        case 'D': drain(seat); break;
        case 'K': kill_worker(seat, (int)number); break;
        case 'T': trace_worker(seat); break;
        case 'C': map_claims(shared); break;
        case 'W':
            if (nudge >= 0) close(nudge);
            nudge = shared;
            shared = -1;
            break;
        case 'L':
            if (slow_log >= 0) close(slow_log);
            slow_log = shared;
            shared = -1;
            break;
        default: break;
    }
    if (shared >= 0) close(shared);
    return true;
}

/* Forks and reaps until the server closes the channel; then the workers finish. */
static int manage(void) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    int deaths = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (deaths < 0) return 1;
    tell('R', 0, NULL, 0);
    uint64_t end_us = 0;
    for (;;) {
        struct pollfd ready[2] = { { deaths, POLLIN, 0 }, { end_us ? -1 : channel, POLLIN, 0 } };
        int patience = -1;
        if (end_us) {
            uint64_t now = now_us(CLOCK_MONOTONIC);
            patience = now < end_us ? (int)((end_us - now) / 1000 + 1) : 1000;
        }
        poll(ready, 2, patience);
        struct signalfd_siginfo ignored;
        while (read(deaths, &ignored, sizeof ignored) > 0) {}
        reap();
        if (!end_us && (ready[1].revents & (POLLIN | POLLHUP)) && !receive_command()) {
            for (uint32_t seat = 0; seat < MOST_SEATS; seat++) drain(seat);
            end_us = now_us(CLOCK_MONOTONIC) + ORPHAN_MS * 1000;
        }
        if (end_us && living() == 0) return 0;
        if (end_us && now_us(CLOCK_MONOTONIC) >= end_us) {
            for (uint32_t seat = 0; seat < MOST_SEATS; seat++) kill_worker(seat, SIGKILL);
        }
    }
}

/* ---- The start ---- */

static int fail(const char *text) {
    log_line(3, text);
    uint8_t message[208] = { 'E' };
    size_t length = strlen(text) < 200 ? strlen(text) : 200;
    memcpy(message + 8, text, length);
    if (send(channel, message, 8 + length, MSG_NOSIGNAL) < 0) return 1;
    return 1;
}

/* Becomes `uid:gid[,gid]...`. */
static bool become(const char *text) {
    gid_t groups[64];
    size_t count = 0;
    char *end;
    uid_t uid = (uid_t)strtoul(text, &end, 10);
    if (*end != ':') return false;
    do {
        if (count == 64) return false;
        groups[count++] = (gid_t)strtoul(end + 1, &end, 10);
    } while (*end == ',');
    if (*end != 0 || setgroups(count, groups) != 0) return false;
    return setresgid(groups[0], groups[0], groups[0]) == 0 && setresuid(uid, uid, uid) == 0;
}

/* Reads `SOFT:HARD`. */
static void read_limit(const char *text, struct rlimit *limit) {
    char *end;
    limit->rlim_cur = strtoull(text, &end, 10);
    if (*end == ':') limit->rlim_max = strtoull(end + 1, NULL, 10);
}

/* Moves a descriptor out of the way of standard input and output, and closes it for programs that
 * scripts start. */
static int set_aside(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    int null = open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
    if (null >= 0 && null != fd) {
        dup2(null, fd);
        close(null);
    }
    return moved;
}

/* php.ini is where mod_php reads it, unless PHPIniDir says otherwise. Extensions are those of
 * mod_php, or of the library. */
static void choose_ini(const char *folder) {
    static const char debian[] =
        "/etc/php/" TEXT(PHP_MAJOR_VERSION) "." TEXT(PHP_MINOR_VERSION) "/apache2";
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/php.ini", debian);
    if (folder) {
        sapi.php_ini_path_override = (char *)folder;
    } else if (access(path, R_OK) == 0) {
        sapi.php_ini_path_override = (char *)debian;
    }
    snprintf(path, sizeof path, "%s/conf.d", debian);
    if (access(path, R_OK | X_OK) == 0) setenv("PHP_INI_SCAN_DIR", path, 0);
}

int main(int count, char **arguments) {
    const char *folder = NULL, *user = NULL;
    if (count == 2 && strcmp(arguments[1], "--version") == 0) {
        printf("evenkeel-php %s\n", PHP_VERSION);
        return 0;
    }
    channel = set_aside(1);
    listener = set_aside(0);
    for (int at = 1; at + 1 < count; at += 2) {
        const char *name = arguments[at], *value = arguments[at + 1];
        if (strcmp(name, "--ini") == 0) folder = value;
        else if (strcmp(name, "--name") == 0) options.name = value;
        else if (strcmp(name, "--modules") == 0) options.modules = value;
        else if (strcmp(name, "--user") == 0) user = value;
        else if (strcmp(name, "--peer") == 0) options.peer = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(name, "--requests") == 0) options.most_requests = strtoull(value, NULL, 10);
        else if (strcmp(name, "--memory") == 0) options.most_memory = strtoull(value, NULL, 10);
        else if (strcmp(name, "--processes") == 0) read_limit(value, &options.processes);
        else if (strcmp(name, "--nice") == 0) options.nice = atoi(value);
        else if (strcmp(name, "--no-new-privileges") == 0) options.no_new_privileges = *value == '1';
        else if (strcmp(name, "--traces") == 0) options.traces = *value == '1';
        else return fail("unknown option");
    }
    int kind = 0;
    socklen_t size = sizeof kind;
    if (getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &kind, &size) != 0 || !kind) {
        fprintf(stderr,
            "evenkeel-php is started by evenkeel, which passes it a listening socket\n");
        return 2;
    }
    fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
    if (user && !become(user)) return fail("cannot become the user of the pool");
    /* The memory has the secret, and other programs of the same user must not read it. */
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "php zygote");
    signal(SIGPIPE, SIG_IGN);
    /* The secret is the first message. It is no argument, which everybody could read. */
    struct pollfd first = { channel, POLLIN, 0 };
    if (poll(&first, 1, 10000) != 1
        || recv(channel, options.secret, sizeof options.secret, 0) != sizeof options.secret) {
        return fail("no secret came from the server");
    }
    choose_ini(folder);
    zend_signal_startup();
    sapi_startup(&sapi);
    if (sapi.startup(&sapi) == FAILURE) return fail("PHP could not be started");
    inner_interrupt = zend_interrupt_function;
    zend_interrupt_function = on_interrupt;
#ifdef ZEND_SIGNALS
    /* Nothing here changes dispositions, so looking at seven of them per request finds nothing. */
    SIGG(reset) = 0;
#endif
    return manage();
}
