//! The store as a Redis server, one behind sentinels, or a Redis Cluster.

use std::{fs, io};

use futures_util::future::{FutureExt, OptionFuture, try_join_all, try_join3};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, FromRedisValue,
    RedisError, RedisResult, Script, TlsCertificates, Value,
};

use crate::sync::numbers;
use crate::sync::settings::Files;
use crate::sync::store::{CONNECT, StoreError};
use slowlane_core::base::{Key, Target};
use slowlane_core::cluster::{
    Answer, Arguments, Beat, BlockChange, BlockNews, BlockUpdate, Due, Extent, KeyUpdate, Member, Membership,
    PRESENT, Response, SECRET_KEPT,
};

/// A message has this many keys at most, so that the store is never busy for longer than about 2 ms.
const KEYS_MAX: usize = 200;

/// Keys are spread over this many hash tags, so that a Redis Cluster can spread them over its servers.
const TAGS: u64 = 16;

/// A call of the store, which a script answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Rate,
    Count,
    Lease,
    Beat,
    Blocks,
}

/// The script of each call. Its first lines tell its arguments and its answer.
const SCRIPTS: [&str; 5] = [
    include_str!("rate.lua"),
    include_str!("count.lua"),
    include_str!("lease.lua"),
    include_str!("beat.lua"),
    include_str!("blocks.lua"),
];

impl Call {
    /// Arguments of one mode have one call.
    const fn of(arguments: &Arguments) -> Call {
        match arguments {
            Arguments::Rate(_) => Call::Rate,
            Arguments::Count(_) => Call::Count,
            Arguments::Lease(_) => Call::Lease,
        }
    }
}

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
    scripts: Vec<Script>,
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
        let script = |own| Script::new(&format!("{}{own}", include_str!("common.lua")));
        let scripts = SCRIPTS.map(script).into();
        Redis { link, prefix: prefix.to_owned(), scripts }
    }

    /// Tells the store everything that is due, in one flight. The answers have the order of the key updates.
    pub(super) async fn exchange(&self, due: &Due) -> Result<Response, StoreError> {
        let (answers, membership, blocks) = try_join3(
            self.send(&due.updates),
            OptionFuture::from(due.beat.as_ref().map(|beat| self.beat(beat))).map(Option::transpose),
            OptionFuture::from(due.blocks.as_ref().map(|blocks| self.send_blocks(blocks)))
                .map(Option::transpose),
        )
        .await?;
        Ok(Response { answers, membership, blocks })
    }

    async fn send(&self, updates: &[KeyUpdate]) -> Result<Vec<Answer>, StoreError> {
        let is_cluster = matches!(self.link, Link::Cluster(_));
        let group = |place: &usize| {
            let KeyUpdate { key, arguments } = &updates[*place];
            (Call::of(arguments), if is_cluster { tag(*key) } else { 0 })
        };
        let mut places: Vec<usize> = (0..updates.len()).collect();
        places.sort_by_key(group);
        // The keys of one message have one script, and one tag in a Redis Cluster.
        let groups = places.chunk_by(|one, other| group(one) == group(other));
        let messages = groups.flat_map(|group| group.chunks(KEYS_MAX));
        let response = try_join_all(messages.map(|places| self.send_some(updates, places))).await?;
        let mut answers: Vec<_> = places.iter().zip(response.into_iter().flatten()).collect();
        answers.sort_by_key(|(place, _)| **place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Tells of keys whose words have one script.
    async fn send_some(&self, updates: &[KeyUpdate], places: &[usize]) -> Result<Vec<Answer>, StoreError> {
        let some = || places.iter().map(|&place| &updates[place]);
        let keys = some().map(|KeyUpdate { key, .. }| self.name(tag(*key), &key.to_string())).collect();
        let arguments = some().flat_map(|update| numbers::of(&update.arguments)).collect();
        let response: Vec<Value> =
            self.call(Call::of(&updates[places[0]].arguments), keys, arguments).await?;
        if response.len() != places.len() {
            return Err(StoreError::Garbage);
        }
        let answers =
            some().zip(&response).map(|(update, answer)| numbers::answer(&update.arguments, text(answer)?));
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
        let mut script = self.scripts[call as usize].prepare_invoke();
        match self.link.clone() {
            Link::Server(mut link) => script.key(keys).arg(arguments).invoke_async(&mut link).await,
            Link::Cluster(mut link) => script.key(keys).arg(arguments).invoke_async(&mut link).await,
        }
    }

    async fn send_blocks(&self, update: &BlockUpdate) -> Result<BlockNews, StoreError> {
        let mut arguments =
            vec![update.epoch.clone(), update.seq.to_string(), format!("{:016x}", fastrand::u64(..))];
        for BlockChange { target, rest, is_restored } in &update.changes {
            let is_restored = u8::from(*is_restored).to_string();
            arguments.extend([target.to_string(), numbers::of_rest(*rest), is_restored]);
        }
        type Answer = (String, u64, String, Vec<Vec<u8>>, Vec<usize>);
        let keys = self.common(&["state", "blocks", "keys", "changes"]);
        let (epoch, seq, kind, list, refused): Answer = self.call(Call::Blocks, keys, arguments).await?;
        let list = list.chunks_exact(2).filter_map(|pair| {
            // A foreign text is no block.
            Some((Target::parse(&pair[0]).ok()?, numbers::rest(&pair[1])?))
        });
        let extent = Extent::from_word(&kind).ok_or(StoreError::Garbage)?;
        Ok(BlockNews { epoch, seq, extent, list: list.collect(), refused })
    }

    async fn beat(&self, beat: &Beat) -> Result<Membership, StoreError> {
        let Beat { member, secret, crowded } = beat;
        let mut arguments = vec![member.run.clone(), member.arguments(), secret.clone()];
        arguments.extend([PRESENT.as_micros().to_string(), SECRET_KEPT.as_millis().to_string()]);
        arguments.extend(crowded.iter().map(ToString::to_string));
        type Answer = (u64, String, Vec<Vec<u8>>, Vec<String>);
        let keys = self.common(&["nodes", "secret", "crowded"]);
        let (now_us, secret, members, crowded): Answer = self.call(Call::Beat, keys, arguments).await?;
        Ok(Membership {
            now_us,
            secret,
            members: members.iter().filter_map(|arguments| Member::read(arguments)).collect(),
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
