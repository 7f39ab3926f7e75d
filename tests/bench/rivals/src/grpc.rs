//! Servers over gRPC: one HTTP/2 connection. Also a baseline that answers a constant.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use grpc::Entry;
use grpc::auth::{
    Address, Attributes, CheckRequest, CheckResponse, HttpRequest, Peer, Request as Asked, SocketAddress,
};
use grpc::ratelimit::{Code, Descriptor, RateLimitRequest, RateLimitResponse};
use grpc::{decoded, framed, unframed};
use h2::RecvStream;
use h2::client::{self, SendRequest};
use h2::server::{self, SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::load::{Figures, Keys, Meter};
use crate::support::{Key, Limit};

/// A service, with its questions and answers.
#[derive(Clone, Copy)]
pub enum Service {
    Throttlecrab,
    /// Envoy's rate limit service.
    RateLimit,
    /// Envoy's authorization service.
    Check,
}

impl Service {
    fn path(self) -> &'static str {
        match self {
            Service::Throttlecrab => "/throttlecrab.RateLimiter/Throttle",
            Service::RateLimit => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Service::Check => "/envoy.service.auth.v3.Authorization/Check",
        }
    }

    fn message(self, key: Key, limit: Limit) -> Bytes {
        match self {
            Service::Throttlecrab => throttlecrab(key, limit),
            Service::RateLimit => {
                let entry = |name: &'static str, value: &str| Descriptor {
                    entries: vec![Entry { key: name.into(), value: value.to_owned().into() }],
                    ..Descriptor::default()
                };
                let descriptors = vec![entry("remote_address", &key.text), entry("host", HOST)];
                framed(&RateLimitRequest { domain: "bench".into(), descriptors, hits_addend: 0 }).into()
            }
            Service::Check => {
                let address = SocketAddress { address: key.text.to_string().into() };
                let source = Peer { address: Some(Address { socket_address: Some(address) }) };
                let http = HttpRequest {
                    method: "GET".into(),
                    path: "/".into(),
                    host: HOST.into(),
                    ..HttpRequest::default()
                };
                let request = Some(Asked { http: Some(http) });
                let attributes = Attributes { source: Some(source), request, ..Attributes::default() };
                framed(&CheckRequest { attributes: Some(attributes) }).into()
            }
        }
    }

    fn admits(self, body: &Bytes) -> bool {
        match self {
            // The first field is `allowed`; protobuf leaves it out if it is false.
            Service::Throttlecrab => body[PREFIX..].starts_with(&[0x08, 1]),
            Service::RateLimit => {
                let answer: RateLimitResponse = decoded(&unframed(body).unwrap()).unwrap();
                answer.overall_code() == Code::Ok
            }
            Service::Check => {
                let answer: CheckResponse = decoded(&unframed(body).unwrap()).unwrap();
                answer.status.is_some_and(|status| status.code == 0)
            }
        }
    }
}

const HOST: &str = "shop.example";

pub struct Client {
    service: Service,
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    address: SocketAddr,
    limit: Limit,
}

impl Client {
    pub fn open(service: Service, address: SocketAddr, limit: Limit) -> Client {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let requests = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (requests, connection) = client::handshake(stream).await.unwrap();
            tokio::spawn(async { connection.await.expect("the server keeps the connection") });
            requests
        });
        Client { service, runtime, requests, address, limit }
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
        let request = Request::post(format!("http://{}{}", self.address, self.service.path()))
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (answer, mut body) = requests.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(self.service.message(key, self.limit), true).unwrap();
        let (mut body, mut bytes) = (answer.await.unwrap().into_body(), Vec::new());
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap();
            body.flow_control().release_capacity(chunk.len()).unwrap();
            bytes.extend_from_slice(&chunk);
        }
        let trailers = body.trailers().await.unwrap().expect("a status");
        assert_eq!(trailers["grpc-status"], "0");
        self.service.admits(&bytes.into())
    }
}

/// Makes this binary the baseline.
pub const ARGUMENT: &str = "--grpc-baseline";

/// A server that reads each call, and answers OK.
pub fn run(at: &str) {
    let at: SocketAddr = at.parse().unwrap();
    Runtime::new().unwrap().block_on(async {
        let listener = TcpListener::bind(at).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async {
                let Ok(mut connection) = server::handshake(stream).await else { return };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond));
                }
            });
        }
    });
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    while let Some(chunk) = body.data().await {
        body.flow_control().release_capacity(chunk?.len())?;
    }
    let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(Bytes::from_static(&[0, 0, 0, 0, 2, 0x08, 1]), false)?;
    stream.send_trailers(HeaderMap::from_iter([(
        "grpc-status".parse().unwrap(),
        HeaderValue::from_static("0"),
    )]))
}

/// A byte for the compression, and the length.
const PREFIX: usize = 5;

/// The fields: 1 key, 2 burst, 3 count, 4 period, 5 quantity.
fn throttlecrab(key: Key, limit: Limit) -> Bytes {
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
