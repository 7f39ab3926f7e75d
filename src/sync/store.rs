//! The store: a Redis server that the nodes share, or a token server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use futures_util::future::{try_join_all, try_join3};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    FromRedisValue, RedisError, RedisResult, Script, TlsCertificates, Value,
};
use thiserror::Error;

use crate::sync::call::Call;
use crate::sync::numbers;
use crate::sync::token_server::TokenServer;
use crate::sync::url::{StorePlace, StoreUrl};
use slowlane_core::base::key::Key;
use slowlane_core::base::target::Target;
use slowlane_core::cluster::{
    Answer, Beat, BlockNews, BlockWord, BlockWords, Census, Cluster, Extent, Member, PRESENT, Presence,
    SECRET_KEPT, Telling, Words,
};

/// A message has this many keys at most, so that the store is never busy for longer than about 2 ms.
const KEYS_MAX: usize = 200;

/// A connection is given up if it takes longer.
const CONNECT: Duration = Duration::from_secs(2);

/// Keys are spread over this many hash tags, so that a Redis Cluster can spread them over its servers.
const TAGS: u64 = 16;

/// How to reach a store, and where its keys are.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) url: StoreUrl,
    /// The certificate authority of the store, in PEM. None: those of the system.
    pub(super) ca: Option<PathBuf>,
    /// The node's own certificate and its key, in PEM.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    /// The beginning of all keys.
    pub(super) prefix: String,
    pub(super) own: Option<Own>,
}

/// The token server of this slowlane, which is the store of its own node.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) server: Arc<TokenServer>,
    pub(super) cluster: Arc<Cluster>,
    /// The key secret is that of a file.
    pub(super) is_secret_fixed: bool,
}

impl Own {
    fn presence(&self) -> Presence {
        match (self.cluster.is_used(), self.is_secret_fixed) {
            (false, _) => Presence::Onlooker,
            (true, false) => Presence::Own,
            (true, true) => Presence::Node,
        }
    }
}

/// Why the store gives no answer.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    #[error("no answer for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("it answers with something else than slowlane's script does")]
    Garbage,
    #[error("no sentinel knows a master with this name")]
    NoMaster,
    #[error("this slowlane is no token server")]
    NoTokenServer,
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl StoreError {
    /// The kind of the error in metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            StoreError::Silent(_) => "silent",
            StoreError::Garbage => "garbage",
            StoreError::NoMaster | StoreError::NoTokenServer => "unreachable",
            StoreError::Redis(error) if error.is_timeout() => "silent",
            StoreError::Redis(error) => match (error.kind(), error.code()) {
                (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
                    "login"
                }
                (_, Some("OOM")) => "memory",
                (_, Some("READONLY")) => "read_only",
                (ErrorKind::Io, _) => "unreachable",
                (ErrorKind::Parse | ErrorKind::UnexpectedReturnType, _) => "garbage",
                _ => "other",
            },
        }
    }
}

/// A connection to the store.
#[derive(Clone)]
enum Link {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
    TokenServer(MultiplexedConnection),
    Own(Own),
}

/// What is due for the store.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) tellings: Vec<Telling>,
    pub(super) beat: Option<Beat>,
    pub(super) blocks: Option<BlockWords>,
}

/// What the store has answered.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) answers: Vec<Answer>,
    pub(super) census: Option<Census>,
    pub(super) blocks: Option<BlockNews>,
}

async fn optional<T>(
    work: Option<impl Future<Output = Result<T, StoreError>>>,
) -> Result<Option<T>, StoreError> {
    match work {
        Some(work) => work.await.map(Some),
        None => Ok(None),
    }
}

/// The store, connected.
pub(super) struct Store {
    link: Link,
    prefix: String,
    scripts: BTreeMap<Call, Script>,
}

