//! What holds between processes: each child is this test program again, in a
//! role that an environment variable names.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use lease_core::{AcquireOutcome, LeaseBackend, ReleaseOutcome};
use lease_sqlite::sqlx;
use lease_sqlite::{SqliteOptions, SqliteStore};
use support::*;

/// One test at a time: each loads the machine with processes of its own.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const ROLE: &str = "LEASE_SQLITE_TEST_ROLE";
const FILE: &str = "LEASE_SQLITE_TEST_FILE";
const CHILD: [&str; 3] = ["child", "--exact", "--nocapture"];
const KEYS: [&str; 3] = ["one", "two", "three"];

/// Not a test in itself: what a child process runs.
#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let path = PathBuf::from(std::env::var(FILE).unwrap());
    match role.as_str() {
        "open" => open_once(&path).await,
        "hammer" => hammer(&path).await,
        "release" => release_on_demand(&path).await,
        "fill" => fill(&path).await,
        "lock" => lock(&path),
        #[cfg(target_os = "linux")]
        "many-files" => many_files(&path).await,
        #[cfg(target_os = "linux")]
        "crowded" => crowded(&path).await,
        other => panic!("no role {other:?}"),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@ {line}").unwrap();
    out.flush().unwrap();
}

fn hear() -> bool {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap() > 0
}

async fn open_once(path: &Path) {
    say("up");
    hear();
    // All must come up; how fast a loaded machine lets them is not the point.
    let patient = SqliteOptions::new(path).busy_wait(Duration::from_secs(30));
    let store = patient.open().await.unwrap();
    let own = request(&format!("process/{}", std::process::id()), 60_000);
    granted(store.acquire(&own).await.unwrap());
    say("opened");
    hear();
}

/// Keeps the folder locked until it is told.
fn lock(folder: &Path) {
    let folder = std::fs::File::open(folder).unwrap();
    folder.lock().unwrap();
    say("locked");
    hear();
}

/// Takes and gives back keys until it is killed; logs every token it got.
async fn hammer(path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    let mut log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path.with_extension("log"))
        .unwrap();
    for n in std::process::id() as usize.. {
        let name = KEYS[n % KEYS.len()];
        let mine = request(name, 80);
        let Ok(AcquireOutcome::Granted(got)) = store.acquire(&mine).await else {
            continue;
        };
        let line = format!("{} {name} {}\n", std::process::id(), got.token);
        log.write_all(line.as_bytes()).unwrap();
        match n % 5 {
            0 => {} // Left to expire.
            1 => drop(store.abandon(&mine.key, mine.owner).await),
            2 => drop(store.renew(&renewal(&mine, got.token)).await),
            _ => drop(store.release(&mine.key, mine.owner, got.token).await),
        }
    }
}

/// Holds "k", releases it when told, says when, and takes it again.
async fn release_on_demand(path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    loop {
        let mine = request("k", 60_000);
        let token = granted(store.acquire(&mine).await.unwrap()).token;
        say("held");
        if !hear() {
            return;
        }
        let released = store.release(&mine.key, mine.owner, token).await.unwrap();
        say(&now_us().to_string());
        assert_eq!(released, ReleaseOutcome::Released);
        if !hear() {
            return;
        }
    }
}

/// Acquires many keys and says how each went; goes on after failures.
async fn fill(path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    for n in 0..200 {
        let mine = request(&format!("fill/{n}"), 600_000);
        match store.acquire(&mine).await {
            Ok(outcome) => say(&format!("fill/{n} {}", granted(outcome).token)),
            Err(error) => say(&format!("{} {error}", error.kind())),
        }
    }
    say("end");
}

/// The stack of each thread: far more than anything else needs.
#[cfg(target_os = "linux")]
const STACK: u64 = 256 << 20;
#[cfg(target_os = "linux")]
const THREADS: &str = "LEASE_SQLITE_TEST_THREADS";

