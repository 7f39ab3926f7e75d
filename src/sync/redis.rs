//! The store as a Redis server, a server behind sentinels, or a Redis Cluster.

use std::time::Duration;
use std::{fs, io};

use futures_util::future::{FutureExt, OptionFuture, try_join, try_join_all, try_join3};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, FromRedisValue,
    RedisResult, Script, TlsCertificates,
};

use crate::sync::{CONNECT, StoreError, StoreTlsFiles};
use slowlane_core::base::{Key, Target};
use slowlane_core::cluster::{
    Answer, Arguments, Beat, BlockChange, BlockNews, BlockUpdate, Due, Extent, HINTS_MAX, Hint, KeyUpdate,
    Member, Membership, PRESENT, Response, SECRET_KEPT,
};

/// The maximum number of keys in a message, so that no message keeps the store busy for longer than about 2 ms.
const KEYS_MAX: usize = 200;

/// The maximum length of a record of rate.lua.
const RECORD_BYTES_MAX: usize = 512;

/// Keys are spread over this many hash tags, so that a Redis Cluster can distribute them over its servers.
const TAGS: u64 = 16;

/// A call of a script in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Rate,
    Count,
    Lease,
    Beat,
    Blocks,
}

/// The script of each call. A script's first lines describe its arguments and its answer.
const SCRIPTS: [&str; 5] = [
    include_str!("rate.lua"),
    include_str!("count.lua"),
    include_str!("lease.lua"),
    include_str!("beat.lua"),
    include_str!("blocks.lua"),
];

impl Call {
    /// The call for these arguments. Each mode has its own call.
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

/// A connected store in Redis.
pub(super) struct Redis {
    link: Link,
    prefix: String,
    scripts: Vec<Script>,
    /// The crowded keys of the last heartbeat. The next heartbeat reads their records without a second round trip.
    crowded: Mutex<Vec<Key>>,
}

impl Redis {
    /// Connects to a server.
    pub(super) async fn server(
        info: ConnectionInfo,
        files: &StoreTlsFiles,
        prefix: &str,
    ) -> Result<Redis, StoreError> {
        Ok(Redis::new(Link::Server(connect(info, files, None).await?), prefix))
    }

    /// Connects to a Redis Cluster.
    pub(super) async fn cluster(
        servers: &[ConnectionInfo],
        files: &StoreTlsFiles,
        prefix: &str,
    ) -> Result<Redis, StoreError> {
        let mut builder = ClusterClient::builder(servers.to_vec())
            .connection_timeout(CONNECT)
            .response_timeout(CONNECT)
            .retries(1);
        if servers.iter().any(is_secure) {
            builder = builder.certs(certificates(files)?);
        }
        let link = builder.build()?.get_async_connection().await?;
        Ok(Redis::new(Link::Cluster(link), prefix))
    }

    fn new(link: Link, prefix: &str) -> Redis {
        let script = |own| Script::new(&format!("{}{own}", include_str!("common.lua")));
        let scripts = SCRIPTS.map(script).into();
        Redis { link, prefix: prefix.to_owned(), scripts, crowded: Mutex::default() }
    }

