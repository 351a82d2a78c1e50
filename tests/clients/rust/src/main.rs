//! rskafka, driven by a pipe: `clients BOOTSTRAP`, one JSON command a line in, one JSON line out, in order.
//! It is a client of single partitions: it has no groups, sends no settings, and knows no idempotence.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{engine::general_purpose::STANDARD, Engine};
use rskafka::chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use rskafka::BackoffConfig;
use serde_json::{json, Map, Value};

type Failure = Box<dyn std::error::Error>;

const TIMEOUT_MS: i32 = 10_000;
const FETCH_WAIT_MS: i32 = 100;
const FETCH_BYTES: i32 = 10_000_000;

fn bytes(text: &Value) -> Result<Option<Vec<u8>>, Failure> {
    Ok(text.as_str().map(|text| STANDARD.decode(text)).transpose()?)
}

fn text(data: Option<&Vec<u8>>) -> Value {
    data.map_or(Value::Null, |data| Value::String(STANDARD.encode(data)))
}

fn string(command: &Value, name: &str) -> Result<String, Failure> {
    Ok(command[name].as_str().ok_or_else(|| format!("no {name}"))?.to_owned())
}

fn number(command: &Value, name: &str) -> Result<i64, Failure> {
    Ok(command[name].as_i64().ok_or_else(|| format!("no {name}"))?)
}

fn time(milliseconds: i64) -> Result<DateTime<Utc>, Failure> {
    Ok(DateTime::from_timestamp_millis(milliseconds).ok_or("a time out of range")?)
}

fn codec(name: &str) -> Result<Compression, Failure> {
    Ok(match name {
        "none" => Compression::NoCompression,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        other => return Err(format!("no codec {other}").into()),
    })
}

fn record(message: &Value) -> Result<Record, Failure> {
    let mut headers = BTreeMap::new();
    for pair in message["headers"].as_array().into_iter().flatten() {
        let name = pair[0].as_str().ok_or("a header without a name")?;
        headers.insert(name.to_owned(), bytes(&pair[1])?.ok_or("a header must have a value")?);
    }
    let timestamp = match message["timestamp"].as_i64() {
        Some(milliseconds) => time(milliseconds)?,
        None => time(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)?,
    };
    Ok(Record { key: bytes(&message["key"])?, value: bytes(&message["value"])?, headers, timestamp })
}

async fn partition(client: &Client, command: &Value) -> Result<PartitionClient, Failure> {
    let (topic, partition) = (string(command, "topic")?, number(command, "partition")?);
    Ok(client.partition_client(topic, i32::try_from(partition)?, UnknownTopicHandling::Error).await?)
}

async fn write(client: &Client, command: &Value) -> Result<Value, Failure> {
    let messages = command["messages"].as_array().ok_or("no messages")?;
    let records = messages.iter().map(record).collect::<Result<Vec<_>, _>>()?;
    partition(client, command).await?.produce(records, codec(&string(command, "codec")?)?).await?;
    Ok(Value::Null)
}

async fn read(client: &Client, command: &Value) -> Result<Value, Failure> {
    let reader = partition(client, command).await?;
    let (mut next, count) = (number(command, "offset")?, usize::try_from(number(command, "count")?)?);
    let mut found = Vec::new();
    while found.len() < count {
        let (records, _) = reader.fetch_records(next, 1..FETCH_BYTES, FETCH_WAIT_MS).await?;
        for one in records {
            next = one.offset + 1;
            let headers: Vec<Value> =
                one.record.headers.iter().map(|(name, value)| json!([name, text(Some(value))])).collect();
            found.push(json!({
                "key": text(one.record.key.as_ref()),
                "value": text(one.record.value.as_ref()),
                "headers": headers,
                "timestamp": one.record.timestamp.timestamp_millis(),
                "offset": one.offset,
            }));
        }
    }
    found.truncate(count);
    Ok(Value::Array(found))
}

async fn answer(client: &Client, command: &Value) -> Result<Value, Failure> {
    match command["verb"].as_str().unwrap_or_default() {
        "write" => write(client, command).await,
        "read" => read(client, command).await,
        "offset_for_time" => {
            let at = OffsetAt::Timestamp(time(number(command, "timestamp")?)?);
            Ok(partition(client, command).await?.get_offset(at).await?.into())
        }
        "bounds" => {
            let asked = partition(client, command).await?;
            let low = asked.get_offset(OffsetAt::Earliest).await?;
            Ok(json!([low, asked.get_offset(OffsetAt::Latest).await?]))
        }
        "create_topic" => {
            let partitions = i32::try_from(number(command, "partitions")?)?;
            let controller = client.controller_client()?;
            controller.create_topic(string(command, "topic")?, partitions, 1, TIMEOUT_MS).await?;
            Ok(Value::Null)
        }
        "topics" => {
            let listed = client.list_topics().await?;
            let found: Map<String, Value> =
                listed.into_iter().map(|topic| (topic.name, topic.partitions.len().into())).collect();
            Ok(Value::Object(found))
        }
        "delete_records" => {
            let before = number(command, "before")?;
            partition(client, command).await?.delete_records(before, TIMEOUT_MS).await?;
            Ok(Value::Null)
        }
        "delete_topic" => {
            client.controller_client()?.delete_topic(string(command, "topic")?, TIMEOUT_MS).await?;
            Ok(Value::Null)
        }
        other => Err(format!("no verb {other}").into()),
    }
}

/// Kafka's name of an error of the broker. rskafka has the same names in another case, and keeps the numbers to itself.
fn name(error: ProtocolError) -> String {
    let mut name = String::new();
    for (at, letter) in format!("{error:?}").chars().enumerate() {
        if at > 0 && letter.is_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn refused(failure: &Failure) -> Value {
    let name = match failure.downcast_ref::<Error>() {
        Some(Error::ServerError { protocol_error, .. }) => Some(name(*protocol_error)),
        _ => None,
    };
    json!({"error": {"name": name, "message": failure.to_string()}})
}

async fn serve(bootstrap: String) -> Result<(), Failure> {
    // How long a client waits between two tries; by default it may be minutes, and it never gives up.
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_millis(500),
        base: 2.0,
        deadline: Some(Duration::from_secs(20)),
    };
    let client =
        ClientBuilder::new(vec![bootstrap]).client_id("rskafka").backoff_config(backoff).build().await?;
    for line in io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        let said = match answer(&client, &command).await {
            Ok(result) => json!({"result": result}),
            Err(failure) => refused(&failure),
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{said}")?;
        output.flush()?;
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let bootstrap = std::env::args().nth(1).ok_or("usage: clients BOOTSTRAP")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(bootstrap))
}
