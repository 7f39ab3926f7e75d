//! Questions through a real nginx, with slowlane as its check, with a minimal check on hyper, and with a second nginx that
//! answers each with `return 204`.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;

use tempfile::TempDir;

use crate::support::clients::{Clients, Ran};
use crate::support::effort::Effort;
use crate::support::five_maps::{self, LINES};
use crate::support::programs::backend::Backend;
use crate::support::programs::haproxy::replace;
use crate::support::programs::nginx::Nginx;
use crate::support::programs::process::Process;
use crate::support::programs::{eventually, own_address};
use crate::support::{cores, print_each, usage};
use crate::{hyper, server};

const CONNECTIONS: usize = 64;

/// nginx with one of the checks, and the process of the check.
struct Checked {
    nginx: Nginx,
    check: u32,
}

/// A second nginx that answers every question with a constant.
struct Constant {
    process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Constant {
    fn start() -> Constant {
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let own = folder.path().display();
        let config = format!(
            "daemon off; master_process off; pid {own}/nginx.pid; error_log stderr;\n\
            events {{ worker_connections 1024; }}\n\
            http {{ access_log off; keepalive_requests 1000000000;\n\
            client_body_temp_path {own}; proxy_temp_path {own}; fastcgi_temp_path {own};\n\
            uwsgi_temp_path {own}; scgi_temp_path {own};\n\
            server {{ listen {address}; location / {{ return 204; }} }} }}\n"
        );
        let path = folder.path().join("nginx.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(&path).arg("-e").arg("stderr");
        let process = Process::start(&mut command);
        eventually("nginx answers", || std::net::TcpStream::connect(address).ok());
        Constant { process, address, _folder: folder }
    }
}

/// The shipped file with one worker and without a log. Clients name their source.
fn one_worker(text: &str) -> String {
    let text = replace(text, "worker_processes auto;", "worker_processes 1;");
    let quiet = |line: &str| {
        if line.contains(" access_log ") { "    access_log off;".into() } else { line.to_owned() }
    };
    let lines: Vec<String> = text.lines().map(quiet).collect();
    replace(
        &lines.join("\n"),
        "    server_tokens off;",
        "    server_tokens off;\n    keepalive_requests 1000000000;\n    \
        set_real_ip_from 127.0.0.0/8;\n    real_ip_header X-From;",
    )
}

/// The shipped file without keep-alive: nginx opens a connection for each question.
fn not_kept_alive(text: &str) -> String {
    ["proxy_http_version 1.1;", "proxy_set_header Connection \"\";"]
        .iter()
        .fold(text.to_owned(), |text, line| text.replace(line, ""))
}

/// Prints what nginx answers a second, and the CPU of the check per question.
pub fn print_questions(effort: Effort, keeps_alive: bool) {
    let app = Backend::forgetful();
    let slowlane = cores::on_first(|| five_maps::slowlane(five_maps::UNDELAYED, "pace"));
    let constant = cores::on_first(Constant::start);
    let (hyper, hyper_at) = server(hyper::ARGUMENT);
    let through = |check: SocketAddr, process: u32| {
        let edit = |name: &str, text: String| match name {
            "nginx.conf" => one_worker(&text),
            "slowlane.conf" if !keeps_alive => not_kept_alive(&text),
            _ => text,
        };
        let nginx = cores::on_second(|| Nginx::with_files(&check.to_string(), app.address, edit));
        Checked { nginx, check: process }
    };
    let mut all = [
        through(constant.address, constant.process.id()),
        through(hyper_at, hyper.id()),
        through(slowlane.http, slowlane.process.id()),
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    let medians = effort.in_turns(&mut all, |checked| {
        let clients = Clients { address: checked.nginx.address, count: CONNECTIONS, answer: "HTTP/1.1 200 " };
        // The answer to HEAD has no body, as the clients expect it.
        let ask = |out: &mut Vec<u8>| {
            let source = five_maps::source(rng.u32(0..LINES));
            write!(out, "HEAD / HTTP/1.1\r\nHost: www.shop.example\r\nX-From: {source}\r\n\r\n")
                .expect("a vector takes it");
        };
        let Ran { per_second, p50_us, p99_us, cpu_us: [cpu_us] } =
            clients.run(effort.time, ask, || [usage::cpu_ns(checked.check)]);
        [per_second, p50_us, p99_us, cpu_us]
    });
    let verdicts = |labels| slowlane.metric("slowlane_verdicts_total", labels);
    let others = ["verdict=\"delay\"", "verdict=\"deny\""].map(verdicts);
    assert_eq!(others, [0.0; 2], "somebody had to wait or was refused");
    let how = if keeps_alive { "with keep-alive" } else { "without keep-alive" };
    println!("through nginx with one worker, {how}: {CONNECTIONS} connections, {} s a run", effort.seconds());
    let figures = [("answers", "1/s"), ("p50", "µs"), ("p99", "µs"), ("CPU of the check per question", "µs")];
    print_each(figures, &["nginx with `return 204`", "hyper", "slowlane"], &medians);
}
