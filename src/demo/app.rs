//! The application: it answers `ok`, at a limited rate.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// An application that accepts connections until it is dropped.
pub(super) struct App {
    pub(super) address: SocketAddr,
    listening: JoinHandle<()>,
}

impl App {
    /// Starts an application that serves up to `workers` requests at a time, each of which takes the time `service`.
    /// Other requests queue.
    pub(super) async fn start(workers: usize, service: Duration) -> io::Result<App> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let workers = Arc::new(Semaphore::new(workers));
        let answer = service_fn(move |_| {
            let workers = workers.clone();
            async move {
                let _worker = workers.acquire().await;
                sleep(service).await;
                Ok::<_, Infallible>(Response::new("ok\n".to_owned()))
            }
        });
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                // Errors are ignored, because the client notices if its connection is lost.
                tokio::spawn(Builder::new().serve_connection(TokioIo::new(stream), answer.clone()));
            }
        });
        Ok(App { address, listening })
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
