//! A real HAProxy, with the files shipped for its version, as a child process of the demonstration.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::proxy::shipped::haproxy::{Delivery, Own, Version, files};
use crate::proxy::shipped::{File, Places};
use slowlane_core::base::Address;

/// The longest time that HAProxy may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// An HAProxy process that runs until this is dropped.
pub(super) struct HaproxyChild {
    pub(super) address: SocketAddr,
    child: Child,
    errors: PathBuf,
}

impl HaproxyChild {
    /// Starts HAProxy with the files shipped for its version and this delivery.
    pub(super) async fn start(
        binary: &Path,
        (version, delivery): (Version, Delivery),
        agent: SocketAddr,
        app: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<HaproxyChild> {
        let (errors, folder) = (folder.join("haproxy.err"), folder.join("haproxy"));
        // HAProxy must be given a port, so this function finds a free one.
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let agent = Address::Tcp(agent.to_string());
        let (listen, app) = (address.to_string(), app.to_string());
        let fields = ["page".to_owned()];
        let places = Places { app: &app, fields: &fields, ..Places::shipped(&agent, &listen) };
        let own = Own { folder: &folder.display().to_string(), peer: &agent, ends: None, paced: &[] };
        let files = files(version, delivery, &places, &own)?;
        fs::create_dir(&folder)?;
        for File { name, text } in &files {
            fs::write(folder.join(name), text)?;
        }
        let mut command = Command::new(binary);
        command.arg("-db").arg("-f").arg(folder.join(files[0].name)).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&errors)?);
        // HAProxy runs in its own process group, so that Ctrl-C reaches only slowlane, which then ends HAProxy.
        let child = command.process_group(0).spawn();
        let child = child.map_err(|error| anyhow!("cannot start {}: {error}", binary.display()))?;
        let mut haproxy = HaproxyChild { address, child, errors };
        haproxy.wait_until_it_listens().await?;
        Ok(haproxy)
    }

    /// One line that names the programs, their addresses, and the program that delays requests.
    pub(super) fn note(&self, (version, delivery): (Version, Delivery), agent: SocketAddr) -> String {
        let delays_by = match delivery {
            Delivery::Hold => "slowlane delays requests by answering late",
            _ => "HAProxy delays requests by pausing them",
        };
        format!("HAProxy {version} on {}, slowlane on {agent}; {delays_by}", self.address)
    }

    async fn wait_until_it_listens(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).await.is_err() {
            self.check()?;
            ensure!(Instant::now() < deadline, "HAProxy does not listen on {}", self.address);
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Returns an error with HAProxy's output if HAProxy has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => {
                let said = fs::read_to_string(&self.errors).unwrap_or_default();
                bail!("HAProxy has exited ({status}):\n{}", said.trim_end())
            }
            None => Ok(()),
        }
    }
}

impl Drop for HaproxyChild {
    fn drop(&mut self) {
        // HAProxy may have ended by itself, so errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
