//! A slowlane that is the store of others, and HAProxy in front of it and its standby.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use slowlane::store_protocol::{HELLO, Question, StoreAnswer, frame};
use tempfile::TempDir;

use super::process::Process;
use super::slowlane::Slowlane;
use super::{eventually, own_address, project};

/// A slowlane that is the store of others.
pub struct TokenServer {
    pub slowlane: Slowlane,
    pub address: SocketAddr,
}

impl TokenServer {
    /// With these further lines of the section `[cluster]`. It has no SLO to share.
    pub fn start(more: &str) -> TokenServer {
        TokenServer::with_policy(&[("slo.map", "0 rate=unlimited\n")], more)
    }

    /// With SLOs of its own.
    pub fn with_policy(files: &[(&str, &str)], more: &str) -> TokenServer {
        let address = own_address();
        let config = format!("[cluster]\nlisten = [\"{address}\"]\n{more}\n");
        TokenServer { slowlane: Slowlane::with_config(files, &config), address }
    }

    pub fn url(&self) -> String {
        format!("slowlane://{}", self.address)
    }

    /// A connection that has shown no token yet.
    pub fn greeted(&self) -> Caller {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut caller = Caller(stream);
        caller.0.write_all(HELLO.as_bytes()).unwrap();
        caller
    }

    /// A connection that has shown this token, and the answer to it.
    pub fn login(&self, token: Option<&str>) -> (Caller, StoreAnswer) {
        let mut caller = self.greeted();
        let answer = caller.ask(&Question::Login(token.map(str::to_owned)));
        (caller, answer)
    }
}

/// A client of a token server.
pub struct Caller(TcpStream);

impl Caller {
    pub fn ask(&mut self, question: &Question) -> StoreAnswer {
        self.0.write_all(&frame(question)).unwrap();
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        if length == *b"slow" {
            let mut hello = [0; 14];
            self.0.read_exact(&mut hello).unwrap();
            assert_eq!(&hello[..], &HELLO.as_bytes()[4..]);
            self.0.read_exact(&mut length).unwrap();
        }
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut bytes).unwrap();
        postcard::from_bytes(&bytes).unwrap()
    }

    /// Waits for the end of the connection. False: there are more bytes.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0))
    }
}

/// HAProxy in front of a token server and its standby, with the file that is shipped.
pub struct Balancer {
    _process: Process,
    pub address: SocketAddr,
    _folder: TempDir,
}

impl Balancer {
    pub fn start(first: &TokenServer, standby: &TokenServer) -> Balancer {
        let (folder, address) = (tempfile::tempdir().unwrap(), own_address());
        let shipped = fs::read_to_string(project("doc/cluster/standby.cfg")).unwrap();
        let config = shipped
            .replace("127.0.0.1:9006", &address.to_string())
            .replace("10.0.0.5:9007", &first.address.to_string())
            .replace("10.0.0.6:9007", &standby.address.to_string());
        assert!(config.contains(&standby.address.to_string()), "{config}");
        let path = folder.path().join("haproxy.cfg");
        fs::write(&path, config).unwrap();
        let process = Process::start(Command::new("haproxy").arg("-db").arg("-f").arg(&path));
        eventually("HAProxy listens", || TcpStream::connect(address).ok());
        Balancer { _process: process, address, _folder: folder }
    }
}

/// A token server and its standby, behind HAProxy.
pub struct Pair {
    pub first: TokenServer,
    pub standby: TokenServer,
    pub balancer: Balancer,
}

impl Pair {
    /// Both of them have this policy.
    pub fn start(files: &[(&str, &str)]) -> Pair {
        let [first, standby] = [(); 2].map(|()| TokenServer::with_policy(files, ""));
        let balancer = Balancer::start(&first, &standby);
        Pair { first, standby, balancer }
    }

    pub fn url(&self) -> String {
        format!("slowlane://{}", self.balancer.address)
    }
}
