//! A real HAProxy, with the files that are shipped for its version, as a child of the demonstration.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::proxy::installed;
use crate::proxy::shipped::haproxy::{self as shipped, Delivery, Places, Version};
use slowlane_core::base::address::Address;
use slowlane_core::base::hold::HOLD_SHIPPED;

/// The proxy between the clients and the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// The HAProxy on the PATH, if there is one.
    Found,
    /// This HAProxy.
    Given(PathBuf),
    /// None: the clients ask slowlane over SPOP themselves, as HAProxy would.
    None,
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
    let found = match proxy {
        Proxy::None => None,
        Proxy::Given(binary) => {
            // HAProxy runs in another folder, so the path must be absolute.
            let binary = &std::path::absolute(binary)?;
            let version = installed::version(binary);
            let problem = || format!("{}: is no HAProxy from {} on", binary.display(), Version::OLDEST);
            Some((binary.clone(), version.with_context(problem)?))
        }
        Proxy::Found => installed::haproxy(),
    };
    let Some((binary, version)) = found else {
        let why = match proxy {
            Proxy::None => "without HAProxy".to_owned(),
            _ => format!("there is no HAProxy from {} on", Version::OLDEST),
        };
        let told = format!("{why}: slowlane plays its part, and asks itself over SPOP");
        return Ok((None, told));
    };
    let delivery = Delivery::of(version);
    let haproxy = Haproxy::start(&binary, version, delivery, [agent, app], folder).await?;
    let who =
        if delivery == Delivery::Hold { "slowlane: its answers come late" } else { "HAProxy: it pauses" };
    let told = format!("HAProxy {version} on {}, slowlane on {agent}; delays by {who}", haproxy.address);
    Ok((Some(haproxy), told))
}

impl Haproxy {
    async fn start(
        binary: &Path,
        version: Version,
        delivery: Delivery,
        [agent, app]: [SocketAddr; 2],
        folder: &Path,
    ) -> anyhow::Result<Haproxy> {
        let address = free_address().await?;
        let (agent, app) = (Address::Tcp(agent.to_string()), app.to_string());
        let files = folder.join("haproxy");
        fs::create_dir(&files)?;
        let (bind, path) = (address.to_string(), files.display().to_string());
        let places = Places {
            agent: &agent,
            bind: &bind,
            app: &app,
            folder: &path,
            tls: None,
            ratelimit: false,
            hold_max: HOLD_SHIPPED,
            fields: &[],
            peer: &agent,
            paced: &[],
        };
        let written = shipped::files(version, delivery, &places)?;
        for file in &written {
            fs::write(files.join(file.name), &file.text)?;
        }
        let errors = folder.join("haproxy.err");
        let mut command = Command::new(binary);
        command.arg("-db").arg("-f").arg(files.join(written[0].name)).current_dir(&files);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
        // Ctrl-C is for slowlane, which then ends its child.
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| anyhow!("cannot start {}: {error}", binary.display()))?;
        let mut haproxy = Haproxy { address, child, errors };
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
