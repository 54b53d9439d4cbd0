//! `kubectl exec`, `attach`, `cp`, `port-forward`: bytes to and from a container.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::json;
use testkit::process::{Port, Running, eventually};

use crate::Shared;
use crate::kubectl::Kubectl;
use crate::member::Member;
use crate::node::SOON;
use crate::spec::{containers, server, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_command_runs_in_a_container", exec),
    ("a_shell_runs_on_a_terminal", terminal),
    ("a_container_is_attached_to", attach),
    ("files_are_copied_both_ways", copy),
    ("ports_are_forwarded", forward),
    ("an_older_kubectl_streams_without_websockets", older),
];

/// More bytes than any buffer on the way holds.
const MANY_BYTES: usize = 3 * 1024 * 1024;

/// Bytes without a pattern, the same each time.
fn bytes() -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bytes = Vec::with_capacity(MANY_BYTES);
    while bytes.len() < MANY_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(MANY_BYTES);
    bytes
}

fn exec(member: &Member) {
    let pod = member.pod("exec", containers([sleeper("main"), sleeper("side")]));
    pod.ready();
    let kubectl = member.kubectl();
    let said =
        kubectl.run(&["exec", pod.name(), "-c", "main", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((said.code, said.out.as_str()), (Some(7), "out\n"), "{said:?}");
    assert!(said.err.starts_with("err\n") && said.err.contains("exit code 7"), "{said:?}");
    let said = kubectl.run(&["exec", pod.name(), "-c", "side", "--", "no-such-program"]);
    assert!(said.code != Some(0) && said.err.contains("no-such-program"), "{said:?}");
    let said = kubectl.run(&["exec", pod.name(), "-c", "third", "--", "true"]);
    assert!(said.code != Some(0) && said.err.contains("third"), "{said:?}");

    let mut counting =
        kubectl.start_fed(&["exec", "-i", pod.name(), "-c", "main", "--", "sh", "-c", "wc -c; echo end"]);
    counting.feed(&bytes());
    counting.close();
    let said = counting.ends(SOON);
    assert_eq!((said.code, said.out), (Some(0), format!("{MANY_BYTES}\nend\n")), "{}", said.err);
}

fn terminal(member: &Member) {
    let pod = member.pod("terminal", containers([sleeper("main")]));
    pod.ready();
    let mut shell = member.kubectl().start_on_terminal(&["exec", "-it", pod.name(), "--", "sh"], 40, 100);
    shell.says("# ");
    // The terminal echoes the input: the answers are spelt differently from the questions.
    shell.feed(b"tty; echo size $(stty size) .\n");
    shell.says("/dev/pts/");
    shell.says("size 40 100 .");
    shell.resize(50, 120);
    eventually("the terminal in the container has the other size", SOON, || {
        shell.feed(b"echo size $(stty size) .\n");
        std::thread::sleep(Duration::from_millis(200));
        let out = shell.out();
        if out.contains("size 50 120 .") { Ok(()) } else { Err(out) }
    });
    // Ctrl-C goes to the terminal: the shell lives on.
    shell.feed(b"echo wait''ing; sleep 1000\n");
    shell.says("waiting");
    shell.feed(&[3]);
    shell.feed(b"echo still $((40 + 2)); exit 5\n");
    shell.says("still 42");
    assert_eq!(shell.ends(SOON).code, Some(5));
}

fn attach(member: &Member) {
    let kubectl = member.kubectl();
    let script = "while read line; do echo heard $line; [ \"$line\" = end ] && exit 3; done";
    let container = with(shell("main", script), json!({"stdin": true, "stdinOnce": true}));
    let pod = member.pod("attached", with(containers([container]), json!({"restartPolicy": "Never"})));
    pod.ready();
    let mut attached = kubectl.start_fed(&["attach", "-i", pod.name()]);
    // Input from before the runtime has connected the streams is not lost: it waits in the pipe.
    attached.feed(b"one\n");
    attached.says("heard one");
    attached.feed(b"end\n");
    attached.says("heard end");
    attached.ends(SOON);
    let seen = pod.phase("Failed");
    assert_eq!(seen.terminated("main")["exitCode"], 3);

    let pod = member.pod("listened", containers([shell("main", "while :; do echo tick; sleep 0.2; done")]));
    pod.ready();
    let mut listening = kubectl.start(&["attach", pod.name()]);
    listening.says("tick");
    drop(listening);

    let image = format!("--image={}", member.setting.runtime.image);
    let overrides = format!("--overrides={}", json!({"spec": {"nodeName": member.name}}));
    let pod = member.named_pod(member.pod_name("interactive"));
    let script = "read x; echo got $x; exit 4";
    let head = [
        "run",
        pod.name(),
        &image,
        &overrides,
        "-i",
        "--rm",
        "--restart=Never",
        "--image-pull-policy=IfNotPresent",
    ];
    let mut once = kubectl.start_fed(&[&head[..], &["--command", "--", "sh", "-c", script]].concat());
    once.feed(b"hello\n");
    let said = once.ends(SOON);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.out.contains("got hello"), "{said:?}");
}

fn copy(member: &Member) {
    let pod = member.pod("copied", containers([sleeper("main")]));
    pod.ready();
    let kubectl = member.kubectl();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let here = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir_all(here("there/inner")).expect("a directory of ours");
    fs::write(here("there/inner/bytes"), bytes()).expect("a file of ours");
    fs::write(here("there/word"), "hello\n").expect("a file of ours");

    let remote = format!("{}:/tmp/there", pod.name());
    kubectl.ok(&["cp", &here("there"), &remote]);
    assert_eq!(kubectl.ok(&["exec", pod.name(), "--", "cat", "/tmp/there/word"]), "hello\n");
    kubectl.ok(&["cp", &format!("{remote}/inner/bytes"), &here("back")]);
    assert!(fs::read(here("back")).expect("the copy") == bytes(), "the bytes came back as they went");
    kubectl.ok(&["cp", &remote, &here("again")]);
    assert_eq!(fs::read_to_string(here("again/word")).expect("the copy"), "hello\n");
    assert_eq!(fs::read(here("again/inner/bytes")).expect("the copy").len(), MANY_BYTES);
}

/// Starts a port-forward, and returns the local port.
fn forwarded(kubectl: &Kubectl, pod: &str, to: u16) -> (Running, u16) {
    let mut forwarding =
        kubectl.start(&["port-forward", &format!("pod/{pod}"), &format!(":{to}"), "--address=127.0.0.1"]);
    forwarding.says("Forwarding from 127.0.0.1:");
    let out = forwarding.out();
    let port = out.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    (forwarding, port.unwrap_or_else(|| panic!("no port in {out}")))
}

fn forward(member: &Member) {
    // The first connection that is refused ends kubectl: both must listen.
    let listens = |port: u16| json!({"readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1}});
    let echo = with(shell("echo", "exec nc -ll -p 9000 -e cat"), listens(9000));
    let pod = member.pod("forwarded", containers([with(server("web"), listens(8080)), echo]));
    pod.ready();
    let kubectl = member.kubectl();
    let (_web, port) = forwarded(&kubectl, pod.name(), 8080);
    let page = Port::local(port).text("/index.html").expect("the page comes through");
    assert!(page.contains("Understudy's demo image"), "{page}");
    assert_eq!(Port::local(port).get("/nowhere").map(|answer| answer.status), Ok(404), "a second connection");

    let (mut echoing, port) = forwarded(&kubectl, pod.name(), 9000);
    echoed(port).expect("many bytes come back");
    // No process listens on the port: this connection fails, and kubectl reports it.
    let (mut deaf, port) = forwarded(&kubectl, pod.name(), 9999);
    let _refused =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|mut stream| stream.write_all(b"x"));
    deaf.says("an error occurred forwarding");
    echoing.says("Handling connection");
}

fn older(member: &Member) {
    let web =
        with(server("web"), json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}));
    let pod = member.pod("older", containers([web, sleeper("main")]));
    pod.ready();
    let kubectl = member.kubectl().older();
    let mut counting =
        kubectl.start_fed(&["exec", "-i", pod.name(), "-c", "main", "--", "sh", "-c", "wc -c; exit 7"]);
    counting.feed(&bytes());
    counting.close();
    let said = counting.ends(SOON);
    assert_eq!((said.code, said.out), (Some(7), format!("{MANY_BYTES}\n")), "{}", said.err);
    let (_web, port) = forwarded(&kubectl, pod.name(), 8080);
    let page = Port::local(port).text("/index.html").expect("the page comes through");
    assert!(page.contains("Understudy's demo image"), "{page}");
}

fn echoed(port: u16) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    stream.set_read_timeout(Some(SOON)).map_err(failed)?;
    let mut writer = stream.try_clone().map_err(failed)?;
    let sending = std::thread::spawn(move || writer.write_all(&bytes()));
    let mut back = vec![0; MANY_BYTES];
    stream.read_exact(&mut back).map_err(failed)?;
    sending.join().expect("the writing thread").map_err(failed)?;
    if back == bytes() { Ok(()) } else { Err("other bytes".to_owned()) }
}
