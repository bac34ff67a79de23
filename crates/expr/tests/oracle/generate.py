#!/usr/bin/env python3
"""Fills in the third column of cases.tsv from Debian's apache2.

In come lines of `kind TAB expression`: `if` for a condition, `text` for a string. Each
expression is checked alone with `apache2 -t`; those that pass get a virtual host on a loopback
address of their own, and one and the same request is sent to each of them. Out goes the table
with what Apache made of it: `true`, `false`, `refused: MESSAGE`, or `= VALUE` with bytes outside
printable ASCII as \\xNN. With --log it prints the server's error log. The request, the environment and the files are those of replay.rs.
"""

import pathlib
import socket
import subprocess
import sys
import tempfile
import time

TABLE = pathlib.Path(__file__).with_name("cases.tsv")
MODULES = "/usr/lib/apache2/modules"

with socket.create_server(("", 0)) as probe:
    PORT = probe.getsockname()[1]

REQUEST = (
    b"GET /page.html/extra?name=value&x=1 HTTP/1.1\r\n"
    b"Host: Site.test\r\n"
    b"User-Agent: Lab/1.0 (Linux; rv:5)\r\n"
    b"Accept: text/html\r\n"
    b"Referer: http://other.test/from\r\n"
    b"Cookie: session=abc\r\n"
    b"X-List: b\r\n"
    b"X-Num: 42\r\n"
    b"X-Empty:\r\n"
    b"X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\r\n"
    b"Connection: close\r\n\r\n"
)


def quote(text):
    """One argument of a directive, in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def directives(kind, expression):
    """The directives that show the expression's value in a header of the response."""
    if kind == "if":
        return f"<If {quote(expression)}>\nHeader always set V yes\n</If>\n"
    return f"Header always set V {quote('expr=' + expression)}\n"


def preamble(root):
    names = ["mpm_event", "authz_core", "headers", "setenvif", "mime"]
    loads = "".join(f"LoadModule {n}_module {MODULES}/mod_{n}.so\n" for n in names)
    return (
        f"ServerRoot {root}\nServerName main.test\nListen 0.0.0.0:{PORT}\n"
        f"PidFile {root}/pid\nErrorLog {root}/error.log\nDefaultRuntimeDir {root}\n"
        f"{loads}TypesConfig /dev/null\nAddType text/html html\nAcceptPathInfo On\n"
        f"User www-data\nGroup www-data\nStartServers 1\n"
        f"ServerAdmin admin@site.test\nDocumentRoot {root}/www\n"
        "SetEnvIf Host . COLOUR=blue EMPTY=\n"
    )


def refusal(root, kind, expression):
    """The message with which apache2 -t refuses the expression, or None."""
    file = root / "one.conf"
    file.write_text(preamble(root) + directives(kind, expression))
    run = subprocess.run(["apache2", "-t", "-f", str(file)], capture_output=True, text=True)
    if run.returncode == 0:
        return None
    last = run.stderr.strip().split("\n")[-1]
    for lead in ("Cannot parse condition clause: ", "Can't parse value expression : "):
        last = last.removeprefix(lead)
    return last


def exchange(address):
    deadline = time.monotonic() + 10
    while True:
        try:
            peer = socket.create_connection((address, PORT), 5, ("127.0.0.1", 0))
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    peer.sendall(REQUEST)
    answer = b""
    while chunk := peer.recv(65536):
        answer += chunk
    return answer.split(b"\r\n\r\n")[0].split(b"\r\n")


def printable(value):
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in value)


def result(kind, lines):
    if not lines[0].startswith(b"HTTP/"):
        return "crashed"
    value = next((l[2:].strip() for l in lines if l.startswith(b"V:")), None)
    if kind == "if":
        return "true" if value == b"yes" else "false"
    return "= " + printable(value or b"")


def main():
    cases = [l.split("\t")[:2] for l in TABLE.read_text().splitlines() if l and l[0] != "#"]
    comments = [l for l in TABLE.read_text().splitlines() if l.startswith("#")]
    root = pathlib.Path(tempfile.mkdtemp())
    root.chmod(0o755)
    www = root / "www"
    www.mkdir()
    (www / "page.html").write_text("hello\n")
    (www / "empty").write_text("")
    (www / "link").symlink_to("page.html")
    outcomes = [refusal(root, *case) for case in cases]
    hosts = ""
    for number, (case, refused) in enumerate(zip(cases, outcomes)):
        if refused is None:
            address = f"127.1.{number // 250}.{number % 250 + 1}"
            hosts += f"<VirtualHost {address}:{PORT}>\nServerName site.test\n"
            hosts += "Header always set X-Reply shown\n" + directives(*case) + "</VirtualHost>\n"
    config = root / "all.conf"
    config.write_text(preamble(root) + "UseCanonicalName On\n" + hosts)
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "LAB_OS": "sea"}
    server = subprocess.Popen(["apache2", "-DFOREGROUND", "-f", str(config)], env=environment)
    try:
        for number, case in enumerate(cases):
            if outcomes[number] is None:
                lines = exchange(f"127.1.{number // 250}.{number % 250 + 1}")
                outcomes[number] = result(case[0], lines).replace(str(root), "ROOT")
            else:
                outcomes[number] = "refused: " + outcomes[number]
    finally:
        server.terminate()
        server.wait()
    rows = ["\t".join([*case, outcome]) for case, outcome in zip(cases, outcomes)]
    TABLE.write_text("\n".join(comments + rows) + "\n")
    if "--log" in sys.argv:
        print((root / "error.log").read_text())


main()
