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

/// The rough time of a request. Timers are exact to a millisecond.
const SERVICE: Duration = Duration::from_millis(15);

/// It runs until it is dropped.
pub(super) struct App {
    pub(super) address: SocketAddr,
    listening: JoinHandle<()>,
}

impl App {
    /// Serves about `per_s` requests per second. Further requests queue.
    pub(super) async fn start(per_s: f64) -> io::Result<App> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let hands = (per_s * SERVICE.as_secs_f64()).round().max(1.0);
        let service = Duration::from_secs_f64(hands / per_s);
        let hands = Arc::new(Semaphore::new(hands as usize));
        let answer = service_fn(move |_| {
            let hands = hands.clone();
            async move {
                let _hand = hands.acquire().await;
                sleep(service).await;
                Ok::<_, Infallible>(Response::new("ok\n".to_owned()))
            }
        });
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                // The client notices a lost connection.
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
