//! Payloads: from a value to bytes and back.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What kept a payload from being written or read.
pub type CodecError = Box<dyn std::error::Error + Send + Sync>;

/// Writes and reads payloads of `T`.
pub trait Codec<T>: Send + Sync + 'static {
    /// The bytes of a payload.
    ///
    /// # Errors
    /// What kept it from being written; nothing is put then.
    fn encode(payload: &T) -> Result<Bytes, CodecError>;

    /// The payload of these bytes.
    ///
    /// # Errors
    /// What kept it from being read: the attempt fails then, and the item is buried
    /// after its last one.
    fn decode(bytes: Bytes) -> Result<T, CodecError>;
}

/// Payloads as JSON, by serde; the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json;

/// Payloads as the bytes that they are: of [`Bytes`] or `Vec<u8>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(payload: &T) -> Result<Bytes, CodecError> {
        Ok(Bytes::from(serde_json::to_vec(payload)?))
    }

    fn decode(bytes: Bytes) -> Result<T, CodecError> {
        Ok(serde_json::from_slice(&bytes)?)
    }
}

impl Codec<Bytes> for Raw {
    fn encode(payload: &Bytes) -> Result<Bytes, CodecError> {
        Ok(payload.clone())
    }

    fn decode(bytes: Bytes) -> Result<Bytes, CodecError> {
        Ok(bytes)
    }
}

impl Codec<Vec<u8>> for Raw {
    fn encode(payload: &Vec<u8>) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(payload))
    }

    fn decode(bytes: Bytes) -> Result<Vec<u8>, CodecError> {
        Ok(Vec::from(bytes))
    }
}
