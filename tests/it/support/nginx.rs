//! A real nginx, with the configuration files that slowlane ships.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::client::Client;
use super::haproxy::replace;
use super::process::Process;
use super::{eventually, own_address, project};

/// A running nginx.
pub struct Nginx {
    pub process: Process,
    pub address: SocketAddr,
    folder: TempDir,
}

impl Nginx {
    pub fn shipped(agent: &str, app: SocketAddr) -> Nginx {
        Nginx::with(agent, app, |config| config)
    }

    /// Starts nginx with an edit of `nginx.conf`.
    pub fn with(agent: &str, app: SocketAddr, edit: impl Fn(String) -> String) -> Nginx {
        Nginx::with_files(agent, app, |name, text| if name == "nginx.conf" { edit(text) } else { text })
    }

    /// Starts nginx with an edit of each file, by its name.
    pub fn with_files(agent: &str, app: SocketAddr, edit: impl Fn(&str, String) -> String) -> Nginx {
        Nginx::of(Path::new("nginx"), agent, app, edit)
    }

    /// The same with another program than the installed one.
    pub fn of(program: &Path, agent: &str, app: SocketAddr, edit: impl Fn(&str, String) -> String) -> Nginx {
        let folder = tempfile::tempdir().unwrap();
        let address = own_address();
        let own = folder.path().display().to_string();
        for file in fs::read_dir(project("nginx")).unwrap().map(Result::unwrap) {
            let text = fs::read_to_string(file.path()).unwrap();
            let name = file.file_name();
            let name = name.to_str().unwrap();
            let text = match name {
                "nginx.conf" => {
                    let text = replace(&text, "listen 8080", &format!("listen {address}"));
                    let text = replace(&text, "server 127.0.0.1:8000", &format!("server {app}"));
                    let text = replace(&text, "/run/nginx.pid", &format!("{own}/nginx.pid"));
                    let folders = ["/var/log/nginx", "/var/lib/nginx"];
                    folders.iter().fold(text, |text, folder| text.replace(folder, &own))
                }
                "slowlane-upstream.conf" => {
                    let text = text.replace("127.0.0.1:9009", &own_address().to_string());
                    replace(&text, "server 127.0.0.1:9001", &format!("server {agent}"))
                }
                _ => text,
            };
            fs::write(folder.path().join(name), edit(name, text)).unwrap();
        }
        // If the tests run as root, workers run as another user and need access to the folder.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), permissions).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        command.arg("-e").arg("stderr").arg("-g").arg("daemon off;");
        let mut nginx = Nginx { process: Process::start(&mut command), address, folder };
        eventually("nginx listens", || {
            assert!(nginx.process.is_running(), "nginx ended:\n{}", nginx.process.log().join("\n"));
            TcpStream::connect(nginx.address).ok()
        });
        nginx
    }

    /// The path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn error_log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("error.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    pub fn access_log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("access.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

/// Asks the master to end, which ends its workers. A killed master would leave them behind.
impl Drop for Nginx {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("error.log"));
            eprintln!("--- error.log of nginx:\n{}", log.unwrap_or_default());
        }
        if self.process.is_running() {
            self.process.signal("TERM");
            self.process.wait();
        }
    }
}
