//! The retry policy that all clients share. tonic knows none, so it is kept here.

use std::error::Error;
use std::fs::File;
use std::time::Duration;

use serde_json::Value;
use tonic::{Code, Response, Status};

pub struct Policy {
    attempts: u64,
    first: Duration,
    longest: Duration,
    factor: f64,
}

impl Policy {
    /// The policy of the first method of a gRPC service config, whose code is UNAVAILABLE.
    pub fn read(path: &str) -> Result<Self, Box<dyn Error>> {
        let config: Value = serde_json::from_reader(File::open(path)?)?;
        let policy = &config["methodConfig"][0]["retryPolicy"];
        let seconds = |name: &str| -> Result<Duration, Box<dyn Error>> {
            let text = policy[name].as_str().ok_or("not a duration")?;
            Ok(Duration::from_secs_f64(text.trim_end_matches('s').parse()?))
        };
        Ok(Self {
            attempts: policy["maxAttempts"].as_u64().ok_or("no maxAttempts")?,
            first: seconds("initialBackoff")?,
            longest: seconds("maxBackoff")?,
            factor: policy["backoffMultiplier"].as_f64().ok_or("no backoffMultiplier")?,
        })
    }

    /// The response of a call that is made again while it is refused with UNAVAILABLE.
    pub async fn send<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<Response<T>, Status>,
    ) -> Result<Response<T>, Status> {
        let mut pause = self.first;
        for _ in 1..self.attempts {
            match call().await {
                Err(status) if status.code() == Code::Unavailable => {}
                other => return other,
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(self.factor).min(self.longest);
        }
        call().await
    }
}