impl Door {
    /// Connects. Sentinels are asked anew each time: the master may be another one.
    pub(super) async fn open(&self) -> Result<Store, StoreError> {
        let link = match &self.url.place {
            StorePlace::Server(info) => Link::Server(self.server(info.clone()).await?),
            StorePlace::Sentinel { sentinels, name, master } => {
                let address = self.master(sentinels, name).await?;
                Link::Server(self.server(master.clone().set_addr(address)).await?)
            }
            StorePlace::Cluster(servers) => {
                let client = ClusterClient::builder(servers.clone())
                    .connection_timeout(CONNECT)
                    .response_timeout(CONNECT)
                    .retries(1)
                    .build()?;
                Link::Cluster(client.get_async_connection().await?)
            }
            StorePlace::TokenServer(info) => Link::TokenServer(self.server(info.clone()).await?),
            StorePlace::Own => Link::Own(self.own.clone().ok_or(StoreError::NoTokenServer)?),
        };
        let scripts = Call::ALL.map(|call| (call, Script::new(&call.script()))).into();
        Ok(Store { link, prefix: self.prefix.clone(), scripts })
    }

    async fn server(&self, info: ConnectionInfo) -> Result<MultiplexedConnection, RedisError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => Client::build_with_tls(info, self.certificates()?)?,
            _ => Client::open(info)?,
        };
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Reads the files of TLS. They may be others than at the last connection.
    fn certificates(&self) -> io::Result<TlsCertificates> {
        let root_cert = self.ca.as_ref().map(fs::read).transpose()?;
        let client_tls = match &self.identity {
            Some((cert, key)) => {
                Some(ClientTlsConfig { client_cert: fs::read(cert)?, client_key: fs::read(key)? })
            }
            None => None,
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }

    /// The address of the master, from the first sentinel that knows it.
    async fn master(&self, sentinels: &[ConnectionInfo], name: &str) -> Result<ConnectionAddr, StoreError> {
        let mut last = StoreError::NoMaster;
        for sentinel in sentinels {
            match self.ask_sentinel(sentinel.clone(), name).await {
                Ok(Some((host, port))) => return Ok(ConnectionAddr::Tcp(host, port)),
                Ok(None) => {}
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    async fn ask_sentinel(
        &self,
        sentinel: ConnectionInfo,
        name: &str,
    ) -> Result<Option<(String, u16)>, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(CONNECT));
        let mut link = Client::open(sentinel)?.get_multiplexed_async_connection_with_config(&config).await?;
        redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).query_async(&mut link).await
    }
}

impl Store {
    /// Tells the store everything that is due, in one flight. The answers have the order of the tellings.
    pub(super) async fn exchange(&self, due: &Due) -> Result<Told, StoreError> {
        let (answers, census, blocks) = try_join3(
            self.tell(&due.tellings),
            optional(due.beat.as_ref().map(|beat| self.beat(beat))),
            optional(due.blocks.as_ref().map(|blocks| self.tell_blocks(blocks))),
        )
        .await?;
        Ok(Told { answers, census, blocks })
    }

    async fn tell(&self, tellings: &[Telling]) -> Result<Vec<Answer>, StoreError> {
        let messages = self.messages(tellings);
        let told = try_join_all(messages.iter().map(|places| self.tell_some(tellings, places))).await?;
        let mut answers: Vec<Option<Answer>> = vec![None; tellings.len()];
        for (places, some) in messages.iter().zip(told) {
            places.iter().zip(some).for_each(|(&place, answer)| answers[place] = Some(answer));
        }
        answers.into_iter().collect::<Option<_>>().ok_or(StoreError::Garbage)
    }

    /// The places of the tellings of each message. The keys of one message have one script, and one tag in a Redis
    /// Cluster.
    fn messages(&self, tellings: &[Telling]) -> Vec<Vec<usize>> {
        let is_cluster = matches!(self.link, Link::Cluster(_));
        let mut open: BTreeMap<(Call, u64), Vec<usize>> = BTreeMap::new();
        let mut full = Vec::new();
        for (place, telling) in tellings.iter().enumerate() {
            let group = (call(&telling.words), if is_cluster { tag(telling.key) } else { 0 });
            let message = open.entry(group).or_default();
            message.push(place);
            if message.len() == KEYS_MAX {
                full.push(std::mem::take(message));
            }
        }
        full.extend(open.into_values().filter(|message| !message.is_empty()));
        full
    }

