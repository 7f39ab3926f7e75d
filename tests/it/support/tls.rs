//! TLS for tests: authorities and certificates by openssl, a client, and a tunnel for clients without TLS.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio_rustls::TlsConnector;

use super::PATIENCE;

/// The name that every certificate here is for.
pub const NAME: &str = "slowlane.example";

/// How openssl makes a key.
const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// An authority, with its files in a folder of its own.
pub struct Authority {
    folder: TempDir,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Pair {
    /// The lines of a TLS section of slowlane's config.
    pub fn lines(&self) -> String {
        format!("cert = \"{}\"\nkey = \"{}\"\n", self.cert.display(), self.key.display())
    }
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "[req]\nprompt = no\ndistinguished_name = subject\n[subject]\nCN = {name}\n[root]\n\
             basicConstraints = critical,CA:TRUE\nkeyUsage = keyCertSign,cRLSign\nsubjectKeyIdentifier = hash\n\
             [leaf]\nbasicConstraints = CA:FALSE\nsubjectAltName = DNS:{NAME},DNS:localhost,IP:127.0.0.1\n\
             extendedKeyUsage = serverAuth,clientAuth\n[ca]\ndefault_ca = issuing\n[issuing]\ndatabase = issued\nserial = serial\n\
             new_certs_dir = .\ncertificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\n\
             policy = anybody\nx509_extensions = leaf\nunique_subject = no\n[anybody]\ncommonName = supplied\n"
        );
        fs::write(folder.path().join("issued"), "").unwrap();
        fs::write(folder.path().join("serial"), "01\n").unwrap();
        fs::write(folder.path().join("openssl.cnf"), config).unwrap();
        let authority = Authority { folder };
        authority.openssl(&format!("req -x509 -days 3650 -extensions root -keyout ca.key -out ca.pem {KEY}"));
        authority
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The authority's own certificate.
    pub fn cert(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// A certificate with this name of its files.
    pub fn pair(&self, name: &str) -> Pair {
        self.openssl(&format!(
            "req -x509 -days 365 -extensions leaf -CA ca.pem -CAkey ca.key -keyout {name}.key -out {name}.pem {KEY}"
        ));
        self.files(name)
    }

    /// One that has expired long ago.
    pub fn expired_pair(&self, name: &str) -> Pair {
        self.openssl(&format!("req -new -keyout {name}.key -out {name}.csr {KEY}"));
        self.openssl(&format!(
            "ca -batch -notext -startdate 20200101000000Z -enddate 20200102000000Z -in {name}.csr -out {name}.pem"
        ));
        self.files(name)
    }

    fn files(&self, name: &str) -> Pair {
        Pair { cert: self.path(&format!("{name}.pem")), key: self.path(&format!("{name}.key")) }
    }

    fn openssl(&self, args: &str) {
        let mut command = Command::new("openssl");
        command.args(args.split(' ')).args(["-config", "openssl.cnf"]).current_dir(self.folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The settings of a client that trusts this authority, and shows a certificate if it has one.
    pub fn client(&self, pair: Option<&Pair>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.cert()).unwrap()).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        Arc::new(match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_file_iter(&pair.cert).unwrap().map(Result::unwrap).collect();
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&pair.key).unwrap())
                    .unwrap()
            }
        })
    }
}

/// The certificate of a file in DER.
pub fn der(path: &Path) -> Vec<u8> {
    CertificateDer::from_pem_file(path).unwrap().to_vec()
}

/// A connection after its handshake.
pub type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Connects and makes the handshake. With TLS 1.3 a server may refuse the client only after that.
pub fn connect(address: SocketAddr, client: &Arc<ClientConfig>) -> io::Result<Secured> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(NAME).unwrap();
    let mut connection = ClientConnection::new(client.clone(), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// The certificate that a listener shows now, in DER.
pub fn shown(address: SocketAddr, client: &Arc<ClientConfig>) -> Vec<u8> {
    let secured = connect(address, client).unwrap();
    secured.conn.peer_certificates().unwrap()[0].to_vec()
}

/// An address that leads to a listener with TLS, for clients that have none. It lasts as long as the test.
pub fn tunnel(address: SocketAddr, client: &Arc<ClientConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let connector = TlsConnector::from(client.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let connector = connector.clone();
                tokio::spawn(async move {
                    let far = tokio::net::TcpStream::connect(address).await?;
                    let _ = far.set_nodelay(true);
                    let _ = near.set_nodelay(true);
                    let name = ServerName::try_from(NAME).unwrap();
                    let mut far = connector.connect(name, far).await?;
                    copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
    });
    at
}
