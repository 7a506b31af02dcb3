//! The same servers, from an image: for versions that this machine has no
//! package of.
//!
//! ```no_run
//! use lease_conformance::servers::redis::RedisServer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = RedisServer::builder()
//!     .in_container("valkey/valkey", "8.1")
//!     .start()?;
//! server.command(&["PING"])?;
//! # Ok(())
//! # }
//! ```
//!
//! A container shares the machine's network and the server's folder, and runs
//! as the test's own user: ports, sockets, certificates and data are where they
//! are without a container, replicas find their primaries, and every operation
//! of a server does what it does to a process. That needs an engine on this
//! machine itself, on Linux.
//!
//! What differs: [`RedisServer::pid`](super::redis::RedisServer::pid) is `None`,
//! a pause is the engine's (it freezes the container), and **a container stays
//! behind when the test's process is killed**. All of them carry the label
//! `lease-conformance`: `docker rm --force $(docker ps --quiet --filter
//! label=lease-conformance)`.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{fmt, io};

use testcontainers::core::{Mount, client::docker_client_instance};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};
use tokio::runtime::{Builder, Runtime};

use super::ServerError;

/// An image with a server in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) tag: String,
}

/// Whether a Docker engine answers.
///
/// # Errors
/// [`ServerError::NoEngine`], which says what was tried.
pub fn engine() -> Result<(), ServerError> {
    on_a_runtime(async {
        let docker = docker_client_instance().await.map_err(no_engine)?;
        docker.ping().await.map(drop).map_err(no_engine)
    })?
}

fn no_engine(e: impl StdError + Send + Sync + 'static) -> ServerError {
    ServerError::NoEngine(Box::new(e))
}

/// A container that runs. Dropping it removes it.
pub(crate) struct Container {
    inner: Option<Arc<ContainerAsync<GenericImage>>>,
}

impl Container {
    /// Runs `program` in the image, in the place of what the image runs.
    pub(crate) fn start(
        image: &Image,
        program: &str,
        arguments: Vec<String>,
        folder: &Path,
    ) -> Result<Self, ServerError> {
        engine()?;
        let folder = folder.display().to_string();
        let user = rustix::process::getuid().as_raw();
        let group = rustix::process::getgid().as_raw();
        let request = GenericImage::new(image.name.clone(), image.tag.clone())
            .with_entrypoint(program)
            .with_cmd(arguments)
            .with_network("host")
            .with_mount(Mount::bind_mount(folder.clone(), folder))
            .with_user(format!("{user}:{group}"))
            .with_label("lease-conformance", "server");
        let started = on_a_runtime(async move { request.start().await })?;
        let inner = started.map_err(|e| failed("start a container", e))?;
        Ok(Self {
            inner: Some(Arc::new(inner)),
        })
    }

    pub(crate) fn ended(&self) -> Result<Option<String>, ServerError> {
        self.ask("look at a container", async |container| {
            if container.is_running().await? {
                return Ok(None);
            }
            let code = container.exit_code().await?;
            // What it said before it had a log.
            let mut said = container.stdout_to_vec().await?;
            said.extend(container.stderr_to_vec().await?);
            let said = String::from_utf8_lossy(&said).into_owned();
            let code = code.map_or("no exit code".to_owned(), |code| {
                format!("exit code {code}")
            });
            Ok(Some(format!("{code}, and said: {said}")))
        })
    }

    /// By its removal, which the engine begins with a kill.
    pub(crate) fn kill(mut self) -> Result<(), ServerError> {
        self.remove()
    }

    pub(crate) fn terminate(mut self, limit: Duration) -> Result<(), ServerError> {
        let seconds = i32::try_from(limit.as_secs()).unwrap_or(i32::MAX);
        self.ask("stop a container", async move |container| {
            container.stop_with_timeout(Some(seconds)).await
        })?;
        self.remove()
    }

    pub(crate) fn pause(&self) -> Result<(), ServerError> {
        self.ask("pause a container", async |container| {
            container.pause().await
        })
    }

    /// Nothing happens if it was not paused.
    pub(crate) fn resume(&self) -> Result<(), ServerError> {
        let resumed = self.ask("resume a container", async |container| {
            container.unpause().await
        });
        match resumed {
            Err(e) if e.to_string().contains("is not paused") => Ok(()),
            other => other,
        }
    }

    fn ask<T, F>(
        &self,
        what: &str,
        ask: impl FnOnce(Arc<ContainerAsync<GenericImage>>) -> F,
    ) -> Result<T, ServerError>
    where
        T: Send + 'static,
        F: Future<Output = testcontainers::core::error::Result<T>> + Send + 'static,
    {
        let inner = self.inner.as_ref().ok_or(ServerError::NotRunning)?;
        let asked = on_a_runtime(ask(Arc::clone(inner)))?;
        asked.map_err(|e| failed(what, e))
    }

    fn remove(&mut self) -> Result<(), ServerError> {
        // Nobody else has it: what was asked of it has ended.
        let Some(container) = self.inner.take().and_then(Arc::into_inner) else {
            return Ok(());
        };
        let removed = on_a_runtime(async move { container.rm().await })?;
        removed.map_err(|e| failed("remove a container", e))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // There is nobody to tell; its label finds it.
        let _ = self.remove();
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.inner.as_ref().map(|container| container.id());
        f.debug_tuple("Container").field(&id).finish()
    }
}

fn failed(what: &str, e: impl StdError + Send + Sync + 'static) -> ServerError {
    ServerError::Container {
        what: what.to_owned(),
        source: Box::new(e),
    }
}

/// On a runtime of the kit's own: a test may have one or none, and one that
/// ends would take the connection to the engine with it.
fn on_a_runtime<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ServerError> {
    static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("containers")
            .enable_all()
            .build()
    });
    let no_runtime = |e: String| ServerError::io("talk to the Docker engine", io::Error::other(e));
    let runtime = RUNTIME.as_ref().map_err(|e| no_runtime(e.to_string()))?;
    let (answer, answered) = channel();
    runtime.spawn(async move {
        let _ = answer.send(work.await);
    });
    answered
        .recv()
        .map_err(|_| no_runtime("the call to it panicked".into()))
}