    /// Sends everything that is due, all at once. The answers are in the order of the key updates.
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
        // All keys of a message use the same script and, in a Redis Cluster, have the same tag.
        let groups = places.chunk_by(|one, other| group(one) == group(other));
        let messages = groups.flat_map(|group| group.chunks(KEYS_MAX));
        let response = try_join_all(messages.map(|places| self.send_some(updates, places))).await?;
        let mut answers: Vec<_> = places.iter().zip(response.into_iter().flatten()).collect();
        answers.sort_by_key(|(place, _)| **place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Sends updates of keys that use the same script.
    async fn send_some(&self, updates: &[KeyUpdate], places: &[usize]) -> Result<Vec<Answer>, StoreError> {
        let some = || places.iter().map(|&place| &updates[place]);
        let keys = some().map(|KeyUpdate { key, .. }| self.name(tag(*key), &key.to_string())).collect();
        let arguments = some().map(|update| written(&update.arguments)).collect();
        let response: Vec<Vec<u8>> =
            self.call(Call::of(&updates[places[0]].arguments), keys, arguments).await?;
        if response.len() != places.len() {
            return Err(StoreError::Garbage);
        }
        let answers = some().zip(&response).map(|(update, text)| answer(&update.arguments, text));
        answers.collect::<Option<_>>().ok_or(StoreError::Garbage)
    }

    /// The name of a key in the store. The tag chooses its server in a Redis Cluster.
    fn name(&self, tag: u64, key: &str) -> String {
        format!("{}{{{tag:x}}}{key}", self.prefix)
    }

    /// The names of the records that exist once for all nodes.
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
            arguments.extend([target.to_string(), rest_ms(*rest), is_restored]);
        }
        type BlocksReply = (String, u64, String, Vec<Vec<u8>>, Vec<usize>);
        let keys = self.common(&["state", "blocks", "keys", "changes"]);
        let (epoch, seq, kind, list, refused): BlocksReply = self.call(Call::Blocks, keys, arguments).await?;
        let list = list.chunks_exact(2).filter_map(|pair| {
            // An entry that cannot be parsed comes from another program, and is skipped.
            Some((Target::parse(&pair[0]).ok()?, rest(&pair[1])?))
        });
        let extent = match kind.as_str() {
            "news" => Extent::News,
            "all" => Extent::All,
            "lost" => Extent::Lost,
            _ => return Err(StoreError::Garbage),
        };
        Ok(BlockNews { epoch, seq, extent, list: list.collect(), refused })
    }

    /// Reads the beginning of the records of these keys, but of at most [`HINTS_MAX`] keys.
    async fn records(&self, keys: &[Key]) -> RedisResult<Vec<(Key, String)>> {
        let record = async |&key: &Key| {
            let mut read = redis::cmd("GETRANGE");
            read.arg(self.name(tag(key), &key.to_string())).arg(0).arg(RECORD_BYTES_MAX);
            let record: RedisResult<String> = match self.link.clone() {
                Link::Server(mut link) => read.query_async(&mut link).await,
                Link::Cluster(mut link) => read.query_async(&mut link).await,
            };
            match record {
                Ok(record) => Ok(Some((key, record))),
                Err(error) if error.is_io_error() => Err(error),
                // Another program has written the value, which has a different type or is not text.
                Err(_) => Ok(None),
            }
        };
        let records = try_join_all(keys.iter().take(HINTS_MAX).map(record)).await?;
        Ok(records.into_iter().flatten().collect())
    }

    async fn beat(&self, beat: &Beat) -> Result<Membership, StoreError> {
        let Beat { member, secret, crowded } = beat;
        let mut arguments = vec![member.run.clone(), member.arguments(), secret.clone()];
        arguments.extend([PRESENT.as_micros().to_string(), SECRET_KEPT.as_millis().to_string()]);
        arguments.extend(crowded.iter().map(ToString::to_string));
        type BeatReply = (u64, String, Vec<Vec<u8>>, Vec<String>);
        let keys = self.common(&["nodes", "secret", "crowded"]);
        let known = self.crowded.lock().clone();
        let answer = self.call::<BeatReply>(Call::Beat, keys, arguments);
        let ((now_us, secret, members, crowded), records) = try_join(answer, self.records(&known)).await?;
        let crowded: Vec<Key> = crowded.iter().filter_map(|key| Key::from_hex(key)).collect();
        self.crowded.lock().clone_from(&crowded);
        let hint = |(key, record): &(Key, String)| Some((*key, hint_of(record, now_us)?));
        Ok(Membership {
            now_us,
            secret,
            members: members.iter().filter_map(|arguments| Member::read(arguments)).collect(),
            hints: records.iter().filter_map(hint).collect(),
            crowded,
        })
    }
}

