//! A real Redis server, and questions to it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::process::Process;
use super::{eventually, own_address, skipped, unpacked};

/// The places 1, 4, 5, 6 and 8 of a record are moments; before 1970 they mean never.
const AHEAD: &str = "
    local moved = 0
    for _, key in ipairs(redis.call('KEYS', '*')) do
        if redis.call('TYPE', key).ok == 'string' then
            local words = {}
            for word in string.gmatch(redis.call('GET', key), '%S+') do words[#words + 1] = word end
            if #words == 9 then
                for _, place in ipairs({1, 4, 5, 6, 8}) do
                    local number = tonumber(words[place])
                    if number > 0 then words[place] = string.format('%.0f', number + tonumber(ARGV[1])) end
                end
                redis.call('SET', key, table.concat(words, ' '), 'KEEPTTL')
                moved = moved + 1
            end
        end
    end
    return moved";

/// The servers that a store may be: the installed Redis, and those that are unpacked.
pub fn servers() -> Vec<PathBuf> {
    let newer = [("redis-server", "8"), ("valkey-server", "8")].map(|(name, version)| {
        let server = unpacked(name, version);
        if server.is_none() {
            skipped(&format!("{name} {version} cannot be had on this machine"));
        }
        server
    });
    [Some("redis-server".into())].into_iter().chain(newer).flatten().collect()
}

/// A running Redis server. It keeps no data on disk.
pub struct Redis {
    server: PathBuf,
    pub process: Process,
    pub address: SocketAddr,
    options: Vec<String>,
    folder: TempDir,
}

impl Redis {
    pub fn start() -> Redis {
        Redis::with(&[])
    }

    /// With options of its command line, like `--requirepass secret`.
    pub fn with(options: &[&str]) -> Redis {
        Redis::at(own_address(), options)
    }

    /// The same at this address.
    pub fn at(address: SocketAddr, options: &[&str]) -> Redis {
        Redis::of("redis-server".into(), address, options)
    }

    /// One of the [`servers`] at an address.
    pub fn of(server: PathBuf, address: SocketAddr, options: &[&str]) -> Redis {
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let process = serving(&server, address, &folder, &options);
        let redis = Redis { server, process, address, options, folder };
        redis.wait_until_it_listens();
        redis
    }

    /// A sentinel that watches a master called `main`, and finds it dead after half a second.
    pub fn sentinel(master: &Redis) -> Redis {
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let (host, port) = (master.address.ip(), master.address.port());
        let config = format!(
            "bind {}\nport {}\ndir {}\nsentinel monitor main {host} {port} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n",
            address.ip(),
            address.port(),
            folder.path().display()
        );
        let path = folder.path().join("sentinel.conf");
        std::fs::write(&path, config).unwrap();
        let server = PathBuf::from("redis-server");
        let mut command = Command::new(&server);
        command.arg(path).arg("--sentinel");
        let process = Process::start(&mut command);
        let redis = Redis { server, process, address, options: Vec::new(), folder };
        redis.wait_until_it_listens();
        redis
    }

    /// The servers of a Redis Cluster, each with a third of the slots.
    pub fn cluster() -> [Redis; 3] {
        let servers = std::array::from_fn(|_| Redis::with(&["--cluster-enabled", "yes"]));
        let first: &Redis = &servers[0];
        let slots = ["0 5460", "5461 10922", "10923 16383"];
        for (server, slots) in servers.iter().zip(slots) {
            let (from, to) = slots.split_once(' ').unwrap();
            assert_eq!(server.ask(&["CLUSTER", "ADDSLOTSRANGE", from, to]), "OK");
            let (host, port) = (first.address.ip().to_string(), first.address.port().to_string());
            assert_eq!(server.ask(&["CLUSTER", "MEET", &host, &port]), "OK");
        }
        eventually("the servers have found each other", || {
            servers
                .iter()
                .all(|server| server.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
                .then_some(())
        });
        servers
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// The answer to a command, as `redis-cli` prints it.
    pub fn ask(&self, command: &[&str]) -> String {
        let (host, port) = (self.address.ip().to_string(), self.address.port().to_string());
        let mut client = Command::new("redis-cli");
        let password = self.options.iter().skip_while(|option| *option != "--requirepass").nth(1);
        if let Some(password) = password {
            client.env("REDISCLI_AUTH", password);
        }
        let answer = client.args(["-h", &host, "-p", &port]).args(command).output().unwrap();
        String::from_utf8(answer.stdout).unwrap().trim_end().to_owned()
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
        self.process.wait();
    }

    /// Starts it again, empty, at the same address.
    pub fn restart(&mut self) {
        self.process = serving(&self.server, self.address, &self.folder, &self.options);
        self.wait_until_it_listens();
    }

    /// Moves the moments in all records of rates, as if a master had written them whose clock was ahead of this one's.
    pub fn was_ahead_by(&self, seconds: i32) {
        let moved = self.ask(&["EVAL", AHEAD, "0", &format!("{seconds}e6")]);
        assert!(moved.parse::<u32>().is_ok_and(|moved| moved > 0), "no record was moved: {moved}");
    }

    fn wait_until_it_listens(&self) {
        eventually("Redis listens", || TcpStream::connect(self.address).ok());
    }
}

fn serving(server: &Path, address: SocketAddr, folder: &TempDir, options: &[String]) -> Process {
    let mut command = Command::new(server);
    command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
    // Outgoing connections come from 127.0.0.1, so others would take that for its address.
    let ip = address.ip().to_string();
    command.args(["--replica-announce-ip", &ip, "--cluster-announce-ip", &ip]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder.path());
    command.args(options);
    Process::start(&mut command)
}
