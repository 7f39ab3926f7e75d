//! The servers: how each is started, on its own core and a free port.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::codec::{CHECK, Codec, JSON, RESP, SPOP};
use crate::load::{self, Figures, Keys, Target};
use crate::support::process::Process;
use crate::support::{KEYS_MAX, Key, Limit, cores, eventually, http_baseline, spop_baseline, usage};
use crate::{grpc, nbari};

/// A kind of load, with its connections and the questions in flight on each.
pub struct Load {
    pub name: &'static str,
    pub connections: usize,
    pub in_flight: usize,
}

pub const LOADS: [Load; 5] = [
    Load { name: "HTTP, 64 connections", connections: 64, in_flight: 1 },
    Load { name: "HTTP, 16 connections", connections: 16, in_flight: 1 },
    Load { name: "64 connections, 1 in flight", connections: 64, in_flight: 1 },
    Load { name: "8 connections, 16 in flight", connections: 8, in_flight: 16 },
    Load { name: "gRPC, 64 streams", connections: 1, in_flight: 64 },
];

/// Places in [`LOADS`].
const HTTP: &[usize] = &[0, 1];
pub const BINARY: &[usize] = &[2, 3];
const GRPC: &[usize] = &[4];

/// The servers that are not this binary. nginx is looked up in the path.
pub struct Programs {
    pub slowlane: PathBuf,
    pub throttlecrab: PathBuf,
}

#[derive(Clone, Copy)]
enum Via {
    Stream(Codec),
    Grpc(grpc::Service),
}

pub struct Rival {
    pub name: &'static str,
    pub loads: &'static [usize],
    via: Via,
    command: fn(&Start) -> Command,
}

/// The first of each load is the baseline.
pub const CONSTANTS: [Rival; 5] = [
    rival("baseline: constant", HTTP, Via::Stream(CHECK), |start| start.itself(http_baseline::ARGUMENT)),
    rival("nginx `return 204`", HTTP, Via::Stream(CHECK), |start| start.nginx()),
    rival("baseline: constant, SPOP", BINARY, Via::Stream(SPOP), |start| {
        start.itself(spop_baseline::ARGUMENT)
    }),
    rival("baseline: constant, gRPC", GRPC, Via::Grpc(grpc::Service::RateLimit), |start| {
        start.itself(grpc::ARGUMENT)
    }),
    rival("nbari/spop: constant, SPOP", BINARY, Via::Stream(SPOP), |start| start.itself(nbari::ARGUMENT)),
];

pub const DECIDERS: [Rival; 7] = [
    rival("slowlane, HTTP", HTTP, Via::Stream(CHECK), |start| start.slowlane("--http")),
    rival("throttlecrab-server, HTTP", HTTP, Via::Stream(JSON), |start| start.throttlecrab("http")),
    rival("slowlane, SPOP", BINARY, Via::Stream(SPOP), |start| start.slowlane("--spop")),
    rival("throttlecrab-server, RESP", BINARY, Via::Stream(RESP), |start| start.throttlecrab("redis")),
    rival("slowlane, gRPC, ratelimit", GRPC, Via::Grpc(grpc::Service::RateLimit), |start| {
        start.slowlane("--grpc")
    }),
    rival("slowlane, gRPC, ext_authz", GRPC, Via::Grpc(grpc::Service::Check), |start| {
        start.slowlane("--grpc")
    }),
    rival("throttlecrab-server, gRPC", GRPC, Via::Grpc(grpc::Service::Throttlecrab), |start| {
        start.throttlecrab("grpc")
    }),
];

const fn rival(
    name: &'static str,
    loads: &'static [usize],
    via: Via,
    command: fn(&Start) -> Command,
) -> Rival {
    Rival { name, loads, via, command }
}

/// A running server.
pub struct Server {
    process: Process,
    address: SocketAddr,
    via: Via,
    limit: Limit,
    _folder: TempDir,
}

impl Rival {
    pub fn start(&self, programs: &Programs, limit: Limit) -> Server {
        let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
        let mut command = (self.command)(&Start { programs, at: address, folder: folder.path(), limit });
        let process = cores::on_first(|| Process::start(&mut command));
        eventually(self.name, || TcpStream::connect(address).ok());
        Server { process, address, via: self.via, limit, _folder: folder }
    }
}

impl Server {
    pub fn load(&self, load: &Load, keys: Keys) -> Figures {
        match self.via {
            Via::Stream(codec) => self.target(codec).load(load.connections, load.in_flight, keys),
            Via::Grpc(service) => {
                let mut client = grpc::Client::open(service, self.address, self.limit);
                client.load(self.process.id(), load.in_flight, keys)
            }
        }
    }

    /// Whether it admits a request of this key, each time it is called.
    pub fn asker(&self) -> Box<dyn FnMut(Key) -> bool> {
        match self.via {
            Via::Stream(codec) => {
                let mut client = load::Client::open(self.target(codec));
                Box::new(move |key| client.ask(key))
            }
            Via::Grpc(service) => {
                let mut client = grpc::Client::open(service, self.address, self.limit);
                Box::new(move |key| client.ask(key))
            }
        }
    }

    pub fn resident_bytes(&self) -> u64 {
        usage::resident_bytes(self.process.id())
    }

    fn target(&self, codec: Codec) -> Target {
        Target { process: self.process.id(), address: self.address, codec, limit: self.limit }
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// What a server is started with: its address, a folder for its files, and the limit of each client.
struct Start<'s> {
    programs: &'s Programs,
    at: SocketAddr,
    folder: &'s Path,
    limit: Limit,
}

impl Start<'_> {
    fn itself(&self, argument: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a running program has a file"));
        command.arg(argument).arg(self.at.to_string());
        command
    }

    fn slowlane(&self, flag: &str) -> Command {
        let config = self.folder.join("slowlane.toml");
        fs::write(&config, format!("[table]\nsize = {KEYS_MAX}\n")).unwrap();
        for (name, text) in self.limit.policy() {
            fs::write(self.folder.join(name), text).unwrap();
        }
        let mut command = Command::new(&self.programs.slowlane);
        command.arg("run").arg("--config").arg(config).arg("--policy").arg(self.folder);
        for listener in ["--spop", "--http", "--grpc", "--admin"] {
            let address = if listener == flag { self.at } else { free_address() };
            command.arg(listener).arg(address.to_string());
        }
        command
    }

    fn throttlecrab(&self, transport: &str) -> Command {
        let mut command = Command::new(&self.programs.throttlecrab);
        command.arg(format!("--{transport}")).args(["--log-level", "error"]);
        command.arg(format!("--{transport}-host")).arg(self.at.ip().to_string());
        command.arg(format!("--{transport}-port")).arg(self.at.port().to_string());
        command
    }

    fn nginx(&self) -> Command {
        let (at, own) = (self.at, self.folder.display());
        let config = format!(
            "daemon off; master_process off; pid {own}/nginx.pid; error_log stderr; events {{}}\n\
            http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {own};\n\
            proxy_temp_path {own}; fastcgi_temp_path {own}; uwsgi_temp_path {own}; scgi_temp_path {own};\n\
            server {{ listen {at}; location / {{ return 204; }} }} }}\n"
        );
        let path = self.folder.join("nginx.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(self.folder).arg("-c").arg(path).args(["-e", "stderr"]);
        command
    }
}