    /// Tells of keys whose words have one script.
    async fn tell_some(&self, tellings: &[Telling], places: &[usize]) -> Result<Vec<Answer>, StoreError> {
        let some = || places.iter().map(|&place| &tellings[place]);
        let Some(first) = some().next() else { return Ok(Vec::new()) };
        let keys = some().map(|Telling { key, .. }| self.name(tag(*key), &key.to_string())).collect();
        let arguments = some().flat_map(|telling| numbers::of(&telling.words.posting())).collect();
        let told: Vec<Value> = self.call(call(&first.words), keys, arguments).await?;
        if told.len() != places.len() {
            return Err(StoreError::Garbage);
        }
        let answers =
            some().zip(&told).map(|(telling, answer)| numbers::answer(&telling.words, text(answer)?));
        answers.collect::<Option<_>>().ok_or(StoreError::Garbage)
    }

    /// The name of a key in the store. The tag chooses its server in a Redis Cluster.
    fn name(&self, tag: u64, key: &str) -> String {
        match self.link {
            Link::TokenServer(_) | Link::Own(_) => key.to_owned(),
            Link::Server(_) | Link::Cluster(_) => format!("{}{{{tag:x}}}{key}", self.prefix),
        }
    }

    /// The names of what is kept once for all nodes.
    fn common(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("{}{{cluster}}{name}", self.prefix)).collect()
    }

    async fn call<T: FromRedisValue>(
        &self,
        call: Call,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> RedisResult<T> {
        let mut script = self.scripts[&call].prepare_invoke();
        match self.link.clone() {
            Link::Server(mut link) => script.key(keys).arg(arguments).invoke_async(&mut link).await,
            Link::Cluster(mut link) => script.key(keys).arg(arguments).invoke_async(&mut link).await,
            Link::TokenServer(mut link) => {
                redis::cmd(call.command())
                    .arg(keys.len())
                    .arg(keys)
                    .arg(arguments)
                    .query_async(&mut link)
                    .await
            }
            Link::Own(own) => {
                let head = [call.command().to_owned(), keys.len().to_string()];
                let words: Vec<String> = head.into_iter().chain(keys).chain(arguments).collect();
                let answer = own.server.answer_own(own.presence(), &words);
                let answer = redis::parse_redis_value(&answer)?;
                Ok(T::from_redis_value(answer.extract_error()?)?)
            }
        }
    }

    async fn tell_blocks(&self, words: &BlockWords) -> Result<BlockNews, StoreError> {
        let mut arguments =
            vec![words.epoch.clone(), words.seq.to_string(), format!("{:016x}", fastrand::u64(..))];
        for BlockWord { target, rest, is_taught } in &words.changes {
            let is_taught = u8::from(*is_taught).to_string();
            arguments.extend([target.to_string(), numbers::of_rest(*rest), is_taught]);
        }
        type Answer = (String, u64, String, Vec<Vec<u8>>, Vec<usize>);
        let keys = self.common(&["state", "blocks", "keys", "changes"]);
        let (epoch, seq, kind, list, refused): Answer = self.call(Call::Blocks, keys, arguments).await?;
        let list = list.chunks_exact(2).filter_map(|pair| {
            // A stranger's text is no block.
            Some((Target::parse(&pair[0]).ok()?, numbers::rest(&pair[1])?))
        });
        let extent = Extent::from_word(&kind).ok_or(StoreError::Garbage)?;
        Ok(BlockNews { epoch, seq, extent, list: list.collect(), refused })
    }

    async fn beat(&self, beat: &Beat) -> Result<Census, StoreError> {
        let Beat { member, secret, crowded } = beat;
        let mut arguments = vec![member.run.clone(), member.words(), secret.clone()];
        arguments.extend([PRESENT.as_micros().to_string(), SECRET_KEPT.as_millis().to_string()]);
        arguments.extend(crowded.iter().map(ToString::to_string));
        type Answer = (u64, String, Vec<Vec<u8>>, Vec<String>);
        let keys = self.common(&["nodes", "secret", "crowded"]);
        let (now_us, secret, members, crowded): Answer = self.call(Call::Beat, keys, arguments).await?;
        Ok(Census {
            now_us,
            secret,
            members: members.iter().filter_map(|words| Member::read(words)).collect(),
            crowded: crowded.iter().filter_map(|key| Key::from_hex(key)).collect(),
        })
    }
}

fn tag(key: Key) -> u64 {
    key.bits() % TAGS
}

/// Words of one kind have one call.
fn call(words: &Words) -> Call {
    match words {
        Words::Rate(..) => Call::Rate,
        Words::Count(..) => Call::Count,
        Words::Lease(..) => Call::Lease,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}