/// Parses the beginning of a record of rate.lua. `None` if another mode or another program has written the record.
fn hint_of(record: &str, now_us: u64) -> Option<Hint> {
    let numbers: Vec<f64> =
        record.split(' ').take(5).map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [tat_us, demand, slow_demand, at_us, born_us] = numbers[..] else { return None };
    let is_of_rate = matches!(record.split(' ').count(), 9 | 10);
    let (now_us, since_s) = (now_us as f64, |moment_us: f64| ((now_us as f64 - moment_us) / 1e6).max(0.0));
    let hint = Hint {
        ahead_s: (tat_us - now_us) / 1e6,
        demand,
        slow_demand,
        since_s: since_s(at_us),
        age_s: since_s(born_us),
        ..Hint::default()
    };
    Some(hint).filter(|hint| is_of_rate && hint.is_within_bounds())
}

/// Reads the TLS files. They may have changed since the last connection.
fn certificates(StoreTlsFiles { ca, identity }: &StoreTlsFiles) -> io::Result<TlsCertificates> {
    let root_cert = ca.as_ref().map(fs::read).transpose()?;
    let client_tls = match identity {
        Some((cert, key)) => {
            Some(ClientTlsConfig { client_cert: fs::read(cert)?, client_key: fs::read(key)? })
        }
        None => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

fn is_secure(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Connects to a server. If `answer_max` is set, an answer that takes longer is an error.
async fn connect(
    info: ConnectionInfo,
    files: &StoreTlsFiles,
    answer_max: Option<Duration>,
) -> Result<MultiplexedConnection, StoreError> {
    let client = match is_secure(&info) {
        true => Client::build_with_tls(info, certificates(files)?)?,
        false => Client::open(info)?,
    };
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(answer_max);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// The address of the master, from the first sentinel that knows it. The connection to the master uses TLS if the
/// connection to the sentinel does.
pub(super) async fn master(
    sentinels: &[ConnectionInfo],
    name: &str,
    files: &StoreTlsFiles,
) -> Result<ConnectionAddr, StoreError> {
    let mut last = StoreError::NoMaster;
    for sentinel in sentinels {
        match ask_sentinel(sentinel.clone(), name, files).await {
            Ok(Some((host, port))) if is_secure(sentinel) => {
                return Ok(ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None });
            }
            Ok(Some((host, port))) => return Ok(ConnectionAddr::Tcp(host, port)),
            Ok(None) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn ask_sentinel(
    sentinel: ConnectionInfo,
    name: &str,
    files: &StoreTlsFiles,
) -> Result<Option<(String, u16)>, StoreError> {
    let mut link = connect(sentinel, files, Some(CONNECT)).await?;
    Ok(redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).query_async(&mut link).await?)
}

fn tag(key: Key) -> u64 {
    key.bits() % TAGS
}

/// The message for a key, in the form that its script reads.
fn written(arguments: &Arguments) -> String {
    let written = match arguments {
        Arguments::Rate(message) => serde_json::to_string(message),
        Arguments::Count(message) => serde_json::to_string(message),
        Arguments::Lease(message) => serde_json::to_string(message),
    };
    written.expect("it is plain data")
}

/// Parses the answer to these arguments. `None` if the answer has a different form.
fn answer(arguments: &Arguments, text: &[u8]) -> Option<Answer> {
    let answer = match arguments {
        Arguments::Rate(_) => serde_json::from_slice(text).map(Answer::Rate),
        Arguments::Count(_) => serde_json::from_slice(text).map(Answer::Count),
        Arguments::Lease(_) => serde_json::from_slice(text).map(Answer::Lease),
    };
    answer.ok()
}

/// The remaining time of a block, in milliseconds, or -1 if it has ended.
fn rest_ms(rest: Option<Duration>) -> String {
    rest.map_or(-1, |rest| i64::try_from(rest.as_millis()).unwrap_or(i64::MAX)).to_string()
}

/// The inverse of [`rest_ms`]. `None` if the text is not a number.
fn rest(text: &[u8]) -> Option<Option<Duration>> {
    let rest_ms: i64 = str::from_utf8(text).ok()?.parse().ok()?;
    Some(u64::try_from(rest_ms).ok().map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slowlane_core::cluster::{CountMessage, LeaseMessage, Message};

    use super::*;

    fn arguments() -> [Arguments; 3] {
        let count = CountMessage { limit: 1_000.0, window_s: 60.0, ..CountMessage::default() };
        let lease = LeaseMessage { want: 5.0, limit: 1_000.0, window_s: 60.0, ..LeaseMessage::default() };
        [Arguments::Rate(Message::default()), Arguments::Count(count), Arguments::Lease(lease)]
    }

    /// The answer that a node takes.
    fn taken(arguments: &Arguments, text: &str) -> Option<Answer> {
        answer(arguments, text.as_bytes()).filter(|answer| answer.fits(arguments))
    }

    /// The numbers under these names, in JSON.
    fn json(names: &[&str], numbers: &str) -> String {
        let pairs = names.iter().zip(numbers.split(' ')).map(|(name, number)| format!("\"{name}\":{number}"));
        format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn numbers_beyond_all_reason_are_no_answer() {
        let [rate, count, lease] = arguments();
        let of_rate = |numbers| taken(&rate, &json(&["ahead_s", "demand", "slow_demand", "age_s"], numbers));
        let of_count = |numbers| taken(&count, &json(&["current", "before", "over", "age_s"], numbers));
        let of_lease = |numbers| taken(&lease, &json(&["granted", "given", "rest_s"], numbers));
        assert!(of_rate("-0.02 3.5 7.25 1").is_some());
        assert!(of_count("3 4 0 59.999999").is_some());
        assert!(of_lease("5 500 59.999999").is_some());
        for numbers in ["nan 0 0 0", "1e300 0 0 0", "0 -1 0 0", "0 0 0", "", "inf 0 0 0", "null 0 0 0"] {
            assert_eq!(of_rate(numbers), None, "{numbers}");
        }
        for numbers in ["-1 0 0 0", "0 0 0 60.000001", "0 0 1001 0", "0 0 0", "0 nan 0 0"] {
            assert_eq!(of_count(numbers), None, "{numbers}");
        }
        // More than was wanted, more than there is, later than the window.
        for numbers in ["6 500 0", "5 1001 0", "5 500 60.000001", "nan 0 0"] {
            assert_eq!(of_lease(numbers), None, "{numbers}");
        }
    }

    /// A record of 9 or 10 fields is one of rate.lua. Another mode or another program has written any other.
    #[test]
    fn a_record_beyond_all_reason_is_no_hint() {
        let hint = |record: &str| hint_of(record, 10_000_000);
        let known = hint("12000000 3.5 7.25 9000000 4000000 -1e16 0 -1e16 0").unwrap();
        assert_eq!((known.ahead_s, known.demand, known.since_s, known.age_s), (2.0, 3.5, 1.0, 6.0));
        assert!(hint("12000000 3.5 7.25 9000000 4000000 -1e16 0 -1e16 0 12100000,12300000").is_some());
        for record in [
            "",
            "nan 0 0 0 0 0 0 0 0",
            "0 -1 0 0 0 0 0 0 0",
            "1e300 0 0 0 0 0 0 0 0",
            "12000000 3.5 7.25 9000000",
            "5 20 1 0",
        ] {
            assert_eq!(hint(record), None, "{record}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_with_finite_numbers_or_none(
            numbers in "([-0-9nul.e]{0,20} ){3}[-0-9nul.e]{0,20}",
            text in "[-0-9naif.e:\"{} ]{0,40}",
        ) {
            let numbers = json(&["ahead_s", "demand", "slow_demand", "age_s"], &numbers);
            for (arguments, text) in arguments().iter().flat_map(|of| [(of, &numbers), (of, &text)]) {
                if let Some(Answer::Rate(reply)) = taken(arguments, text) {
                    prop_assert!(reply.ahead_s.is_finite() && reply.demand >= 0.0 && reply.age_s >= 0.0);
                }
            }
        }
    }
}
