//! throttlecrab over gRPC: one HTTP/2 connection, and messages that are written and read by hand.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::{self, SendRequest};
use http::{Request, Version};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use crate::load::{Figures, Keys, Meter};
use crate::support::{Key, Limit};

pub struct Client {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    address: SocketAddr,
    limit: Limit,
}

impl Client {
    pub fn open(address: SocketAddr, limit: Limit) -> Client {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let requests = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (requests, connection) = client::handshake(stream).await.unwrap();
            tokio::spawn(async { connection.await.expect("the server keeps the connection") });
            requests
        });
        Client { runtime, requests, address, limit }
    }

    pub fn ask(&mut self, key: Key) -> bool {
        self.runtime.block_on(self.call(key))
    }

    /// Each stream asks again after its answer.
    pub fn load(&mut self, process: u32, streams: usize, keys: Keys) -> Figures {
        let (keys, meter) = (RefCell::new(keys), RefCell::new(Meter::start(process)));
        let stream = async || {
            loop {
                let asked = Instant::now();
                let Some(key) = (keys.borrow_mut())(asked) else { return };
                assert!(self.call(key).await, "no load reaches its limit");
                meter.borrow_mut().add(asked.elapsed());
            }
        };
        self.runtime.block_on(join_all((0..streams).map(|_| stream())));
        meter.into_inner().figures()
    }

    async fn call(&self, key: Key) -> bool {
        let request = Request::post(format!("http://{}/throttlecrab.RateLimiter/Throttle", self.address))
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (answer, mut body) = requests.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(message(key, self.limit), true).unwrap();
        let (mut body, mut bytes) = (answer.await.unwrap().into_body(), Vec::new());
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap();
            body.flow_control().release_capacity(chunk.len()).unwrap();
            bytes.extend_from_slice(&chunk);
        }
        let trailers = body.trailers().await.unwrap().expect("a status");
        assert_eq!(trailers["grpc-status"], "0");
        // The first field is `allowed`; protobuf leaves it out if it is false.
        bytes[PREFIX..].starts_with(&[0x08, 1])
    }
}

/// A byte for the compression, and the length.
const PREFIX: usize = 5;

/// The fields: 1 key, 2 burst, 3 count, 4 period, 5 quantity.
fn message(key: Key, limit: Limit) -> Bytes {
    let mut fields = vec![0x0a, key.text.len() as u8];
    fields.extend_from_slice(key.text.as_bytes());
    for (number, value) in (2..).zip([limit.burst, limit.count, limit.period_s, 1]) {
        fields.push(number << 3);
        spread(value, &mut fields);
    }
    let mut message = vec![0];
    message.extend_from_slice(&(fields.len() as u32).to_be_bytes());
    message.extend_from_slice(&fields);
    message.into()
}

/// A varint: seven bits a byte, the lowest first.
fn spread(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
