//! A real HAProxy, with the files that are shipped for its version, as a child of the demonstration.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// The proxy between the clients and the application.
pub enum Proxy {
    Haproxy {
        binary: PathBuf,
        version: String,
        /// Who waits for a delay to pass.
        delays_by: &'static str,
        files: Box<FilesOf>,
    },
    /// None, with the reason: the clients ask slowlane over HTTP themselves, as nginx would.
    None(String),
}

/// Prints the files of an HAProxy, each with its name. The first is the configuration.
pub type FilesOf = dyn Fn(&Places) -> anyhow::Result<Vec<(&'static str, String)>>;

/// What the files of an HAProxy name.
pub struct Places {
    pub agent: SocketAddr,
    pub bind: SocketAddr,
    pub app: SocketAddr,
    pub folder: PathBuf,
}

/// The longest start of an HAProxy.
const PATIENCE: Duration = Duration::from_secs(10);

/// It runs until it is dropped.
pub(super) struct Haproxy {
    pub(super) address: SocketAddr,
    child: Child,
    errors: PathBuf,
}

/// Starts HAProxy if there is one, and describes the setup.
pub(super) async fn start(
    proxy: &Proxy,
    agent: SocketAddr,
    app: SocketAddr,
    folder: &Path,
) -> anyhow::Result<(Option<Haproxy>, String)> {
    let (binary, version, delays_by, files) = match proxy {
        Proxy::Haproxy { binary, version, delays_by, files } => (binary, version, delays_by, files),
        Proxy::None(why) => {
            return Ok((None, format!("{why}: slowlane plays its part, and asks itself over HTTP")));
        }
    };
    let places = Places { agent, bind: free_address().await?, app, folder: folder.join("haproxy") };
    let haproxy = Haproxy::start(binary, &places, files(&places)?, folder.join("haproxy.err")).await?;
    let reported =
        format!("HAProxy {version} on {}, slowlane on {agent}; delays by {delays_by}", places.bind);
    Ok((Some(haproxy), reported))
}

impl Haproxy {
    async fn start(
        binary: &Path,
        places: &Places,
        files: Vec<(&'static str, String)>,
        errors: PathBuf,
    ) -> anyhow::Result<Haproxy> {
        fs::create_dir(&places.folder)?;
        for (name, text) in &files {
            fs::write(places.folder.join(name), text)?;
        }
        let mut command = Command::new(binary);
        command.arg("-db").arg("-f").arg(places.folder.join(files[0].0)).current_dir(&places.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
        // Ctrl-C is for slowlane, which then ends its child.
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| anyhow!("cannot start {}: {error}", binary.display()))?;
        let mut haproxy = Haproxy { address: places.bind, child, errors };
        haproxy.wait_until_it_listens().await?;
        Ok(haproxy)
    }

    async fn wait_until_it_listens(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).await.is_err() {
            self.check()?;
            ensure!(Instant::now() < deadline, "HAProxy does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// An error if HAProxy has ended, with its output.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => {
                let said = fs::read_to_string(&self.errors).unwrap_or_default();
                bail!("HAProxy has ended ({status}):\n{}", said.trim_end())
            }
            None => Ok(()),
        }
    }
}

/// A free port, for a program that must be given one.
async fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // HAProxy may have ended by itself, so errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
