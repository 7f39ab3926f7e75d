//! An agent on the crate `spop` of nbari: the loop of its example without output, and with TCP_NODELAY.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use nbari_spop::actions::VarScope;
use nbari_spop::frame::FrameType;
use nbari_spop::frames::{Ack, AgentHello, FrameCapabilities, HaproxyHello};
use nbari_spop::{MAX_FRAME_SIZE_LIMIT, SpopCodec};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_util::codec::Framed;

/// Makes this binary the agent.
pub const ARGUMENT: &str = "--nbari";

pub fn run(at: &str) {
    let at: SocketAddr = at.parse().unwrap();
    Runtime::new().unwrap().block_on(async {
        let listener = TcpListener::bind(at).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Without it, pipelined answers wait for each other.
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve(stream));
        }
    });
}

/// Answers a constant verdict to every NOTIFY.
async fn serve(stream: TcpStream) {
    let mut socket = Framed::new(stream, SpopCodec::default());
    while let Some(Ok(frame)) = socket.next().await {
        match frame.frame_type() {
            FrameType::HaproxyHello => {
                let hello = HaproxyHello::try_from(frame.payload()).expect("a HELLO");
                let max_frame_size = hello.negotiate_max_frame_size(MAX_FRAME_SIZE_LIMIT).unwrap();
                socket.codec_mut().set_max_frame_size(max_frame_size);
                let version = hello.negotiate_version().expect("2.0");
                let capabilities = vec![FrameCapabilities::Pipelining];
                socket.send(Box::new(AgentHello { version, max_frame_size, capabilities })).await.unwrap();
            }
            FrameType::Notify => {
                let ids = frame.metadata();
                let ack = Ack::new(ids.stream_id, ids.frame_id);
                let ack = ack.set_var(VarScope::Transaction, "verdict", "pass");
                if socket.send(Box::new(ack)).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}
