//! The store as a Redis server, one behind sentinels, or a Redis Cluster.

use std::collections::BTreeMap;
use std::{fs, io};

use futures_util::future::{FutureExt, OptionFuture, try_join_all, try_join3};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, FromRedisValue,
    RedisError, RedisResult, Script, TlsCertificates, Value,
};

use crate::sync::call::Call;
use crate::sync::numbers;
use crate::sync::settings::Files;
use crate::sync::store::{CONNECT, StoreError};
use slowlane_core::base::key::Key;
use slowlane_core::base::target::Target;
use slowlane_core::cluster::{
    Answer, Beat, BlockNews, BlockWord, BlockWords, Census, Due, Extent, Member, PRESENT, SECRET_KEPT,
    Telling, Told,
};

/// A message has this many keys at most, so that the store is never busy for longer than about 2 ms.
const KEYS_MAX: usize = 200;

/// Keys are spread over this many hash tags, so that a Redis Cluster can spread them over its servers.
const TAGS: u64 = 16;

/// A connection to Redis.
#[derive(Clone)]
enum Link {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Redis, connected.
pub(super) struct Redis {
    link: Link,
    prefix: String,
    scripts: BTreeMap<Call, Script>,
}

impl Redis {
    /// Connects to a server.
    pub(super) async fn server(
        info: ConnectionInfo,
        files: &Files,
        prefix: &str,
    ) -> Result<Redis, StoreError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => Client::build_with_tls(info, certificates(files)?)?,
            _ => Client::open(info)?,
        };
        let link = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Redis::new(Link::Server(link), prefix))
    }

    /// Connects to a Redis Cluster.
    pub(super) async fn cluster(servers: &[ConnectionInfo], prefix: &str) -> Result<Redis, StoreError> {
        let client = ClusterClient::builder(servers.to_vec())
            .connection_timeout(CONNECT)
            .response_timeout(CONNECT)
            .retries(1)
            .build()?;
        Ok(Redis::new(Link::Cluster(client.get_async_connection().await?), prefix))
    }

    fn new(link: Link, prefix: &str) -> Redis {
        let scripts = Call::ALL.map(|call| (call, Script::new(&call.script()))).into();
        Redis { link, prefix: prefix.to_owned(), scripts }
    }

    /// Tells the store everything that is due, in one flight. The answers have the order of the tellings.
    pub(super) async fn exchange(&self, due: &Due) -> Result<Told, StoreError> {
        let (answers, census, blocks) = try_join3(
            self.tell(&due.tellings),
            OptionFuture::from(due.beat.as_ref().map(|beat| self.beat(beat))).map(Option::transpose),
            OptionFuture::from(due.blocks.as_ref().map(|blocks| self.tell_blocks(blocks)))
                .map(Option::transpose),
        )
        .await?;
        Ok(Told { answers, census, blocks })
    }

    async fn tell(&self, tellings: &[Telling]) -> Result<Vec<Answer>, StoreError> {
        let is_cluster = matches!(self.link, Link::Cluster(_));
        let group = |place: &usize| {
            let Telling { key, words } = &tellings[*place];
            (Call::of(words), if is_cluster { tag(*key) } else { 0 })
        };
        let mut places: Vec<usize> = (0..tellings.len()).collect();
        places.sort_by_key(group);
        // The keys of one message have one script, and one tag in a Redis Cluster.
        let groups = places.chunk_by(|one, other| group(one) == group(other));
        let messages = groups.flat_map(|group| group.chunks(KEYS_MAX));
        let told = try_join_all(messages.map(|places| self.tell_some(tellings, places))).await?;
        let mut answers: Vec<_> = places.iter().zip(told.into_iter().flatten()).collect();
        answers.sort_by_key(|(place, _)| **place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Tells of keys whose words have one script.
    async fn tell_some(&self, tellings: &[Telling], places: &[usize]) -> Result<Vec<Answer>, StoreError> {
        let some = || places.iter().map(|&place| &tellings[place]);
        let keys = some().map(|Telling { key, .. }| self.name(tag(*key), &key.to_string())).collect();
        let arguments = some().flat_map(|telling| numbers::of(&telling.words)).collect();
        let told: Vec<Value> = self.call(Call::of(&tellings[places[0]].words), keys, arguments).await?;
        if told.len() != places.len() {
            return Err(StoreError::Garbage);
        }
        let answers =
            some().zip(&told).map(|(telling, answer)| numbers::answer(&telling.words, text(answer)?));
        answers.collect::<Option<_>>().ok_or(StoreError::Garbage)
    }

    /// The name of a key in the store. The tag chooses its server in a Redis Cluster.
    fn name(&self, tag: u64, key: &str) -> String {
        format!("{}{{{tag:x}}}{key}", self.prefix)
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

/// Reads the files of TLS. They may be others than at the last connection.
fn certificates(Files { ca, identity }: &Files) -> io::Result<TlsCertificates> {
    let root_cert = ca.as_ref().map(fs::read).transpose()?;
    let client_tls = match identity {
        Some((cert, key)) => {
            Some(ClientTlsConfig { client_cert: fs::read(cert)?, client_key: fs::read(key)? })
        }
        None => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

/// The address of the master, from the first sentinel that knows it.
pub(super) async fn master(sentinels: &[ConnectionInfo], name: &str) -> Result<ConnectionAddr, StoreError> {
    let mut last = StoreError::NoMaster;
    for sentinel in sentinels {
        match ask_sentinel(sentinel.clone(), name).await {
            Ok(Some((host, port))) => return Ok(ConnectionAddr::Tcp(host, port)),
            Ok(None) => {}
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

async fn ask_sentinel(sentinel: ConnectionInfo, name: &str) -> Result<Option<(String, u16)>, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        .set_response_timeout(Some(CONNECT));
    let mut link = Client::open(sentinel)?.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).query_async(&mut link).await
}

fn tag(key: Key) -> u64 {
    key.bits() % TAGS
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}