/// Opens a store where there is room for so many threads only, since that limit
/// binds the superuser as well.
#[cfg(target_os = "linux")]
async fn crowded(path: &Path) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let threads: u64 = std::env::var(THREADS).unwrap().parse().unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let used = pages * u64::try_from(rustix::param::page_size()).unwrap();
    let limit = Rlimit {
        current: Some(used + threads * STACK + STACK * 3 / 4),
        maximum: getrlimit(Resource::As).maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
    let tell = |what: &str, error: lease_core::StoreError| {
        say(&format!("{what} {} {error}", error.kind()));
    };
    let store = match SqliteStore::open(path).await {
        Ok(store) => store,
        Err(error) => return tell("open", error),
    };
    let name = format!("room for {threads}");
    granted(store.acquire(&request(&name, 60_000)).await.unwrap());
    match store.inspect(&key(&name)).await {
        Ok(state) => say(&format!("held {}", state.holder.is_some())),
        Err(error) => tell("inspect", error),
    }
}

/// Opens a store with room for ever more open files, and says how it went.
#[cfg(target_os = "linux")]
async fn many_files(path: &Path) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let limit = |current| {
        let maximum = before.maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut taken = Vec::new();
    limit(Some(100));
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    limit(Some(200));
    let full = open();
    for room in 0..20 {
        // A file that is to be made, and one that is there already.
        for extension in [&room.to_string(), "db"] {
            limit(Some(100));
            match open_and_use(&path.with_extension(extension)).await {
                Ok(()) => say(&format!("{room} ok")),
                Err(error) => say(&format!("{room} {} {error}", error.kind())),
            }
            // The store's threads close what they have open.
            limit(Some(200));
            let started = Instant::now();
            while open() > full - room {
                assert!(started.elapsed() < Duration::from_secs(10), "{}", open());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        taken.pop();
    }
    say("end");
}

#[cfg(target_os = "linux")]
async fn open_and_use(path: &Path) -> Result<(), lease_core::StoreError> {
    let store = SqliteStore::open(path).await?;
    let name = format!("k/{}", lease_core::Owner::random().unwrap());
    let mine = request(&name, 60_000);
    granted(store.acquire(&mine).await?);
    store.inspect(&mine.key).await?;
    store.abandon(&mine.key, mine.owner).await
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// A child that is killed when it goes out of scope, whatever the test does.
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, path: &Path) -> Self {
        Self::run(
            Command::new(std::env::current_exe().unwrap()).args(CHILD),
            role,
            path,
        )
    }

    fn run(command: &mut Command, role: &str, path: &Path) -> Self {
        let mut child = command
            .env(ROLE, role)
            .env(FILE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn tell(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }

    /// What the child says next.
    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "the child ended: {:?}", self.child.wait());
            // The harness writes "test child ... " before it, without a newline.
            if let Some((_, said)) = line.trim_end().split_once("@ ") {
                return said.to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn forty_processes_open_a_database_that_is_not_there_yet() {
    let _turn = TURN.lock().await;
    for round in 0..3 {
        let folder = Folder::new();
        let path = folder.file("new.db");
        let mut all: Vec<_> = (0..40).map(|_| Process::start("open", &path)).collect();
        all.iter_mut().for_each(|p| assert_eq!(p.says(), "up"));
        let started = Instant::now();
        all.iter_mut().for_each(Process::tell);
        all.iter_mut().for_each(|p| assert_eq!(p.says(), "opened"));
        println!("round {round}: 40 up after {:?}", started.elapsed());
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(store.list("process/").count().await, 40);
    }
}

/// As `flock FOLDER sleep 1000` would: whoever may read a folder may lock it.
#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_somebody_keeps_locked_stops_nobody() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let path = folder.file("locked.db");
    let mut locker = Process::start("lock", folder.path());
    assert_eq!(locker.says(), "locked");
    for name in ["missing", "there"] {
        let started = Instant::now();
        let store = SqliteStore::open(&path).await.unwrap();
        let opened = started.elapsed();
        assert!(opened < Duration::from_secs(2), "{name}: {opened:?}");
        // The reader opens a connection of its own.
        assert_eq!(store.inspect(&key(name)).await.unwrap().holder, None);
        granted(store.acquire(&request(name, 60_000)).await.unwrap());
        // Those who wait less get in as well.
        let hasty = SqliteOptions::new(&path).busy_wait(Duration::from_millis(100));
        let hasty = hasty.open().await.unwrap();
        hasty.inspect(&key(name)).await.unwrap();
    }
    // A file that is made anew while its clients run.
    let store = SqliteStore::open(&path).await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(folder.file(&format!("locked.db{suffix}"))).unwrap();
    }
    granted(store.acquire(&request("anew", 60_000)).await.unwrap());
    // Many at once then only take longer.
    let new = folder.file("new.db");
    let mut all: Vec<_> = (0..40).map(|_| Process::start("open", &new)).collect();
    all.iter_mut().for_each(|p| assert_eq!(p.says(), "up"));
    let started = Instant::now();
    all.iter_mut().for_each(Process::tell);
    all.iter_mut().for_each(|p| assert_eq!(p.says(), "opened"));
    println!("40 up without turns after {:?}", started.elapsed());
    locker.tell();
}

/// The store has two threads, and the driver one for each of two connections.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_a_thread_opening_is_unavailable_and_says_what_to_raise() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let path = folder.file("crowded.db");
    for (threads, wanted) in ["open", "open", "open", "inspect", "held"]
        .into_iter()
        .enumerate()
    {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(CHILD)
            .env(THREADS, threads.to_string())
            .env("RUST_MIN_STACK", STACK.to_string())
            // Else glibc reserves room for each thread's allocations.
            .env("MALLOC_ARENA_MAX", "1");
        let said = Process::run(&mut command, "crowded", &path).says();
        println!("room for {threads}: {said}");
        if wanted == "held" {
            assert_eq!(said, "held true");
            continue;
        }
        let expected = format!("{wanted} unavailable ");
        assert!(said.starts_with(&expected), "room for {threads}: {said}");
        assert!(said.contains("raise the limit of processes"), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_a_free_descriptor_opening_is_unavailable_and_says_what_to_raise() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let path = folder.file("files.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let mut child = Process::start("many-files", &path);
    let mut all = Vec::new();
    loop {
        let said = child.says();
        if said == "end" {
            break;
        }
        println!("{said}");
        all.push(said);
    }
    assert!(all[0].starts_with("0 unavailable"), "{}", all[0]);
    assert!(all.last().unwrap().ends_with(" ok"), "{all:?}");
    for said in all.iter().filter(|said| !said.ends_with(" ok")) {
        assert!(said.contains(" unavailable "), "{said}");
        assert!(said.contains("raise the limit of open files"), "{said}");
    }
}

fn logged(path: &Path) -> BTreeMap<String, Vec<(u32, u64)>> {
    let mut by_key: BTreeMap<String, Vec<(u32, u64)>> = BTreeMap::new();
    let log = std::fs::read_to_string(path.with_extension("log")).unwrap_or_default();
    for line in log.lines() {
        let words: Vec<_> = line.split(' ').collect();
        by_key
            .entry(words[1].to_owned())
            .or_default()
            .push((words[0].parse().unwrap(), words[2].parse().unwrap()));
    }
    by_key
}

#[tokio::test]
async fn tokens_rise_although_every_process_is_killed_again_and_again() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let path = folder.file("killed.db");
    for round in 0..12_u64 {
        let before: usize = logged(&path).values().map(Vec::len).sum();
        let all: Vec<_> = (0..5).map(|_| Process::start("hammer", &path)).collect();
        let started = Instant::now();
        // In mid-load: once enough was granted, and a different while later.
        while logged(&path).values().map(Vec::len).sum::<usize>() < before + 30 {
            assert!(started.elapsed() < Duration::from_secs(20), "no progress");
            std::thread::sleep(Duration::from_millis(3 + round));
        }
        all.into_iter().for_each(Process::kill);

        let store = SqliteStore::open(&path).await.unwrap();
        for (name, seen) in logged(&path) {
            // The dead holder's TTL is waited out, no more.
            let free = until(&store, &name, |s| s.holder.is_none()).await;
            let highest = seen.iter().map(|(_, token)| *token).max().unwrap();
            assert!(free.high_water.unwrap() >= token(highest));
            let mine = request(&name, 60_000);
            let got = granted(store.acquire(&mine).await.unwrap()).token;
            assert!(got > token(highest), "{name}: {got} after {highest}");
            let released = store.release(&mine.key, mine.owner, got).await.unwrap();
            assert_eq!(released, ReleaseOutcome::Released);
        }
    }
    let mut grants = 0;
    for (name, seen) in logged(&path) {
        grants += seen.len();
        let mut tokens: Vec<_> = seen.iter().map(|(_, token)| *token).collect();
        tokens.sort_unstable();
        let count = tokens.len();
        tokens.dedup();
        assert_eq!(tokens.len(), count, "{name}: a token was granted twice");
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        for (process, token) in seen {
            assert!(
                last.insert(process, token) < Some(token),
                "{name}: not rising"
            );
        }
    }
    println!("{grants} grants over 12 rounds of kill -9");
    let answer: String = sqlx::query_scalar("PRAGMA integrity_check")
        .fetch_one(&mut raw(&path).await)
        .await
        .unwrap();
    assert_eq!(answer, "ok");
}

#[tokio::test]
async fn forty_processes_on_three_keys_all_get_their_turn() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let path = folder.file("busy.db");
    let all: Vec<_> = (0..40).map(|_| Process::start("hammer", &path)).collect();
    let started = Instant::now();
    loop {
        let mut turns: BTreeMap<u32, usize> = BTreeMap::new();
        for (process, _) in logged(&path).into_values().flatten() {
            *turns.entry(process).or_default() += 1;
        }
        if turns.len() == all.len() {
            println!("all 40 had a turn after {:?}: {turns:?}", started.elapsed());
            break;
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "starved: {turns:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    all.into_iter().for_each(Process::kill);
}

#[tokio::test]
async fn a_waiter_hears_of_a_release_in_another_process_within_50_ms() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let path = folder.file("watched.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mut holder = Process::start("release", &path);
    let mut late_us = Vec::new();
    let mut hints = store.watch(&key("k")).await.unwrap();
    for _ in 0..11 {
        assert_eq!(holder.says(), "held");
        // Hints from before it was taken again are spurious, and allowed.
        while let Ok(Some(())) = tokio::time::timeout(Duration::from_millis(60), hints.next()).await
        {
        }
        holder.tell();
        let hint = tokio::time::timeout(Duration::from_secs(10), hints.next());
        assert_eq!(hint.await.unwrap(), Some(()));
        let heard_us = now_us();
        let released_us: u64 = holder.says().parse().unwrap();
        late_us.push(heard_us.saturating_sub(released_us));
        holder.tell();
    }
    late_us.sort_unstable();
    println!("hints came after (in microseconds): {late_us:?}");
    assert!(late_us[late_us.len() / 2] <= 50_000, "{late_us:?}");
}

/// Writes beyond a size fail, as on a disk that fails: in the commit, when the
/// log is written.
#[cfg(unix)]
#[tokio::test]
async fn a_commit_that_the_disk_refuses_is_told_and_nothing_granted_is_lost() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let path = folder.file("limited.db");
    let limited = "trap '' XFSZ; ulimit -f 400; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited]);
    command.arg(std::env::current_exe().unwrap()).args(CHILD);
    let mut child = Process::run(&mut command, "fill", &path);
    let (mut kept, mut failed) = (Vec::new(), Vec::new());
    loop {
        let said = child.says();
        match said.split_once(' ') {
            Some((name, number)) if name.starts_with("fill/") => {
                kept.push((name.to_owned(), token(number.parse().unwrap())));
            }
            Some((kind, words)) => failed.push((kind.to_owned(), words.to_owned())),
            None => break,
        }
    }
    println!(
        "{} granted, {} failed: {:?}",
        kept.len(),
        failed.len(),
        failed.first()
    );
    assert!(
        failed.iter().any(|(kind, _)| kind == "unknown_outcome"),
        "{failed:?}"
    );
    let store = SqliteStore::open(&path).await.unwrap();
    for (name, token) in kept {
        let state = store.inspect(&key(&name)).await.unwrap();
        assert_eq!(state.holder.unwrap().token, token, "{name}");
    }
    let answer: String = sqlx::query_scalar("PRAGMA integrity_check")
        .fetch_one(&mut raw(&path).await)
        .await
        .unwrap();
    assert_eq!(answer, "ok");
}
