//! The application: it answers `ok`, at a limited rate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::demo::http::Half;

/// The rough time of a request. Timers are exact to a millisecond.
const SERVICE: Duration = Duration::from_millis(15);

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-type: text/plain\r\n\r\nok\n";

/// It runs until it is dropped.
pub(super) struct App {
    pub(super) address: SocketAddr,
    listening: JoinHandle<()>,
}

impl App {
    /// Serves about `per_s` requests a second. Requests beyond that queue.
    pub(super) async fn start(per_s: f64) -> io::Result<App> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let hands = (per_s * SERVICE.as_secs_f64()).round().max(1.0);
        let service = Duration::from_secs_f64(hands / per_s);
        let hands = Arc::new(Semaphore::new(hands as usize));
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let hands = hands.clone();
                tokio::spawn(async move {
                    // The client notices a lost connection.
                    let _ = serve(stream, &hands, service).await;
                });
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

async fn serve(stream: TcpStream, hands: &Semaphore, service: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut half = Half::new(stream);
    while half.head().await?.is_some() {
        let hand = hands.acquire().await.expect("the semaphore is never closed");
        sleep(service).await;
        drop(hand);
        half.stream.write_all(ANSWER).await?;
    }
    Ok(())
}
