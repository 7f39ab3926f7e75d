//! The store: a Redis server that the nodes share.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{try_join_all, try_join3};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, Script,
    TlsCertificates, Value,
};
use thiserror::Error;

use crate::base::key::Key;
use crate::base::target::Target;
use crate::cluster::{Answer, Beat, Census, Member, Telling, Words};
use crate::sync::courier::{BlockNews, BlockWord, BlockWords, Extent};
use crate::sync::numbers;
use crate::sync::url::{StorePlace, StoreUrl};

/// A message has this many keys at most, so that the store is never busy for longer than about 2 ms.
const KEYS_MAX: usize = 200;

/// A connection is given up if it takes longer.
const CONNECT: Duration = Duration::from_secs(2);

/// Keys are spread over this many hash tags, so that a Redis Cluster can spread them over its servers.
const TAGS: u64 = 16;

/// How long a node counts without a heartbeat.
const PRESENT: Duration = Duration::from_millis(3_500);

/// How long the key secret outlives the last node.
const SECRET_KEPT: Duration = Duration::from_secs(86_400);

/// How to reach a store, and where its keys are.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) url: StoreUrl,
    /// The certificate authority of the store, in PEM. None: those of the system.
    pub(super) ca: Option<Vec<u8>>,
    /// The beginning of all keys.
    pub(super) prefix: String,
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
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl StoreError {
    /// The kind of the error in metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            StoreError::Silent(_) => "silent",
            StoreError::Garbage => "garbage",
            StoreError::NoMaster => "unreachable",
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
    rate: Script,
    count: Script,
    lease: Script,
    beat: Script,
    blocks: Script,
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
        };
        let script = |text: &str| Script::new(&format!("{}{text}", include_str!("common.lua")));
        Ok(Store {
            link,
            prefix: self.prefix.clone(),
            rate: script(include_str!("rate.lua")),
            count: script(include_str!("count.lua")),
            lease: script(include_str!("lease.lua")),
            beat: script(include_str!("beat.lua")),
            blocks: script(include_str!("blocks.lua")),
        })
    }

    async fn server(&self, info: ConnectionInfo) -> Result<MultiplexedConnection, RedisError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
        let client = match &self.ca {
            Some(ca) => Client::build_with_tls(
                info,
                TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) },
            )?,
            None => Client::open(info)?,
        };
        client.get_multiplexed_async_connection_with_config(&config).await
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
        let mut open: BTreeMap<(u8, u64), Vec<usize>> = BTreeMap::new();
        let mut full = Vec::new();
        for (place, telling) in tellings.iter().enumerate() {
            let group = (script(&telling.words), if is_cluster { tag(telling.key) } else { 0 });
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
        let script = match first.words {
            Words::Rate(..) => &self.rate,
            Words::Count(..) => &self.count,
            Words::Lease(..) => &self.lease,
        };
        let mut call = script.prepare_invoke();
        for Telling { key, words } in some() {
            call.key(format!("{}{{{:x}}}{key}", self.prefix, tag(*key)));
            numbers::of(words).iter().for_each(|number| {
                call.arg(number);
            });
        }
        let told: Vec<Value> = match self.link.clone() {
            Link::Server(mut link) => call.invoke_async(&mut link).await?,
            Link::Cluster(mut link) => call.invoke_async(&mut link).await?,
        };
        if told.len() != places.len() {
            return Err(StoreError::Garbage);
        }
        let answers =
            some().zip(&told).map(|(telling, answer)| numbers::answer(&telling.words, text(answer)?));
        answers.collect::<Option<_>>().ok_or(StoreError::Garbage)
    }

    async fn tell_blocks(&self, words: &BlockWords) -> Result<BlockNews, StoreError> {
        let mut call = self.blocks.prepare_invoke();
        for name in ["state", "blocks", "changes"] {
            call.key(format!("{}{{cluster}}{name}", self.prefix));
        }
        call.arg(&words.epoch).arg(words.seq).arg(format!("{:016x}", fastrand::u64(..)));
        for BlockWord { target, rest, is_taught } in &words.changes {
            call.arg(target.to_string());
            call.arg(rest.map_or(-1, |rest| i64::try_from(rest.as_millis()).unwrap_or(i64::MAX)));
            call.arg(u8::from(*is_taught));
        }
        let (epoch, seq, kind, list): (String, u64, String, Vec<Vec<u8>>) = match self.link.clone() {
            Link::Server(mut link) => call.invoke_async(&mut link).await?,
            Link::Cluster(mut link) => call.invoke_async(&mut link).await?,
        };
        let list = list.chunks_exact(2).filter_map(|pair| {
            // A stranger's text is no block.
            let rest_ms: i64 = std::str::from_utf8(&pair[1]).ok()?.parse().ok()?;
            Some((Target::parse(&pair[0]).ok()?, u64::try_from(rest_ms).ok().map(Duration::from_millis)))
        });
        let extent = match kind.as_str() {
            "news" => Extent::News,
            "all" => Extent::All,
            "lost" => Extent::Lost,
            _ => return Err(StoreError::Garbage),
        };
        Ok(BlockNews { epoch, seq, extent, list: list.collect() })
    }

    async fn beat(&self, beat: &Beat) -> Result<Census, StoreError> {
        let mut call = self.beat.prepare_invoke();
        for name in ["nodes", "secret", "crowded"] {
            call.key(format!("{}{{cluster}}{name}", self.prefix));
        }
        call.arg(&beat.member.run).arg(beat.member.words()).arg(&beat.secret);
        call.arg(PRESENT.as_micros() as u64).arg(SECRET_KEPT.as_millis() as u64);
        beat.crowded.iter().for_each(|key| {
            call.arg(key.to_string());
        });
        type Answer = (u64, String, Vec<Vec<u8>>, Vec<String>);
        let (now_us, secret, members, crowded): Answer = match self.link.clone() {
            Link::Server(mut link) => call.invoke_async(&mut link).await?,
            Link::Cluster(mut link) => call.invoke_async(&mut link).await?,
        };
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

/// Words of one kind have one script.
fn script(words: &Words) -> u8 {
    match words {
        Words::Rate(..) => 0,
        Words::Count(..) => 1,
        Words::Lease(..) => 2,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}
